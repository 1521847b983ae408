/* dropout.c - masks from the counter-based generator, drawn in runs.
 *
 * tn_philox gives four numbers at a time; a run of elements draws its blocks side by side, so that the ten
 * rounds are vector code. The bits are those of tn_philox_at, element by element. */
#include <tenon/philox.h>
#include "cpu.h"
#include "half.h"

#define LANES 16 /* blocks of four numbers drawn side by side */
#define RUN 1024 /* elements at a time */

/* word[w][i]: number w of block first + i. */
static void draw(uint64_t seed, uint32_t key, uint32_t step, uint64_t first, uint32_t (*word)[LANES])
{
    uint32_t *x = word[0], *y = word[1], *z = word[2], *w = word[3];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (uint32_t i = 0; i < LANES; i++) {
        x[i] = (uint32_t)(first + i), y[i] = (uint32_t)((first + i) >> 32);
        z[i] = key, w[i] = step;
    }
    for (int round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < LANES; i++) {
            uint64_t p = (uint64_t)0xD2511F53u * x[i], q = (uint64_t)0xCD9E8D57u * z[i];

            x[i] = (uint32_t)(q >> 32) ^ y[i] ^ k0, y[i] = (uint32_t)q;
            z[i] = (uint32_t)(p >> 32) ^ w[i] ^ k1, w[i] = (uint32_t)p;
        }
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

void tn_cpu_philox_run(const uint32_t *seed_and_step, uint32_t key, uint64_t first, int64_t n, uint32_t *bits)
{
    uint64_t seed = (uint64_t)seed_and_step[1] << 32 | seed_and_step[0], end = first + (uint64_t)n;
    _Alignas(64) uint32_t word[4][LANES], number[4 * LANES];

    for (uint64_t block = first / 4; block * 4 < end; block += LANES) {
        uint64_t lo = TN_MAX(first, block * 4), hi = TN_MIN(end, (block + LANES) * 4);

        draw(seed, key, seed_and_step[2], block, word);
        for (uint32_t i = 0; i < LANES; i++)
            for (uint32_t w = 0; w < 4; w++)
                number[4 * i + w] = word[w][i];
        memcpy(bits + (lo - first), number + (lo - block * 4), (hi - lo) * sizeof *bits);
    }
}

struct dropout {
    uint32_t rank, key, threshold, dtype;
    int32_t micro_dim;
    float scale;
    int64_t size[TN_MAX_RANK], whole[TN_MAX_RANK], origin[TN_MAX_RANK];
    int64_t x[TN_MAX_RANK], y[TN_MAX_RANK]; /* strides */
};
struct run {
    const struct dropout *d;
    const struct tn_launch *l;
};

static void drop_row(const struct run *r, uint64_t g, const char *x, char *y)
{
    const struct dropout *d = r->d;
    int64_t n = d->size[d->rank - 1], sx = d->x[d->rank - 1], sy = d->y[d->rank - 1];
    int64_t width = tn_width(d->dtype);
    uint32_t bits[RUN];
    float kept[RUN];

    for (int64_t at = 0; at < n; at += RUN) {
        int64_t m = TN_MIN(RUN, n - at);

        tn_cpu_philox_run(r->l->uniform, d->key, g + (uint64_t)at, m, bits);
        tn_half_load(d->dtype, x + at * sx * width, sx, m, kept);
        for (int64_t i = 0; i < m; i++) {
            float scaled = kept[i] * d->scale;

            kept[i] = bits[i] >= d->threshold ? scaled : 0.0f;
        }
        tn_half_store(d->dtype, kept, sy, m, y + at * sy * width);
    }
}

static void drop_rows(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    const struct dropout *d = r->d;

    for (int64_t row = lo; row < hi; row++) {
        const char *x = r->l->buffer[0];
        char *y = r->l->buffer[1];
        int64_t width = tn_width(d->dtype);
        uint64_t g = (uint64_t)d->origin[d->rank - 1], scale = (uint64_t)d->whole[d->rank - 1];
        int64_t rest = row;

        if (d->micro_dim == (int32_t)d->rank - 1)
            g += (uint64_t)r->l->micro * scale;
        for (uint32_t k = d->rank - 1; k-- > 0; rest /= d->size[k]) {
            int64_t i = rest % d->size[k], global = d->origin[k] + i;

            global += d->micro_dim == (int32_t)k ? r->l->micro * d->whole[k] : 0;
            g += (uint64_t)global * scale, scale *= (uint64_t)d->whole[k];
            x += i * d->x[k] * width, y += i * d->y[k] * width;
        }
        drop_row(r, g, x, y);
    }
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct dropout *d = state;
    struct run r = {d, l};
    int64_t rows = 1;

    for (uint32_t k = 0; k + 1 < d->rank; k++)
        rows *= d->size[k];
    tn_host->parallel(rows, TN_MAX(1, 8192 / d->size[d->rank - 1]), drop_rows, &r);
    return TN_OK;
}

tn_status tn_cpu_prepare_dropout(const struct tn_problem *p, struct tn_kernel *out)
{
    const struct tn_operand *x = &p->in[0], *y = &p->out[0];
    double rate = tn_problem_float(p, "p", 0);
    struct dropout d = {.rank = x->rank, .key = (uint32_t)tn_problem_int(p, "key", 0)};

    d.micro_dim = (int32_t)tn_problem_int(p, "micro_dim", -1);
    d.threshold = tn_dropout_threshold(rate), d.scale = (float)(1.0 / (1.0 - rate));
    d.dtype = x->dtype;
    if ((d.dtype != TN_F32 && !tn_is_half(d.dtype)) || y->dtype != d.dtype || p->accumulate || !x->rank ||
        x->rank != y->rank || x->rank > TN_MAX_RANK)
        return TN_DECLINED;
    for (uint32_t k = 0; k < x->rank; k++) {
        if (x->index && x->index[k])
            return TN_DECLINED;
        d.size[k] = x->size[k], d.whole[k] = x->whole[k], d.origin[k] = x->origin[k];
        d.x[k] = x->stride[k], d.y[k] = y->stride[k];
    }
    out->launch = launch;
    return tn_keep(out, &d, sizeof d, p->op);
}
