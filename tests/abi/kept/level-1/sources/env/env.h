/* env.h - what the files of this plugin share: reading variables, and one pair of functions a launcher. */
#ifndef PLUGIN_ENV_H
#define PLUGIN_ENV_H
#include <tenon/bootstrap.h>

/* NULL where it is not set; set and empty counts as not set. */
const char *env_text(const char *name);
/* A decimal number from low to high; anything else, and a missing one, is an error that names the variable. */
tn_status env_number(const char *name, uint32_t low, uint32_t high, uint32_t *out);

/* Do its variables speak? Then locate fills all but struct_size; *out is zeroed before. */
int env_torchrun_here(void);
tn_status env_torchrun_locate(struct tn_place *out);
int env_slurm_here(void);
tn_status env_slurm_locate(struct tn_place *out);

#define ENV_MAX_RANKS 10000000u
#define ENV_PORTS 16u                            /* tried, where the first may be somebody else's */
#endif
