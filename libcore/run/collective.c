/* collective.c - what a collective of the graph becomes: boxes, transfers, boxes. See collective.h; how they are begun
 * and ended is transfer.c. */
#include "run/collective_own.h"
#include "base/arena.h"
#include "graph/op.h"
#include "run/stage.h"

#define MOST_RANKS 4096                          /* of one axis */

/* --- what each rank of the axis holds */

static void local_at(const struct tn_collective *k, const struct tn_value *v, int64_t coord, struct tn_local *out)
{
    struct tn_mesh m = k->c->mesh;

    m.coord[k->axis] = coord;
    tn_value_local(v, &m, k->arena, out);
}

static uint64_t *counts_of(const struct tn_collective *k, const struct tn_value *v)
{
    uint64_t *count = tn_alloc_array(k->arena, (size_t)k->ranks, sizeof *count);

    for (int64_t r = 0; r < k->ranks; r++) {
        struct tn_local l;

        local_at(k, v, r, &l);
        count[r] = (uint64_t)l.count;
    }
    return count;
}

static struct tn_collective_transfer *add_transfer(struct tn_collective *k, uint32_t op, const struct tn_value *v, uint32_t from, uint32_t to)
{
    struct tn_collective_transfer *t = &k->transfer[k->n_transfer++];

    *t = (struct tn_collective_transfer){.t = {.op = op, .dtype = v->dtype, .reduce = TN_SUM}, .from = from, .to = to};
    return t;
}

/* Room in the workspace; returns its offset in bytes. */
static uint64_t reserve(struct tn_collective *k, uint64_t bytes)
{
    uint64_t at = k->work;

    k->work += (bytes + 63) / 64 * 64;
    return at;
}

static const struct tn_layout_info *layout(const struct tn_collective *k, const char *key)
{
    return tn_layout_get(k->node->graph, (tn_layout)tn_node_int(k->node, key, 0));
}

/* --- boxes between a tensor whose dim d is whole on the axis, and the parts of it */

/* Place along dim d of the whole local tensor of each global index. */
static int64_t *places(const struct tn_collective *k, const struct tn_value *whole, const struct tn_local *l, uint32_t d)
{
    int64_t *at = tn_alloc_array(k->arena, (size_t)whole->size[d], sizeof *at);

    for (int64_t i = 0; i < l->size[d]; i++)
        at[l->index[d] ? l->index[d][i] : l->origin[d] + i] = i;
    return at;
}

/* Adds the boxes between part (local l of some rank, at side `part`) and whole; out: from part to whole, else back. */
static tn_status add_runs(struct tn_boxes *boxes, const struct tn_value *v, const struct tn_local *l, uint32_t d, const int64_t *at,
                          struct tn_box_side part, struct tn_box_side whole, int out)
{
    int64_t box[TN_MAX_RANK];
    tn_status s = TN_OK;

    memcpy(box, l->size, sizeof box);
    for (int64_t i = 0, n; i < l->size[d] && !s; i += n) {
        int64_t first = at[l->index[d] ? l->index[d][i] : l->origin[d] + i];

        for (n = 1; i + n < l->size[d] && at[l->index[d] ? l->index[d][i + n] : l->origin[d] + i + n] == first + n; n++)
            ;
        box[d] = n;
        part.start[d] = i;
        whole.start[d] = first;
        s = out ? tn_boxes_add(boxes, v->dtype, v->rank, box, &part, &whole) : tn_boxes_add(boxes, v->dtype, v->rank, box, &whole, &part);
    }
    return s;
}

/* All ranks' parts of cut, one after the other in the workspace, to or from the tensor whole in its buffer. */
static tn_status exchange_boxes(struct tn_collective *k, const struct tn_value *cut, const struct tn_value *whole, uint32_t buffer, uint32_t d,
                                uint64_t work, int out)
{
    uint64_t at = work / tn_dtype_bytes(cut->dtype);
    struct tn_local w;
    int64_t *place;
    tn_status s = TN_OK;

    local_at(k, whole, k->coord, &w);
    place = places(k, whole, &w, d);
    for (int64_t r = 0; r < k->ranks && !s; r++) {
        struct tn_local *l = tn_alloc(k->arena, sizeof *l);

        local_at(k, cut, r, l);
        s = add_runs(out ? k->after : k->before, cut, l, d, place, (struct tn_box_side){.buffer = TN_BOX_WORK, .offset = at, .size = l->size},
                     (struct tn_box_side){.buffer = buffer, .size = w.size}, out);
        at += (uint64_t)l->count;
    }
    return s;
}

