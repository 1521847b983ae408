/* comm_values.c - cases of what is right: every operation with every dtype, sizes that do not divide, groups.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "comm.h"

#ifndef SYS_memfd_secret
#define SYS_memfd_secret (-1)
#endif

#define UNTOUCHED 77
static const uint32_t dtypes[] = {TN_F32, TN_BF16, TN_F16, TN_I32, TN_F64, TN_I64, TN_U8};
#define N_DTYPES (sizeof dtypes / sizeof *dtypes)
static const uint64_t sizes[] = {0, 1, 2, 3, 65, 1001, 1 << 20}; /* the last one in bytes */
#define N_SIZES (sizeof sizes / sizeof *sizes)

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
    return i + 1 < N_SIZES ? sizes[i] : sizes[i] / tn_comm_width(dtype) + 3;
}

/* count elements and one more that must stay. */
static void *fresh(uint32_t dtype, uint64_t count)
{
    char *p = malloc((count + 1) * tn_comm_width(dtype));

    if (!p)
        tn_bench_stop("no memory");
    for (uint64_t i = 0; i <= count; i++)
        tn_comm_set(dtype, p, i, UNTOUCHED);
    return p;
}

static void *given(uint32_t dtype, uint64_t count, uint32_t rank)
{
    void *p = fresh(dtype, count);

    for (uint64_t i = 0; i < count; i++)
        tn_comm_set(dtype, p, i, value(rank, i));
    return p;
}

static void same(struct tn_rank *r, int line, uint32_t dtype, const void *p, uint64_t i, double expected)
{
    double got = tn_comm_get(dtype, p, i);

    if (got != expected && !(isnan(got) && isnan(expected)))
        tn_comm_wrong(r, line, "dtype %u, element %llu: %g, not %g", dtype, (unsigned long long)i, got,
                      expected);
}
#define expect(dtype, p, i, x) same(r, __LINE__, dtype, p, i, x)

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
                tn_comm_set(dtype, from, at + i, (double)((me + 2 * p + i) % 100));
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

static void everything(struct tn_rank *r, struct tn_comm *c, uint32_t me, uint32_t n, size_t n_sizes)
{
    const struct tn_transfer barrier = {.op = TN_BARRIER};

    for (size_t o = 0; o < sizeof operations / sizeof *operations; o++)
        for (size_t d = 0; d < N_DTYPES;
             d++) /* the largest for fp32 and bf16 only: checking takes the time */
            for (size_t s = 0; s < n_sizes && (s + 1 < N_SIZES || d < 2); s++)
                operations[o].run(r, c, me, n, dtypes[d], size_of(s, dtypes[d]));
    must(r, tn_comm_do(r, c, &barrier, 1) == TN_OK);
}

static void world(struct tn_rank *r)
{
    everything(r, r->world, r->rank, r->size, N_SIZES);
}

/* --- the values that are written down */

static void known(struct tn_rank *r)
{
    const float me = (float)r->rank;
    float one[2] = {me + 1, me + 1}, two[2] = {me, me + 10}, four[4], a[4], sum = me;
    struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, one, a, 2, NULL, NULL, 1};

    if (r->size == 4) {
        t.from = t.to = &sum;
        t.count = 1;
        must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
        must(r, sum == 6);
    }
    if (r->size != 2)
        return;
    must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK && a[0] == 3 && a[1] == 3);
    t = (struct tn_transfer){TN_ALL_GATHER, TN_F32, 0, 0, two, a, 2, NULL, NULL, 2};
    must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK && a[0] == 0 && a[1] == 10 && a[2] == 1 && a[3] == 11);
    for (int i = 0; i < 4; i++)
        four[i] = (float)i + 100 * me;
    t = (struct tn_transfer){TN_REDUCE_SCATTER, TN_F32, TN_SUM, 0, four, a, 2, NULL, NULL, 3};
    must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK && a[0] == 100 + 4 * me && a[1] == 102 + 4 * me);
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < 2; i++)
            four[2 * d + i] = 100 * me + (float)(10 * d + i);
    t = (struct tn_transfer){TN_ALL_TO_ALL, TN_F32, 0, 0, four, a, 2, NULL, NULL, 4};
    must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
    for (int i = 0; i < 4; i++)
        must(r, a[i] == 10 * me + (float)(i % 2) + (i < 2 ? 0 : 100));
}

