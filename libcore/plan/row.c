/* row.c - steps become launches, each with the kernels that do it.
 *
 * A plugin is asked for a step as it was placed first. Where it declines that, it is asked with operands
 * without gaps, and with sums not added in place: if that pleases a plugin that comes earlier in the order of
 * preference than one that takes the step as it is, the copies are the better bargain, and placing starts
 * again with marks.
 *
 * The first micro-batch overwrites accumulators, later ones add: hence two kernels for some rows. */
#include "plan/planner.h"
#include "base/arena.h"

int32_t tn_planner_keep_kernel(struct tn_planner *p, const struct tn_kernel *k, const char *by)
{
    struct tn_plan *plan = p->plan;

    if (plan->n_kernel == p->kernel_room) {
        p->kernel_room = p->kernel_room ? 2 * p->kernel_room : 256;
        struct tn_plan_kernel *more = tn_alloc_array(p->arena, p->kernel_room, sizeof *more);
        if (plan->n_kernel)
            memcpy(more, plan->kernel, plan->n_kernel * sizeof *more);
        plan->kernel = more;
    }
    plan->kernel[plan->n_kernel] = (struct tn_plan_kernel){*k, by};
    return (int32_t)plan->n_kernel++;
}

void tn_planner_release(struct tn_planner *p)
{
    for (uint32_t i = 0; i < p->plan->n_kernel; i++)
        if (p->plan->kernel[i].kernel.release)
            p->plan->kernel[i].kernel.release(p->plan->kernel[i].kernel.state);
    p->plan->n_kernel = 0;
}

/* --- the rows */

/* At the end; arg is borrowed as long as the plan is made. */
struct tn_row *tn_planner_put_row(struct tn_planner *p, const struct tn_row *given, struct tn_arg *given_arg)
{
    struct tn_plan *plan = p->plan;

    if (plan->n_row == p->row_room) {
        p->row_room = p->row_room ? 2 * p->row_room : 256;
        struct tn_row *row = tn_alloc_array(p->arena, p->row_room, sizeof *row);
        struct tn_arg **arg = tn_alloc_array(p->arena, p->row_room, sizeof *arg);
        if (plan->n_row) {
            memcpy(row, plan->row, plan->n_row * sizeof *row);
            memcpy(arg, p->arg, plan->n_row * sizeof *arg);
        }
        plan->row = row;
        p->arg = arg;
    }
    p->arg[plan->n_row] = given_arg;
    plan->row[plan->n_row] = *given;
    return &plan->row[plan->n_row++];
}

struct tn_row *tn_planner_add_row(struct tn_planner *p, const struct tn_step *s, const char *op, const struct tn_arg *given, uint32_t n_in,
                                  uint32_t n_out)
{
    struct tn_arg *arg = tn_alloc_array(p->arena, n_in + n_out + 1u, sizeof *arg);
    const struct tn_value **value = tn_alloc_array(p->arena, n_in + n_out + 1u, sizeof *value);

    for (uint32_t k = 0; k < n_in + n_out; k++) {
        arg[k] = given[k];
        value[k] = arg[k].value;
    }
    return tn_planner_put_row(p,
                              &(struct tn_row){.node = s->node,
                                               .op = op,
                                               .list = s->list,
                                               .part = s->part,
                                               .once = s->once,
                                               .n_in = n_in,
                                               .n_out = n_out,
                                               .merged = 1,
                                               .uniform = TN_NOWHERE,
                                               .value = value,
                                               .wait = TN_NOWHERE,
                                               .work = TN_NOWHERE,
                                               .kernel = {-1, -1}},
                              arg);
}

static struct tn_row *add_row(struct tn_planner *p, const struct tn_ask *a)
{
    struct tn_row *row = tn_planner_add_row(p, a->step, a->op ? a->op : a->step->op->name, a->arg, a->n_in, a->n_out);

    if (a->op)
        return row;
    row->merged = a->step->merged;
    row->expr = a->step->expr;
    row->flops = a->step->flops;
    return row;
}

static double arg_bytes(const struct tn_planner *p, const struct tn_arg *a)
{
    return a->root
               ? (double)p->plan->place[a->value->id].local.count * (double)tn_dtype_bytes(a->value->dtype)
               : 0;
}

/* Of a table only those rows are read that make the output. */
static double table_bytes(const struct tn_planner *p, const struct tn_ask *a)
{
    const char *op = a->op ? "" : a->step->op->name;
    double all = arg_bytes(p, &a->arg[0]), out = arg_bytes(p, &a->arg[a->n_in]);

    return (!strcmp(op, "embed") || !strcmp(op, "pick")) && out < all ? out : all;
}

