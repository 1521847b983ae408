/* program.c - the nodes of the graph as steps in lists.
 *
 * The prologue falls into three: what needs to be done once; what depends on inputs that differ between the
 * micro-batches, up to where it is added up; and what depends on those sums. A value that is made anew in
 * each micro-batch means nothing after the loop, so reading one there is an error here and not a wrong number
 * later. */
#include "plan/planner.h"
#include "base/arena.h"

#define MOST_STAGES 32u                          /* of one rank: bits of a word */

int tn_list_repeats(uint32_t list)
{
    return list == TN_LIST_PER_MICRO || list == TN_LIST_FORWARD || list == TN_LIST_BACKWARD;
}

int tn_same_task(const struct tn_step *a, const struct tn_step *b)
{
    return a->list == b->list && a->part == b->part && a->once == b->once;
}

int tn_step_reads(const struct tn_step *s, uint32_t input)
{
    return input >= 32 || !(s->op->unread & 1u << input);
}

static int accumulates(const struct tn_step *s)
{
    return (s->op->flags & TN_OP_ACCUM) != 0;
}

static tn_status bad_read(const struct tn_step *s, const struct tn_value *v, const char *why)
{
    return tn_error(TN_ERR, "node %u %s (role %s, unit %s) reads %%%u %s, %s", s->node->id, s->op->name,
                    s->node->role, s->node->unit, v->id, v->name, why);
}

/* Which part of the prologue? */
static tn_status prologue_list(const struct tn_planner *p, const struct tn_step *s, uint32_t *out)
{
    uint32_t list = TN_LIST_PROLOGUE;

    for (uint32_t i = 0; i < s->n_in; i++) {
        const struct tn_value *v = s->in[i];
        uint32_t made = p->made[v->id];
        const struct tn_step *m = made == TN_NOWHERE ? NULL : &p->step[made];
        uint32_t need = TN_LIST_PROLOGUE;

        if (!tn_step_reads(s, i))
            continue;
        if (v->kind == TN_VALUE_INPUT && v->per_micro)
            need = TN_LIST_PER_MICRO;
        else if (m)
            need = m->list == TN_LIST_PER_MICRO && accumulates(m) ? TN_LIST_READY : m->list;
        if (list && need && need != list)
            return bad_read(s, v,
                            "a sum over all micro-batches beside values of a single one, in the prologue");
        list = need ? need : list;
    }
    *out = list;
    return TN_OK;
}

static tn_status check_reads(const struct tn_planner *p, const struct tn_step *s)
{
    for (uint32_t i = 0; i < s->n_in; i++) {
        const struct tn_value *v = s->in[i];
        uint32_t made = p->made[v->id];
        const struct tn_step *m = made == TN_NOWHERE ? NULL : &p->step[made];

        if (!tn_step_reads(s, i) || p->plan->n_micro == 1)
            continue;
        if (v->kind == TN_VALUE_INPUT && v->per_micro && !tn_list_repeats(s->list))
            return bad_read(s, v, "an input that differs between the micro-batches, outside of them");
        if (!m || accumulates(m) || m->once || !tn_list_repeats(m->list))
            continue;
        if (!tn_list_repeats(s->list) || (m->list == TN_LIST_PER_MICRO) != (s->list == TN_LIST_PER_MICRO))
            return bad_read(
                s, v, "which is made anew in each micro-batch: only an accum of it may be read elsewhere");
    }
    return TN_OK;
}

/* --- stages */

/* The stages of this rank in the order in which a micro-batch passes them. */
uint32_t tn_part_stage(const struct tn_planner *p, uint32_t list, uint32_t part)
{
    uint32_t n = p->plan->n_stage, first = (uint32_t)p->plan->mesh.coord[tn_stage_axis()];

    return first + p->time.n_rank * (list == TN_LIST_BACKWARD ? n - 1 - part : part);
}

uint32_t tn_part_slots(const struct tn_planner *p, uint32_t list, uint32_t part)
{
    uint32_t stage = tn_part_stage(p, list, part);

    return list != TN_LIST_FORWARD && list != TN_LIST_BACKWARD ? 1 : stage < p->time.n_stage ? p->time.slots[stage] : 1;
}

/* What has no stage is done as soon as what it needs is there. */
static uint32_t part_without_stage(const struct tn_planner *p, const struct tn_step *s)
{
    uint32_t part = 0;

    for (uint32_t i = 0; i < s->n_in; i++) {
        uint32_t made = p->made[s->in[i]->id];

        if (made != TN_NOWHERE && p->step[made].list == s->list && p->step[made].part > part)
            part = p->step[made].part;
    }
    return part;
}

