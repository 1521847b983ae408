/* checkpoint.h - a session's tensors on the disk, and back.
 *
 *   step-00000100/
 *     model-00001-of-00001.safetensors       parameters by name in their file shapes, tied ones once
 *     model.safetensors.index.json           which file has which parameter, as Hugging Face writes it; not there
 *                                            where parameters are in parts
 *     optimizer-00001-of-00001.safetensors   slots, "NAME:SLOT"
 *     tokenizer.json                         a copy, so that the directory alone can generate
 *     state.json                             step, seed, configuration, data, scale of the loss (ckpt/state.h)
 *
 * Where ranks hold parts and share the folder each of them writes a file of its own (model-00002-of-00004) with the parts
 * that it owns, as part.h has it; else rank 0 gathers whole tensors. Both are read by any number of ranks.
 *
 * Nothing else is needed to go on to the bit: which data come next and what the dropout masks are follow from
 * the seed and the step. Loading is checked as a whole before the first tensor of the session changes. */
#ifndef TN_TRAIN_CHECKPOINT_H
#define TN_TRAIN_CHECKPOINT_H
#include "base/config.h"
#include "ckpt/state.h"
#include "data/dataset.h"
#include "train/session.h"

/* --- saving */
/* Into RUN/step-STEP, whole or not at all; rank 0 holds the run's lock. All ranks together, with the same result.
 * together: every rank writes what it owns, which needs one folder for all; 0: rank 0 gathers and writes. */
tn_status tn_checkpoint_save(struct tn_session *s, const struct tn_config *c, const struct tn_dataset *data,
                             const char *run, int64_t step, int together);
/* Bytes that it will take, nearly. */
uint64_t tn_checkpoint_bytes(const struct tn_session *s);

#define TN_CHECKPOINT_PART "part."               /* before a tensor's name, a key of a file's metadata */

/* --- loading */
struct tn_checkpoint;
/* dir: the checkpoint's own. Complete by its sizes; checksums are read by tn_checkpoint_match. */
tn_status tn_checkpoint_open(const char *dir, struct tn_checkpoint **out);
void tn_checkpoint_close(struct tn_checkpoint *k);         /* NULL is fine */
const struct tn_saved *tn_checkpoint_state(const struct tn_checkpoint *k);

/* Are the keys that make the model, and the optimizer's name, those of the checkpoint? TN_ERR_INPUT names
 * those that are not. */
tn_status tn_checkpoint_match_config(const struct tn_checkpoint *k, const struct tn_config *c);
/* Same tokenizer, same training text? */
tn_status tn_checkpoint_match_data(const struct tn_checkpoint *k, const struct tn_dataset *data);
/* Does every tensor of the session have its like in the files, and are the files undamaged? slots: the
 * optimizer's too. The session is not changed. */
tn_status tn_checkpoint_match(struct tn_checkpoint *k, const struct tn_session *s, int slots);
/* After tn_checkpoint_match. */
tn_status tn_checkpoint_load(struct tn_checkpoint *k, struct tn_session *s, int slots);

/* 0: weights alone, as an imported model has them; an optimizer begins anew. */
int tn_checkpoint_has_slots(const struct tn_checkpoint *k);

/* Without a session: are these n tensors the model's, all of them, and are the files undamaged? Then, each: the whole of
 * it, wherever its parts lie; bytes of it. Of t only name, value, dtype, shape and bytes are looked at. */
tn_status tn_checkpoint_match_tensors(struct tn_checkpoint *k, const struct tn_session_tensor *t, uint32_t n);
tn_status tn_checkpoint_whole(const struct tn_checkpoint *k, const struct tn_session_tensor *t, void *whole);

/* What differs in the configuration though it may: "optimizer.lr 1e-3 -> 1e-4, …"; "" if nothing.
 * Returns out. */
const char *tn_checkpoint_changes(const struct tn_checkpoint *k, const struct tn_config *c, char *out,
                                  size_t bytes);
#endif
