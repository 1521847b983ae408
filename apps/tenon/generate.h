/* generate.h - the logits of what follows some texts that are made together. */
#ifndef TENON_GENERATE_H
#define TENON_GENERATE_H
#include "train/session.h"

struct generator {
    struct tn_session *session;
    int64_t samples, chunk;                      /* texts; tokens that are read at once, at most. Set before planning */
    int64_t length, vocab;                       /* length: tokens that the model sees at most */
    int64_t first, filled;                       /* of the caches: which token is at position 0, how many are there */
    int32_t *last;                               /* [samples]; without caches the window, [length] */
    float *all;                                  /* without caches: [length, vocab] */
    uint32_t cached;
};

/* What the session is opened for, and samples and chunk of g settled. prompt: tokens of a text at the beginning; end:
 * at the end. wanted: with caches, if the kernels have what it takes. */
void generator_plan(struct generator *g, struct tn_session *s, int64_t prompt, int64_t end, int wanted, struct tn_session_options *out);
/* Once the session is open. */
tn_status generator_open(struct generator *g);
void generator_close(struct generator *g);
/* ids: those of text b at ids + b * stride, count of each; logits [samples, vocab]. */
tn_status generator_next(struct generator *g, const int32_t *ids, int64_t stride, int64_t count, float *logits);
#endif
