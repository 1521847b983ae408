/* comm_values.c - cases of what is right: values, sums in the order of ranks, groups, calls that are refused. */
#include <math.h>
#include <stdlib.h>
#include "comm_cases.h"

static void world(struct tn_rank *r)
{
    tn_comm_everything(r, r->world, r->rank, r->size, TN_COMM_SIZES);
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
            tn_number_set(dtype, half, i, h[r->rank < 3 ? r->rank : 3] * (dtype == TN_F16 ? 8 : 1));
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
            tn_number_set(floats[d], p, 0, r->rank == 1 ? NAN : 1);
            tn_number_set(floats[d], p, 1, r->rank == 1 ? INFINITY : 1);
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

struct tn_comm *tn_comm_group(struct tn_rank *r, const uint32_t *ranks, uint32_t n)
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
            c[i] = tn_comm_group(r, list[i].ranks, list[i].n);
    for (size_t i = 0; i < 6; i++)
        if (c[i])
            tn_comm_everything(r, c[i], place_in(r, list[i].ranks, list[i].n), list[i].n, i == 3 ? TN_COMM_SIZES - 1 : 5);
    for (size_t i = 0; i < 6; i++)
        r->api->close(c[i]);
    c[0] = tn_comm_group(r, low, 2); /* once more, after it was closed */
    if (c[0])
        tn_comm_everything(r, c[0], place_in(r, low, 2), 2, 3);
    r->api->close(c[0]);
}

/* In two groups and the world at once, waited for in another order on each rank. */
static void across(struct tn_rank *r)
{
    enum { COUNT = 100000 };
    uint32_t low[2] = {0, 1}, ends[2] = {0, r->size - 1};
    struct tn_comm *c[3] = {tn_comm_group(r, low, 2), tn_comm_group(r, ends, 2), r->world};
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
    {"several in flight", tn_comm_in_flight, 1, NOBODY, 0},
    {"sends before receives", tn_comm_sends_first, 1, NOBODY, TN_COMM_NOT_RECORDED},
    {"progress without calls", tn_comm_by_itself, 1, NOBODY, TN_COMM_QUALITY},
    {"memory that only its process can read", tn_comm_secret, 2, NOBODY, TN_COMM_HOST_ONLY},
    {"woken in time", tn_comm_woken, 2, NOBODY, TN_COMM_QUALITY},
    {"several threads", tn_comm_threads, 1, NOBODY, TN_COMM_HOST_ONLY},
    {"refused calls", refused, 1, NOBODY, 0},
    {0},
};
