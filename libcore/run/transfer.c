/* transfer.c - a prepared collective is begun, and ended.
 *
 * Three ways lead from a tensor to the communicator, one for a whole run:
 *   by the host     the device's memory is the host's: the device is waited for, the transfer begins at once, the end
 *                   is waited for
 *   by the stream   the communicator takes this device's memory: begin and end are put in the order of the queue and
 *                   nobody waits; what went wrong shows at the next wait for the device (tn_collectives_sync)
 *   staged          it does not: what is sent is copied to the host first, what came is copied back at the end */
#include "run/collective_own.h"
#include "base/arena.h"
#include "run/compare.h"
#include "run/stage.h"

static void *address(const struct tn_launch *l, uint32_t buffer, uint64_t offset)
{
    return buffer == TN_BOX_WORK ? (char *)l->workspace + offset : l->buffer[buffer];
}

static tn_status fail(const struct tn_collective *k, uint64_t sequence)
{
    return tn_world_fail(k->c->world, NULL, k->words, sequence, -1);
}

static uint64_t sum(const uint64_t *count, uint64_t each, int64_t n)
{
    uint64_t all = 0;

    for (int64_t i = 0; i < n; i++)
        all += count ? count[i] : each;
    return all;
}

/* Elements that this rank gives and gets. */
static void measure(const struct tn_collective *k, struct tn_collective_transfer *x)
{
    const struct tn_transfer *t = &x->t;
    uint64_t mine = t->counts ? t->counts[k->coord] : t->count, all = sum(t->counts, t->count, k->ranks), from = 0, to = 0;

    switch (t->op) {
    case TN_ALL_REDUCE: from = to = t->count; break;
    case TN_ALL_GATHER: from = mine, to = all; break;
    case TN_REDUCE_SCATTER: from = all, to = mine; break;
    case TN_ALL_TO_ALL: from = all, to = t->counts_in ? sum(t->counts_in, 0, k->ranks) : all; break;
    case TN_SEND: from = t->count; break;
    case TN_RECV: to = t->count; break;
    }
    x->from_bytes = from * tn_dtype_bytes(t->dtype), x->to_bytes = to * tn_dtype_bytes(t->dtype);
}

void tn_transfer_prepare(struct tn_collective *k)
{
    for (uint32_t i = 0; i < k->n_transfer; i++)
        measure(k, &k->transfer[i]);
    for (uint32_t s = 0; s < k->slots; s++)
        k->request[s].bounce = tn_alloc_array(k->arena, k->n_transfer + 1u, sizeof *k->request[s].bounce);
}

/* --- staging */

static tn_status take(struct tn_stage *stage, const struct tn_collective_transfer *x, struct tn_bounce *b)
{
    tn_status s = TN_OK;

    *b = (struct tn_bounce){0};
    if (x->from_bytes)
        s = tn_stage_take(stage, x->from_bytes, &b->from);
    if (!s && x->to_bytes && x->t.op == TN_ALL_REDUCE)
        b->to = b->from;
    else if (!s && x->to_bytes)
        s = tn_stage_take(stage, x->to_bytes, &b->to);
    return s;
}

static void give(struct tn_collective *k, struct tn_collective_request *r)
{
    for (uint32_t i = 0; i < k->n_transfer; i++) {
        tn_stage_give(k->c->stage, r->bounce[i].from);
        tn_stage_give(k->c->stage, r->bounce[i].to);
        r->bounce[i] = (struct tn_bounce){0};
    }
}

static tn_status to_host(struct tn_collective *k, const struct tn_collective_transfer *x, struct tn_bounce *b,
                         struct tn_queue *q, struct tn_transfer *t)
{
    struct tn_collectives *c = k->c;
    tn_status s = take(c->stage, x, b);

    b->device = t->to;
    if (!s && x->from_bytes)
        s = c->device->copy(q, b->from, t->from, x->from_bytes, 2);
    t->from = b->from, t->to = b->to;
    return s;
}

/* The blocks are given back though the copies may be under way: who takes one next waits for the queue before a
 * communicator writes to it, and the queue's own copies keep their order. */
static tn_status to_device(struct tn_collective *k, struct tn_collective_request *r, struct tn_queue *q)
{
    struct tn_collectives *c = k->c;
    tn_status s = TN_OK;

    for (uint32_t i = 0; i < k->n_transfer && !s; i++)
        if (r->bounce[i].to)
            s = c->device->copy(q, r->bounce[i].device, r->bounce[i].to, k->transfer[i].to_bytes, 1);
    give(k, r);
    return s;
}

