/* look.c - a step under the magnifying glass: times of launches, and the first number that is not finite.
 *
 * They wait more than a step needs, so they are walks of their own and the normal one stays free of questions. */
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include "base/arena.h"
#include "run/run.h"
#include "run/state.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Calls after() when a launch is done; it may stop the walk by anything but TN_OK. */
static tn_status walk_slowly(struct tn_run *run, uint32_t n_go,
                             tn_status (*after)(struct tn_run *run, const struct call *c, void *arg),
                             void *arg)
{
    tn_status s = tn_run_uniforms(run);

    for (uint32_t t = 0; t < n_go && !s; t++) {
        const struct segment *seg = run->go[t].segment;
        tn_go_bind(&run->go[t]);
        for (uint32_t i = 0; i < seg->n_call && !s; i++) {
            s = tn_call_launch(run, &seg->call[i]);
            if (!s)
                s = tn_run_sync(run);
            if (!s)
                s = after(run, &seg->call[i], arg);
        }
    }
    return s;
}

/* One task of the program, each launch waited for if rows are asked for. */
static tn_status task_timed(struct tn_run *run, const struct go *g, struct tn_run_times *times)
{
    tn_status s = TN_OK;
    double last = now();

    tn_go_bind(g);
    for (uint32_t i = 0; i < g->segment->n_call && !s; i++) {
        const struct call *c = &g->segment->call[i];
        s = tn_call_launch(run, c);
        if (!times->row || s)
            continue;
        s = tn_run_sync(run);
        double t = now();
        times->row[c->row] += t - last;
        if (times->after)
            times->after(times->ctx, c->row);
        last = now();
    }
    return s;
}

static tn_status walk_timed(struct tn_run *run, uint32_t from, uint32_t to, struct tn_run_times *times)
{
    tn_status s = TN_OK;

    for (uint32_t t = from; t < to && !s; t++) {
        double start = now();
        s = task_timed(run, &run->go[t], times);
        if (!s)
            s = tn_run_sync(run);
        times->list[run->plan->task[t].list] += now() - start;
    }
    return s;
}

tn_status tn_run_compute_timed(struct tn_run *run, struct tn_run_times *times)
{
    tn_status s = tn_run_uniforms(run);

    return s ? s : walk_timed(run, 0, run->n_compute, times);
}

tn_status tn_run_update_timed(struct tn_run *run, struct tn_run_times *times)
{
    return walk_timed(run, run->n_compute, run->n_go, times);
}

tn_status tn_run_step_timed(struct tn_run *run, double *seconds)
{
    struct tn_run_times times = {.row = seconds};
    tn_status s = tn_run_compute_timed(run, &times);

    return s ? s : tn_run_update_timed(run, &times);
}

tn_status tn_run_compute_seen(struct tn_run *run, tn_status (*between)(void *ctx), void *ctx)
{
    uint32_t first = 0;
    tn_status s = tn_run_uniforms(run);

    while (first < run->n_compute && run->plan->task[first].list != TN_LIST_BACKWARD)
        first++;
    if (!s)
        s = tn_run_walk(run, run->go, run->go + first);
    if (!s)
        s = tn_run_sync(run);
    if (!s)
        s = between(ctx);
    if (!s)
        s = tn_run_walk(run, run->go + first, run->go + run->n_compute);
    return s ? s : tn_run_sync(run);
}

/* --- finite? */

static double number(uint32_t dtype, const void *at, int64_t i)
{
    uint32_t bits;
    float f;

    switch (dtype) {
    case TN_F32: return ((const float *)at)[i];
    case TN_F64: return ((const double *)at)[i];
    case TN_BF16:
        bits = (uint32_t)((const uint16_t *)at)[i] << 16;
        memcpy(&f, &bits, sizeof f);
        return f;
    case TN_F16: /* only whether it is finite matters */
        bits = ((const uint16_t *)at)[i];
        return (bits & 0x7c00) != 0x7c00 ? 0
               : bits & 0x3ff            ? (double)NAN
               : bits & 0x8000           ? -(double)INFINITY
                                         : (double)INFINITY;
    default: return 0; /* whole numbers */
    }
}

/* The first element that is not finite, row-major, or -1. */
static int64_t first_bad(const struct tn_plan *plan, const struct tn_value *v, const int64_t *stride,
                         const char *at)
{
    const struct tn_local *l = &plan->place[v->id].local;
    uint32_t rank = l->flat ? 1 : v->rank;
    const int64_t *size = l->flat ? &l->count : l->size;

    for (int64_t i = 0; i < l->count; i++) {
        int64_t rest = i, offset = 0;
        for (uint32_t d = rank; d-- > 0; rest /= size[d])
            offset += rest % size[d] * stride[d];
        if (!isfinite(number(v->dtype, at, offset)))
            return i;
    }
    return -1;
}

