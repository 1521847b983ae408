/* plan.c - making a plan, in order; tasks and uniforms. See plan.h. */
#include "plan/plan.h"
#include "base/arena.h"
#include "plan/offset.h"
#include "plan/planner.h"

int64_t tn_plan_count(const struct tn_plan *plan, const struct tn_value *v)
{
    return plan->place[v->id].local.count;
}

uint64_t tn_plan_bytes(const struct tn_plan *plan, const struct tn_value *v)
{
    return (uint64_t)tn_plan_count(plan, v) * tn_dtype_bytes(v->dtype);
}

/* --- uniforms */

static int draws(const struct tn_row *row)
{
    return row->way == TN_ROW_COMPUTE && tn_op_find(row->op)->flags & TN_OP_RANDOM &&
           (tn_node_float(row->node, "p", 0) > 0 || tn_node_float(row->node, "dropout", 0) > 0);
}

/* The block of this expression's numbers, shared by all rows that have the same expression. */
static uint32_t uniform(struct tn_plan *plan, const struct tn_expr *e, uint64_t bytes)
{
    for (uint32_t i = 0; i < plan->n_uniform; i++)
        if (plan->uniform[i].expr == e ||
            (e && plan->uniform[i].expr && tn_expr_same(plan->uniform[i].expr, e)))
            return plan->uniform[i].offset;
    plan->uniform[plan->n_uniform++] = (struct tn_uniform){e, (uint32_t)plan->uniform_bytes};
    plan->uniform_bytes += (bytes + 15) / 16 * 16;
    return plan->uniform[plan->n_uniform - 1].offset;
}

static void set_uniforms(struct tn_plan *plan)
{
    plan->uniform = tn_alloc_array(plan->arena, plan->n_row + 1u, sizeof *plan->uniform);
    for (uint32_t i = 0; i < plan->n_row; i++) {
        struct tn_row *row = &plan->row[i];
        if (row->expr && row->expr->program.n_uniform)
            row->uniform = uniform(plan, row->expr, row->expr->program.n_uniform * sizeof(float));
        else if (draws(row))
            row->uniform = uniform(plan, NULL, 4 * sizeof(uint32_t));
    }
}

/* --- tasks */

static void add_task(struct tn_plan *plan, uint32_t list, uint32_t at, uint32_t micro, uint32_t slot)
{
    for (uint32_t i = 0; i < plan->n_part; i++) {
        struct tn_task t = {.list = list, .micro = micro, .slot = slot, .part = i, .last = 1};

        if (plan->part[i].list != list || plan->part[i].part != at || plan->part[i].first == plan->part[i].end)
            continue;
        for (uint32_t k = 0; k < plan->n_task; k++)
            if (plan->task[k].part == i)
                t.later = 1, plan->task[k].last = 0;
        plan->task[plan->n_task++] = t;
    }
}

/* What this rank does of forward and backward, in the order of the schedule. */
static void add_turns(struct tn_planner *p)
{
    struct tn_plan *plan = p->plan;
    uint32_t rank = (uint32_t)plan->mesh.coord[tn_stage_axis()];

    for (uint32_t i = 0; i < p->time.n_turn[rank]; i++) {
        const struct tn_turn *x = &p->time.turn[rank][i];
        uint32_t stage = x->stage / p->time.n_rank, backward = x->phase == TN_BACKWARD;

        add_task(plan, backward ? TN_LIST_BACKWARD : TN_LIST_FORWARD, backward ? plan->n_stage - 1 - stage : stage, x->micro, x->slot);
    }
}

static void set_tasks(struct tn_planner *p)
{
    struct tn_plan *plan = p->plan;
    uint32_t rank = (uint32_t)plan->mesh.coord[tn_stage_axis()];

    plan->task = tn_alloc_array(plan->arena, plan->n_micro + p->time.n_turn[rank] + 4u, sizeof *plan->task);
    add_task(plan, TN_LIST_PROLOGUE, 0, 0, 0);
    for (uint32_t m = 0; m < plan->n_micro; m++)
        add_task(plan, TN_LIST_PER_MICRO, 0, m, 0);
    add_task(plan, TN_LIST_READY, 0, 0, 0);
    add_turns(p);
    add_task(plan, TN_LIST_AFTER, 0, 0, 0);
    plan->n_update_task = plan->n_task;
    add_task(plan, TN_LIST_UPDATE, 0, 0, 0);
    plan->n_update_task = plan->n_task - plan->n_update_task;
}

/* --- making one */

static tn_status mark_kept(struct tn_planner *p)
{
    const struct tn_graph *g = p->graph;

    for (uint32_t i = 0; i < p->o->n_keep; i++) {
        const struct tn_value *v = p->o->keep[i];
        if (v->kind == TN_VALUE_TMP && p->made[v->id] == TN_NOWHERE)
            return tn_error(TN_ERR, "%%%u %s cannot be kept: no node makes it", v->id, v->name);
        p->spot[v->id].kept = 1;
    }
    for (uint32_t i = 0; i < g->n_output; i++)
        if (!g->output[i].value->rank && p->made[g->output[i].value->id] != TN_NOWHERE)
            p->spot[g->output[i].value->id].kept = 1;
    return TN_OK;
}

static tn_status make(struct tn_planner *p)
{
    struct tn_plan *plan = p->plan;
    tn_status s;

    tn_planner_room_new(p);
    s = tn_planner_program(p);
    if (!s)
        s = mark_kept(p);
    if (!s && !p->o->no_fuse)
        s = tn_planner_both(p);
    if (!s)
        tn_planner_alias(p); /* so that sums that go to accumulators are taken apart, not fused */
    if (!s && !p->o->no_remake)
        s = tn_planner_remake(p);
    if (!s && !p->o->no_fuse)
        s = tn_planner_fuse(p);
    if (!s)
        s = tn_planner_rows(p);
    if (s)
        return s;
    tn_planner_lifetimes(p);
    set_uniforms(plan);
    set_tasks(p);
    return TN_OK;
}

tn_status tn_plan_new(struct tn_graph *g, const struct tn_mesh *m, const struct tn_plan_options *o,
                      struct tn_plan **out)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_planner p = {.plan = tn_alloc(arena, sizeof *p.plan), .graph = g, .o = o, .arena = arena};
    tn_status s = tn_graph_status(g);

    *out = NULL;
    p.plan->arena = arena;
    p.plan->graph = g;
    p.plan->mesh = *m;
    p.plan->n_micro = o->n_micro ? o->n_micro : 1;
    if (!s)
        s = make(&p);
    if (s) {
        tn_plan_free(p.plan);
        return s;
    }
    *out = p.plan;
    return TN_OK;
}

void tn_plan_free(struct tn_plan *plan)
{
    if (!plan)
        return;
    for (uint32_t i = 0; i < plan->n_kernel; i++)
        if (plan->kernel[i].kernel.release)
            plan->kernel[i].kernel.release(plan->kernel[i].kernel.state);
    tn_arena_free(plan->arena);
}
