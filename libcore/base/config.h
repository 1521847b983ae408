/* config.h - what the user asked for, checked, and where each value came from.
 *
 * Values come from defaults, a case file, the INI file and `section.key=value` arguments; later ones win. One
 * table of keys (keys.c), to which loaded plugins add their options, says what is allowed, and makes the help
 * and the man page. The way through:
 *
 *     tn_config_open      reads all; a file that cannot be read is the check's to say, so that of many ranks one says it
 *     tn_config_case, tn_config_add          as needed; the keys that say which plugins can be read already
 *     tn_config_check     every problem of the whole configuration in one error, a line each
 *
 * Getters take "section.key", parse on each call and give the default where the value is no good, so that
 * they can be used before the check; a name that is no key is a mistake of the program and ends it. After the
 * check a configuration is read only but for tn_config_settle; texts live as long as it. */
#ifndef TN_BASE_CONFIG_H
#define TN_BASE_CONFIG_H
#include <tenon/abi.h>

#define TN_KEY_INT 1u                            /* decimal digits and a sign */
#define TN_KEY_FLOAT 2u
#define TN_KEY_FLAG 3u                           /* yes no true false on off 1 0 */
#define TN_KEY_TEXT 4u
#define TN_KEY_CHOICE 5u                         /* one word of choices */
#define TN_KEY_LIST 6u                           /* words separated by commas */

struct tn_key {
    const char *section, *name;
    uint32_t type;
    uint32_t shared;    /* 1: a plugin may have an option of this name, and reads this key */
    const char *preset; /* default as in the file; NULL: unset, and otherwise says more */
    const char *otherwise;                       /* what holds while it is unset */
    double low, high;                            /* inclusive; INFINITY: no limit */
    const char *unit, *choices;                  /* or NULL; choices are separated by | */
    const char *help;                            /* one sentence, without a full stop */
};

/* The core's keys, in the order in which they are shown, ends with section NULL; and its sections. */
extern const struct tn_key tn_keys[];
struct tn_section {
    const char *name, *help;
};
extern const struct tn_section tn_sections[];    /* ends with name NULL */

/* A key's values in words, "1 to 1024 sequences", "fp32, bf16 or fp16". Returns out. */
const char *tn_key_range(const struct tn_key *key, char *out, size_t bytes);

struct tn_config;
struct json_t;

/* path NULL: no file. Borrows path and overrides for the call. Returns owned. */
tn_status tn_config_open(const char *path, int n, char *const *overrides, struct tn_config **out);
/* TN_OK, or why the file could not be read, for those that go on without a check. */
tn_status tn_config_unread(const struct tn_config *c);
void tn_config_free(struct tn_config *c);        /* NULL is fine */

/* A value from a case or checkpoint file: weaker than the INI file. What is wrong with it, the check says. */
void tn_config_case(struct tn_config *c, const char *key, const char *value);

/* The options of plugin `owner` become keys of the section. Borrows options, which end with {0}; NULL is
 * fine. A preset of yes or no makes a flag, low and high both 0 a text, all others are floats. Two plugins
 * may have the same option if it is the same in all but the help. */
tn_status tn_config_add(struct tn_config *c, const char *section, const struct tn_option *options,
                        const char *owner);

/* A problem that another part found, for the list that the check gives; key says where it is, may be NULL. */
__attribute__((format(printf, 3, 4)))
void tn_config_problem(struct tn_config *c, const char *key, const char *fmt, ...);
/* The plugin whose options belong to this section could not be had: its unknown keys are not reported. */
void tn_config_excuse(struct tn_config *c, const char *section);
tn_status tn_config_check(struct tn_config *c);

int64_t tn_config_int(const struct tn_config *c, const char *key);           /* 0 while unset */
double tn_config_float(const struct tn_config *c, const char *key);          /* of ints and flags too */
int tn_config_flag(const struct tn_config *c, const char *key);
const char *tn_config_text(const struct tn_config *c, const char *key); /* NULL while unset; of any type */
/* The words of a list, ending with NULL; returns their number. */
size_t tn_config_list(struct tn_config *c, const char *key, const char *const **words);
int tn_config_is(const struct tn_config *c, const char *key, const char *word);  /* text equal to word */

int tn_config_has(const struct tn_config *c, const char *key);               /* is it a key at all? */
int tn_config_is_set(const struct tn_config *c, const char *key);            /* did the user say it? */
const char *tn_config_origin(const struct tn_config *c,
                             const char *key);         /* "run.ini:7", "command line", "default" */
const char *tn_config_path(const struct tn_config *c); /* of the INI file, NULL without */

/* The value of a key that was left open, once it is known; the user's word stays. Origin "derived". */
__attribute__((format(printf, 3, 4)))
void tn_config_settle(struct tn_config *c, const char *key, const char *fmt, ...);

/* The known key that an unknown name, "section.key" or "key", seems to mean; NULL if there is none near. */
const char *tn_config_nearest(const struct tn_config *c, const char *name);

/* TN_ERR_CONFIG with "run.ini:7: section.key = value: " before the sentence. */
__attribute__((format(printf, 3, 4)))
tn_status tn_config_fail(const struct tn_config *c, const char *key, const char *fmt, ...);

/* All keys, the plugins' too: i = 0, 1, … until it returns 0. */
struct tn_config_entry {
    const struct tn_key *key;
    const char *name, *value, *origin;           /* name: section.key; value NULL: unset */
    const char *owner;                           /* plugin, NULL: the core */
};
int tn_config_at(const struct tn_config *c, size_t i, struct tn_config_entry *out);

/* {"section.key": "value", …} of all keys that have a value. Returns owned (json_decref). */
struct json_t *tn_config_json(const struct tn_config *c);
#endif
