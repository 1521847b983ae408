/* commands.h - the commands of the program: one file and one const description each.
 *
 * cmd_NAME.c defines `const struct command NAME_command` and its function; main.c has the table. The
 * description makes the help, the manual page and the check of the command line, so they cannot disagree. */
#ifndef TENON_COMMANDS_H
#define TENON_COMMANDS_H
#include <tenon/abi.h>

/* An option of a command, --name VALUE or --name=VALUE; without `value` a flag. Designate the fields:
 * {.name = "steps", .value = "K", .help = "Updates to make", .type = TN_KEY_INT, .low = 1, .high = 1e9,
 * .preset = "1"} */
struct option {
    const char *name;                            /* without dashes */
    const char *value;                           /* what stands for it in the help, "FILE"; NULL: a flag */
    const char *help;                            /* one sentence, without a full stop */
    uint32_t type; /* TN_KEY_TEXT (also 0), _INT, _FLOAT or _CHOICE of base/config.h */
    double low, high;                            /* of numbers, inclusive; both 0: no limit */
    const char *choices;                         /* separated by | */
    const char *preset;                          /* default, or NULL */
};

struct command {
    const char *name;                            /* one word or two: "plugins check" */
    const char *help;                            /* one line, without a full stop */
    const char *usage;                           /* what follows the name: "[CFG] [section.key=value ...]" */
    const char *detail; /* a paragraph for the help and the manual page; may be NULL */
    const struct option *options;                /* ends with {0}; may be NULL */
    uint32_t files_min, files_max;               /* arguments that are neither options nor settings */
    uint32_t settings;                           /* 1: takes section.key=value */
    int (*run)(int argc, char **argv);           /* argv[0] is the command's name; returns the exit status */
};

extern const struct command *const commands[];   /* ends with NULL, in the order of the help */

extern const struct command bench_command;
extern const struct command prepare_command;
extern const struct command check_command;
extern const struct command config_command;
extern const struct command export_command;
extern const struct command help_command;
extern const struct command import_command;
extern const struct command new_command;
extern const struct command plan_command;
extern const struct command plugins_command;
extern const struct command probe_command;
extern const struct command sample_command;
extern const struct command step_command;
extern const struct command train_command;
extern const struct command verify_command;

/* NULL if there is none of this name. */
const struct command *command_find(const char *name);
/* TN_ERR_CONFIG with the nearest known command. */
tn_status command_unknown(const char *name);

/* Ends a command: prints the error, if it is one, and gives the exit status. */
int command_end(tn_status status);
#endif
