/* result.c - the results of collectives from everybody's inputs. Sums are added in the order of ranks, bf16 and fp16 as
 * fp32, rounded once. */
#include <math.h>
#include <stdlib.h>
#include "local.h"

uint64_t local_width(uint32_t dtype)
{
    static const uint8_t bytes[] = {[TN_F32] = 4, [TN_BF16] = 2, [TN_F16] = 2, [TN_I32] = 4, [TN_F64] = 8, [TN_I64] = 8, [TN_U8] = 1};

    return dtype < sizeof bytes ? bytes[dtype] : 0;
}

static uint64_t count_at(const struct tn_transfer *t, uint32_t i)
{
    return t->counts ? t->counts[i] : t->count;
}

static uint64_t total(const struct tn_transfer *t, uint32_t n)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += count_at(t, i);
    return sum;
}

/* --- two bytes */

static float of_bf16(uint16_t h)
{
    const uint32_t bits = (uint32_t)h << 16;
    float f;

    return memcpy(&f, &bits, sizeof f), f;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    if (f != f)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float of_fp16(uint16_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const float v = e == 31 ? (m ? NAN : INFINITY) : ldexpf((float)(e ? 1024 + m : m), (e ? e : 1) - 25);

    return h & 0x8000 ? -v : v;
}

/* Below 2^-14 in steps of 2^-24, else with eleven bits. */
static uint16_t to_fp16(float f)
{
    const uint16_t sign = signbit(f) ? 0x8000 : 0;
    const float a = fabsf(f);
    int e;

    if (f != f)
        return 0x7e00;
    if (a >= 65520)
        return sign | 0x7c00;
    if (a < 0x1p-14f)
        return (uint16_t)(sign | (uint16_t)nearbyintf(a * 0x1p24f));
    const float m = nearbyintf(frexpf(a, &e) * 2048);

    return (uint16_t)(sign | (((uint32_t)(e + 14) << 10) + (uint32_t)m - 1024));
}

/* --- reductions */

#define REDUCE(TYPE, SUM_TYPE)                                              \
    for (uint64_t i = 0; i < count; i++) {                                  \
        TYPE *y = (TYPE *)to + i, x = ((const TYPE *)from)[i];              \
        *y = op == TN_SUM ? (TYPE)((SUM_TYPE)*y + (SUM_TYPE)x) : op == TN_MAX ? (x > *y || x != x ? x : *y) : x < *y || x != x ? x : *y; \
    }                                                                       \
    return;

static void reduce(uint32_t dtype, uint32_t op, void *to, const void *from, uint64_t count)
{
    switch (dtype) {
    case TN_F32: REDUCE(float, float)
    case TN_F64: REDUCE(double, double)
    case TN_I32: REDUCE(int32_t, uint32_t)
    case TN_I64: REDUCE(int64_t, uint64_t)
    case TN_U8: REDUCE(uint8_t, uint32_t)
    }
}

static tn_status reduce_low(const struct tn_transfer *const *all, uint32_t n, uint64_t first, uint64_t count, uint16_t *out)
{
    const int is_fp16 = all[0]->dtype == TN_F16;
    float *sum = malloc(2 * count * sizeof *sum + 1), *x = sum + count;

    if (!sum)
        return tn_error(TN_ERR_MEMORY, "local: no memory for a sum of %llu elements", (unsigned long long)count);
    for (uint32_t r = 0; r < n; r++) {
        const uint16_t *from = (const uint16_t *)all[r]->from + first;
        float *to = r ? x : sum;

        for (uint64_t i = 0; i < count; i++)
            to[i] = is_fp16 ? of_fp16(from[i]) : of_bf16(from[i]);
        if (r)
            reduce(TN_F32, all[r]->reduce, sum, x, count);
    }
    for (uint64_t i = 0; i < count; i++)
        out[i] = is_fp16 ? to_fp16(sum[i]) : to_bf16(sum[i]);
    free(sum);
    return TN_OK;
}

static tn_status reduce_all(const struct tn_transfer *const *all, uint32_t n, uint64_t first, uint64_t count, void *out)
{
    const uint64_t width = local_width(all[0]->dtype);

    if (all[0]->dtype == TN_BF16 || all[0]->dtype == TN_F16)
        return reduce_low(all, n, first, count, out);
    if (count)
        memcpy(out, (const char *)all[0]->from + first * width, count * width);
    for (uint32_t r = 1; r < n; r++)
        reduce(all[r]->dtype, all[r]->reduce, out, (const char *)all[r]->from + first * width, count);
    return TN_OK;
}

static tn_status agree(const struct tn_transfer *const *all, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        if (!all[r])
            return tn_error(TN_ERR, "local: ranks started lists of different lengths");
        if (all[r]->op == TN_SEND || all[r]->op == TN_RECV)
            continue;                            /* beside a collective: met by itself */
        if (all[r]->op != all[0]->op || all[r]->dtype != all[0]->dtype || all[r]->reduce != all[0]->reduce || all[r]->sequence != all[0]->sequence)
            return tn_error(TN_ERR, "local: rank %u started operation %u (dtype %u, sequence %llu), rank 0 operation %u (dtype %u, sequence %llu)",
                            r, all[r]->op, all[r]->dtype, (unsigned long long)all[r]->sequence, all[0]->op, all[0]->dtype,
                            (unsigned long long)all[0]->sequence);
        if (all[r]->op != TN_ALL_TO_ALL && (all[r]->count != all[0]->count || (all[r]->counts && total(all[r], n) != total(all[0], n))))
            return tn_error(TN_ERR_SHAPE, "local: rank %u and rank 0 give different counts", r);
    }
    return TN_OK;
}