/* A move belongs to the sender's stage where it is sent, to the receiver's where it arrives. */
static uint32_t part_of(const struct tn_planner *p, const struct tn_step *s)
{
    int64_t ranks = p->time.n_rank, here = p->plan->mesh.coord[tn_stage_axis()], from, stage = tn_stage_of_node(s->node, &from);
    uint32_t turn;

    if ((s->list != TN_LIST_FORWARD && s->list != TN_LIST_BACKWARD) || p->plan->n_stage == 1)
        return 0;
    if (from >= 0 && from % ranks == here)
        stage = from;
    if (stage < 0)
        return part_without_stage(p, s);
    turn = (uint32_t)(stage / ranks);
    return turn >= p->plan->n_stage ? 0 : s->list == TN_LIST_BACKWARD ? p->plan->n_stage - 1 - turn : turn;
}

static tn_status add_step(struct tn_planner *p, const struct tn_node *n)
{
    struct tn_step *s = &p->step[p->n_step];
    tn_status status = TN_OK;

    *s = (struct tn_step){
        .node = n, .op = n->op->as ? tn_op_find(n->op->as) : n->op, .n_in = n->n_in, .n_out = n->n_out, .expr = n->expr, .merged = 1};
    s->in = tn_alloc_array(p->arena, n->n_in + 1u, sizeof *s->in);
    s->out = tn_alloc_array(p->arena, n->n_out + 1u, sizeof *s->out);
    memcpy(s->in, n->in, n->n_in * sizeof *s->in);
    memcpy(s->out, n->out, n->n_out * sizeof *s->out);
    if (n->op->flops)
        s->flops = n->op->flops(n, &p->plan->mesh);
    else if (n->n_out)
        s->flops = (double)p->plan->place[n->out[0]->id].local.count;
    if (n->phase == TN_PROLOGUE)
        status = prologue_list(p, s, &s->list);
    else
        s->list = n->phase == TN_FORWARD    ? TN_LIST_FORWARD
                  : n->phase == TN_BACKWARD ? TN_LIST_BACKWARD
                                            : TN_LIST_AFTER;
    s->part = part_of(p, s);
    s->once = (s->list == TN_LIST_FORWARD || s->list == TN_LIST_BACKWARD) && !strcmp(tn_node_text(n, "when"), "last");
    if (!status)
        status = check_reads(p, s);
    for (uint32_t o = 0; o < s->n_out; o++)
        p->made[s->out[o]->id] = p->n_step;
    p->n_step++;
    return status;
}

static uint32_t count_nodes(const struct tn_graph *g)
{
    uint32_t n = 0;

    for (const struct tn_node *x = tn_graph_first(g); x; x = tn_node_next(x))
        n++;
    return n;
}

/* The three parts of the prologue one after the other, and the stages of forward and backward. */
static void sort_lists(struct tn_planner *p)
{
    struct tn_step *sorted = tn_alloc_array(p->arena, p->n_step, sizeof *sorted);
    uint32_t n = 0;

    for (uint32_t list = 0; list < TN_LISTS; list++)
        for (uint32_t part = 0; part < p->plan->n_stage; part++)
            for (uint32_t i = 0; i < p->n_step; i++)
                if (p->step[i].list == list && p->step[i].part == part)
                    sorted[n++] = p->step[i];
    p->step = sorted;
}

/* Steps may have been fused since: who makes and who reads each value. */
void tn_planner_index(struct tn_planner *p)
{
    uint32_t n_value = p->plan->n_value, total = 0;

    memset(p->use_first, 0, (n_value + 2u) * sizeof *p->use_first);
    for (uint32_t v = 0; v < n_value; v++)
        p->made[v] = TN_NOWHERE;
    for (uint32_t i = 0; i < p->n_step; i++) {
        const struct tn_step *s = &p->step[i];
        for (uint32_t k = 0; k < s->n_in && !s->dead; k++)
            p->use_first[s->in[k]->id + 2] += (uint32_t)tn_step_reads(s, k);
        for (uint32_t k = 0; k < s->n_out && !s->dead; k++)
            p->made[s->out[k]->id] = i;
    }
    for (uint32_t v = 0; v < n_value; v++)
        p->use_first[v + 2] += p->use_first[v + 1];
    total = p->use_first[n_value + 1];
    if (total > p->use_room)
        p->use = tn_alloc_array(p->arena, p->use_room = total, sizeof *p->use);
    for (uint32_t i = 0; i < p->n_step; i++) {
        const struct tn_step *s = &p->step[i];
        for (uint32_t k = 0; k < s->n_in && !s->dead; k++)
            if (tn_step_reads(s, k))
                p->use[p->use_first[s->in[k]->id + 1]++] = i;
    }
    memcpy(p->use_end, p->use_first + 1, n_value * sizeof *p->use_end);
}

