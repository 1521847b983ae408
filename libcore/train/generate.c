/* generate.c - tokens one after the other, with the keys and values of those before in caches.
 *
 * Two plans over the same caches: one that reads some tokens at once and gives nothing (a prompt, all but its
 * last token), one that takes the last token of each sample and gives the logits of what follows. All samples are at
 * the same position. Which positions are filled is the caller's to know; a position is written before it is seen. */
#include <string.h>
#include "train/session_own.h"
#include "base/status.h"

int tn_session_can_cache(const struct tn_session *s)
{
    return tn_engine_claims((void *)&s->engine, "store");
}

tn_status generate_open(struct tn_session *s)
{
    const struct tn_session_options *o = &s->options;
    int64_t samples = o->samples ? o->samples : 1, n = s->part[PREFILL].tokens.value->size[1];

    s->ids = tn_alloc(s->arena, (size_t)(samples * n) * sizeof *s->ids);
    s->places = tn_alloc(s->arena, (size_t)n * sizeof *s->places);
    return TN_OK;
}

/* n tokens, the same for all samples (stride 0) or those of each, at positions from `at` on; what is left is no token. */
static tn_status feed(struct tn_session *s, struct part *part, const int32_t *tokens, int64_t stride, int64_t n, int64_t at)
{
    const struct tn_value *v = part->tokens.value;
    int64_t samples = v->size[0], room = v->size[1];
    tn_status status;

    for (int64_t i = 0; i < room; i++)
        s->places[i] = i < n ? (int32_t)(at + i) : -1;
    for (int64_t b = 0; b < samples; b++)
        for (int64_t i = 0; i < room; i++)
            s->ids[b * room + i] = i < n ? tokens[b * stride + i] : 0;
    status = tn_run_feed(part->run, v, s->ids, (uint64_t)(samples * room) * sizeof *s->ids);
    return status ? status : tn_run_feed(part->run, part->positions, s->places, (uint64_t)room * sizeof *s->places);
}

tn_status tn_session_prefill(struct tn_session *s, const int32_t *tokens, int64_t stride, int64_t n, int64_t at)
{
    struct part *part = &s->part[PREFILL];
    int64_t most = part->tokens.value->size[1];
    tn_status status = TN_OK;

    for (int64_t done = 0; done < n && !status; done += most) {
        status = feed(s, part, tokens + done, stride, n - done < most ? n - done : most, at + done);
        if (!status)
            status = tn_run_step(part->run);
    }
    return status;
}

tn_status tn_session_decode(struct tn_session *s, const int32_t *tokens, int64_t position, float *logits)
{
    struct part *part = &s->part[DECODE];
    tn_status status = feed(s, part, tokens, 1, 1, position);

    if (!status)
        status = tn_run_step(part->run);
    return status ? status : tn_run_read(part->run, part->logits, 0, logits, tn_plan_bytes(part->plan, part->logits));
}
