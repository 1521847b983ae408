/* choose.c - see choose.h. */
#include "train/choose.h"

#include "base/rng.h"
#include "model/model.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    double weight;                               /* exp((logit - largest) / temperature) */
    int64_t id;
};
struct tn_chooser {
    struct tn_choice choice;
    int64_t vocab;
    struct candidate *candidate;                 /* [vocab] */
};

tn_status tn_chooser_new(int64_t vocab, const struct tn_choice *choice, struct tn_chooser **out)
{
    struct tn_chooser *c = calloc(1, sizeof *c);

    *out = c;
    if (c)
        *c = (struct tn_chooser){*choice, vocab, calloc((size_t)vocab, sizeof *c->candidate)};
    if (c && c->candidate)
        return TN_OK;
    tn_chooser_free(c);
    *out = NULL;
    return tn_error(TN_ERR_MEMORY, "no memory to choose among %lld tokens", (long long)vocab);
}

void tn_chooser_free(struct tn_chooser *c)
{
    if (c)
        free(c->candidate);
    free(c);
}

/* -1 if one is not finite. */
static int64_t largest(const float *logits, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(logits[i]))
            return -1;
        if (logits[i] > logits[best])
            best = i;
    }
    return best;
}

/* Heaviest first. */
static int order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* How many of the sorted candidates stay, at least one. */
static int64_t kept(const struct tn_chooser *c)
{
    int64_t n = c->choice.top_k > 0 && c->choice.top_k < c->vocab ? c->choice.top_k : c->vocab, k = 0;
    double all = 0, sum = 0;

    for (int64_t i = 0; i < n; i++)
        all += c->candidate[i].weight;
    while (k < n && (k == 0 || sum < c->choice.top_p * all))
        sum += c->candidate[k++].weight;
    return k;
}

static int64_t draw(const struct tn_chooser *c, int64_t n, double u)
{
    double all = 0, sum = 0;

    for (int64_t i = 0; i < n; i++)
        all += c->candidate[i].weight;
    for (int64_t i = 0; i < n; i++)
        if ((sum += c->candidate[i].weight) > u * all)
            return c->candidate[i].id;
    return c->candidate[0].id;                   /* u · all was rounded up to all */
}

tn_status tn_choose(struct tn_chooser *c, const float *logits, int64_t position, int64_t *id)
{
    int64_t best = largest(logits, c->vocab);

    if (best < 0)
        return tn_error(TN_ERR_NUMBER, "non-finite logits at position %lld", (long long)position);
    *id = best;
    if (c->choice.temperature <= 0)
        return TN_OK;
    for (int64_t i = 0; i < c->vocab; i++)
        c->candidate[i] =
            (struct candidate){exp(((double)logits[i] - logits[best]) / c->choice.temperature), i};
    qsort(c->candidate, (size_t)c->vocab, sizeof *c->candidate, order);
    *id = draw(c, kept(c), tn_random_uniform(c->choice.seed, TN_STREAM_SAMPLE, 0, (uint64_t)position));
    return TN_OK;
}
