/* trace.c - see trace.h. */
#include "run/trace.h"
#include <time.h>
#include "run/state.h"

/* A wait belongs to the start with its state and slot; one in AFTER to all of a state that have none yet. */
struct tn_trace_flight {
    const void *state;
    uint32_t slot, span;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint32_t kind_of(const struct tn_row *r)
{
    switch (r->way) {
    case TN_ROW_START:
    case TN_ROW_SEND: return TN_SPAN_START;
    case TN_ROW_WAIT:
    case TN_ROW_SENT: return TN_SPAN_WAIT;
    default: return TN_SPAN_COMPUTE;
    }
}

struct tn_trace *tn_trace_new(const struct tn_run *run, struct tn_arena *arena)
{
    struct tn_trace *t = tn_alloc(arena, sizeof *t);
    uint32_t flights = 0;

    *t = (struct tn_trace){.plan = run->plan, .room = run->n_go};
    for (uint32_t g = 0; g < run->n_go; g++) {
        const struct segment *s = run->go[g].segment;

        t->room += s->n_call;
        for (uint32_t i = 0; i < s->n_call; i++)
            flights += kind_of(&run->plan->row[s->call[i].row]) == TN_SPAN_START;
    }
    t->room += flights;
    t->span = tn_alloc_array(arena, t->room + 1u, sizeof *t->span);
    memset(t->span, 0, (t->room + 1u) * sizeof *t->span); /* touched: no page faults while the clock runs */
    t->open = tn_alloc_array(arena, flights + 1u, sizeof *t->open);
    return t;
}

static uint32_t add(struct tn_trace *t, uint32_t kind, uint32_t row, uint32_t task, double begin)
{
    t->span[t->n] = (struct tn_span){.begin = begin, .kind = kind, .row = row, .task = task};
    return t->n++;
}

static void depart(struct tn_trace *t, const struct call *c, uint32_t task, double begin)
{
    t->open[t->n_open++] = (struct tn_trace_flight){c->state, c->l.micro, add(t, TN_SPAN_FLIGHT, c->row, task, begin)};
}

static void arrive(struct tn_trace *t, const struct call *c, int all, double end)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < t->n_open; i++) {
        struct tn_trace_flight *f = &t->open[i];

        if (f->state == c->state && (all || f->slot == c->l.micro))
            t->span[f->span].end = end;
        else
            t->open[left++] = *f;
    }
    t->n_open = left;
}

static tn_status launch(struct tn_run *run, const struct call *c, uint32_t task, struct tn_trace *t)
{
    const struct tn_row *row = &run->plan->row[c->row];
    uint32_t kind = kind_of(row), span;
    double begin = now();
    tn_status s;

    if (kind == TN_SPAN_START)
        depart(t, c, task, begin);
    span = add(t, kind, c->row, task, begin);
    s = tn_call_launch(run, c);
    if (!s)
        s = tn_run_sync(run);
    t->span[span].end = now();
    if (kind == TN_SPAN_WAIT)
        arrive(t, c, row->list == TN_LIST_AFTER && row->way == TN_ROW_SENT, t->span[span].end);
    return s;
}

static tn_status walk_traced(struct tn_run *run, uint32_t from, uint32_t to, struct tn_trace *t)
{
    tn_status s = TN_OK;

    for (uint32_t i = from; i < to && !s; i++) {
        const struct segment *g = run->go[i].segment;
        uint32_t task = add(t, TN_SPAN_TASK, TN_NOWHERE, i, now());

        tn_go_bind(&run->go[i]);
        for (uint32_t k = 0; k < g->n_call && !s; k++)
            s = launch(run, &g->call[k], i, t);
        t->span[task].end = now();
    }
    return s;
}

tn_status tn_run_compute_traced(struct tn_run *run, struct tn_trace *trace)
{
    tn_status s = tn_run_uniforms(run);

    if (!s)
        s = tn_run_sync(run);
    return s ? s : walk_traced(run, 0, run->n_compute, trace);
}

tn_status tn_run_update_traced(struct tn_run *run, struct tn_trace *trace)
{
    return walk_traced(run, run->n_compute, run->n_go, trace);
}

void tn_trace_sum(const struct tn_trace *trace, struct tn_trace_sums *out)
{
    double until = 0; /* of communication, so far */

    *out = (struct tn_trace_sums){.whole = trace->end - trace->begin};
    for (uint32_t i = 0; i < trace->n; i++) {
        const struct tn_span *s = &trace->span[i];
        double end = s->kind == TN_SPAN_FLIGHT && s->end <= 0 ? trace->end : s->end;

        if (s->kind == TN_SPAN_COMPUTE)
            out->compute += end - s->begin;
        else if (s->kind == TN_SPAN_START || s->kind == TN_SPAN_WAIT)
            out->exposed += end - s->begin;
        if (s->kind == TN_SPAN_WAIT)
            out->wait += end - s->begin;
        if (s->kind != TN_SPAN_FLIGHT)
            continue;
        out->flights++;
        out->lost += s->end <= 0;
        if (end > until) {
            out->communication += end - (s->begin > until ? s->begin : until);
            until = end;
        }
    }
}