/* A store writes as much as it reads. */
static double written_bytes(const struct tn_planner *p, const struct tn_ask *a, uint32_t k)
{
    return arg_bytes(p, &a->arg[!a->op && a->step->op->flags & TN_OP_STORE ? 1 : k]);
}

static void count_bytes(const struct tn_planner *p, const struct tn_ask *a, uint32_t accumulate,
                        struct tn_row *row)
{
    for (uint32_t k = 0; k < a->n_in + a->n_out; k++)
        row->bytes += k == 0 && a->n_in ? table_bytes(p, a)
                                        : (k < a->n_in ? arg_bytes(p, &a->arg[k]) : written_bytes(p, a, k)) *
                                              (k >= a->n_in && accumulate & 1u << (k - a->n_in) ? 2 : 1);
}

/* --- choosing */

/* Both variants from one plugin. first or later may be TN_NOWHERE: there is no such launch. */
static tn_status ask_both(struct tn_planner *p, struct tn_ask *a, const uint32_t accumulate[2],
                          struct tn_kernel out[2])
{
    tn_status s = TN_OK;

    out[0] = out[1] = (struct tn_kernel){0};
    for (int m = 0; m < 2 && !s; m++) {
        if (accumulate[m] == TN_NOWHERE || (m && accumulate[1] == accumulate[0]))
            continue;
        a->accumulate = accumulate[m];
        s = tn_planner_ask(p, a, &out[m]);
    }
    if (s)
        for (int m = 0; m < 2; m++)
            if (out[m].launch && out[m].release)
                out[m].release(out[m].state);
    return s;
}

static void keep_both(struct tn_planner *p, const struct tn_ask *a, const uint32_t accumulate[2],
                      const struct tn_kernel k[2], struct tn_row *row)
{
    for (int m = 0; m < 2; m++) {
        if (accumulate[m] == TN_NOWHERE)
            continue;
        row->kernel[m] = m && accumulate[1] == accumulate[0] ? row->kernel[0] : tn_planner_keep_kernel(p, &k[m], p->o->kernels[a->table].name);
    }
}

/* Outputs that add into an accumulator: in the first micro-batch, in later ones. */
static void accumulate_bits(struct tn_planner *p, const struct tn_step *s, uint32_t bits[2])
{
    bits[0] = bits[1] = 0;
    for (uint32_t o = 0; o < s->n_out; o++) {
        const struct tn_spot *spot = &p->spot[s->out[o]->id];
        if (spot->adds)
            bits[1] |= 1u << o;
        if (spot->adds && !spot->first_writer)
            bits[0] |= 1u << o;
    }
    if (p->plan->n_micro == 1 || !tn_list_repeats(s->list))
        bits[1] = bits[0];
}

/* The part that v is, itself or as what it is the same as. */
static struct tn_spot *part_of(struct tn_planner *p, const struct tn_value *v)
{
    while (p->spot[v->id].how == TN_INTO_SAME)
        v = p->spot[v->id].into;
    return p->spot[v->id].how == TN_INTO_NONE ? NULL : &p->spot[v->id];
}

static int has_parts(struct tn_planner *p, const struct tn_step *s, int mark)
{
    int any = 0;

    for (uint32_t k = 0; k < s->n_in + s->n_out; k++) {
        struct tn_spot *part = part_of(p, k < s->n_in ? s->in[k] : s->out[k - s->n_in]);
        if (!part || (k < s->n_in && !tn_step_reads(s, k)))
            continue;
        any = 1;
        if (mark)
            part->whole = 1;
    }
    return any;
}

static void mark_apart(struct tn_planner *p, const struct tn_step *s)
{
    for (uint32_t o = 0; o < s->n_out; o++)
        p->spot[s->out[o]->id].apart |= p->spot[s->out[o]->id].adds;
}

