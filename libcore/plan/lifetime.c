/* lifetime.c - when each storage is needed, what may be overwritten in place, and where all of it lies.
 *
 * Time is the number of a row. The rows of the loop over the micro-batches run several times, in the same
 * memory: what is made before the loop and read inside lives to its end; what adds up over the loop, and what
 * is kept of each micro-batch, lives from its begin. With one micro-batch there is no such loop, and
 * accumulators live from their first write.
 *
 * Where several micro-batches are in flight, rows of different tasks mix: what lives from one task to another lives
 * through the whole loop, with a place for each slot of its stage (or, if several stages share it, for each
 * micro-batch). What lives within one task lives as long as its rows say, for tasks do not overlap.
 *
 * A collective touches its operands until the row that waits for it. */
#include "plan/planner.h"
#include "base/arena.h"
#include "plan/offset.h"

struct life {
    uint32_t lists;   /* bit l: touched in list l */
    uint32_t crosses; /* carries something from one turn of a loop to the next */
    uint32_t accumulates, kept;
    uint32_t stages;  /* bit: the how manieth stage of this rank touches it, in the loop */
    uint32_t sent;    /* leaves this rank after its task */
    uint32_t moved; /* number of the storage that it became a part of, or TN_NOWHERE */
};

struct lives {
    struct tn_planner *p;
    struct tn_storage *storage;
    struct life *life;
    uint32_t *of; /* root value id -> storage */
    uint32_t n;
};

static uint64_t align(uint64_t bytes)
{
    return (bytes + TN_OFFSET_ALIGN - 1) / TN_OFFSET_ALIGN * TN_OFFSET_ALIGN;
}

static uint32_t resolve(const struct lives *l, uint32_t s)
{
    while (l->life[s].moved != TN_NOWHERE)
        s = l->life[s].moved;
    return s;
}

/* --- storages */

static int made_anew(const struct tn_planner *p, const struct tn_value *v)
{
    uint32_t made = p->made[v->id];

    return p->plan->n_micro > 1 && made != TN_NOWHERE && tn_list_repeats(p->step[made].list) &&
           !p->step[made].once && !p->spot[v->id].accumulates;
}

static int is_persistent(const struct tn_value *root)
{
    return root->kind == TN_VALUE_PARAM || root->kind == TN_VALUE_STATE || root->kind == TN_VALUE_CACHE;
}

static uint32_t storage_of(struct lives *l, const struct tn_value *root)
{
    struct tn_planner *p = l->p;
    const struct tn_spot *spot = &p->spot[root->id];
    uint64_t bytes = tn_plan_bytes(p->plan, root);
    int parts = root->kind == TN_VALUE_INPUT && root->per_micro && p->plan->n_micro > 1;

    if (l->of[root->id] != TN_NOWHERE)
        return l->of[root->id];
    parts |= root->kind == TN_VALUE_TMP && spot->kept && made_anew(p, root);
    l->storage[l->n] = (struct tn_storage){
        .where = root->kind == TN_VALUE_TMP ? TN_AT_ARENA : is_persistent(root) ? TN_AT_PERSISTENT : TN_AT_RUN,
        .first = UINT32_MAX,
        .value = root,
        .bytes = parts ? align(bytes) * p->plan->n_micro : bytes,
        .micro_stride = parts ? align(bytes) : 0};
    l->life[l->n] = (struct life){.accumulates = spot->accumulates, .moved = TN_NOWHERE};
    return l->of[root->id] = l->n++;
}

static uint32_t turn_of(const struct tn_planner *p, const struct tn_row *row)
{
    return tn_part_stage(p, row->list, row->part) / p->time.n_rank % 32;
}

static void touch(struct lives *l)
{
    struct tn_plan *plan = l->p->plan;

    for (uint32_t r = 0; r < plan->n_row; r++)
        for (uint32_t k = 0; k < plan->row[r].n_in + plan->row[r].n_out; k++) {
            if (!l->p->arg[r][k].root)
                continue;
            uint32_t s = storage_of(l, l->p->arg[r][k].root);
            if (r < l->storage[s].first)
                l->storage[s].first = r;
            l->storage[s].last = r;
            l->life[s].lists |= 1u << plan->row[r].list;
            if (plan->row[r].list == TN_LIST_FORWARD || plan->row[r].list == TN_LIST_BACKWARD)
                l->life[s].stages |= 1u << turn_of(l->p, &plan->row[r]);
            l->life[s].sent |= plan->row[r].way == TN_ROW_SEND;
        }
}

