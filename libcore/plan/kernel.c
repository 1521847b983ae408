/* kernel.c - a step as a problem, and asking the kernel plugins.
 *
 * A problem is borrowed for the call of prepare, so all of them are put together in one room. */
#include "plan/planner.h"
#include "base/arena.h"
#include "base/status.h"

#define ROOM_OPERANDS (TN_MAX_IN + TN_MAX_OUT)
#define ROOM_LOOPS (2 * TN_MAX_RANK)
#define ROOM_ATTRS 32
#define MOST_WORKSPACE (UINT64_C(1) << 48)       /* bytes; sums of more would wrap */

struct tn_problem_room {
    struct tn_problem problem;
    struct tn_operand operand[ROOM_OPERANDS];
    int64_t size[ROOM_OPERANDS][TN_MAX_RANK], whole[ROOM_OPERANDS][TN_MAX_RANK],
        origin[ROOM_OPERANDS][TN_MAX_RANK];
    const int64_t *index[ROOM_OPERANDS][TN_MAX_RANK];
    const char *dim[ROOM_OPERANDS][TN_MAX_RANK];
    struct tn_loop loop[ROOM_LOOPS];
    struct tn_attr attr[ROOM_ATTRS];
};

void tn_planner_room_new(struct tn_planner *p)
{
    p->room = tn_alloc(p->arena, sizeof *p->room);
}

void tn_planner_arg(struct tn_planner *p, const struct tn_value *v, int contiguous, struct tn_arg *out)
{
    const struct tn_spot *s = tn_planner_spot(p, v);

    *out = (struct tn_arg){.value = v, .root = s->root, .offset = s->offset};
    if (contiguous)
        tn_planner_contiguous(p, v, out->stride);
    else
        memcpy(out->stride, s->stride, sizeof out->stride);
}

/* Inputs, then outputs; an input that only gives a shape has no root. */
void tn_step_args(struct tn_planner *p, const struct tn_step *s, int contiguous, struct tn_arg *arg)
{
    for (uint32_t i = 0; i < s->n_in; i++) {
        if (tn_step_reads(s, i)) {
            tn_planner_arg(p, s->in[i], contiguous, &arg[i]);
            continue;
        }
        arg[i] = (struct tn_arg){.value = s->in[i]};
        tn_planner_contiguous(p, s->in[i], arg[i].stride);
    }
    for (uint32_t o = 0; o < s->n_out; o++)
        tn_planner_arg(p, s->out[o], contiguous, &arg[s->n_in + o]);
}

/* --- the problem */

static void fill_dims(const struct tn_value *v, const struct tn_local *l, uint32_t k,
                      struct tn_problem_room *r)
{
    for (uint32_t d = 0; d < v->rank; d++) {
        r->size[k][d] = l->size[d];
        r->whole[k][d] = v->size[d];
        r->origin[k][d] = l->origin[d];
        r->index[k][d] = l->index[d];
        r->dim[k][d] = v->dim[d];
        if (l->index[d])
            r->operand[k].index = r->index[k];
    }
}

/* A chunk of the flattened local tensor has one dim. */
static void fill_flat(const struct tn_value *v, const struct tn_local *l, uint32_t k,
                      struct tn_problem_room *r)
{
    r->size[k][0] = l->count;
    r->whole[k][0] = 1;
    for (uint32_t d = 0; d < v->rank; d++)
        r->whole[k][0] *= l->size[d];
    r->origin[k][0] = l->flat_start;
    r->dim[k][0] = "flat";
}

static void fill_operand(const struct tn_planner *p, const struct tn_arg *a, uint32_t k)
{
    const struct tn_local *l = &p->plan->place[a->value->id].local;
    struct tn_problem_room *r = p->room;

    r->operand[k] = (struct tn_operand){.dtype = a->value->dtype,
                                        .rank = (uint32_t)tn_local_rank(a->value, l),
                                        .size = r->size[k],
                                        .stride = a->stride,
                                        .whole = r->whole[k],
                                        .origin = r->origin[k],
                                        .dim = r->dim[k]};
    if (l->flat)
        fill_flat(a->value, l, k, r);
    else
        fill_dims(a->value, l, k, r);
}

/* Are all positions that the step reads 0, 1, 2, ...? -1: it reads less than two. */
static int plain_positions(const struct tn_planner *p, const struct tn_step *s)
{
    int n = 0, plain = 1;

    for (uint32_t i = 0; i < s->n_in; i++) {
        const struct tn_value *v = s->in[i];
        const struct tn_local *l = &p->plan->place[v->id].local;

        if (v->rank != 1 || v->dtype != TN_I32 || v->kind != TN_VALUE_POSITIONS)
            continue;
        n++;
        plain &= l->count == v->size[0] && !l->index[0] && !l->flat;
    }
    return n < 2 ? -1 : plain;
}