/* Would this plugin take it with other places? Then they are marked. */
static tn_status ask_otherwise(struct tn_planner *p, const struct tn_ask *as_placed, const uint32_t bits[2])
{
    static const uint32_t none[2] = {0, 0};
    const struct tn_step *s = as_placed->step;
    struct tn_arg arg[TN_MAX_IN + TN_MAX_OUT];
    struct tn_ask a = *as_placed;
    struct tn_kernel k[2];
    int parts = has_parts(p, s, 0), adds = (bits[0] | bits[1]) != 0;
    tn_status status = TN_DECLINED;

    tn_step_args(p, s, 1, arg);
    for (int way = 1; way < 4 && status == TN_DECLINED;
         way++) { /* 1: no parts, 2: nothing added in place, 3: both */
        if ((way & 1 && !parts) || (way & 2 && !adds))
            continue;
        a.arg = way & 1 ? arg : as_placed->arg;
        status = ask_both(p, &a, way & 2 ? none : bits, k);
        if (status)
            continue;
        for (int m = 0; m < 2; m++)
            if (k[m].launch && k[m].release)
                k[m].release(k[m].state);
        if (way & 1)
            has_parts(p, s, 1);
        if (way & 2)
            mark_apart(p, s);
        p->again = 1;
    }
    return status;
}

static int is_empty(const struct tn_planner *p, const struct tn_ask *a)
{
    for (uint32_t o = 0; o < a->n_out; o++)
        if (p->plan->place[a->arg[a->n_in + o].value->id].local.count)
            return 0;
    return 1;
}

/* On a stage of other ranks, from beginning to end: none of its group is concerned. */
static int is_elsewhere(const struct tn_planner *p, const struct tn_step *s)
{
    for (uint32_t i = 0; i < s->n_in + s->n_out; i++)
        if (tn_value_here(i < s->n_in ? s->in[i] : s->out[i - s->n_in], &p->plan->mesh))
            return 0;
    return 1;
}

/* Operands as they are placed, or without gaps: then copies are put around it. */
static tn_status collective_row(struct tn_planner *p, const struct tn_step *s)
{
    struct tn_arg arg[TN_MAX_IN + TN_MAX_OUT];
    struct tn_ask a = {.step = s, .arg = arg, .n_in = s->n_in, .n_out = s->n_out};
    struct tn_plan_collective how;
    tn_status status;

    if (is_elsewhere(p, s))
        return TN_OK;
    if (!p->o->collective)
        return tn_error(TN_ERR, "node %u is the collective %s (unit %s), and there is no communicator", s->node->id, s->op->name,
                        s->node->unit);
    tn_step_args(p, s, 0, arg);
    status = tn_planner_ask_collective(p, &a, &how);
    if (status == TN_DECLINED && has_parts(p, s, 1)) {
        p->again = 1;
        tn_step_args(p, s, 1, arg);
        status = tn_planner_ask_collective(p, &a, &how);
    }
    if (status)
        return status == TN_DECLINED ? tn_planner_nobody(p, &a) : status;
    struct tn_row *row = add_row(p, &a);
    row->kernel[0] = row->kernel[1] = tn_planner_keep_kernel(p, &how.kernel, "communicator");
    count_bytes(p, &a, 0, row);
    tn_planner_started(p, s, p->plan->n_row - 1, &how);
    return TN_OK;
}

static tn_status step_row(struct tn_planner *p, const struct tn_step *s)
{
    struct tn_arg arg[TN_MAX_IN + TN_MAX_OUT];
    struct tn_ask a = {.step = s, .arg = arg, .n_in = s->n_in, .n_out = s->n_out};
    uint32_t bits[2];
    tn_status status = TN_DECLINED;
    struct tn_kernel k[2];

    tn_step_args(p, s, 0, arg);
    accumulate_bits(p, s, bits);
    if (is_empty(p, &a))
        return TN_OK;
    for (; a.table < p->o->n_kernels && status == TN_DECLINED; a.table++) {
        status = ask_both(p, &a, bits, k);
        if (!status) {
            struct tn_row *row = add_row(p, &a);
            keep_both(p, &a, bits, k, row);
            count_bytes(p, &a, bits[1], row);
            return TN_OK;
        }
        if (status == TN_DECLINED)
            status = ask_otherwise(p, &a, bits);
    }
    return status == TN_DECLINED ? tn_planner_nobody(p, &a) : status;
}

/* --- the rows that no step asks for */

static tn_status copy_row(struct tn_planner *p, const struct tn_step *s, const char *op,
                          const struct tn_arg *from, const struct tn_arg *to, const uint32_t accumulate[2])
{
    struct tn_arg arg[2] = {*from, *to};
    struct tn_ask a = {.step = s, .op = op, .arg = arg, .n_in = 1, .n_out = 1};
    tn_status status = TN_DECLINED;
    struct tn_kernel k[2];

    if (is_empty(p, &a))
        return TN_OK;
    for (; a.table < p->o->n_kernels; a.table++) {
        status = ask_both(p, &a, accumulate, k);
        if (status != TN_DECLINED)
            break;
    }
    if (status)
        return status == TN_DECLINED ? tn_planner_nobody(p, &a) : status;
    struct tn_row *row = add_row(p, &a);
    keep_both(p, &a, accumulate, k, row);
    count_bytes(p, &a, accumulate[1] == TN_NOWHERE ? 0 : accumulate[1], row);
    return TN_OK;
}

