/* rules.c - the sum of squares, right without BROKEN; with -DBROKEN=n it breaks a rule of the headers that nothing but
 * backend.debug sees.
 *
 *    1  parallel on a thread of its own              4  declines when it is launched
 *    2  barrier outside of a team                    5  calls the graph's functions while it computes
 *    3  fails without a sentence                     6  changes its table after it was loaded
 *    7  an error that is none                        8  prepares without a launch */
#include <pthread.h>
#include <stdlib.h>
#include <tenon/kernels.h>
#include <tenon/pass.h>

#ifndef BROKEN
#define BROKEN 0
#endif
#define IS(n) (BROKEN == (n))

struct sum {
    int64_t n;
    uint32_t add;
};
static struct tn_kernels kernels;

static void nothing(void *arg, int64_t lo, int64_t hi)
{
    (void)arg, (void)lo, (void)hi;
}

static void *own_thread(void *arg)
{
    tn_host->parallel(8, 1, nothing, arg);
    return arg;
}

static void break_a_rule(void)
{
    pthread_t thread;

    if (IS(1) && !pthread_create(&thread, NULL, own_thread, NULL))
        pthread_join(thread, NULL);
    if (IS(2))
        tn_host->barrier();
    if (IS(5))
        TN_G->axis_size(NULL, "dp");
    if (IS(6))
        kernels.reserved0 = 1;
    if (IS(7))
        tn_host->error(TN_OK, "all is well", __FILE__, __LINE__);
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct sum *k = state;
    const float *x = l->buffer[0];
    float *y = l->buffer[1];
    double sum = k->add ? (double)*y : 0;

    for (int64_t i = 0; i < k->n; i++)
        sum += (double)x[i] * (double)x[i];
    *y = (float)sum;
    break_a_rule();
    return IS(3) ? TN_ERR : IS(4) ? TN_DECLINED : TN_OK;
}

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    struct sum *k;

    if (p->in[0].dtype != TN_F32 || p->out[0].dtype != TN_F32 || !tn_contiguous(&p->in[0]) || !(k = calloc(1, sizeof *k)))
        return TN_DECLINED;
    k->n = tn_count(&p->in[0]), k->add = p->accumulate;
    out->state = k, out->launch = IS(8) ? NULL : launch, out->release = free;
    return TN_OK;
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "a loop");
    return TN_OK;
}

static const char *const ops[] = {"sumsq", NULL};
static struct tn_kernels kernels = {
    .struct_size = sizeof kernels, .device = "cpu", .ops = ops, .probe = probe, .prepare = prepare};

TN_PLUGIN("rules", "1.0", "a loop", TN_KERNELS_ID, &kernels);
