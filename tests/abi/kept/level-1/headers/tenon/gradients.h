/* gradients.h - the reduction of gradients on an axis, in buckets: for strategies that own it.
 *
 * Gradients are taken in the order in which the backward completes them and joined up to the size of a bucket. A
 * bucket is one collective, right behind what completes its last member, so it is on its way while the rest of the
 * backward is computed. It runs in the last micro-batch alone, on sums over all of them; or in every one, on what
 * that one adds, and then the accumulators of a bucket come behind the next bucket's collective, so that nobody
 * waits at once. A bucket of what another axis has just reduced begins with that axis' next bucket, for the same reason.
 *
 * Written with tenon/pass.h alone: a strategy may do it otherwise. */
#ifndef TENON_GRADIENTS_H
#define TENON_GRADIENTS_H
#include <tenon/pass.h>

#define TN_BUCKET 24                             /* most members: of one collective */
#define TN_BUCKET_OPTIONS \
    {"bucket", "25", "MiB of gradients that are reduced together", 0, 65536}, \
    {"sync_every", "no", "whether gradients are reduced in every micro-batch, not in the last alone", 0, 1}

/* What is joined until it is reduced. */
struct tn_bucket {
    const char *axis;                            /* borrowed */
    tn_layout to;                                /* what its members become */
    int every;                                   /* in every micro-batch, not in the last alone */
    struct tn_value *w[TN_BUCKET], *d[TN_BUCKET];            /* parameters; what is reduced */
    struct tn_node *waiting[TN_BUCKET];                      /* every: accumulators of the bucket before */
    uint32_t n, n_waiting;
    double bytes;                                /* of the members together */
};

/* Accumulators go where the cursor is: what they read was started long before. */
TN_CALL void tn_bucket_add_up(struct tn_bucket *b)
{
    for (uint32_t i = 0; i < b->n_waiting; i++)
        tn_move(b->waiting[i]);
    b->n_waiting = 0;
}

/* One collective for all members, behind a node; the bucket is empty then. */
TN_CALL void tn_bucket_reduce(struct tn_graph *g, struct tn_bucket *b, struct tn_node *behind)
{
    struct tn_value *now[TN_BUCKET];

    tn_after(g, behind);
    tn_set_role(g, "grad_reduce");
    tn_when_last(g, !b->every && tn_phase(behind) == TN_BACKWARD);
    tn_convert_all(b->d, b->n, b->axis, b->to, now);
    tn_bucket_add_up(b);
    for (uint32_t i = 0; i < b->n; i++)
        if (b->every) {
            b->waiting[b->n_waiting++] = tn_producer(tn_grad(b->w[i]));
            tn_set_input(b->waiting[i], b->d[i], now[i]);
        } else
            tn_set_grad(b->w[i], now[i]);
    b->n = 0;
    b->bytes = 0;
}

/* Gradients that are partial on axis become `to`, TN_R or TN_F. */
TN_CALL void tn_reduce_gradients(struct tn_graph *g, const char *axis, tn_layout to, int every)
{
    struct tn_bucket b = {axis, to, every, {0}, {0}, {0}, 0, 0, 0}; /* all of them, for C++ */
    double room = tn_option(g, "bucket") * 1048576;
    struct tn_node *last = NULL;                             /* completes the last member */

    tn_each_gradient(g, w) {
        struct tn_value *d = tn_grad(w);
        struct tn_node *ready = tn_producer(d);

        if (tn_layout_of(d, axis) != TN_P || (every && !tn_is(tn_op(ready), "accum")))
            continue;
        if (every)
            d = tn_input(ready, 0);
        if (b.n && (b.n == TN_BUCKET || b.bytes + (double)tn_bytes(d) > room))
            tn_bucket_reduce(g, &b, tn_is_collective(last) ? ready : last);
        b.w[b.n] = w, b.d[b.n++] = d;
        b.bytes += (double)tn_bytes(d);
        last = ready;
    }
    if (b.n)
        tn_bucket_reduce(g, &b, last);
    tn_at_end(g, TN_BACKWARD, "");
    tn_bucket_add_up(&b);
    if (every)                                               /* what has no accumulator any more */
        tn_reduce_gradients(g, axis, to, 0);
}
#endif
