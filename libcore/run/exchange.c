/* exchange.c - packed rows of experts to the ranks that have the experts, and back: as many as there are.
 *
 * Rows lie sorted by expert on the side of the tokens, and by rank, then by expert, on that of the experts. So what goes
 * from rank to rank is one piece on both, and nothing is copied into order. How many they are stands in two counts, which
 * both sides have made from the same choices: [1, expert] of the rank's own rows, and [rank, expert] of those experts
 * that are here. They are read where the transfer begins: the plan cannot know them. */
#include "base/arena.h"
#include "run/collective_own.h"

struct tn_exchange {
    struct tn_collective_transfer *transfer;
    uint64_t *sent, *got;                        /* elements to and from each rank of the axis */
    uint64_t room_in, room_out, width;           /* elements: of the buffers, of one row */
    uint32_t tokens;                             /* which input counts the rank's own rows: 1 or 2 */
    int64_t experts, ranks;
};

tn_status tn_exchange_prepare(struct tn_collective *k)
{
    const struct tn_value *x = k->node->in[0], *out = k->node->out[0];
    const struct tn_layout_info *from = tn_layout_get(k->node->graph, (tn_layout)tn_node_int(k->node, "from", 0));
    struct tn_exchange *e = tn_alloc(k->arena, sizeof *e);
    struct tn_collective_transfer *t = &k->transfer[k->n_transfer++];
    struct tn_local in, to;

    tn_value_local(x, &k->c->mesh, k->arena, &in);
    tn_value_local(out, &k->c->mesh, k->arena, &to);
    *e = (struct tn_exchange){.transfer = t, .room_in = (uint64_t)in.count, .room_out = (uint64_t)to.count, .ranks = k->ranks,
                              .width = (uint64_t)in.size[x->rank - 1], .tokens = tn_value_find_dim(x, from->dim) < 0 ? 2 : 1};
    e->experts = k->node->in[1]->size[1];
    e->sent = tn_alloc_array(k->arena, (size_t)k->ranks, sizeof *e->sent);
    e->got = tn_alloc_array(k->arena, (size_t)k->ranks, sizeof *e->got);
    *t = (struct tn_collective_transfer){.t = {.op = TN_ALL_TO_ALL, .dtype = x->dtype, .counts = e->sent, .counts_in = e->got},
                                         .from = 0, .to = k->node->n_in};
    k->exchange = e;
    return TN_OK;
}

/* Elements of n counts of rows; *bad: one cannot be. */
static uint64_t add_up(const struct tn_exchange *e, const int32_t *count, int64_t n, int *bad)
{
    uint64_t sum = 0;

    for (int64_t i = 0; i < n; i++) {
        *bad |= count[i] < 0;
        sum += (uint64_t)(uint32_t)count[i];
    }
    return sum * e->width;
}

tn_status tn_exchange_check(const struct tn_collective *k)
{
    return k->c->way == TN_BY_HOST ? TN_OK
                                   : tn_error(TN_ERR_CONFIG, "%s: the counts of rows are in the memory of %s, which the host does not see; "
                                              "parallel.ep = 1, or kernels that leave the operations of experts to others", k->words,
                                              k->c->device->kind);
}

tn_status tn_exchange_count(struct tn_collective *k, const struct tn_launch *l)
{
    struct tn_exchange *e = k->exchange;
    const int32_t *tokens = l->buffer[e->tokens], *experts = l->buffer[3 - e->tokens];
    struct tn_range here = tn_part(e->experts, e->ranks, k->coord);
    uint64_t *own = e->tokens == 1 ? e->sent : e->got, *other = e->tokens == 1 ? e->got : e->sent, in = 0, out = 0, away = 0;
    int bad = 0;
    tn_status s;

    s = k->c->device->sync(l->queue, k->c->seconds);
    if (s)
        return s;
    for (int64_t r = 0; r < e->ranks; r++) {
        struct tn_range there = tn_part(e->experts, e->ranks, r);

        own[r] = add_up(e, tokens + there.start, there.count, &bad);
        other[r] = add_up(e, experts + r * here.count, here.count, &bad);
        in += e->sent[r], out += e->got[r], away += r == k->coord ? 0 : e->sent[r];
    }
    if (bad || in > e->room_in || out > e->room_out)
        return tn_error(TN_ERR, "%s: %llu of %llu elements to be sent and %llu of %llu to be received cannot be", k->words,
                        (unsigned long long)in, (unsigned long long)e->room_in, (unsigned long long)out, (unsigned long long)e->room_out);
    k->wire = (double)(away * tn_dtype_bytes(e->transfer->t.dtype));
    return TN_OK;
}