/* The readers of what s reads, without steps a and b. */
static void drop_uses(struct tn_planner *p, const struct tn_step *s, uint32_t a, uint32_t b)
{
    for (uint32_t k = 0; k < s->n_in; k++) {
        uint32_t v = s->in[k]->id, end = p->use_first[v];
        for (uint32_t u = end; u < p->use_end[v]; u++)
            if (p->use[u] != a && p->use[u] != b)
                p->use[end++] = p->use[u];
        p->use_end[v] = end;
    }
}

/* In order of steps; 0 if there is no room. */
static int add_use(struct tn_planner *p, uint32_t v, uint32_t step)
{
    uint32_t u = p->use_end[v];

    if (u == p->use_first[v + 1])
        return 0;
    for (; u > p->use_first[v] && p->use[u - 1] > step; u--)
        p->use[u] = p->use[u - 1];
    p->use[u] = step;
    p->use_end[v]++;
    return 1;
}

void tn_planner_joined(struct tn_planner *p, uint32_t a, uint32_t b, const struct tn_step *joined)
{
    int fits = 1;

    drop_uses(p, &p->step[a], a, b);
    drop_uses(p, &p->step[b], a, b);
    for (uint32_t k = 0; k < p->step[a].n_out; k++)
        p->made[p->step[a].out[k]->id] = TN_NOWHERE;
    p->step[a].dead = 1;
    p->step[b] = *joined;
    for (uint32_t k = 0; k < joined->n_out; k++)
        p->made[joined->out[k]->id] = b;
    for (uint32_t k = 0; k < joined->n_in && fits; k++)
        fits = !tn_step_reads(joined, k) || add_use(p, joined->in[k]->id, b);
    if (!fits)
        tn_planner_index(p);
}

uint32_t tn_planner_uses(const struct tn_planner *p, const struct tn_value *v, const uint32_t **steps)
{
    if (steps)
        *steps = p->use + p->use_first[v->id];
    return p->use_end[v->id] - p->use_first[v->id];
}

static tn_status make_timetable(struct tn_planner *p)
{
    uint32_t rank = (uint32_t)p->plan->mesh.coord[tn_stage_axis()];
    tn_status s = tn_timetable_make(p->arena, p->graph, p->plan->n_micro, 1, 2, &p->time);

    if (s)
        return s;
    p->plan->n_stage = (p->time.n_stage - rank + p->time.n_rank - 1) / p->time.n_rank;
    if (p->plan->n_stage > MOST_STAGES)
        return tn_error(TN_ERR_CONFIG, "%u stages of the pipeline on one rank: at most %u are possible", p->plan->n_stage, MOST_STAGES);
    p->in_sequence = (uint32_t)tn_timetable_in_sequence(&p->time, rank);
    return TN_OK;
}

tn_status tn_planner_program(struct tn_planner *p)
{
    struct tn_graph *g = p->graph;
    uint32_t n_step = count_nodes(g), n_value = g->n_value + n_step; /* room for what is made twice */
    tn_status status;

    tn_graph_settle(g);
    status = make_timetable(p);
    if (status)
        return status;
    p->plan->n_value = g->n_value;
    p->values = g->all_values;
    p->plan->place = tn_alloc_array(p->arena, n_value + 1u, sizeof *p->plan->place);
    p->spot = tn_alloc_array(p->arena, n_value + 1u, sizeof *p->spot);
    p->made = tn_alloc_array(p->arena, n_value + 1u, sizeof *p->made);
    p->use_first = tn_alloc_array(p->arena, n_value + 2u, sizeof *p->use_first);
    p->use_end = tn_alloc_array(p->arena, n_value + 1u, sizeof *p->use_end);
    p->step = tn_alloc_array(p->arena, n_step, sizeof *p->step);
    memset(p->made, 0xff, (n_value + 1u) * sizeof *p->made);
    for (struct tn_value *v = g->all_values; v; v = v->next_value)
        tn_value_local(v, &p->plan->mesh, p->arena, &p->plan->place[v->id].local);
    for (const struct tn_node *n = tn_graph_first(g); n; n = tn_node_next(n)) {
        tn_status s = add_step(p, n);
        if (s)
            return s;
    }
    sort_lists(p);
    tn_planner_index(p);
    return TN_OK;
}
