/* kernels.c - five operations by loops, right without BROKEN; with -DBROKEN=n one mistake that tenon plugins check finds.
 *
 *    1  the last element is not written              8  takes every operand for dense
 *    2  writes behind the output                     9  keeps what prepare had borrowed
 *    3  writes between the elements of a view       10  makes 0 of NaN
 *    4  changes its input                           11  reads in front of its input
 *    5  other bits in the next launch               12  does not come back where a sum is long
 *    6  other bits with another number of threads   13  off by a ten-thousandth
 *    7  adds where it shall overwrite               14  writes behind its workspace
 *   15  ends the process                            16  takes bf16 for fp32's upper half without rounding
 *   17  refuses with an error what it could decline 18  adds up in the order of threads
 *   19  wrong once it has prepared 30 kernels       20  crashes in one problem of many */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <tenon/kernels.h>
#include <unistd.h>

#ifndef BROKEN
#define BROKEN 0
#endif
#define IS(n) (BROKEN == (n))

static int prepared;

struct nest {
    struct tn_loop loop[2 * TN_MAX_RANK + 1];
    const struct tn_loop *walked;                /* the own copy */
    uint32_t n, reduced, n_in, accumulate, dtype[3];
    int64_t elements;                            /* of the output */
    int is_product;
};

static double number_at(uint32_t dtype, const void *base, int64_t i)
{
    uint32_t bits;
    float f;

    if (dtype == TN_I32)
        return ((const int32_t *)base)[i];
    if (dtype == TN_F32)
        return (double)((const float *)base)[i];
    bits = (uint32_t)((const uint16_t *)base)[i] << 16;
    return memcpy(&f, &bits, sizeof f), (double)f;
}

static void write_number(uint32_t dtype, void *base, int64_t i, double v)
{
    float f = (float)v;
    uint32_t bits;

    if (dtype == TN_I32) {
        ((int32_t *)base)[i] = (int32_t)v;
    } else if (dtype == TN_F32) {
        ((float *)base)[i] = f;
    } else {
        memcpy(&bits, &f, sizeof bits);
        if (!IS(16) && f == f)
            bits += 0x7fff + (bits >> 16 & 1);
        ((uint16_t *)base)[i] = (uint16_t)(bits >> 16);
    }
}

/* Sum over the reduced loops of the input, or of the product of both. */
static double contract(const struct nest *k, uint32_t depth, void *const *buffer, const int64_t *at)
{
    double sum = 0;

    if (depth == k->n) {
        const double a = number_at(k->dtype[0], buffer[0], at[0]);

        return k->is_product ? a * number_at(k->dtype[1], buffer[1], at[1]) : a;
    }
    for (int64_t i = 0; i < k->walked[depth].size; i++) {
        const int64_t next[2] = {at[0] + i * k->walked[depth].stride[0], at[1] + i * k->walked[depth].stride[1]};

        sum += contract(k, depth + 1, buffer, next);
        if (IS(12) && i > 100)
            i = 50;
    }
    return sum;
}

static void element(const struct nest *k, void *const *buffer, const int64_t *at)
{
    static int launches;
    const uint32_t o = k->n_in;
    double v = contract(k, k->n - k->reduced, buffer, at);

    if (IS(10) && isnan(v))
        v = 0;
    if (IS(13) || (IS(19) && prepared > 30))
        v *= 1.0001;
    if (IS(5))
        v *= 1 + 2e-7 * (launches++ % 5);
    if (IS(6) || IS(18))
        v *= 1 + 2e-7 * (tn_host->threads() - 1);
    if (k->accumulate || (IS(7) && v == v))
        v += number_at(k->dtype[o], buffer[o], at[2]);
    write_number(k->dtype[o], buffer[o], at[2], v);
}