/* --- launches */

static tn_status begin(struct tn_collective *k, struct tn_collective_request *r, const struct tn_launch *l)
{
    struct tn_collectives *c = k->c;
    struct tn_comm *comm = k->channel == TN_AXES ? c->back : c->group[k->axis];
    void *stream = c->way == TN_BY_STREAM ? c->device->native(l->queue) : NULL;
    tn_status s = TN_OK;

    if (k->exchange)
        s = tn_exchange_count(k, l);
    r->sequence = k->numbered ? ++c->started[k->channel] : 0;
    for (uint32_t i = 0; i < k->n_transfer && !s; i++) {
        const struct tn_collective_transfer *x = &k->transfer[i];

        k->list[i] = x->t;
        k->list[i].from = address(l, x->from, x->from_offset);
        k->list[i].to = address(l, x->to, x->to_offset);
        k->list[i].sequence = r->sequence;
        if (c->way == TN_STAGED)
            s = to_host(k, x, &r->bounce[i], l->queue, &k->list[i]);
    }
    if (!s && c->way != TN_BY_STREAM)
        s = c->device->sync(l->queue, c->seconds);
    if (!s && c->compare)
        s = tn_compare_start(c->compare, comm, k->axis, k->list, k->n_transfer, k->words, &r->ticket);
    if (s)
        return s;
    c->bytes[k->axis] += k->wire;
    c->last = k->words, c->last_sequence = r->sequence;
    return c->comm->start(comm, k->list, k->n_transfer, stream, &r->request) ? fail(k, r->sequence) : TN_OK;
}

tn_status tn_transfer_start(void *state, const struct tn_launch *l)
{
    struct tn_collective *k = state;
    struct tn_collectives *c = k->c;
    tn_status s = tn_boxes_copy(k->before, l, k->scratch);

    for (uint32_t o = 0; k->clear >> o && !s; o++)
        if (k->clear >> o & 1)
            s = c->device->fill(l->queue, l->buffer[k->node->n_in + o], 0, k->clear_bytes[o]);
    if (s)
        return s;
    return k->n_transfer ? begin(k, &k->request[l->micro], l) : tn_boxes_copy(k->after, l, k->scratch);
}

static tn_status end(struct tn_collective *k, struct tn_collective_request *r, struct tn_queue *q)
{
    struct tn_collectives *c = k->c;
    struct tn_request *request = r->request;
    tn_status s;

    if (!request)
        return TN_OK;
    if (r->ticket && (s = tn_compare_end(c->compare, &r->ticket)))
        return s;
    r->request = NULL;
    if (c->way == TN_BY_STREAM)
        return c->comm->wait_on(request, c->device->native(q)) ? fail(k, r->sequence) : TN_OK;
    tn_world_waits(c->world, k->words, r->sequence, -1);
    if (c->comm->wait(request, c->seconds))
        return fail(k, r->sequence);
    tn_world_waits(c->world, NULL, 0, -1);
    return c->way == TN_STAGED ? to_device(k, r, q) : TN_OK;
}

tn_status tn_transfer_wait(void *state, const struct tn_launch *l)
{
    struct tn_collective *k = state;
    tn_status s = end(k, &k->request[l->micro], l->queue);

    return s ? s : tn_boxes_copy(k->after, l, k->scratch);
}

tn_status tn_transfer_wait_all(void *state, const struct tn_launch *l)
{
    struct tn_collective *k = state;
    tn_status s = TN_OK;

    for (uint32_t i = 0; i < k->slots && !s; i++)
        s = end(k, &k->request[i], l->queue);
    return s;
}

tn_status tn_collective_rehearse(tn_status (*launch)(void *state, const struct tn_launch *l), void *state, uint32_t slot)
{
    const int starts = launch == tn_transfer_start, waits = launch == tn_transfer_wait, all = launch == tn_transfer_wait_all;
    struct tn_collective *k = state;
    tn_status s = starts && k->exchange ? tn_exchange_check(k) : TN_OK;

    if (s || !(starts || waits || all) || k->c->way != TN_STAGED)
        return s;
    for (uint32_t i = 0; starts && i < k->n_transfer && !s; i++)
        s = take(k->c->stage, &k->transfer[i], &k->request[slot].bounce[i]);
    if (waits)
        give(k, &k->request[slot]);
    for (uint32_t i = 0; all && i < k->slots; i++)
        give(k, &k->request[i]);
    return s;
}
