/* sampler.c - see sampler.h. */
#include "data/sampler.h"

#include "base/rng.h"
#include "data/permute.h"

tn_status tn_sampler_init(struct tn_tokens *tokens, const char *split, uint32_t order, uint64_t seed,
                          int64_t seq_len, int64_t global_batch, struct tn_sampler *out)
{
    char name[32];

    snprintf(name, sizeof name, "data.%s", split);
    *out = (struct tn_sampler){.tokens = tokens,
                               .seed = seed,
                               .seq_len = seq_len,
                               .global_batch = global_batch,
                               .order = order,
                               .stream = tn_random_stream(name)};
    return tn_tokens_fit(tokens, seq_len);
}

uint64_t tn_sampler_windows(const struct tn_sampler *s)
{
    return (s->tokens->count - 1) / (uint64_t)s->seq_len;
}

static uint64_t starts(const struct tn_sampler *s)
{
    return s->tokens->count - (uint64_t)s->seq_len;
}

uint64_t tn_sampler_start(const struct tn_sampler *s, uint64_t step, uint64_t i)
{
    if (s->order == TN_ORDER_RANDOM)
        return tn_random_below(s->seed, s->stream, (uint32_t)step, i, starts(s));
    uint64_t place = step * (uint64_t)s->global_batch + i, windows = tn_sampler_windows(s);
    return (uint64_t)s->seq_len *
           tn_permute(s->seed, s->stream, (uint32_t)(place / windows), place % windows, windows);
}

/* Evaluation has the step that training never reaches. */
uint64_t tn_sampler_eval_start(const struct tn_sampler *s, uint64_t j)
{
    return tn_random_below(s->seed, s->stream, UINT32_MAX, j, starts(s));
}

/* One window, read once: the inputs, and the last target from the file; the other targets are inputs. */
static tn_status fill_one(const struct tn_sampler *s, uint64_t start, int32_t *tokens, int32_t *targets)
{
    uint64_t n = (uint64_t)s->seq_len;
    tn_status status = tn_tokens_read(s->tokens, start, n, tokens);

    memcpy(targets, tokens + 1, (size_t)(n - 1) * sizeof *targets);
    return status < 0 ? status : tn_tokens_read(s->tokens, start + n, 1, targets + n - 1);
}

tn_status tn_sampler_fill(const struct tn_sampler *s, uint64_t step, uint64_t first, uint64_t count,
                          int32_t *tokens, int32_t *targets)
{
    tn_status status = TN_OK;

    for (uint64_t k = 0; k < count && status == TN_OK; k++, tokens += s->seq_len, targets += s->seq_len)
        status = fill_one(s, tn_sampler_start(s, step, first + k), tokens, targets);
    return status;
}

tn_status tn_sampler_eval_fill(const struct tn_sampler *s, uint64_t first, uint64_t count, int32_t *tokens,
                               int32_t *targets)
{
    tn_status status = TN_OK;

    for (uint64_t k = 0; k < count && status == TN_OK; k++, tokens += s->seq_len, targets += s->seq_len)
        status = fill_one(s, tn_sampler_eval_start(s, first + k), tokens, targets);
    return status;
}