/* Do the parts of all ranks, one after the other, make the whole? */
static int in_order(const struct tn_collective *k, const struct tn_value *cut, const struct tn_value *whole, uint32_t d)
{
    struct tn_local w, l;
    int64_t at = 0;

    local_at(k, whole, k->coord, &w);
    for (uint32_t e = 0; e < d; e++)
        if (w.size[e] != 1)
            return 0;
    if (w.index[d])
        return 0;
    for (int64_t r = 0; r < k->ranks; r++) {
        local_at(k, cut, r, &l);
        if (l.index[d] || (l.size[d] && l.origin[d] != w.origin[d] + at))
            return 0;
        at += l.size[d];
    }
    return 1;
}

/* --- the conversions, one value each. in, out: numbers of the buffers */

static tn_status reduce_all(struct tn_collective *k, const struct tn_value *v, uint32_t in, uint32_t out)
{
    struct tn_collective_transfer *t = add_transfer(k, TN_ALL_REDUCE, v, in, out);
    struct tn_local l;

    local_at(k, v, k->coord, &l);
    t->t.count = (uint64_t)l.count;
    t->t.reduce = layout(k, "from")->kind == TN_PMAX ? TN_MAX : TN_SUM;
    return TN_OK;
}

static tn_status gather(struct tn_collective *k, const struct tn_value *v, const struct tn_value *o, uint32_t in, uint32_t out)
{
    struct tn_collective_transfer *t = add_transfer(k, TN_ALL_GATHER, v, in, out);
    int d = layout(k, "from")->kind == TN_F ? -1 : tn_value_find_dim(v, layout(k, "from")->dim);
    struct tn_local l;

    t->t.counts = counts_of(k, v);
    if (d < 0 || in_order(k, v, o, (uint32_t)d))
        return TN_OK;
    local_at(k, o, k->coord, &l);
    t->to = TN_BOX_WORK;
    t->to_offset = reserve(k, (uint64_t)l.count * tn_dtype_bytes(o->dtype));
    return exchange_boxes(k, v, o, out, (uint32_t)d, t->to_offset, 1);
}

static tn_status scatter(struct tn_collective *k, const struct tn_value *v, const struct tn_value *o, uint32_t in, uint32_t out)
{
    struct tn_collective_transfer *t = add_transfer(k, TN_REDUCE_SCATTER, v, in, out);
    int d = layout(k, "to")->kind == TN_F ? -1 : tn_value_find_dim(v, layout(k, "to")->dim);
    struct tn_local l;

    t->t.counts = counts_of(k, o);
    if (d < 0 || in_order(k, o, v, (uint32_t)d))
        return TN_OK;
    local_at(k, v, k->coord, &l);
    t->from = TN_BOX_WORK;
    t->from_offset = reserve(k, (uint64_t)l.count * tn_dtype_bytes(v->dtype));
    return exchange_boxes(k, o, v, in, (uint32_t)d, t->from_offset, 0);
}

/* No transfer: each rank takes its part. */
static tn_status slice(struct tn_collective *k, const struct tn_value *v, const struct tn_value *o, uint32_t in, uint32_t out)
{
    struct tn_local w, l;

    local_at(k, v, k->coord, &w);
    local_at(k, o, k->coord, &l);
    if (layout(k, "to")->kind == TN_F) {
        int64_t size[1] = {w.count}, part[1] = {l.count};
        struct tn_box_side from = {.buffer = in, .size = size, .start = {l.flat_start - w.flat_start}}, to = {.buffer = out, .size = part};

        return tn_boxes_add(k->before, v->dtype, 1, part, &from, &to);
    }
    return add_runs(k->before, o, &l, (uint32_t)tn_value_find_dim(v, layout(k, "to")->dim),
                    places(k, v, &w, (uint32_t)tn_value_find_dim(v, layout(k, "to")->dim)), (struct tn_box_side){.buffer = out, .size = l.size},
                    (struct tn_box_side){.buffer = in, .size = w.size}, 0);
}