static void gather(const struct tn_transfer *const *all, uint32_t n, char *out)
{
    uint64_t width = local_width(all[0]->dtype);

    for (uint32_t r = 0; r < n; r++) {
        uint64_t bytes = count_at(all[r], r) * width;

        if (bytes)
            memcpy(out, all[r]->from, bytes);
        out += bytes;
    }
}

static void exchange(const struct tn_transfer *const *all, uint32_t n, uint32_t rank, char *out)
{
    uint64_t width = local_width(all[0]->dtype);

    for (uint32_t r = 0; r < n; r++) {
        uint64_t before = 0, bytes = count_at(all[r], rank) * width;

        for (uint32_t i = 0; i < rank; i++)
            before += count_at(all[r], i);
        if (bytes)
            memcpy(out, (const char *)all[r]->from + before * width, bytes);
        out += bytes;
    }
}

/* Elements that rank gets. */
static uint64_t size_of(const struct tn_transfer *const *all, uint32_t n, uint32_t rank)
{
    uint64_t sum = 0;

    switch (all[rank]->op) {
    case TN_ALL_GATHER: return total(all[rank], n);
    case TN_REDUCE_SCATTER: return count_at(all[rank], rank);
    case TN_ALL_TO_ALL:
        for (uint32_t r = 0; r < n; r++)
            sum += count_at(all[r], rank);
        return sum;
    }
    return all[rank]->count;
}

tn_status local_result(const struct tn_transfer *const *all, uint32_t n, uint32_t rank, void **out)
{
    tn_status s = agree(all, n);
    uint64_t count, first = 0;

    if (s)
        return s;
    count = size_of(all, n, rank);
    *out = malloc(count * local_width(all[0]->dtype) + 1);
    switch (all[0]->op) {
    case TN_ALL_REDUCE: return reduce_all(all, n, 0, count, *out);
    case TN_REDUCE_SCATTER:
        for (uint32_t i = 0; i < rank; i++)
            first += count_at(all[0], i);
        return reduce_all(all, n, first, count, *out);
    case TN_ALL_GATHER: gather(all, n, *out); return TN_OK;
    case TN_ALL_TO_ALL: exchange(all, n, rank, *out); return TN_OK;
    case TN_BROADCAST:
        if (count)
            memcpy(*out, all[all[0]->peer]->from, count * local_width(all[0]->dtype));
        return TN_OK;
    }
    return TN_OK;                                /* a barrier, or a send or receive beside collectives */
}

void local_store(const struct tn_transfer *t, uint32_t n, uint32_t rank, const void *result)
{
    uint64_t count = t->op == TN_ALL_GATHER ? total(t, n) : t->op == TN_REDUCE_SCATTER ? count_at(t, rank) : t->count;

    if (t->op == TN_SEND || t->op == TN_RECV || t->op > TN_RECV)
        return;
    if (t->op == TN_ALL_TO_ALL) {
        count = 0;
        for (uint32_t r = 0; r < n; r++)
            count += t->counts_in ? t->counts_in[r] : count_at(t, r);
    }
    if (count && t->to)
        memcpy(t->to, result, count * local_width(t->dtype));
}
