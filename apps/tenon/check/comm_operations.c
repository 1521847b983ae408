/* comm_operations.c - every operation with every dtype, on sizes that do not divide, even and uneven, in place and not. */
#include <math.h>
#include <stdlib.h>
#include "comm_cases.h"

#define UNTOUCHED 77
static const uint32_t dtypes[] = {TN_F32, TN_BF16, TN_F16, TN_I32, TN_F64, TN_I64, TN_U8};
#define N_DTYPES (sizeof dtypes / sizeof *dtypes)
static const uint64_t sizes[TN_COMM_SIZES] = {0, 1, 2, 3, 65, 1001, 1 << 20}; /* the last one in bytes */
#define N_SIZES TN_COMM_SIZES

/* What a rank gives at place i. Sums over eight ranks are exact everywhere, but in uint8, which wraps. */
static double value(uint32_t rank, uint64_t i)
{
    return (double)(rank + 1) * ((double)(i % 7) + 1);
}

static double folded(uint32_t reduce, uint32_t n, uint64_t i, uint32_t dtype)
{
    double y = value(0, i);

    for (uint32_t p = 1; p < n; p++) {
        double x = value(p, i);
        y = reduce == TN_SUM ? y + x : reduce == TN_MAX ? fmax(y, x) : fmin(y, x);
    }
    return dtype == TN_U8 ? (uint8_t)(int)y : y;
}

static uint64_t size_of(size_t i, uint32_t dtype)
{
    return i + 1 < N_SIZES ? sizes[i] : sizes[i] / tn_number_width(dtype) + 3;
}

/* count elements and one more that must stay. */
static void *fresh(uint32_t dtype, uint64_t count)
{
    char *p = malloc((count + 1) * tn_number_width(dtype));

    if (!p)
        tn_bench_stop("no memory");
    for (uint64_t i = 0; i <= count; i++)
        tn_number_set(dtype, p, i, UNTOUCHED);
    return p;
}

static void *given(uint32_t dtype, uint64_t count, uint32_t rank)
{
    void *p = fresh(dtype, count);

    for (uint64_t i = 0; i < count; i++)
        tn_number_set(dtype, p, i, value(rank, i));
    return p;
}

void tn_comm_same(struct tn_rank *r, int line, uint32_t dtype, const void *p, uint64_t i, double expected)
{
    double got = tn_number_get(dtype, p, i);

    if (got != expected && !(isnan(got) && isnan(expected)))
        tn_comm_wrong(r, line, "dtype %u, element %llu: %g, not %g", dtype, (unsigned long long)i, got,
                      expected);
}

/* --- one communicator: c of n ranks, me of them */

static void all_reduce(struct tn_rank *r, struct tn_comm *c, uint32_t me, uint32_t n, uint32_t dtype,
                       uint64_t count)
{
    for (uint32_t reduce = TN_SUM; reduce <= TN_MIN; reduce++)
        for (int in_place = 0; in_place < 2; in_place++) {
            void *from = given(dtype, count, me), *to = in_place ? from : fresh(dtype, count);
            struct tn_transfer t = {TN_ALL_REDUCE, dtype, reduce, 0, from, to, count, NULL, NULL, 0};
            must(r, tn_comm_do(r, c, &t, 1) == TN_OK);
            for (uint64_t i = 0; i < count; i++)
                expect(dtype, to, i, folded(reduce, n, i, dtype));
            expect(dtype, to, count, UNTOUCHED);
            if (!in_place && count)
                expect(dtype, from, count - 1,
                       dtype == TN_U8 ? (uint8_t)(int)value(me, count - 1) : value(me, count - 1));
            free(from);
            if (!in_place)
                free(to);
        }
}

/* Uneven: the first rank has nothing if there are others, the last one the most. */
static uint64_t uneven(uint64_t total, uint32_t p, uint32_t n)
{
    uint64_t weight = (uint64_t)n * (n - 1) / 2, at = total * p * (p - 1) / 2, to = total * p * (p + 1) / 2;

    return n == 1 ? total : p == 0 ? 0 : to / weight - at / weight;
}