/* Ranks are added in their order: (1e8 - 1e8) + 1 is 1 in fp32, any other is 0. Halves are rounded once. */
static void order(struct tn_rank *r)
{
    static const float f[] = {1e8f, -1e8f, 1};
    static const double h[] = {256, 1, 1, 0};
    uint64_t n = 70000; /* in several steps */
    float *x = malloc(n * sizeof *x);
    uint16_t half[2];

    for (int size = 0; size < 2; size++, n = 3) {
        struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, x, x, n, NULL, NULL, 0};
        for (uint64_t i = 0; i < n; i++)
            x[i] = r->rank < 3 ? f[r->rank] : 0;
        must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
        for (uint64_t i = 0; i < n; i++)
            must(r, x[i] == 1);
    }
    for (uint32_t dtype = TN_BF16; dtype <= TN_F16; dtype++) {
        struct tn_transfer t = {TN_ALL_REDUCE, dtype, TN_SUM, 0, half, half, 2, NULL, NULL, 0};
        for (uint64_t i = 0; i < 2; i++)
            tn_comm_set(dtype, half, i, h[r->rank < 3 ? r->rank : 3] * (dtype == TN_F16 ? 8 : 1));
        must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
        expect(dtype, half, 0, dtype == TN_F16 ? 2064 : 258);
    }
    free(x);
}

/* Overflow to infinity, infinities, NaN. */
static void special(struct tn_rank *r)
{
    static const uint32_t floats[] = {TN_F32, TN_F64, TN_BF16, TN_F16};

    for (int d = 0; d < 4; d++)
        for (uint32_t reduce = TN_SUM; reduce <= TN_MIN; reduce++) {
            double x[4];
            void *p = x;
            struct tn_transfer t = {TN_ALL_REDUCE, floats[d], reduce, 0, p, p, 2, NULL, NULL, 0};
            tn_comm_set(floats[d], p, 0, r->rank == 1 ? NAN : 1);
            if (floats[d] == TN_F16 && r->rank == 1)
                ((uint16_t *)p)[0] = 0x7e00;
            tn_comm_set(floats[d], p, 1, r->rank == 1 ? INFINITY : 1);
            must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
            expect(floats[d], p, 0, NAN);
            expect(floats[d], p, 1, reduce == TN_MIN ? 1 : INFINITY);
        }
    uint16_t big = 0x7bff; /* 65504, the largest of fp16 */
    struct tn_transfer t = {TN_ALL_REDUCE, TN_F16, TN_SUM, 0, &big, &big, 1, NULL, NULL, 0};
    must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
    must(r, big == 0x7c00);
    uint16_t tiny = 1; /* 2^-24, the smallest */
    t.from = t.to = &tiny;
    must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
    must(r, tiny == r->size);
}

/* --- groups */

static struct tn_comm *group(struct tn_rank *r, const uint32_t *ranks, uint32_t n)
{
    struct tn_comm *c = NULL;

    for (uint32_t i = 0; i < n; i++)
        if (ranks[i] == r->rank)
            must(r, r->api->group(r->world, ranks, n, &c) == TN_OK);
    return c;
}

static uint32_t place_in(const struct tn_rank *r, const uint32_t *ranks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (ranks[i] == r->rank)
            return i;
    return n;
}

