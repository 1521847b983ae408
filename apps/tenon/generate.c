/* generate.c - see generate.h.
 *
 * With caches a new token costs one token's work. Positions count from the first token in sight, so as soon as a text
 * is longer than the window everything in the caches is one position off, and the window is read anew for each token,
 * as without caches: both ways see the same tokens at the same positions, always. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "generate.h"

/* A short prompt needs no plan for a long one, unless the window will slide. */
static int64_t read_at_once(const struct generator *g, int64_t prompt, int64_t end)
{
    int64_t n = end > tn_session_seq_len(g->session) ? tn_session_seq_len(g->session) : prompt - 1;

    return n < 1 ? 1 : n < g->chunk ? n : g->chunk;
}

void generator_plan(struct generator *g, struct tn_session *s, int64_t prompt, int64_t end, int wanted, struct tn_session_options *out)
{
    g->session = s;
    g->cached = (uint32_t)(wanted && tn_session_can_cache(s));
    if (wanted && !g->cached)
        tn_host->log(2, "no kernel plugin here has store: each token is made without caches, from the whole window");
    *out = (struct tn_session_options){.use = g->cached ? TN_SESSION_GENERATE : TN_SESSION_LOGITS, .samples = g->samples,
                                       .chunk = read_at_once(g, prompt, end)};
}

tn_status generator_open(struct generator *g)
{
    g->vocab = tn_session_model(g->session)->vocab_size;
    g->length = tn_session_shape(g->session)->seq_len;
    g->last = calloc((size_t)(g->cached ? g->samples : g->length), sizeof *g->last);
    g->all = g->cached ? NULL : calloc((size_t)g->length * (size_t)g->vocab, sizeof *g->all);
    return g->last && (g->all || g->cached) ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory for the logits of %" PRId64 " tokens", g->length);
}

void generator_close(struct generator *g)
{
    free(g->last);
    free(g->all);
}

static tn_status from_window(struct generator *g, const int32_t *ids, int64_t seen, float *logits)
{
    tn_status status;

    memcpy(g->last, ids, (size_t)seen * sizeof *g->last);
    status = tn_session_logits(g->session, g->last, g->all);
    memcpy(logits, g->all + (seen - 1) * g->vocab, (size_t)g->vocab * sizeof *logits);
    return status;
}

static tn_status from_caches(struct generator *g, const int32_t *ids, int64_t stride, int64_t seen, int64_t first, float *logits)
{
    tn_status status;

    if (g->first != first)
        g->first = first, g->filled = 0;
    status = tn_session_prefill(g->session, ids + g->filled, stride, seen - 1 - g->filled, g->filled);
    g->filled = seen;
    for (int64_t b = 0; b < g->samples; b++)
        g->last[b] = ids[b * stride + seen - 1];
    return status ? status : tn_session_decode(g->session, g->last, seen - 1, logits);
}

tn_status generator_next(struct generator *g, const int32_t *ids, int64_t stride, int64_t count, float *logits)
{
    int64_t seen = count < g->length ? count : g->length, first = count - seen;
    tn_status status = TN_OK;

    if (g->cached)
        return from_caches(g, ids + first, stride, seen, first, logits);
    for (int64_t b = 0; b < g->samples && !status; b++)
        status = from_window(g, ids + b * stride + first, seen, logits + b * g->vocab);
    return status;
}