/* A collective that others run beside has a workspace of its own. */
static void own_workspaces(struct lives *l)
{
    struct tn_plan *plan = l->p->plan;

    for (uint32_t r = 0; r < plan->n_row; r++) {
        struct tn_row *row = &plan->row[r];
        uint64_t bytes = row->kernel[0] >= 0 ? plan->kernel[row->kernel[0]].kernel.workspace : 0, later = 0;

        later = row->kernel[1] >= 0 ? plan->kernel[row->kernel[1]].kernel.workspace : 0;
        bytes = later > bytes ? later : bytes;
        if (row->way != TN_ROW_START || (row->wait == r + 1 && plan->row[r + 1].list == row->list) || !bytes) {
            plan->workspace_bytes = bytes > plan->workspace_bytes ? bytes : plan->workspace_bytes;
            continue;
        }
        l->storage[l->n] = (struct tn_storage){
            .where = TN_AT_ARENA, .first = r, .last = row->wait, .bytes = bytes, .value = row->node->out[0]};
        l->life[l->n] = (struct life){.moved = TN_NOWHERE, .crosses = 1};
        row->work = plan->row[row->wait].work = l->n++;
    }
}

static void touch_sources(struct lives *l)
{
    const struct tn_value *const list[] = {l->p->graph->params, l->p->graph->states, l->p->graph->inputs, l->p->graph->caches};

    for (int i = 0; i < 4; i++)
        for (const struct tn_value *v = list[i]; v; v = v->next)
            if (tn_value_here(v, &l->p->plan->mesh))
                storage_of(l, v);
    for (uint32_t v = 0; v < l->p->plan->n_value; v++) {
        const struct tn_spot *s = &l->p->spot[v];
        if (s->kept && s->ready && l->of[s->root->id] != TN_NOWHERE)
            l->life[l->of[s->root->id]].kept = 1;
    }
}

/* Rows first .. end - 1 run once for each micro-batch. */
static void stretch(struct lives *l, uint32_t s, uint32_t lists, uint32_t first, uint32_t end)
{
    struct tn_storage *x = &l->storage[s];
    struct life *life = &l->life[s];
    int through = life->accumulates || x->micro_stride;

    if (!(life->lists & lists) || l->p->plan->n_micro == 1 || (!through && x->first >= first))
        return;
    life->crosses = 1;
    if (through && x->first > first)
        x->first = first;
    if (x->last < end - 1)
        x->last = end - 1;
}

/* Several micro-batches in flight: what goes from task to task gets its places, and the whole loop. */
static void spread(struct lives *l, uint32_t s)
{
    const uint32_t forward = 1u << TN_LIST_FORWARD, backward = 1u << TN_LIST_BACKWARD;
    const struct tn_plan *plan = l->p->plan;
    struct tn_storage *x = &l->storage[s];
    struct life *life = &l->life[s];
    uint32_t loop = life->lists & (forward | backward), alone = !(life->stages & (life->stages - 1)), slots;
    int here = !(life->lists & ~(forward | backward)) && x->where == TN_AT_ARENA && !life->accumulates && !x->micro_stride;

    if (loop && life->sent && x->last < plan->list_first[TN_LIST_AFTER] - 1)
        x->last = plan->list_first[TN_LIST_AFTER] - 1;
    if (!loop || plan->n_micro == 1 || (l->p->in_sequence && !life->sent))
        return;
    if (here && !life->sent && alone && loop != (forward | backward))
        return;
    if (here && !alone) {
        x->micro_stride = align(x->bytes);
        x->bytes = x->micro_stride * plan->n_micro;
    } else if (here) {
        slots = l->p->time.slots[l->p->plan->mesh.coord[tn_stage_axis()] + l->p->time.n_rank * (uint32_t)__builtin_ctz(life->stages)];
        x->slot_stride = slots > 1 ? align(x->bytes) : 0;
        x->bytes = slots > 1 ? x->slot_stride * slots : x->bytes;
    }
    life->crosses = 1;
    x->first = x->first < plan->list_first[TN_LIST_FORWARD] ? x->first : plan->list_first[TN_LIST_FORWARD];
    if (x->last < plan->list_first[TN_LIST_AFTER] - 1)
        x->last = plan->list_first[TN_LIST_AFTER] - 1;
}

static void stretch_all(struct lives *l)
{
    const struct tn_plan *plan = l->p->plan;
    const uint32_t *first = plan->list_first;

    for (uint32_t s = 0; s < l->n; s++) {
        if (l->storage[s].first == UINT32_MAX)
            l->storage[s].first = 0;
        stretch(l, s, 1u << TN_LIST_PER_MICRO, first[TN_LIST_PER_MICRO], first[TN_LIST_READY]);
        stretch(l, s, 1u << TN_LIST_FORWARD | 1u << TN_LIST_BACKWARD, first[TN_LIST_FORWARD],
                first[TN_LIST_AFTER]);
        spread(l, s);
        if (l->life[s].kept && plan->n_row)
            l->storage[s].last = plan->n_row - 1;
    }
}

