/* @NAME@ - kernels for two operations of the device cpu; what they decline goes to the next plugin.
 *
 * expr (element-wise programs: activations, residuals, optimizers) and copy, for any strides and dtypes, cut into
 * ranges for the host's threads. An element depends on no other, so how they are cut changes no bit. Replace an inner
 * loop by what your processor does well, decline (TN_DECLINED) what it cannot do, and add operations to the table:
 * docs/ops.md has all of them. */
#include <tenon/kit_nest.h>

#define GRAIN 1024                               /* elements that are worth a thread */

struct job {                                     /* one launch, for the threads */
    const struct tn_kit_nest *k;
    const struct tn_launch *l;
};

/* Elements lo..hi-1 of the output. Inputs are read before outputs are written: they may share a buffer. */
static void range(void *arg, int64_t lo, int64_t hi)
{
    const struct job *j = (const struct job *)arg;
    struct tn_kit_walk at = tn_kit_from(j->k, lo);
    double v[TN_MAX_OPERANDS];

    for (int64_t e = lo; e < hi && tn_kit_next(&at); e++) {
        for (uint32_t i = 0; i < j->k->n_in; i++)
            v[i] = tn_kit_in(j->k, j->l, &at, i);
        if (j->k->n_instr)
            tn_kit_run(j->k, j->l, v, v);
        for (uint32_t i = 0; i < j->k->n_out; i++)
            tn_kit_out(j->k, j->l, &at, i, v[i]);
    }
}

/* A step calls this and nothing else. */
static tn_status launch(void *state, const struct tn_launch *l)
{
    struct job j = {(const struct tn_kit_nest *)state, l};

    tn_host->parallel(tn_kit_positions(j.k), GRAIN, range, &j);
    return TN_OK;
}

static const char *const ops[] = {"expr", "copy", NULL};

/* Once for each launch of the plan. The problem is borrowed for the call; what launch needs of it is kept. */
static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    struct tn_kit_nest *k;
    tn_status s;

    if (strcmp(p->op, "expr") && strcmp(p->op, "copy"))
        return TN_DECLINED;
    s = tn_kit_nest_keep(p, &k);
    if (s != TN_OK)
        return s;
    out->state = k, out->launch = launch, out->release = free;
    return TN_OK;
}

/* More than ref (1), less than cpu: taken where somebody names it. */
static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 2;
    snprintf(why, (size_t)why_size, "element-wise operations, one at a time");
    return TN_OK;
}

static const struct tn_kernels kernels = {
    .struct_size = sizeof kernels,
    .reserved0 = 0,
    .device = "cpu",
    .ops = ops,
    .probe = probe,
    .prepare = prepare,
};

TN_PLUGIN("@NAME@", "0.1", "expr and copy for the cpu", TN_KERNELS_ID, &kernels);
