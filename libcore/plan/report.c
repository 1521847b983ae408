/* report.c - see report.h. */
#include "plan/report.h"
#include "base/arena.h"
#include "graph/op.h"
#include "plan/offset.h"

static uint32_t launches(const struct tn_plan *plan, const struct tn_row *row)
{
    int repeats =
        row->list == TN_LIST_PER_MICRO || row->list == TN_LIST_FORWARD || row->list == TN_LIST_BACKWARD;

    return (row->kernel[0] >= 0) + (repeats && !row->once && row->kernel[1] >= 0 ? plan->n_micro - 1 : 0);
}

static uint64_t at(const struct tn_plan *plan, uint32_t where)
{
    uint64_t bytes = 0;

    for (uint32_t s = 0; s < plan->n_storage; s++)
        if (plan->storage[s].where == where)
            bytes += plan->storage[s].bytes;
    return bytes;
}

/* Of a list of sources. */
static uint64_t all_of(const struct tn_plan *plan, const struct tn_value *v)
{
    uint64_t bytes = 0;

    for (; v; v = v->next)
        bytes += tn_plan_bytes(plan, v);
    return bytes;
}

/* What the backward leaves for the update: before the collectives that come after it, which cut or copy it.
 */
static const struct tn_value *left_by_backward(const struct tn_value *g)
{
    while (g && g->producer && (g->producer->phase > TN_BACKWARD || tn_node_last(g->producer)) &&
           g->producer->op->flags & TN_OP_COLLECTIVE)
        g = g->producer->in[g->output];
    return g;
}

/* Two gradients may share a storage: a tied weight's twin. */
static uint64_t gradients(const struct tn_plan *plan)
{
    struct tn_arena *arena = tn_arena_new();
    char *seen = tn_alloc(arena, plan->n_storage + 1u);
    uint64_t bytes = 0;

    for (const struct tn_value *v = plan->graph->params; v; v = v->next) {
        const struct tn_value *g = left_by_backward(v->param ? v->param->grad : NULL);
        uint32_t s = g ? plan->place[g->id].storage : TN_NOWHERE;
        if (s == TN_NOWHERE || seen[s] || plan->storage[s].where != TN_AT_ARENA)
            continue;
        seen[s] = 1;
        bytes += plan->storage[s].bytes;
    }
    tn_arena_free(arena);
    return bytes;
}

static double *flops_of(struct tn_plan_report *r, uint32_t list)
{
    return list <= TN_LIST_FORWARD    ? &r->flops_forward
           : list == TN_LIST_BACKWARD ? &r->flops_backward
                                      : &r->flops_update;
}

void tn_plan_sum(const struct tn_plan *plan, struct tn_plan_report *out)
{
    *out = (struct tn_plan_report){.states = all_of(plan, plan->graph->states),
                                   .caches = all_of(plan, plan->graph->caches),
                                   .inputs = plan->run_bytes,
                                   .gradients = gradients(plan),
                                   .arena = plan->arena_bytes,
                                   .workspace = plan->workspace_bytes,
                                   .uniforms = plan->uniform_bytes,
                                   .live_peak = plan->live_peak,
                                   .rows = plan->n_row};
    out->parameters = at(plan, TN_AT_PERSISTENT) - out->states - out->caches;
    out->total = out->parameters + out->states + out->caches + out->inputs + out->arena + out->workspace + out->uniforms;
    for (uint32_t i = 0; i < plan->n_row; i++) {
        const struct tn_row *row = &plan->row[i];
        uint32_t n = launches(plan, row);
        out->launches += n;
        out->nodes += row->merged;
        *flops_of(out, row->list) += n * row->flops;
        out->bytes_moved += n * row->bytes;
    }
}

const char *tn_list_name(uint32_t list)
{
    static const char *const name[TN_LISTS] = {[TN_LIST_PROLOGUE] = "prologue",
                                               [TN_LIST_PER_MICRO] = "prologue, each micro-batch",
                                               [TN_LIST_READY] = "prologue, at its end",
                                               [TN_LIST_FORWARD] = "forward",
                                               [TN_LIST_BACKWARD] = "backward",
                                               [TN_LIST_AFTER] = "after",
                                               [TN_LIST_UPDATE] = "update"};

    return list < TN_LISTS ? name[list] : "";
}

void tn_plan_launch_at(const struct tn_plan *plan, uint32_t i, struct tn_plan_launch *out)
{
    const struct tn_row *row = &plan->row[i];
    const struct tn_plan_kernel *k = &plan->kernel[row->kernel[0] >= 0 ? row->kernel[0] : row->kernel[1]];

    *out = (struct tn_plan_launch){.node = row->node->id,
                                   .list = row->list,
                                   .merged = row->merged,
                                   .op = row->op,
                                   .role = row->node->role,
                                   .unit = row->node->unit,
                                   .kernel = k->by,
                                   .micro = launches(plan, row),
                                   .flops = row->flops,
                                   .bytes = row->bytes,
                                   .workspace = k->kernel.workspace,
                                   .n_in = row->n_in,
                                   .n_out = row->n_out,
                                   .buffer = row->ref,
                                   .value = row->value};
}

void tn_plan_timeline(const struct tn_plan *plan, uint64_t *live)
{
    memset(live, 0, plan->n_row * sizeof *live);
    for (uint32_t i = 0; i < plan->n_storage; i++) {
        const struct tn_storage *s = &plan->storage[i];
        uint64_t bytes = (s->bytes + TN_OFFSET_ALIGN - 1) / TN_OFFSET_ALIGN * TN_OFFSET_ALIGN;

        for (uint32_t r = s->first; s->where == TN_AT_ARENA && bytes && r <= s->last && r < plan->n_row; r++)
            live[r] += bytes;
    }
}