static uint32_t fill_attrs(const struct tn_planner *p, const struct tn_step *s)
{
    struct tn_attr *attr = p->room->attr;
    int plain = plain_positions(p, s);
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->node->n_attr && n < ROOM_ATTRS - 2; i++)
        if (strcmp(s->node->attr[i].key, "causal") && strcmp(s->node->attr[i].key, "micro_dim"))
            attr[n++] = s->node->attr[i];
    if (plain >= 0)
        attr[n++] = (struct tn_attr)TN_INT("causal", plain);
    if (s->op->flags & TN_OP_RANDOM)
        attr[n++] = (struct tn_attr)TN_INT("micro_dim", tn_value_find_dim(s->in[0], "batch"));
    return n;
}

static tn_status fill_problem(struct tn_planner *p, const struct tn_ask *a)
{
    struct tn_problem_room *r = p->room;
    const struct tn_op *op = a->op ? tn_op_find(a->op) : a->step->op;
    struct tn_problem *q = &r->problem;

    if (a->n_in + a->n_out > ROOM_OPERANDS)
        return tn_error(TN_ERR_SHAPE, "%s has %u operands, at most %d are possible", op->name,
                        a->n_in + a->n_out, ROOM_OPERANDS);
    for (uint32_t k = 0; k < a->n_in + a->n_out; k++)
        fill_operand(p, &a->arg[k], k);
    *q = (struct tn_problem){.struct_size = sizeof *q,
                             .n_in = a->n_in,
                             .n_out = a->n_out,
                             .accumulate = a->accumulate,
                             .op = op->name,
                             .in = r->operand,
                             .out = r->operand + a->n_in,
                             .attr = r->attr};
    if (!a->op) {
        q->n_attr = fill_attrs(p, a->step);
        q->program = a->step->expr ? &a->step->expr->program : NULL;
    }
    if (!(op->flags & TN_OP_NEST) || !a->n_out)
        return TN_OK;
    q->loop = r->loop;
    return tn_nest(q->in, q->n_in, q->out, q->n_out, !(op->flags & TN_OP_RANDOM), r->loop, ROOM_LOOPS,
                   &q->n_loop, &q->n_reduced);
}

/* --- asking */

static int claims(const struct tn_kernels *table, const char *op)
{
    for (const char *const *o = table->ops; *o; o++)
        if (!strcmp(*o, op))
            return 1;
    return 0;
}

/* TN_DECLINED if the plugin does not take it. On TN_OK the caller releases out. */
tn_status tn_planner_ask(struct tn_planner *p, const struct tn_ask *a, struct tn_kernel *out)
{
    const struct tn_plan_kernels *k = &p->o->kernels[a->table];
    const char *op = a->op ? a->op : a->step->op->name;
    char function[64];
    tn_status s;

    *out = (struct tn_kernel){.struct_size = sizeof *out};
    if (!claims(k->table, op))
        return TN_DECLINED;
    s = fill_problem(p, a);
    if (s)
        return s;
    tn_error_clear();
    s = k->table->prepare(&p->room->problem, out);
    if (s == TN_DECLINED)
        return s;
    if (!s && !out->launch)
        return tn_error(TN_ERR, "kernel plugin %s prepared %s without a launch function", k->name, op);
    if (!s && out->workspace > MOST_WORKSPACE)
        return tn_error(TN_ERR_MEMORY, "kernel plugin %s wants %llu bytes of workspace for %s", k->name,
                        (unsigned long long)out->workspace, op);
    snprintf(function, sizeof function, "prepare of %.40s", op);
    return tn_status_of(k->name, function, s);
}

/* As many of it may be under way as its stage has slots. */
tn_status tn_planner_ask_collective(struct tn_planner *p, const struct tn_ask *a, struct tn_plan_collective *out)
{
    tn_status s = fill_problem(p, a);

    *out = (struct tn_plan_collective){.kernel = {.struct_size = sizeof out->kernel}};
    return s ? s
             : p->o->collective(p->o->collective_ctx, a->step->node, &p->room->problem, tn_part_slots(p, a->step->list, a->step->part), out);
}

/* --- nobody takes it */

static void say(char **at, const char *end, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void say(char **at, const char *end, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(*at, (size_t)(end - *at), fmt, ap);
    va_end(ap);
    *at += n < 0 ? 0 : n < end - *at ? n : end - *at - 1;
}

tn_status tn_planner_nobody(struct tn_planner *p, const struct tn_ask *a)
{
    char text[400] = "", *at = text, *end = text + sizeof text;
    const struct tn_node *n = a->step->node;

    for (uint32_t k = 0; k < a->n_in + a->n_out; k++) {
        const struct tn_value *v = a->arg[k].value;
        const struct tn_local *l = &p->plan->place[v->id].local;
        say(&at, end, "%s[", k == a->n_in ? " -> " : k ? " " : "");
        for (uint32_t d = 0; d < v->rank; d++)
            say(&at, end, "%s%s %lld", d ? ", " : "", v->dim[d], (long long)l->size[d]);
        say(&at, end, l->flat ? "; a chunk]" : "]");
    }
    say(&at, end, "; asked:");
    for (uint32_t k = 0; k < p->o->n_kernels; k++)
        say(&at, end, " %s", p->o->kernels[k].name);
    return tn_error(TN_ERR, "no kernel plugin takes %s of node %u (role %s, unit %s): %s",
                    a->op ? a->op : a->step->op->name, n->id, n->role, n->unit, text);
}