static void counts_of(uint64_t total, uint32_t n, int even, uint64_t *counts)
{
    for (uint32_t p = 0; p < n; p++)
        counts[p] = even ? total : uneven(total, p, n);
}

static void all_gather(struct tn_rank *r, struct tn_comm *c, uint32_t me, uint32_t n, uint32_t dtype,
                       uint64_t total)
{
    for (int even = 0; even < 2; even++) {
        uint64_t counts[8], all = 0, at = 0;
        counts_of(total, n, even, counts);
        for (uint32_t p = 0; p < n; p++)
            all += counts[p];
        void *from = given(dtype, counts[me], me), *to = fresh(dtype, all);
        struct tn_transfer t = {TN_ALL_GATHER,        dtype, 0, 0, from, to, even ? total : 0,
                                even ? NULL : counts, NULL,  0};
        must(r, tn_comm_do(r, c, &t, 1) == TN_OK);
        for (uint32_t p = 0; p < n; at += counts[p++])
            for (uint64_t i = 0; i < counts[p]; i++)
                expect(dtype, to, at + i, dtype == TN_U8 ? (uint8_t)(int)value(p, i) : value(p, i));
        expect(dtype, to, all, UNTOUCHED);
        free(from);
        free(to);
    }
}

static void reduce_scatter(struct tn_rank *r, struct tn_comm *c, uint32_t me, uint32_t n, uint32_t dtype,
                           uint64_t total)
{
    for (int even = 0; even < 2; even++)
        for (uint32_t reduce = TN_SUM; reduce <= TN_MIN; reduce++) {
            uint64_t counts[8], all = 0, at = 0;
            counts_of(total, n, even, counts);
            for (uint32_t p = 0; p < n; p++) {
                at = p == me ? all : at;
                all += counts[p];
            }
            void *from = given(dtype, all, me), *to = fresh(dtype, counts[me]);
            struct tn_transfer t = {TN_REDUCE_SCATTER,    dtype, reduce, 0, from, to, even ? total : 0,
                                    even ? NULL : counts, NULL,  0};
            must(r, tn_comm_do(r, c, &t, 1) == TN_OK);
            for (uint64_t i = 0; i < counts[me]; i++)
                expect(dtype, to, i, folded(reduce, n, at + i, dtype));
            expect(dtype, to, counts[me], UNTOUCHED);
            free(from);
            free(to);
        }
}

/* Rank p gives rank q part[p][q] elements. */
static uint64_t part(uint64_t total, uint32_t p, uint32_t q, uint32_t n)
{
    return uneven(total, (q + 2 * p) % n, n);
}

static void all_to_all(struct tn_rank *r, struct tn_comm *c, uint32_t me, uint32_t n, uint32_t dtype,
                       uint64_t total)
{
    for (int even = 0; even < 2; even++) {
        uint64_t out[8], in[8], give = 0, take = 0;
        for (uint32_t p = 0; p < n; p++) {
            give += out[p] = even ? total : part(total, me, p, n);
            take += in[p] = even ? total : part(total, p, me, n);
        }
        void *from = fresh(dtype, give), *to = fresh(dtype, take);
        for (uint64_t p = 0, at = 0; p < n; at += out[p++])
            for (uint64_t i = 0; i < out[p]; i++)
                tn_number_set(dtype, from, at + i, (double)((me + 2 * p + i) % 100));
        struct tn_transfer t = {TN_ALL_TO_ALL,    dtype, 0, 0, from, to, even ? total : 0, even ? NULL : out,
                                even ? NULL : in, 0};
        must(r, tn_comm_do(r, c, &t, 1) == TN_OK);
        for (uint64_t p = 0, at = 0; p < n; at += in[p++])
            for (uint64_t i = 0; i < in[p]; i++)
                expect(dtype, to, at + i, (double)((p + 2 * (uint64_t)me + i) % 100));
        expect(dtype, to, take, UNTOUCHED);
        free(from);
        free(to);
    }
}

