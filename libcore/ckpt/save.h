/* save.h - one checkpoint on its way to the disk.
 *
 * begin makes a hidden directory, files are written into it, commit adds state.json, syncs, and gives the
 * directory its name in one rename. Until then, and after any failure, the run is as it was: earlier
 * checkpoints are never touched. The caller holds the run's lock (rundir.h). */
#ifndef TN_CKPT_SAVE_H
#define TN_CKPT_SAVE_H
#include "ckpt/state.h"

struct tn_save;
tn_status tn_save_begin(const char *run, int64_t step, struct tn_save **out);

/* The hidden directory; borrowed, lives as long as s. */
const char *tn_save_folder(const struct tn_save *s);
/* Where to write a file of this name; borrowed, lives as long as s. */
const char *tn_save_path(struct tn_save *s, const char *name);
/* The file was written there and synced, as tn_sink and tn_safetensors_commit do. */
void tn_save_add(struct tn_save *s, const char *name, uint64_t bytes, uint64_t hash);
/* A small file, all at once. */
tn_status tn_save_put(struct tn_save *s, const char *name, const void *data, uint64_t bytes);

/* Takes s, also on failure. Of state: seed, config, data and tokenizer; the rest is known here. A checkpoint
 * of the same step is replaced. */
tn_status tn_save_commit(struct tn_save *s, const struct tn_saved *state);
/* Takes s; NULL is fine. */
void tn_save_abort(struct tn_save *s);
#endif
