/* resume.h - where a run goes on from, and what becomes of checkpoints that it leaves behind.
 *
 * checkpoint.resume says where: auto (the newest complete checkpoint of the run directory, or a fresh start),
 * none, a step of the run directory, the path of a checkpoint, or that of another run (its newest). What is
 * asked for by name must be there.
 *
 * A run that does not go on from the newest checkpoint of its directory begins another history. The
 * checkpoints of the old one must not be taken for its own by the next automatic resume, and are not ours to
 * delete: they move to RUN/abandoned-N. */
#ifndef TN_TRAIN_RESUME_H
#define TN_TRAIN_RESUME_H
#include "base/config.h"

struct tn_resume {
    char *path;                                  /* of the checkpoint, owned; NULL: a fresh start */
    int64_t step;                                /* 0 for a fresh start */
    int own;                                     /* path is in the run directory */
    int newest;                                  /* chosen as the newest of the run directory, if any */
};

/* Only looks. run need not exist. */
tn_status tn_resume_find(const struct tn_config *c, const char *run, struct tn_resume *out);
void tn_resume_free(struct tn_resume *r);

/* Moves away what is not of the history that begins; the caller holds the run's lock. *moved: how many, to
 * where. */
tn_status tn_resume_set_aside(const char *run, const struct tn_resume *r, int64_t *moved, char *to,
                              size_t bytes);
#endif