/* --- in place */

static int same_place(const struct tn_planner *p, const struct tn_arg *a, const struct tn_arg *b)
{
    uint32_t rank = (uint32_t)tn_local_rank(a->value, &p->plan->place[a->value->id].local);

    if (!tn_planner_same_shape(p, a->value, b->value) || a->offset != b->offset)
        return 0;
    return !memcmp(a->stride, b->stride, rank * sizeof *a->stride);
}

/* Until when row r works: a collective until it was waited for. */
static uint32_t end_of(const struct tn_row *row, uint32_t r)
{
    return row->way == TN_ROW_START ? row->wait : r;
}

/* Does anybody else touch storage s while row r works? */
static int is_shared(const struct lives *l, uint32_t r, uint32_t s)
{
    const struct tn_plan *plan = l->p->plan;

    for (uint32_t i = r + 1; i < end_of(&plan->row[r], r); i++)
        for (uint32_t k = 0; k < plan->row[i].n_in + plan->row[i].n_out; k++)
            if (l->p->arg[i][k].root && resolve(l, l->of[l->p->arg[i][k].root->id]) == s)
                return 1;
    return 0;
}

/* May output `out` of row r take the storage of input k? */
static int may_take(const struct lives *l, uint32_t r, const struct tn_arg *out, uint32_t k)
{
    const struct tn_row *row = &l->p->plan->row[r];
    const struct tn_arg *arg = l->p->arg[r], *in = &arg[k];
    uint32_t s = in->root ? resolve(l, l->of[in->root->id]) : TN_NOWHERE;

    if (s == TN_NOWHERE)
        return 0;
    const struct tn_storage *x = &l->storage[s];
    if (x->where != TN_AT_ARENA || x->last != end_of(row, r) || x->micro_stride || x->slot_stride || l->life[s].kept ||
        x->bytes != tn_plan_bytes(l->p->plan, out->value) ||
        (l->life[s].crosses && tn_list_repeats(row->list) && !row->once) || !same_place(l->p, in, out) || is_shared(l, r, s))
        return 0;
    for (uint32_t j = 0; j < row->n_in + row->n_out; j++)
        if (&arg[j] != in && &arg[j] != out && arg[j].root && resolve(l, l->of[arg[j].root->id]) == s &&
            (j >= row->n_in || !same_place(l->p, &arg[j], in)))
            return 0;
    return 1;
}

static void take(struct lives *l, uint32_t from, uint32_t out)
{
    l->life[out].moved = from;
    l->storage[from].last = l->storage[out].last;
    l->life[from].crosses |= l->life[out].crosses;
    l->life[from].kept |= l->life[out].kept;
    l->storage[out].bytes = 0;
}

static void reuse(struct lives *l)
{
    const struct tn_plan *plan = l->p->plan;

    for (uint32_t r = 0; r < plan->n_row; r++) {
        const struct tn_row *row = &plan->row[r];
        if (row->way > TN_ROW_START || !(tn_op_find(row->op)->flags & TN_OP_INPLACE))
            continue;
        for (uint32_t o = 0; o < row->n_out; o++) {
            const struct tn_arg *out = &l->p->arg[r][row->n_in + o];
            uint32_t s = l->of[out->root->id];
            const struct tn_storage *x = &l->storage[s];
            if (out->root != out->value || x->where != TN_AT_ARENA || x->first != r || x->micro_stride || x->slot_stride ||
                l->life[s].accumulates || l->life[s].moved != TN_NOWHERE)
                continue;
            for (uint32_t k = 0; k < row->n_in; k++)
                if (may_take(l, r, out, k)) {
                    take(l, resolve(l, l->of[l->p->arg[r][k].root->id]), s);
                    break;
                }
        }
    }
}

/* --- places */

static void place_arena(struct lives *l)
{
    struct tn_plan *plan = l->p->plan;
    struct tn_span *span = tn_alloc_array(l->p->arena, l->n, sizeof *span);
    uint32_t n = 0;

    for (uint32_t s = 0; s < l->n; s++)
        if (l->storage[s].where == TN_AT_ARENA)
            span[n++] = (struct tn_span){l->storage[s].bytes, 0, l->storage[s].first, l->storage[s].last};
    plan->arena_bytes = tn_offsets(l->p->arena, span, n);
    plan->live_peak = tn_live_peak(l->p->arena, span, n);
    n = 0;
    for (uint32_t s = 0; s < l->n; s++)
        if (l->storage[s].where == TN_AT_ARENA)
            l->storage[s].offset = span[n++].offset;
}