static void groups(struct tn_rank *r)
{
    uint32_t last = r->size - 1, low[2] = {0, 1}, high[2] = {last - 1, last}, turned[2] = {last, 0}, all[8],
             alone = r->rank;
    const struct {
        const uint32_t *ranks;
        uint32_t n;
    } list[] = {{low, 2}, {high, 2}, {turned, 2}, {all, r->size}, {&alone, 1}, {low, 2}};
    struct tn_comm *c[6] = {0};

    for (uint32_t i = 0; i < r->size; i++)
        all[i] = last - i;
    for (size_t i = 0; i < 6; i++)
        if (i != 1 || r->size > 2)
            c[i] = group(r, list[i].ranks, list[i].n);
    for (size_t i = 0; i < 6; i++)
        if (c[i])
            everything(r, c[i], place_in(r, list[i].ranks, list[i].n), list[i].n, i == 3 ? N_SIZES - 1 : 5);
    for (size_t i = 0; i < 6; i++)
        r->api->close(c[i]);
    c[0] = group(r, low, 2); /* once more, after it was closed */
    if (c[0])
        everything(r, c[0], place_in(r, low, 2), 2, 3);
    r->api->close(c[0]);
}

/* In two groups and the world at once, waited for in another order on each rank. */
static void across(struct tn_rank *r)
{
    enum { COUNT = 100000 };
    uint32_t low[2] = {0, 1}, ends[2] = {0, r->size - 1};
    struct tn_comm *c[3] = {group(r, low, 2), group(r, ends, 2), r->world};
    struct tn_request *q[3][5] = {{0}};
    float *x[3][5];
    uint32_t n[3] = {2, 2, r->size};

    for (int i = 0; i < 5; i++)
        for (int g = 0; g < 3; g++) {
            int at = (g + (int)r->rank) % 3;
            if (!c[at])
                continue;
            x[at][i] = malloc(COUNT * sizeof(float));
            for (int k = 0; k < COUNT; k++)
                x[at][i][k] = (float)(i + 1);
            struct tn_transfer t = {TN_ALL_REDUCE,     TN_F32, TN_SUM, 0, x[at][i], x[at][i],
                                    i % 2 ? 7 : COUNT, NULL,   NULL,   0};
            must(r, r->api->start(c[at], &t, 1, NULL, &q[at][i]) == TN_OK);
        }
    for (int i = 4; i >= 0; i--)
        for (int g = 0; g < 3; g++) {
            int at = (2 * g + (int)r->rank) % 3;
            if (!c[at])
                continue;
            must(r, r->api->wait(q[at][i], r->limit) == TN_OK);
            must(r, x[at][i][6] == (float)(i + 1) * (float)n[at]);
            free(x[at][i]);
        }
    r->api->close(c[0]);
    r->api->close(c[1]);
}

/* --- in flight */

static void in_flight(struct tn_rank *r)
{
    enum { N = 40 };
    struct tn_request *q[N];
    int32_t *x[N];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            uint64_t count = i % 5 == 0 ? 200000 : (uint64_t)i;
            x[i] = malloc(200000 * sizeof(int32_t));
            for (uint64_t k = 0; k < count; k++)
                x[i][k] = (int32_t)(k + (uint64_t)i * r->rank);
            struct tn_transfer t = {i % 3 ? TN_ALL_REDUCE : TN_BROADCAST,
                                    TN_I32,
                                    TN_SUM,
                                    (uint32_t)i % r->size,
                                    x[i],
                                    x[i],
                                    count,
                                    NULL,
                                    NULL,
                                    (uint64_t)i + 1};
            must(r, r->api->start(r->world, &t, 1, NULL, &q[i]) == TN_OK);
        }
        for (int i = N - 1; i >= 0; i--) {
            uint64_t count = i % 5 == 0 ? 200000 : (uint64_t)i, n = r->size, root = (uint64_t)i % n;
            must(r, r->api->wait(q[i], r->limit) == TN_OK);
            for (uint64_t k = 0; k < count; k++)
                must(r, x[i][k] == (int32_t)(i % 3 ? k * n + (uint64_t)i * n * (n - 1) / 2
                                                   : k + (uint64_t)i * root));
            free(x[i]);
        }
    }
}

