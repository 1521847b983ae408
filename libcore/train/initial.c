/* initial.c - see initial.h. Normal numbers by Box-Muller over Philox (base/rng.h), in runs along the last dim. */
#include "train/initial.h"
#include "base/rng.h"
#include "base/status.h"
#include "model/model.h"

struct fill {
    const struct tn_param *p;
    const struct tn_local *l;
    uint64_t seed;
    int64_t first;                               /* of this rank's elements, in the local tensor before flat chunks */
    float *out;
};

/* Number, in the whole tensor, of local element i. */
static uint64_t element(const struct tn_value *v, const struct tn_local *l, int64_t i)
{
    uint64_t at = 0, scale = 1;

    for (uint32_t d = v->rank; d-- > 0;) {
        int64_t k = i % l->size[d];

        at += scale * (uint64_t)(l->index[d] ? l->index[d][k] : l->origin[d] + k);
        scale *= (uint64_t)v->size[d];
        i /= l->size[d];
    }
    return at;
}

static int is_whole(const struct tn_value *v, const struct tn_local *l)
{
    for (uint32_t d = 0; d < v->rank; d++)
        if (l->size[d] != v->size[d] || l->index[d])
            return 0;
    return 1;
}

/* Elements lo … hi - 1 of out. */
static void fill_normal(void *arg, int64_t lo, int64_t hi)
{
    const struct fill *f = arg;
    const struct tn_value *v = f->p->value;
    uint32_t last = v->rank - 1;
    int64_t row = is_whole(v, f->l) ? tn_value_count(v) : v->rank && !f->l->index[last] ? f->l->size[last] : 1;

    while (lo < hi) {
        int64_t at = f->first + lo, n = row - at % row;

        n = n < hi - lo ? n : hi - lo;
        tn_random_normals(f->seed, TN_STREAM_INIT + f->p->number, 0, element(v, f->l, at), (size_t)n, (float)f->p->spec.std, f->out + lo);
        lo += n;
    }
}

void tn_initial_weights(const struct tn_param *p, const struct tn_local *local, uint64_t seed, float *out)
{
    struct fill f = {p, local, seed, local->flat ? local->flat_start : 0, out};

    if (p->spec.init == TN_INIT_NORMAL) {
        tn_host->parallel(local->count, 16384, fill_normal, &f);
        return;
    }
    for (int64_t i = 0; i < local->count; i++)
        out[i] = p->spec.init == TN_INIT_ONE;
}
