/* wait.c - when a collective that was started is waited for.
 *
 * It is started where its node stands and waited for as late as can be: before the first launch that reads what it
 * makes, or writes over what it reads. So communication is hidden by the order of the nodes, which is the strategies'
 * to choose, and nobody says so twice. Bounds:
 *  - What is started for each micro-batch ends in its task; with the last one only (once), it may go on after it.
 *  - Nothing is under way where the update begins, since a run may stop there.
 *  - What only leaves this rank (the move to another stage) has no reader here. For a micro-batch its request stays open
 *    until its slot is used again, or AFTER begins: the other side takes it when its own turn comes.
 *
 * Rows that wait have the operands of the row that started it, which keeps these in their places until then. */
#include "base/arena.h"
#include "graph/op.h"
#include "plan/planner.h"

/* --- what a step touches */

static const struct tn_value *root(struct tn_planner *p, const struct tn_value *v)
{
    return tn_planner_spot(p, v)->root;
}

static int makes(struct tn_planner *p, const struct tn_step *s, const struct tn_value *v)
{
    for (uint32_t o = 0; o < s->n_out; o++)
        if (root(p, s->out[o]) == v)
            return 1;
    return 0;
}

static int reads(struct tn_planner *p, const struct tn_step *s, const struct tn_value *v)
{
    for (uint32_t i = 0; i < s->n_in; i++)
        if (tn_step_reads(s, i) && root(p, s->in[i]) == v)
            return 1;
    return 0;
}

/* Would `next`, launched now, meet what s is doing? */
static int meet(struct tn_planner *p, const struct tn_step *s, const struct tn_step *next)
{
    int assigns = (next->op->flags & TN_OP_EFFECT) != 0;

    for (uint32_t o = 0; o < s->n_out; o++)
        if (reads(p, next, root(p, s->out[o])) || makes(p, next, root(p, s->out[o])))
            return 1;
    for (uint32_t i = 0; i < s->n_in; i++)
        if (makes(p, next, root(p, s->in[i])) || (assigns && root(p, next->in[0]) == root(p, s->in[i])))
            return 1;
    return 0;
}

static int updates(struct tn_planner *p, const struct tn_step *s)
{
    if (s->list != TN_LIST_AFTER)
        return 0;
    for (uint32_t o = 0; o < s->n_out; o++)
        if (root(p, s->out[o])->kind != TN_VALUE_TMP)
            return 1;
    return (s->op->flags & TN_OP_EFFECT) != 0;
}

static int only_leaves(const struct tn_planner *p, const struct tn_step *s)
{
    if (strcmp(s->op->name, "move"))
        return 0;
    for (uint32_t o = 0; o < s->n_out; o++)
        if (p->plan->place[s->out[o]->id].local.count)
            return 0;
    return 1;
}

/* --- rows that wait */

static struct tn_row *add_wait(struct tn_planner *p, const struct tn_flight *f, int all, const struct tn_arg *arg, uint32_t n_in, uint32_t n_out)
{
    struct tn_kernel k = {.struct_size = sizeof k, .state = f->how.kernel.state, .launch = all ? f->how.wait_all : f->how.wait};
    struct tn_row *row = tn_planner_add_row(p, f->step, "wait", arg, n_in, n_out);

    row->kernel[0] = row->kernel[1] = tn_planner_keep_kernel(p, &k, "communicator");
    return row;
}

static void end_flight(struct tn_planner *p, uint32_t i, uint32_t list, uint32_t part, uint32_t once)
{
    struct tn_flight f = p->flight[i];
    uint32_t n_in = p->plan->row[f.row].n_in, n_out = p->plan->row[f.row].n_out;
    struct tn_row *row = add_wait(p, &f, 0, p->arg[f.row], n_in, n_out);

    row->list = list, row->part = part, row->once = once;
    row->way = TN_ROW_WAIT;
    p->plan->row[f.row].wait = p->plan->n_row - 1;
    p->n_flight--;
    memmove(p->flight + i, p->flight + i + 1, (p->n_flight - i) * sizeof *p->flight);
}

void tn_planner_started(struct tn_planner *p, const struct tn_step *s, uint32_t row, const struct tn_plan_collective *how)
{
    struct tn_flight f = {.step = s, .row = row, .how = *how};

    if (!how->wait)
        return;
    p->plan->row[row].way = TN_ROW_START;
    if (only_leaves(p, s) && tn_list_repeats(s->list)) {
        p->plan->row[row].way = TN_ROW_SEND;
        p->send = tn_alloc_grow(p->arena, p->send, p->n_send, sizeof *p->send);
        p->send[p->n_send++] = f;
        return;
    }
    p->flight = tn_alloc_grow(p->arena, p->flight, p->n_flight, sizeof *p->flight);
    p->flight[p->n_flight++] = f;
}

/* What must be over before `next`, in the order in which it was started. */
void tn_planner_wait_for(struct tn_planner *p, const struct tn_step *next)
{
    for (uint32_t i = 0; i < p->n_flight;) {
        const struct tn_step *s = p->flight[i].step;
        int together = next && next->list == s->list && next->part == s->part;

        if ((together || (s->once && next)) && !updates(p, next) && !meet(p, s, next))
            i++;
        else if (together || !s->once)
            end_flight(p, i, s->list, s->part, s->once);
        else if (next)
            end_flight(p, i, next->list, next->part, next->list <= TN_LIST_BACKWARD);
        else
            end_flight(p, i, TN_LIST_AFTER, 0, 0);
    }
}

/* --- sends */

/* The rows that wait for what left a stage in the slot that its forward is about to use come first in it. */
static void before_forward(struct tn_planner *p)
{
    uint32_t n_row = p->plan->n_row, *went = tn_alloc_array(p->arena, n_row + 1u, sizeof *went);
    struct tn_row *row = p->plan->row;
    struct tn_arg **arg = p->arg;

    p->plan->row = NULL, p->arg = NULL;
    p->plan->n_row = p->row_room = 0;
    for (uint32_t r = 0; r < n_row; r++) {
        int begins = row[r].list == TN_LIST_FORWARD && (!r || row[r - 1].list != TN_LIST_FORWARD || row[r - 1].part != row[r].part);

        for (uint32_t i = 0; i < p->n_send && begins; i++) {
            const struct tn_step *s = p->send[i].step;
            uint32_t n = p->plan->n_stage, part = s->list == TN_LIST_BACKWARD ? n - 1 - s->part : s->part;

            if (part != row[r].part || s->once)
                continue;
            struct tn_row *w = add_wait(p, &p->send[i], 0, NULL, 0, 0);
            w->list = TN_LIST_FORWARD, w->part = part, w->once = 0, w->way = TN_ROW_SENT;
        }
        tn_planner_put_row(p, &row[r], arg[r]);
        went[r] = p->plan->n_row - 1;
    }
    for (uint32_t r = 0; r < p->plan->n_row; r++)
        if (p->plan->row[r].wait != TN_NOWHERE)
            p->plan->row[r].wait = went[p->plan->row[r].wait];
}

void tn_planner_wait_for_sends(struct tn_planner *p)
{
    for (uint32_t i = 0; i < p->n_send; i++) {
        struct tn_row *w = add_wait(p, &p->send[i], 1, NULL, 0, 0);

        w->list = TN_LIST_AFTER, w->part = 0, w->once = 0, w->way = TN_ROW_SENT;
    }
}

void tn_planner_wait_in_forward(struct tn_planner *p)
{
    if (p->n_send && p->plan->n_micro > 1)
        before_forward(p);
}