/* What a rank keeps of dim a it sends by parts of dim b, and the reverse comes in. */
static tn_status swap(struct tn_collective *k, const struct tn_value *v, const struct tn_value *o, uint32_t in, uint32_t out)
{
    uint32_t a = (uint32_t)tn_value_find_dim(v, layout(k, "from")->dim), b = (uint32_t)tn_value_find_dim(v, layout(k, "to")->dim);
    uint64_t *sent = tn_alloc_array(k->arena, (size_t)k->ranks, sizeof *sent), *got = tn_alloc_array(k->arena, (size_t)k->ranks, sizeof *got);
    struct tn_collective_transfer *t = add_transfer(k, TN_ALL_TO_ALL, v, TN_BOX_WORK, TN_BOX_WORK);
    struct tn_local mine, result;
    int64_t *place_b, *place_a;
    uint64_t from = 0, to = 0;
    tn_status s = TN_OK;

    local_at(k, v, k->coord, &mine);
    local_at(k, o, k->coord, &result);
    place_b = places(k, v, &mine, b), place_a = places(k, o, &result, a);
    t->from_offset = reserve(k, (uint64_t)mine.count * tn_dtype_bytes(v->dtype));
    t->to_offset = reserve(k, (uint64_t)result.count * tn_dtype_bytes(v->dtype));
    for (int64_t r = 0; r < k->ranks && !s; r++) {
        struct tn_local *there = tn_alloc(k->arena, 2 * sizeof *there), *here = there + 1;

        local_at(k, o, r, there);                /* what r will have of b, with my part of a */
        there->size[a] = mine.size[a];
        sent[r] = (uint64_t)(there->size[a] * there->size[b] * (mine.count ? mine.count / (mine.size[a] * mine.size[b]) : 0));
        s = add_runs(k->before, v, there, b, place_b,
                     (struct tn_box_side){.buffer = TN_BOX_WORK, .offset = t->from_offset / tn_dtype_bytes(v->dtype) + from, .size = there->size},
                     (struct tn_box_side){.buffer = in, .size = mine.size}, 0);
        from += sent[r];
        local_at(k, v, r, here);                 /* what r had of a, with my part of b */
        here->size[b] = result.size[b];
        got[r] = (uint64_t)(here->size[a] * here->size[b] * (result.count ? result.count / (result.size[a] * result.size[b]) : 0));
        if (!s)
            s = add_runs(k->after, o, here, a, place_a,
                         (struct tn_box_side){.buffer = TN_BOX_WORK, .offset = t->to_offset / tn_dtype_bytes(v->dtype) + to, .size = here->size},
                         (struct tn_box_side){.buffer = out, .size = result.size}, 1);
        to += got[r];
    }
    t->t.counts = sent, t->t.counts_in = got;
    return s;
}

/* A whole value becomes a sum of which one rank holds all; a value of one stage likewise. */
static tn_status once(struct tn_collective *k, const struct tn_value *v, const struct tn_value *o, uint32_t in, uint32_t out)
{
    const struct tn_layout_info *from = layout(k, "from");
    int64_t holder = from->kind == TN_LAYOUT_STAGE ? from->rot % k->ranks : 0;
    struct tn_local l;

    local_at(k, o, k->coord, &l);
    if (k->coord != holder) {
        k->clear |= 1u << (out - k->node->n_in);
        k->clear_bytes[out - k->node->n_in] = (uint64_t)l.count * tn_dtype_bytes(v->dtype);
        return TN_OK;
    }
    return tn_boxes_add(k->before, v->dtype, 1, &l.count, &(struct tn_box_side){.buffer = in, .size = &l.count},
                        &(struct tn_box_side){.buffer = out, .size = &l.count});
}

static tn_status send_and_receive(struct tn_collective *k, const struct tn_value *v, const struct tn_value *o, uint32_t in, uint32_t out, int64_t to, int64_t from)
{
    struct tn_local l;

    if (to >= 0) {
        struct tn_collective_transfer *t = add_transfer(k, TN_SEND, v, in, in);

        local_at(k, v, k->coord, &l);
        t->t.peer = (uint32_t)to, t->t.count = (uint64_t)l.count;
    }
    if (from >= 0) {
        struct tn_collective_transfer *t = add_transfer(k, TN_RECV, o, out, out);

        local_at(k, o, k->coord, &l);
        t->t.peer = (uint32_t)from, t->t.count = (uint64_t)l.count;
    }
    return TN_OK;
}

static tn_status ring(struct tn_collective *k, const struct tn_value *v, const struct tn_value *o, uint32_t in, uint32_t out)
{
    int64_t n = k->ranks, shift = (tn_node_int(k->node, "shift", 1) % n + n) % n;

    return send_and_receive(k, v, o, in, out, (k->coord + shift) % n, (k->coord - shift + n) % n);
}