/* Each starts its send first, larger than any buffer between them, then its receive: no list, no deadlock. */
static void sends_first(struct tn_rank *r)
{
    enum { COUNT = 1 << 20 };
    uint32_t next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
    double *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
    struct tn_transfer give = {TN_SEND, TN_F64, 0, next, x, NULL, COUNT, NULL, NULL, 0};
    struct tn_transfer take = {TN_RECV, TN_F64, 0, before, NULL, y, COUNT, NULL, NULL, 0};
    struct tn_request *a, *b;

    for (int i = 0; i < COUNT; i++)
        x[i] = i + r->rank;
    must(r, r->api->start(r->world, &give, 1, NULL, &a) == TN_OK);
    must(r, r->api->start(r->world, &take, 1, NULL, &b) == TN_OK);
    must(r, r->api->wait(b, r->limit) == TN_OK);
    must(r, r->api->wait(a, r->limit) == TN_OK);
    for (int i = 0; i < COUNT; i++)
        must(r, y[i] == i + before);
    free(x);
    free(y);
}

/* A large sum that all have started is done without another call; the few polls could not have done it. */
static void by_itself(struct tn_rank *r)
{
    enum { COUNT = 1 << 22 };
    float *x = malloc(COUNT * sizeof *x);
    struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, x, x, COUNT, NULL, NULL, 0};
    const struct tn_transfer barrier = {.op = TN_BARRIER};
    struct tn_request *q;
    int polls = 0;

    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    must(r, tn_comm_do(r, r->world, &barrier, 1) == TN_OK);
    must(r, r->api->start(r->world, &t, 1, NULL, &q) == TN_OK);
    do {
        must(r, polls++ < 5);
        tn_comm_sleep(0.4);
    } while (r->api->wait(q, 0) == TN_DECLINED);
    must(r, x[0] == (float)r->size && x[COUNT - 1] == (float)r->size);
    free(x);
}

/* Memory that no other process can read, as page-locked memory of some drivers: one of from and to, or both.
 */
static void secret(struct tn_rank *r)
{
    enum { COUNT = 600001 };
    const uint64_t bytes = COUNT * r->size * sizeof(float);
    const int fd = (int)syscall(SYS_memfd_secret, 0);
    float *hidden, *open = malloc(bytes);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) ||
        (hidden = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        return;
    for (int i = 0; i < 6; i++) {
        float *from = i % 3 == 1 ? open : hidden, *to = i % 3 == 2 ? open : hidden;
        struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, from, to, COUNT, NULL, NULL, 0};
        for (uint64_t k = 0; k < COUNT; k++)
            from[k] = (float)r->rank + 1;
        if (i > 2)
            t = (struct tn_transfer){TN_BROADCAST, TN_F32, 0, 1, from, to, COUNT, NULL, NULL, 0};
        must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
        for (uint64_t k = 0; k < COUNT; k++)
            must(r, to[k] == (float)(i > 2 ? 2 : r->size * (r->size + 1) / 2));
    }
    munmap(hidden, bytes);
    close(fd);
    free(open);
}

/* Who sleeps in a wait is woken when the data is there, not some time later. */
static void woken(struct tn_rank *r)
{
    float x = 1;
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, &x, &x, 1, NULL, NULL, 0};
    int slow = 0;

    for (int i = 0; i < 40; i++) {
        if (r->rank == 1)
            tn_comm_sleep(0.004);
        double begin = tn_comm_now();
        must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
        slow += tn_comm_now() - begin > 0.012;
    }
    must(r, slow < 20);
}

/* Two threads wait at once, and a third polls. */
struct job {
    struct tn_rank *r;
    struct tn_comm *c;
    int polls;
};

static void *one_thread(void *arg)
{
    struct job *j = arg;
    struct tn_rank *r = j->r;

    for (int i = 0; i < 300; i++) {
        int64_t x[100];
        struct tn_transfer t = {TN_ALL_REDUCE, TN_I64, TN_SUM, 0, x, x, 100, NULL, NULL, (uint64_t)i + 1};
        struct tn_request *q;
        double begin = tn_comm_now();
        tn_status s;
        for (int k = 0; k < 100; k++)
            x[k] = i;
        must(r, r->api->start(j->c, &t, 1, NULL, &q) == TN_OK);
        while ((s = r->api->wait(q, j->polls ? 0 : r->limit)) == TN_DECLINED)
            must(r, tn_comm_now() - begin < r->limit);
        must(r, s == TN_OK && x[99] == (int64_t)i * r->size);
    }
    return NULL;
}