static void broadcast(struct tn_rank *r, struct tn_comm *c, uint32_t me, uint32_t n, uint32_t dtype,
                      uint64_t count)
{
    for (uint32_t root = 0; root < n; root++)
        for (int way = 0; way < 3; way++) { /* the giver's to: none, the same, another */
            void *from = given(dtype, count, root), *to = fresh(dtype, count);
            struct tn_transfer t = {TN_BROADCAST, dtype, 0,    root, me == root ? from : NULL,
                                    to,           count, NULL, NULL, 0};
            if (me == root && way < 2)
                t.to = way ? from : NULL;
            if (me != root && way == 1)
                t.from = to;
            must(r, tn_comm_do(r, c, &t, 1) == TN_OK);
            const void *result = me == root && way < 2 ? from : to;
            for (uint64_t i = 0; i < count; i++)
                expect(dtype, result, i, dtype == TN_U8 ? (uint8_t)(int)value(root, i) : value(root, i));
            expect(dtype, result, count, UNTOUCHED);
            free(from);
            free(to);
        }
}

/* To the next, from the one before, as one list; and back. */
static void ring(struct tn_rank *r, struct tn_comm *c, uint32_t me, uint32_t n, uint32_t dtype,
                 uint64_t count)
{
    uint32_t next = (me + 1) % n, before = (me + n - 1) % n;
    void *from = given(dtype, count, me), *a = fresh(dtype, count), *b = fresh(dtype, count);
    const struct tn_transfer t[] = {
        {TN_SEND, dtype, 0, next, from, NULL, count, NULL, NULL, 0},
        {TN_RECV, dtype, 0, before, NULL, a, count, NULL, NULL, 0},
        {TN_SEND, dtype, 0, before, from, NULL, count, NULL, NULL, 0},
        {TN_RECV, dtype, 0, next, NULL, b, count, NULL, NULL, 0},
    };

    must(r, tn_comm_do(r, c, t, 4) == TN_OK);
    for (uint64_t i = 0; i < count; i++) {
        expect(dtype, a, i, dtype == TN_U8 ? (uint8_t)(int)value(before, i) : value(before, i));
        expect(dtype, b, i, dtype == TN_U8 ? (uint8_t)(int)value(next, i) : value(next, i));
    }
    expect(dtype, a, count, UNTOUCHED);
    expect(dtype, b, count, UNTOUCHED);
    free(from);
    free(a);
    free(b);
}

static const struct {
    const char *name;
    void (*run)(struct tn_rank *r, struct tn_comm *c, uint32_t me, uint32_t n, uint32_t dtype,
                uint64_t count);
} operations[] = {
    {"all_reduce", all_reduce}, {"all_gather", all_gather}, {"reduce_scatter", reduce_scatter},
    {"all_to_all", all_to_all}, {"broadcast", broadcast},   {"ring", ring},
};

void tn_comm_everything(struct tn_rank *r, struct tn_comm *c, uint32_t me, uint32_t n, size_t n_sizes)
{
    const struct tn_transfer barrier = {.op = TN_BARRIER};

    n_sizes = n_sizes < N_SIZES ? n_sizes : N_SIZES;
    for (size_t o = 0; o < sizeof operations / sizeof *operations; o++)
        for (size_t d = 0; d < N_DTYPES;
             d++) /* the largest for fp32 and bf16 only: checking takes the time */
            for (size_t s = 0; s < n_sizes && (s + 1 < N_SIZES || d < 2); s++)
                operations[o].run(r, c, me, n, dtypes[d], size_of(s, dtypes[d]));
    must(r, tn_comm_do(r, c, &barrier, 1) == TN_OK);
}