/* Between two stages of the same rank nothing needs to be sent. */
static tn_status move_here(struct tn_collective *k, const struct tn_value *v, uint32_t in, uint32_t out)
{
    struct tn_local l;

    local_at(k, v, k->coord, &l);
    return tn_boxes_add(k->before, v->dtype, 1, &l.count, &(struct tn_box_side){.buffer = in, .size = &l.count},
                        &(struct tn_box_side){.buffer = out, .size = &l.count});
}

static tn_status move(struct tn_collective *k, const struct tn_value *v, const struct tn_value *o, uint32_t in, uint32_t out)
{
    int64_t from = layout(k, "from")->rot % k->ranks, to = layout(k, "to")->rot % k->ranks;

    if (from == to)
        return k->coord == to ? move_here(k, v, in, out) : TN_OK;
    return send_and_receive(k, v, o, in, out, k->coord == from ? to : -1, k->coord == to ? from : -1);
}

static tn_status convert(struct tn_collective *k, uint32_t i)
{
    const struct tn_value *v = k->node->in[i], *o = k->node->out[i];
    const char *op = k->node->op->name;
    uint32_t in = i, out = k->node->n_in + i;

    if (!strcmp(op, "all_reduce"))
        return reduce_all(k, v, in, out);
    if (!strcmp(op, "all_gather"))
        return gather(k, v, o, in, out);
    if (!strcmp(op, "reduce_scatter"))
        return scatter(k, v, o, in, out);
    if (!strcmp(op, "all_to_all"))
        return swap(k, v, o, in, out);
    if (!strcmp(op, "slice"))
        return slice(k, v, o, in, out);
    if (!strcmp(op, "once"))
        return once(k, v, o, in, out);
    return !strcmp(op, "ring") ? ring(k, v, o, in, out) : move(k, v, o, in, out);
}

static void release(void *state)
{
    struct tn_collective *k = state;

    tn_boxes_free(k->before);
    tn_boxes_free(k->after);
    tn_arena_free(k->arena);
}

/* --- preparing */

/* What this rank sends of the transfers as they are, counted as a ring would. */
static double wire_bytes(const struct tn_collective *k)
{
    double d = (double)k->ranks, sum = 0;

    for (uint32_t i = 0; i < k->n_transfer; i++) {
        const struct tn_transfer *t = &k->transfer[i].t;
        double all = t->counts ? 0 : (double)t->count, in = 0;

        for (int64_t r = 0; r < k->ranks && t->counts; r++) {
            all += (double)t->counts[r];
            in += t->counts_in ? (double)t->counts_in[r] : 0;
        }
        all = (in > all ? in : all) * (double)tn_dtype_bytes(t->dtype);
        sum += t->op == TN_ALL_REDUCE ? 2 * (d - 1) / d * all
               : t->op == TN_SEND     ? all
               : t->op == TN_RECV     ? 0
                                      : (d - 1) / d * all;
    }
    return sum;
}

static int without_gaps(const struct tn_problem *p)
{
    for (uint32_t i = 0; i < p->n_in; i++)
        if (!tn_contiguous(&p->in[i]))
            return 0;
    for (uint32_t o = 0; o < p->n_out; o++)
        if (!tn_contiguous(&p->out[o]))
            return 0;
    return 1;
}

tn_status tn_collective_prepare(void *ctx, const struct tn_node *n, const struct tn_problem *p, uint32_t slots, struct tn_plan_collective *out)
{
    struct tn_collectives *c = ctx;
    struct tn_arena *arena;
    struct tn_collective *k;
    uint64_t scratch;
    tn_status s = TN_OK;

    if (!without_gaps(p))
        return TN_DECLINED;
    arena = tn_arena_new();
    k = tn_alloc(arena, sizeof *k);
    k->c = c, k->arena = arena, k->node = n, k->axis = tn_axis_find(tn_node_text(n, "axis"));
    k->numbered = strcmp(n->op->name, "move") != 0;
    k->channel = n->phase == TN_BACKWARD && !k->numbered ? TN_AXES : k->axis;
    k->slots = slots, k->request = tn_alloc_array(arena, slots, sizeof *k->request);
    k->ranks = c->mesh.size[k->axis], k->coord = c->mesh.coord[k->axis];
    k->before = tn_boxes_new(c->kernels, c->n_kernels), k->after = tn_boxes_new(c->kernels, c->n_kernels);
    snprintf(k->words, sizeof k->words, "%s on %s (unit %s, role %s)", n->op->name, tn_axis_name[k->axis], n->unit, n->role);
    if (!strcmp(n->op->name, "exchange"))
        s = tn_exchange_prepare(k);
    for (uint32_t i = 0; i < n->n_in && !s && !k->exchange; i++)
        s = convert(k, i);
    if (s) {
        release(k);
        return s;
    }
    k->wire = wire_bytes(k);
    tn_transfer_prepare(k);
    scratch = tn_boxes_workspace(k->before) > tn_boxes_workspace(k->after) ? tn_boxes_workspace(k->before) : tn_boxes_workspace(k->after);
    k->scratch = reserve(k, scratch);
    out->kernel.state = k, out->kernel.launch = tn_transfer_start, out->kernel.release = release, out->kernel.workspace = k->work;
    if (k->n_transfer)
        out->wait = tn_transfer_wait, out->wait_all = tn_transfer_wait_all;
    return TN_OK;
}

