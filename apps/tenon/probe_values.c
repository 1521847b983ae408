/* probe_values.c - is what comes out of a collective right? See probe.h.
 *
 * What rank r gives as element i for rank d is a formula of r, d and i, so every rank can work out what must
 * come out, without a message. With two elements for each rank the numbers can be checked by eye:
 *
 *     all_reduce        r + 1                       [3 3] on two ranks
 *     all_gather        r + 10 i                    [0 10 1 11]
 *     reduce_scatter    2 d + i + 100 r             [100 102] on rank 0
 *     all_to_all        100 r + 10 d + i            [0 1 100 101] on rank 0
 *     broadcast         10 r + i from each rank in turn
 *     send              r + 10 i to the next rank
 *
 * Then the same with parts that differ from rank to rank, some of them empty, and with enough elements for
 * every way that a communicator may have. Numbers are rounded as the type has it: a sum of bf16 or fp16 is
 * one of fp32, rounded once; uint8 wraps. So values must be equal, to the bit. */
#include <math.h>
#include "base/arena.h"
#include "base/status.h"
#include "probe.h"

enum { EVEN, UNEVEN, LARGE, SHAPES };
static const char *const shape_name[SHAPES] = {"parts of 2", "uneven parts", "large parts"};

struct check {
    struct probe *p;
    const struct probe_group *g;
    const struct probe_op *op;
    const struct probe_dtype *dtype;
    uint32_t reduce;
    int shape, print;     /* print: the numbers of the sum with parts of two */
    uint32_t root;        /* of a broadcast */
    uint64_t *sent, *got; /* [n]: elements for and from each rank */
    uint64_t n_from, n_to;
    char *from, *to;        /* on the host, in the arena */
    struct tn_arena *arena; /* of the check in hand */
};

/* Elements that rank a has for rank b. */
static uint64_t part(const struct check *k, uint32_t a, uint32_t b)
{
    switch (k->shape) {
    case EVEN: return 2;
    case LARGE: return 20011;
    }
    switch (k->op->op) {
    case TN_ALL_TO_ALL: return (a + 2 * b) % 4;
    case TN_ALL_GATHER: return 3 * a;
    case TN_REDUCE_SCATTER: return 3 * b;
    default: return 7;
    }
}

static double given(const struct check *k, uint32_t r, uint32_t d, uint64_t i)
{
    i %= 2;
    switch (k->op->op) {
    case TN_ALL_REDUCE: return r + 1;
    case TN_REDUCE_SCATTER: return 2.0 * d + (double)i + 100.0 * r;
    case TN_ALL_TO_ALL: return 100.0 * r + 10.0 * d + (double)i;
    case TN_BROADCAST: return 10.0 * r + (double)i;
    default: return r + 10.0 * (double)i;
    }
}

static double fold(const struct check *k, uint32_t d, uint64_t i)
{
    uint32_t type = k->dtype->dtype, wide = type == TN_BF16 || type == TN_F16 ? TN_F32 : type;
    double y = probe_number(type, given(k, 0, d, i));

    for (uint32_t r = 1; r < k->g->n; r++) {
        double x = probe_number(type, given(k, r, d, i));
        y = k->reduce == TN_MAX ? fmax(x, y) : k->reduce == TN_MIN ? fmin(x, y) : probe_number(wide, x + y);
    }
    return probe_number(type, y);
}

static uint32_t before(const struct check *k)
{
    return (k->g->me + k->g->n - 1) % k->g->n;
}

/* What must come as element i of the part that is from rank r. */
static double expected(const struct check *k, uint32_t r, uint64_t i)
{
    switch (k->op->op) {
    case TN_ALL_REDUCE:
    case TN_REDUCE_SCATTER: return fold(k, k->g->me, i);
    case TN_BROADCAST: return probe_number(k->dtype->dtype, given(k, k->root, 0, i));
    case TN_SEND: return probe_number(k->dtype->dtype, given(k, before(k), 0, i));
    default: return probe_number(k->dtype->dtype, given(k, r, k->g->me, i));
    }
}

/* --- one check */

static void lay_out(struct check *k)
{
    struct tn_arena *a = k->arena;
    uint32_t n = k->g->n, me = k->g->me, op = k->op->op;
    int to_all = op == TN_REDUCE_SCATTER || op == TN_ALL_TO_ALL,
        from_all = op == TN_ALL_GATHER || op == TN_ALL_TO_ALL;

    k->sent = tn_alloc_array(a, n, sizeof *k->sent), k->got = tn_alloc_array(a, n, sizeof *k->got);
    k->n_from = k->n_to = 0;
    for (uint32_t r = 0; r < n; r++) {
        k->sent[r] = part(k, me, r), k->got[r] = part(k, r, me);
        k->n_from += to_all || r == 0 ? k->sent[r] : 0;
        k->n_to += from_all || r == 0 ? k->got[r] : 0;
    }
    if (op == TN_REDUCE_SCATTER)
        k->n_to = part(k, 0, me);
    if (op == TN_ALL_GATHER)
        k->n_from = part(k, me, 0);
    k->from = tn_alloc(a, k->n_from * 8 + 8), k->to = tn_alloc(a, k->n_to * 8 + 8);
}