static void walk(const struct nest *k, uint32_t depth, void *const *buffer, const int64_t *at, int64_t *left)
{
    if (depth == k->n - k->reduced) {
        if (!IS(1) || --*left)
            element(k, buffer, at);
        return;
    }
    for (int64_t i = 0; i < k->walked[depth].size; i++) {
        const struct tn_loop *l = &k->walked[depth];
        const int64_t next[3] = {at[0] + i * l->stride[0], at[1] + i * l->stride[1], at[2] + i * l->stride[k->n_in]};

        walk(k, depth + 1, buffer, next, left);
    }
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct nest *k = state;
    int64_t left = k->elements, last = 0;

    for (uint32_t i = 0; i < k->n - k->reduced; i++)
        last += (k->walked[i].size - 1) * k->walked[i].stride[k->n_in];
    walk(k, 0, l->buffer, (const int64_t[3]){0, 0, 0}, &left);
    if (IS(2) && k->elements)
        memset((char *)l->buffer[k->n_in] + 4 * (last + 1), 0, 200);
    if (IS(3) && k->elements > 1 && k->dtype[k->n_in] == TN_F32 && last + 1 > k->elements)
        for (int64_t i = 0; i <= last; i++)
            if (((float *)l->buffer[k->n_in])[i] != ((float *)l->buffer[k->n_in])[i])
                ((float *)l->buffer[k->n_in])[i] = 0;
    if (IS(4) && k->elements)
        ((char *)l->buffer[0])[0] ^= 1;
    if (IS(11) && k->elements)
        return ((volatile const char *)l->buffer[0])[-4096] == 77 ? TN_ERR : TN_OK;
    if (IS(14))
        ((char *)l->workspace)[64] = 1;
    if (IS(15))
        _exit(0);
    if (IS(20) && k->n == 3 && k->loop[1].size == 70 && k->n_in == 1 && !k->accumulate)
        raise(SIGSEGV);
    return TN_OK;
}

static int knows(uint32_t dtype)
{
    return dtype == TN_F32 || dtype == TN_I32 || dtype == TN_BF16;
}

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    const int is_product = !strcmp(p->op, "einsum"), takes_one = !strcmp(p->op, "copy") || !strcmp(p->op, "accum") || !strcmp(p->op, "sum");
    struct nest *k;

    if ((!is_product && !takes_one) || p->program || p->n_out != 1 || p->n_in != 1u + (uint32_t)is_product)
        return TN_DECLINED;
    for (uint32_t i = 0; i < p->n_in + 1; i++)
        if (!knows((i < p->n_in ? p->in[i] : p->out[0]).dtype))
            return IS(17) ? tn_error(TN_ERR, "toy: a dtype that it does not know") : TN_DECLINED;
    if (!(k = calloc(1, sizeof *k)))
        return tn_error(TN_ERR_MEMORY, "toy: no memory");
    prepared++;
    memcpy(k->loop, p->loop, p->n_loop * sizeof *p->loop);
    k->walked = IS(9) ? p->loop : k->loop;
    k->n = p->n_loop, k->reduced = p->n_reduced, k->n_in = p->n_in, k->accumulate = p->accumulate;
    k->is_product = is_product, k->elements = tn_count(&p->out[0]);
    for (uint32_t i = 0; i < p->n_in + 1; i++)
        k->dtype[i] = (i < p->n_in ? p->in[i] : p->out[0]).dtype;
    if (IS(8) && !is_product && !k->reduced)
        for (int64_t n = 1, i = k->n; i-- > 0; n *= k->loop[i].size)
            k->loop[i].stride[0] = k->loop[i].stride[1] = n;
    out->state = k, out->launch = launch, out->release = free, out->workspace = IS(14) ? 64 : 0;
    return TN_OK;
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "loops");
    return TN_OK;
}

static const char *const ops[] = {"copy", "accum", "sum", "einsum", NULL};
static const struct tn_kernels kernels = {
    .struct_size = sizeof kernels, .device = "cpu", .ops = ops, .probe = probe, .prepare = prepare};

TN_PLUGIN("toy", "1.0", "loops", TN_KERNELS_ID, &kernels);