double tn_collective_bytes(const struct tn_node *n, const struct tn_mesh *m, struct tn_arena *arena)
{
    int axis = tn_axis_find(tn_node_text(n, "axis"));
    double d = (double)m->size[axis], sum = 0;

    for (uint32_t i = 0; i < n->n_out; i++) {
        struct tn_local in, out;
        double most;

        tn_value_local(n->in[i], m, arena, &in);
        tn_value_local(n->out[i], m, arena, &out);
        if (!strcmp(n->op->name, "exchange"))                /* on average: those of a rank's own tokens */
            in.count = out.count = in.count < out.count ? in.count : out.count;
        most = (double)(in.count > out.count ? in.count : out.count) * (double)tn_dtype_bytes(n->in[i]->dtype);
        if (!strcmp(n->op->name, "all_reduce"))
            sum += 2 * (d - 1) / d * most;
        else if (!strcmp(n->op->name, "all_gather") || !strcmp(n->op->name, "reduce_scatter") || !strcmp(n->op->name, "all_to_all")
                 || !strcmp(n->op->name, "exchange"))
            sum += (d - 1) / d * most;
        else if (!strcmp(n->op->name, "ring"))
            sum += (double)in.count * (double)tn_dtype_bytes(n->in[i]->dtype);
        else if (!strcmp(n->op->name, "move"))
            sum += m->coord[axis] == tn_layout_get(n->graph, (tn_layout)tn_node_int(n, "from", 0))->rot % m->size[axis] ? most : 0;
    }
    return sum;
}

/* --- groups */

static int takes(const struct tn_comm_api *comm, const char *kind)
{
    for (const char *const *d = comm->devices; *d; d++)
        if (!strcmp(*d, kind))
            return 1;
    return 0;
}

/* A device that shows its streams, and a communicator that takes them, and its memory. */
static int can_stream(const struct tn_comm_api *comm, const struct tn_device_api *device)
{
    return TN_HAS(device, native) && device->native && TN_HAS(comm, check) && comm->wait_on && comm->check &&
           takes(comm, device->kind);
}

tn_status tn_collectives_open(struct tn_collectives *c, struct tn_world *world, struct tn_device *device, uint32_t host_access)
{
    c->world = world;
    c->back = world->back;
    c->way = host_access                                ? TN_BY_HOST
             : c->comm && can_stream(c->comm, c->device) ? TN_BY_STREAM
                                                         : TN_STAGED;
    if (c->way == TN_STAGED && !(c->stage = tn_stage_new(c->device, device)))
        return tn_error(TN_ERR_MEMORY, "no memory for collectives");
    for (int a = 0; a < TN_AXES; a++) {
        c->group[a] = world->group[a];
        if (c->mesh.size[a] > MOST_RANKS)
            return tn_error(TN_ERR_CONFIG, "axis %s has %lld ranks, at most %d are possible", tn_axis_name[a],
                            (long long)c->mesh.size[a], MOST_RANKS);
    }
    return TN_OK;
}

void tn_collectives_close(struct tn_collectives *c)
{
    tn_stage_free(c->stage);
    c->stage = NULL;
}

tn_status tn_collectives_sync(struct tn_collectives *c, struct tn_queue *q)
{
    const char *last = c->last;
    tn_status s;

    if (c->way != TN_BY_STREAM || !last)
        return c->device->sync(q, c->seconds);
    tn_world_waits(c->world, last, c->last_sequence, -1);
    s = c->device->sync(q, c->seconds);
    if (!s)
        s = c->comm->check(c->world->comm);
    if (s)
        return tn_world_fail(c->world, NULL, last, c->last_sequence, -1);
    tn_world_waits(c->world, NULL, 0, -1);
    c->last = NULL;
    return TN_OK;
}