static void fill(struct check *k)
{
    int to_all = k->op->op == TN_REDUCE_SCATTER || k->op->op == TN_ALL_TO_ALL;
    uint64_t at = 0;

    for (uint32_t d = 0; d < (to_all ? k->g->n : 1); d++)
        for (uint64_t i = 0; i < (to_all ? k->sent[d] : k->n_from); i++)
            probe_number_put(k->dtype->dtype, k->from, at++, given(k, k->g->me, d, i));
}

/* What all must know of the sizes: counts where parts are uneven. */
static uint32_t transfers(const struct check *k, struct tn_transfer t[2])
{
    struct tn_transfer one = {.op = k->op->op,
                              .dtype = k->dtype->dtype,
                              .reduce = k->reduce,
                              .peer = k->root,
                              .from = k->p->from,
                              .to = k->p->to,
                              .count = k->n_from};

    if (k->op->op == TN_SEND) {
        t[0] = t[1] = one;
        t[0].peer = (k->g->me + 1) % k->g->n;
        t[1].op = TN_RECV, t[1].peer = before(k);
        return 2;
    }
    if (k->op->op == TN_BROADCAST && k->g->me == k->root)
        one.to = k->p->from;
    if (k->op->op == TN_ALL_GATHER)
        one.counts = k->got;
    else if (k->op->op == TN_REDUCE_SCATTER)
        one.counts = k->sent;
    else if (k->op->op == TN_ALL_TO_ALL)
        one.counts = k->sent, one.counts_in = k->got;
    t[0] = one;
    return 1;
}

static const char *reduction(const struct check *k)
{
    int reduces = k->op->op == TN_ALL_REDUCE || k->op->op == TN_REDUCE_SCATTER;

    return !reduces ? "" : k->reduce == TN_MAX ? " (max)" : k->reduce == TN_MIN ? " (min)" : " (sum)";
}

static tn_status compare(const struct check *k)
{
    int from_all = k->op->op == TN_ALL_GATHER || k->op->op == TN_ALL_TO_ALL;
    uint64_t at = 0;

    for (uint32_t r = 0; r < (from_all ? k->g->n : 1); r++)
        for (uint64_t i = 0; i < (from_all ? k->got[r] : k->n_to); i++, at++) {
            double is = probe_number_get(k->dtype->dtype, k->to, at), should = expected(k, r, i);
            if (is != should)
                return tn_error(TN_ERR,
                                "probe: %s%s of %s with %s on %s (%u ranks): rank %u has %.9g at element "
                                "%llu, where %.9g is right",
                                k->op->name, reduction(k), k->dtype->name, shape_name[k->shape], k->g->name,
                                k->g->n, k->p->world->rank, is, (unsigned long long)at, should);
        }
    return TN_OK;
}

static void print_numbers(const struct check *k)
{
    printf("  %-15s[", k->op->name);
    for (uint64_t i = 0; i < k->n_to && i < 8; i++)
        printf("%s%.9g", i ? " " : "", probe_number_get(k->dtype->dtype, k->to, i));
    printf(k->n_to > 8 ? " ...] of" : "] of");
}

static tn_status once(struct check *k)
{
    uint64_t width = k->dtype->bytes;
    struct tn_transfer t[2];
    char words[64];
    uint32_t n;
    tn_status s;

    lay_out(k);
    fill(k);
    memset(k->to, 0xa5, k->n_to * width);
    n = transfers(k, t);
    snprintf(words, sizeof words, "probe's %s of %s", k->op->name, k->dtype->name);
    s = probe_put(k->p, k->p->from, k->from, k->n_from * width);
    if (!s)
        s = probe_put(k->p, k->p->to, k->to, k->n_to * width);
    if (!s)
        s = probe_do(k->p, k->g->comm, t, n, words);
    if (!s)
        s = probe_get(k->p, k->to, t[0].to, k->n_to * width);
    return s ? s : compare(k);
}

static tn_status all_of_shape(struct check *k)
{
    int reduces = k->op->op == TN_ALL_REDUCE || k->op->op == TN_REDUCE_SCATTER;
    tn_status s = TN_OK;

    for (k->reduce = reduces ? TN_MIN : TN_SUM; k->reduce >= TN_SUM && !s; k->reduce--)
        for (k->root = 0; k->root < (k->op->op == TN_BROADCAST ? k->g->n : 1) && !s; k->root++) {
            k->arena = tn_arena_new();
            s = once(k);
            if (!s && k->print && k->shape == EVEN && k->reduce == TN_SUM && k->root == 0)
                print_numbers(k);
            tn_arena_free(k->arena);
        }
    return s;
}

static tn_status one_dtype(struct check *k)
{
    tn_status s = TN_OK;

    for (k->shape = EVEN; k->shape < SHAPES && !s; k->shape++)
        s = all_of_shape(k);
    return s;
}

tn_status probe_values(struct probe *p, const struct probe_group *g, int print)
{
    struct check k = {.p = p, .g = g};
    tn_status s = TN_OK;

    for (int o = 0; probe_ops[o].name && !s; o++) {
        k.op = &probe_ops[o];
        for (int d = 0; probe_dtypes[d].name && !s && p->ops[o]; d++) {
            k.dtype = &probe_dtypes[d];
            k.print = print && d == 0;
            s = one_dtype(&k);
            if (!s && print)
                printf(" %s", k.dtype->name);
        }
        if (!s && print && p->ops[o])
            printf("\n");
    }
    return s;
}