static void place_run(struct lives *l)
{
    uint64_t at = 0;

    for (uint32_t s = 0; s < l->n; s++)
        if (l->storage[s].where == TN_AT_RUN) {
            l->storage[s].offset = at;
            at += align(l->storage[s].bytes);
        }
    l->p->plan->run_bytes = at;
}

static void set_refs(struct lives *l)
{
    struct tn_plan *plan = l->p->plan;

    for (uint32_t r = 0; r < plan->n_row; r++) {
        uint32_t n = plan->row[r].n_in + plan->row[r].n_out;
        struct tn_ref *ref = tn_alloc_array(l->p->arena, n + 1u, sizeof *ref);

        for (uint32_t k = 0; k < n; k++) {
            const struct tn_arg *a = &l->p->arg[r][k];
            ref[k].storage = a->root ? resolve(l, l->of[a->root->id]) : TN_NOWHERE;
            ref[k].offset = a->root ? (uint64_t)a->offset * tn_dtype_bytes(a->value->dtype) : 0;
        }
        plan->row[r].ref = ref;
    }
}

static void set_places(struct lives *l)
{
    struct tn_plan *plan = l->p->plan;

    for (uint32_t v = 0; v < plan->n_value; v++)
        plan->place[v].storage = TN_NOWHERE;
    for (const struct tn_value *v = l->p->values; v; v = v->next_value) {
        const struct tn_spot *s = tn_planner_spot(l->p, v);
        struct tn_plan_place *place = &plan->place[v->id];

        if (l->of[s->root->id] == TN_NOWHERE)
            continue;
        place->storage = resolve(l, l->of[s->root->id]);
        place->kept = s->kept || v->kind != TN_VALUE_TMP;
        place->offset = (uint64_t)s->offset * tn_dtype_bytes(v->dtype);
        memcpy(place->stride, s->stride, sizeof place->stride);
    }
}

/* Rows to lists; what overwrites something persistent, and all after it, is the update. */
static void set_lists(struct tn_planner *p)
{
    struct tn_plan *plan = p->plan;
    uint32_t r = 0, update = 0;

    for (uint32_t i = 0; i < plan->n_row; i++) {
        struct tn_row *row = &plan->row[i];
        for (uint32_t o = 0; o < row->n_out && row->list == TN_LIST_AFTER; o++) {
            uint32_t kind = p->arg[i][row->n_in + o].root->kind;
            update |= kind == TN_VALUE_PARAM || kind == TN_VALUE_STATE;
        }
        if (update)
            row->list = TN_LIST_UPDATE;
    }
    for (uint32_t list = 0; list < TN_LISTS; list++) {
        plan->list_first[list] = r;
        while (r < plan->n_row && plan->row[r].list == list)
            r++;
    }
    plan->list_first[TN_LISTS] = r;
    plan->part = tn_alloc_array(p->arena, TN_LISTS + 2u * plan->n_stage, sizeof *plan->part);
    for (r = 0; r < plan->n_row; r++) {
        const struct tn_row *row = &plan->row[r];
        struct tn_plan_part *last = plan->n_part ? &plan->part[plan->n_part - 1] : NULL;
        if (!last || last->list != row->list || last->part != row->part)
            *(last = &plan->part[plan->n_part++]) = (struct tn_plan_part){row->list, row->part, r, r};
        last->end = r + 1;
    }
}

void tn_planner_lifetimes(struct tn_planner *p)
{
    struct lives l = {.p = p};
    uint32_t n = p->plan->n_value;

    l.storage = tn_alloc_array(p->arena, n + p->plan->n_row + 1u, sizeof *l.storage);
    l.life = tn_alloc_array(p->arena, n + p->plan->n_row + 1u, sizeof *l.life);
    l.of = tn_alloc_array(p->arena, n + 1u, sizeof *l.of);
    memset(l.of, 0xff, (n + 1u) * sizeof *l.of);
    set_lists(p);
    touch(&l);
    touch_sources(&l);
    stretch_all(&l);
    own_workspaces(&l);
    if (!p->o->no_inplace)
        reuse(&l);
    place_arena(&l);
    place_run(&l);
    set_refs(&l);
    set_places(&l);
    p->plan->storage = l.storage;
    p->plan->n_storage = l.n;
}
