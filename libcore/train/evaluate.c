/* evaluate.c - see evaluate.h. */
#include "train/evaluate.h"

double tn_mean_value(const struct tn_mean *m)
{
    return m->count > 0 ? m->sum / m->count : 0;
}

tn_status tn_evaluate(struct tn_session *s, const struct tn_sampler *sampler, int64_t first, int64_t count,
                      int32_t *tokens, int32_t *targets, struct tn_mean *m)
{
    int64_t batch = tn_session_shape(s)->eval_batch;
    tn_status status = TN_OK;

    for (int64_t at = first; at < first + count && status == TN_OK; at += batch) {
        double sum = 0, valid = 0;
        status = tn_sampler_eval_fill(sampler, (uint64_t)at, (uint64_t)batch, tokens, targets);
        if (status == TN_OK)
            status = tn_session_evaluate(s, tokens, targets, &sum, &valid);
        m->sum += sum;
        m->count += valid;
    }
    return status;
}