/* Bytes from the first element of v to the end of its last one. */
static uint64_t extent(const struct tn_plan *plan, const struct tn_value *v, const int64_t *stride)
{
    const struct tn_local *l = &plan->place[v->id].local;
    int64_t last = l->flat ? l->count - 1 : 0;

    for (uint32_t d = 0; d < v->rank && !l->flat; d++)
        last += (l->size[d] - 1) * stride[d];
    return l->count ? (uint64_t)(last + 1) * tn_dtype_bytes(v->dtype) : 0;
}

static tn_status check(struct tn_run *run, const struct tn_value *v, const void *device, uint32_t micro,
                       struct tn_bad *out)
{
    const int64_t *stride = run->plan->place[v->id].stride;
    uint64_t bytes = extent(run->plan, v, stride);
    char *host = malloc(bytes + 1);
    tn_status s = host ? TN_OK
                       : tn_error(TN_ERR_MEMORY, "no memory to look at %s: %llu bytes", v->name,
                                  (unsigned long long)bytes);

    if (!s)
        s = run->api->copy(run->queue, host, device, bytes, 2);
    if (!s)
        s = tn_run_sync(run);
    int64_t bad = s ? -1 : first_bad(run->plan, v, stride, host);
    if (bad >= 0) {
        int64_t rest = bad, offset = 0;
        for (uint32_t d = run->plan->place[v->id].local.flat ? 0 : v->rank; d-- > 0;
             rest /= run->plan->place[v->id].local.size[d])
            offset += rest % run->plan->place[v->id].local.size[d] * stride[d];
        *out = (struct tn_bad){.value = v,
                               .micro = micro,
                               .element = bad,
                               .number =
                                   number(v->dtype, host, run->plan->place[v->id].local.flat ? bad : offset)};
    }
    free(host);
    return s;
}

tn_status tn_run_finite(struct tn_run *run, const struct tn_value *v, int *out)
{
    const struct tn_plan_place *p = &run->plan->place[v->id];
    struct tn_bad bad = {0};
    tn_status s;

    if (p->storage == TN_NOWHERE || !p->kept)
        return tn_error(TN_ERR,
                        "%%%u %s was not kept when the plan was made: it cannot be looked at after the step",
                        v->id, v->name);
    s = check(run, v, (char *)run->at[p->storage] + p->offset, 0, &bad);
    *out = !bad.value;
    return s;
}

static tn_status check_sources(struct tn_run *run, const struct tn_value *v, struct tn_bad *out)
{
    tn_status s = TN_OK;

    for (; v && !s && !out->value; v = v->next) {
        const struct tn_plan_place *p = &run->plan->place[v->id];
        const struct tn_storage *x = p->storage == TN_NOWHERE ? NULL : &run->plan->storage[p->storage];
        for (uint32_t m = 0; x && !s && !out->value && m < (x->micro_stride ? run->plan->n_micro : 1); m++)
            s = check(run, v, (char *)run->at[p->storage] + m * x->micro_stride, m, out);
    }
    return s;
}

static tn_status check_outputs(struct tn_run *run, const struct call *c, void *arg)
{
    const struct tn_row *row = &run->plan->row[c->row];
    struct tn_bad *bad = arg;
    tn_status s = TN_OK;

    if (row->way == TN_ROW_START || bad->value)  /* not there yet; known already */
        return TN_OK;
    if (!strcmp(row->op, "exchange"))            /* behind the rows that came there is what was there before */
        return TN_OK;
    for (uint32_t o = 0; o < row->n_out && !s && !bad->value; o++)
        s = check(run, row->value[row->n_in + o], c->l.buffer[row->n_in + o], c->l.micro, bad);
    if (bad->value)
        bad->row = row;
    return s ? s : bad->value && !run->communicates ? TN_DECLINED : TN_OK;
}

/* Where ranks wait for one another, all walk to the end, whatever they have found: each finds its own first one. */
tn_status tn_run_first_nonfinite(struct tn_run *run, struct tn_bad *out)
{
    const struct tn_graph *g = run->plan->graph;
    tn_status s;

    *out = (struct tn_bad){0};
    s = check_sources(run, g->params, out);
    if (!s)
        s = check_sources(run, g->states, out);
    if (!s)
        s = check_sources(run, g->inputs, out);
    if (!s && (!out->value || run->communicates))
        s = walk_slowly(run, run->n_compute, check_outputs, out);
    return s < 0 ? s : TN_OK;
}