static const uint32_t overwrite[2] = {0, 0};

/* Parts that are not views, or not made in their places, are copied. */
static tn_status cut_rows(struct tn_planner *p, const struct tn_step *s)
{
    int view = (s->op->flags & TN_OP_VIEW) != 0;
    uint32_t n = view ? s->n_out : s->n_in;
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < n && !status; i++) {
        const struct tn_value *v = view ? s->out[i] : s->in[i];
        const struct tn_spot *spot = tn_planner_spot(p, v);
        struct tn_arg part = {.value = v}, own;

        if (spot->cut == s && spot->how != TN_INTO_NONE)
            continue;
        if (!tn_planner_part(p, s, i, part.stride, &part.offset, &part.root))
            return tn_error(TN_ERR,
                            "node %u %s (unit %s) cuts along a dim of which this rank has a flat chunk",
                            s->node->id, s->op->name, s->node->unit);
        tn_planner_arg(p, v, 0, &own);
        status = copy_row(p, s, "copy", view ? &part : &own, view ? &own : &part, overwrite);
    }
    return status;
}

/* What was not written straight into the accumulator. */
static tn_status accum_rows(struct tn_planner *p, const struct tn_step *s)
{
    const struct tn_spot *y = tn_planner_spot(p, s->out[0]);
    tn_status status = TN_OK;
    int written = 0;
    struct tn_arg to, from;

    if (y->how == TN_INTO_SAME)
        return TN_OK;
    for (uint32_t i = 0; i < s->n_in; i++)
        written |= p->spot[s->in[i]->id].adds != 0;
    tn_planner_arg(p, s->out[0], 0, &to);
    for (uint32_t i = 0; i < s->n_in && !status; i++) {
        uint32_t bits[2] = {written ? 1 : 0, 1};
        if (p->spot[s->in[i]->id].adds)
            continue;
        if (p->plan->n_micro == 1 || !tn_list_repeats(s->list))
            bits[1] = bits[0];
        tn_planner_arg(p, s->in[i], 0, &from);
        status = copy_row(p, s, "accum", &from, &to, bits);
        written = 1;
    }
    return status;
}

static tn_status assign_row(struct tn_planner *p, const struct tn_step *s)
{
    struct tn_arg from, to;

    tn_planner_arg(p, s->in[1], 0, &from);
    tn_planner_arg(p, s->in[0], 0, &to);
    if (from.root == to.root && p->spot[s->in[1]->id].how == TN_INTO_SAME)
        return TN_OK;
    return copy_row(p, s, "copy", &from, &to, overwrite);
}

static tn_status rows_of(struct tn_planner *p, const struct tn_step *s)
{
    if (s->op->flags & (TN_OP_VIEW | TN_OP_STACK))
        return cut_rows(p, s);
    if (s->op->flags & TN_OP_ACCUM)
        return accum_rows(p, s);
    if (s->op->flags & TN_OP_EFFECT)
        return assign_row(p, s);
    if (s->op->flags & TN_OP_COLLECTIVE)
        return collective_row(p, s);
    return step_row(p, s);
}

/* In program order, with the rows that wait between. */
static tn_status all_rows(struct tn_planner *p)
{
    uint32_t list = TN_LIST_PROLOGUE;
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < p->n_step && !status; i++) {
        const struct tn_step *s = &p->step[i];

        if (s->dead)
            continue;
        tn_planner_wait_for(p, s);
        if (list <= TN_LIST_BACKWARD && s->list > TN_LIST_BACKWARD)
            tn_planner_wait_for_sends(p);
        list = s->list;
        status = rows_of(p, s);
    }
    if (status)
        return status;
    tn_planner_wait_for(p, NULL);
    if (list <= TN_LIST_BACKWARD)
        tn_planner_wait_for_sends(p);
    tn_planner_wait_in_forward(p);
    return TN_OK;
}

tn_status tn_planner_rows(struct tn_planner *p)
{
    do {
        tn_status status;

        tn_planner_release(p);
        p->plan->n_row = 0;
        p->again = p->n_flight = p->n_send = 0;
        tn_planner_alias(p);
        status = all_rows(p);
        if (status)
            return status;
    } while (p->again);
    return TN_OK;
}