static void threads(struct tn_rank *r)
{
    uint32_t all[8];
    struct job job[3] = {{r, r->world, 0}, {r, NULL, 0}, {r, NULL, 1}};
    pthread_t thread[3];

    for (uint32_t i = 0; i < r->size; i++)
        all[i] = i;
    job[1].c = group(r, all, r->size);
    job[2].c = group(r, all, r->size);
    for (int i = 0; i < 3; i++)
        pthread_create(&thread[i], NULL, one_thread, &job[i]);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    r->api->close(job[1].c);
    r->api->close(job[2].c);
}

/* --- what start refuses harms nobody */
static void refused(struct tn_rank *r)
{
    float x[4] = {1, 1, 1, 1};
    const struct tn_transfer bad[] = {
        {99, TN_F32, TN_SUM, 0, x, x, 1, NULL, NULL, 0},
        {TN_ALL_REDUCE, 99, TN_SUM, 0, x, x, 1, NULL, NULL, 0},
        {TN_ALL_REDUCE, TN_F32, 99, 0, x, x, 1, NULL, NULL, 0},
        {TN_BROADCAST, TN_F32, 0, r->size, x, x, 1, NULL, NULL, 0},
        {TN_SEND, TN_F32, 0, r->size, x, NULL, 1, NULL, NULL, 0},
    };
    const struct tn_transfer good = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, x, x, 4, NULL, NULL, 0};
    uint32_t far = r->size, others = r->rank + 1;
    struct tn_request *q;
    struct tn_comm *c;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        must(r, r->api->start(r->world, &bad[i], 1, NULL, &q) < 0);
        must(r, q == NULL);
    }
    must(r, r->api->group(r->world, &far, 1, &c) < 0 && !c);
    must(r, r->api->group(r->world, &others, 1, &c) < 0 && !c);
    must(r, r->api->group(r->world, &others, 0, &c) < 0 && !c);
    must(r, tn_comm_do(r, r->world, NULL, 0) == TN_OK);
    must(r, tn_comm_do(r, r->world, &good, 1) == TN_OK);
    must(r, x[3] == (float)r->size);
}

static void opens(struct tn_rank *r)
{
    struct tn_comm *c;
    uint32_t score = 0;
    char why[64] = "";

    must(r, r->api->probe(&score, why, sizeof why) == TN_OK && score > 0 && *why);
    must(r, r->api->open(r->size, r->size, 1, &c) < 0 && !c);
    r->api->close(NULL);
}

const struct tn_comm_case tn_comm_values[] = {
    {"open and close", opens, 1, NOBODY, 0},
    {"every operation, dtype and size", world, 1, NOBODY, 0},
    {"known values", known, 1, NOBODY, 0},
    {"order of sums", order, 3, NOBODY, 0},
    {"special numbers", special, 2, NOBODY, 0},
    {"groups", groups, 2, NOBODY, 0},
    {"several communicators at once", across, 2, NOBODY, 0},
    {"several in flight", in_flight, 1, NOBODY, 0},
    {"sends before receives", sends_first, 1, NOBODY, TN_COMM_NOT_RECORDED},
    {"progress without calls", by_itself, 1, NOBODY, TN_COMM_QUALITY},
    {"memory that only its process can read", secret, 2, NOBODY, TN_COMM_HOST_ONLY},
    {"woken in time", woken, 2, NOBODY, TN_COMM_QUALITY},
    {"several threads", threads, 1, NOBODY, TN_COMM_HOST_ONLY},
    {"refused calls", refused, 1, NOBODY, 0},
    {0},
};
