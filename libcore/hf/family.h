/* family.h - the families of models that both sides know: a row for each, and what the rows are made of. */
#ifndef TN_HF_FAMILY_H
#define TN_HF_FAMILY_H
#include <jansson.h>
#include "base/arena.h"
#include "base/config.h"

/* A key of config.json that is one of ours. */
struct hf_key {
    const char *json, *key;
    uint32_t type;                               /* TN_KEY_INT, _FLOAT or _FLAG */
    const char *absent;                          /* what it is there if config.json says nothing; NULL: it must say it;
                                                    "": nothing then, or null, and our default */
};

/* A key of config.json that must have this value, in JSON; not being there is fine. What it is otherwise, for the message. */
struct hf_fixed {
    const char *json, *value, *otherwise;
};

/* Settings on their way from config.json; problems collect. */
struct hf_reader {
    const json_t *root;
    struct tn_config *config;
    struct tn_arena *arena;
    const char *path;
    struct hf_list *problems;
    char *note;                                  /* of the report */
    size_t note_room;
};

struct hf_family {
    const char *arch, *type, *architecture;      /* ours, model_type, and the class with a head */
    const char *prefix;                          /* before all names but the head's; files of a model without a head lack it */
    const char *embedding, *head;                /* where the head is tied the file may have it all the same, equal */
    const struct hf_key *keys;                   /* ends with {0} */
    const struct hf_fixed *fixed;                /* ends with {0} */
    const char *const *turned;                   /* ends of names of matrices that are [in, out] there; ends with NULL */
    const char *const *buffers;                  /* ends of names that hold no weights */
    uint32_t biases;                             /* 1: the class always has them; a model without gets zeros */
    void (*read)(struct hf_reader *r);           /* what no row says */
    void (*write)(const struct tn_config *c, json_t *root);
};

/* By model_type, else by architecture; NULL if there is none. */
const struct hf_family *hf_family_of(const json_t *root);
const struct hf_family *hf_family_find(const char *arch);
const char *hf_family_names(void);               /* "gpt2, llama" */

int hf_ends_with(const char *name, const char *const *ends);

/* --- lists of problems, a line each: the first lines are kept, all are counted */
struct hf_list {
    char text[4000];
    uint32_t lines, all;
};
__attribute__((format(printf, 2, 3))) void hf_list_add(struct hf_list *l, const char *fmt, ...);
/* TN_OK if it is empty; else TN_ERR_INPUT with the head line and the list. */
__attribute__((format(printf, 2, 3))) tn_status hf_list_end(struct hf_list *l, const char *fmt, ...);

/* --- config.json (config_json.c) */
/* The settings of a model, in a configuration that is checked; the caller frees it. */
tn_status hf_config_read(const char *dir, struct tn_arena *arena, const struct hf_family **family, struct tn_config **out, char *note,
                         size_t note_room);
/* The text, owned (free). dtype: of the weights, "float32"; end: the token that ends a text, -1 where none is known. NULL
 * without memory. */
char *hf_config_text(const struct hf_family *f, const struct tn_config *c, const char *dtype, int64_t end);
void hf_set(struct hf_reader *r, const char *key, const char *value);

/* --- which tensors a model has (tensors.c) */
struct hf_tensors {
    struct tn_graph *graph;                      /* owns all of it */
    uint32_t n;
    struct tn_session_tensor *tensor;            /* [n]: those of files, without places on a device */
    int64_t parameters;
};
/* full: with all biases that the family's class has. */
tn_status hf_tensors_of(const struct tn_config *c, const struct hf_family *f, int full, struct hf_tensors *out);
void hf_tensors_free(struct hf_tensors *t);
const struct tn_session_tensor *hf_tensors_find(const struct hf_tensors *t, const char *name);
#endif
