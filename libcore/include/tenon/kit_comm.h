/* kit_comm.h - for authors: a communicator made of links that carry bytes between two ranks.
 *
 * The author gives struct tn_kit_wire: how the ranks of a group meet, and push and pull, which never wait. Here is all
 * that comm.h asks for beyond that: what each operation sends to whom, sums in the order of ranks, requests, groups,
 * time limits, abort, and the end of the world when a rank is gone, silent, or does something else than the others.
 *
 *     static tn_status open_world(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world)
 *     {
 *         return tn_kit_comm_open(&wire, rank, size, seconds, world);
 *     }
 *     static const struct tn_comm_api comm = TN_KIT_COMM(devices, probe, open_world);
 *
 * Every operation is a message to each rank that gets something and one from each that gives something: a header,
 * which both sides must agree on, then the bytes. Between two ranks of a group messages go in the order in which they
 * were started. A wait moves what can be moved of every group of the world, so ranks may wait in any order and no thread
 * of ours is needed. Simple, not fast: an all_reduce sends everything to everybody.
 *
 * Inline code over the public types, no part of the ABI: a plugin that uses it carries its own copy, and struct tn_comm
 * and tn_request are defined here. One file of the plugin includes it, built with -pthread where libc needs it. */
#ifndef TENON_KIT_COMM_H
#define TENON_KIT_COMM_H
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE                          /* clocks; where system headers come before, -D_DEFAULT_SOURCE */
#endif
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <tenon/bootstrap.h>
#include <tenon/comm.h>
#include <tenon/kit_number.h>

struct tn_kit_link;                              /* the author's: this rank's end of a connection with one other rank */

struct tn_kit_wire {
    const char *name;                            /* of the plugin, for sentences and keys of the store */
    /* Connects `me`, a place in ranks [n] (ranks of the world), with all others. link [n]: owned by the kit until close;
     * that of me stays NULL. group: a word that no other group of this world has, the same on all its ranks. In at most
     * `seconds`; an error is recorded, and what was made is in link nevertheless. Thread: that of open and group. */
    tn_status (*meet)(const char *group, const uint32_t *ranks, uint32_t n, uint32_t me, double seconds,
                      struct tn_kit_link **link);
    /* Gives bytes (1 or more) and returns at once: how many were taken, 0 if none can be now, -1 if the rank at the
     * other end is gone. data is borrowed for the call. One thread at a time, like all that follows. */
    int64_t (*push)(struct tn_kit_link *l, const void *data, uint64_t bytes);
    int64_t (*pull)(struct tn_kit_link *l, void *data, uint64_t bytes);           /* the same of bytes that come */
    void (*cut)(struct tn_kit_link *l);          /* the other end finds that this rank is gone; twice is once */
    void (*close)(struct tn_kit_link *l);        /* takes it; of a link that is cut or not */
};

struct tn_kit_header {                           /* what both sides of a message must agree on */
    uint32_t op, dtype, reduce, root;            /* as in tn_transfer; root: who gives in a broadcast */
    uint64_t bytes, sequence;                    /* bytes that follow it */
};

/* One message of a request. */
struct tn_kit_message {
    struct tn_kit_message *next;                 /* the one started after it */
    struct tn_request *request;                  /* which it is a part of */
    struct tn_kit_header header, found;          /* found: what came, to be compared */
    const char *from;                            /* bytes to send */
    char *to;                                    /* or room for those that come */
    uint64_t moved;                              /* of the header and the bytes together */
};

/* Messages in the order in which they were started. */
struct tn_kit_queue {
    struct tn_kit_message *first, *last;         /* last: of any content where first is NULL */
};

/* What a world and its groups share. */
struct tn_kit_world {
    const struct tn_kit_wire *wire;              /* static, the author's */
    double seconds;                              /* limit of meeting */
    pthread_mutex_t lock;                        /* over all that follows, and all groups */
    struct tn_comm *groups;                      /* the world's own one among them */
    uint32_t rank, number, users, dead, n_opened, reserved0; /* number: of this world in the process; users: groups */
    uint64_t *opened;                            /* hash of every list that was opened */
    char why[400];                               /* it is dead */
};

/* A group, or the world. */
struct tn_comm {
    struct tn_kit_world *world;                  /* which it belongs to */
    struct tn_comm *next;                        /* of the groups of the world */
    uint32_t n, me;                              /* ranks, and which of them this one is */
    uint32_t *ranks;                             /* [n] of the world */
    struct tn_kit_link **link;                   /* [n] */
    struct tn_kit_queue *out, *in;               /* [n] each, oldest first */
};

/* What start has begun, until wait takes it. */
struct tn_request {
    struct tn_comm *comm;                        /* where it was started */
    uint32_t n, open;                            /* open: messages that are not over */
    struct tn_transfer *t;                       /* [n], ours; their counts too */
    char **part;                                 /* [n]: what the ranks give to a reduction, in their order */
    struct tn_kit_message *messages;             /* [2 n ranks] */
    uint32_t n_messages, said;                   /* said: whom it waits for, in the store */
};

/* --- operations: how much goes from whom to whom */

/* An operation as sentences have it. Static. */
TN_KIT const char *tn_kit_op_name(uint32_t op)
{
    static const char *const names[] = {"?", "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                        "broadcast", "send", "recv", "barrier"};

    return names[op <= TN_BARRIER ? op : 0];
}

/* Elements of block p, and of those before it. counts NULL: all have count. */
TN_KIT uint64_t tn_kit_block(const uint64_t *counts, uint64_t count, uint32_t p, uint64_t *before)
{
    *before = counts ? 0 : p * count;
    for (uint32_t i = 0; counts && i < p; i++)
        *before += counts[i];
    return counts ? counts[p] : count;
}

/* What this rank sends to rank p: 0 if nothing, not even a header. *from: elements from the beginning of t->from. */
TN_KIT int tn_kit_sends(const struct tn_comm *c, const struct tn_transfer *t, uint32_t p, uint64_t *count, uint64_t *from)
{
    uint64_t before;

    *from = 0, *count = t->count;
    switch (t->op) {
    case TN_ALL_REDUCE: return p != c->me;
    case TN_ALL_GATHER: *count = tn_kit_block(t->counts, t->count, c->me, &before); return p != c->me;
    case TN_REDUCE_SCATTER: *count = tn_kit_block(t->counts, t->count, p, from); return p != c->me;
    case TN_ALL_TO_ALL: *count = tn_kit_block(t->counts, t->count, p, from); return p != c->me;
    case TN_BROADCAST: return t->peer == c->me && p != c->me;
    case TN_SEND: return p == t->peer;
    case TN_BARRIER: *count = 0; return p != c->me;
    default: return 0;
    }
}

/* The same of what comes from rank p; *to: elements from the beginning of t->to, or of the parts of a reduction. */
TN_KIT int tn_kit_receives(const struct tn_comm *c, const struct tn_transfer *t, uint32_t p, uint64_t *count, uint64_t *to)
{
    uint64_t before;

    *to = 0, *count = t->count;
    switch (t->op) {
    case TN_ALL_REDUCE: *to = p * t->count; return p != c->me;
    case TN_ALL_GATHER: *count = tn_kit_block(t->counts, t->count, p, to); return p != c->me;
    case TN_REDUCE_SCATTER:
        *count = tn_kit_block(t->counts, t->count, c->me, &before), *to = p * *count;
        return p != c->me;
    case TN_ALL_TO_ALL:
        *count = tn_kit_block(t->counts_in ? t->counts_in : t->counts, t->count, p, to);
        return p != c->me;
    case TN_BROADCAST: return t->peer == p && p != c->me;
    case TN_RECV: return p == t->peer;
    case TN_BARRIER: *count = 0; return p != c->me;
    default: return 0;
    }
}

/* What is wrong in a call alone; then nothing was begun and nobody else learns of it. */
TN_KIT tn_status tn_kit_transfer_check(const struct tn_comm *c, const struct tn_transfer *t)
{
    const char *name = c->world->wire->name;
    const int reduces = t->op == TN_ALL_REDUCE || t->op == TN_REDUCE_SCATTER;

    if (t->op < TN_ALL_REDUCE || t->op > TN_BARRIER)
        return tn_error(TN_ERR, "%s: there is no operation %u", name, (unsigned)t->op);
    if (t->op == TN_BARRIER)
        return TN_OK;
    if (!tn_kit_width(t->dtype))
        return tn_error(TN_ERR, "%s: %s: there is no dtype %u", name, tn_kit_op_name(t->op), (unsigned)t->dtype);
    if (reduces && (t->reduce < TN_SUM || t->reduce > TN_MIN))
        return tn_error(TN_ERR, "%s: %s: there is no reduction %u", name, tn_kit_op_name(t->op), (unsigned)t->reduce);
    if ((t->op == TN_BROADCAST || t->op == TN_SEND || t->op == TN_RECV) && t->peer >= c->n)
        return tn_error(TN_ERR, "%s: %s: rank %u of %u", name, tn_kit_op_name(t->op), (unsigned)t->peer, (unsigned)c->n);
    return TN_OK;
}

/* --- sums */

/* The larger or the smaller of two, NaN if one is. */
TN_KIT double tn_kit_choose(uint32_t reduce, double a, double b)
{
    return isnan(a) || (reduce == TN_MAX ? a > b : a < b) ? a : b;
}

/* Element i of integers. */
TN_KIT int64_t tn_kit_whole(uint32_t dtype, const void *p, uint64_t i)
{
    return dtype == TN_I32   ? (int64_t)((const int32_t *)p)[i]
           : dtype == TN_I64 ? ((const int64_t *)p)[i]
                             : (int64_t)((const uint8_t *)p)[i];
}

/* y op= x of integers, which wrap. */
TN_KIT void tn_kit_combine_whole(uint32_t dtype, uint32_t reduce, void *y, const void *x, uint64_t i)
{
    const int64_t a = tn_kit_whole(dtype, y, i), b = tn_kit_whole(dtype, x, i);
    const uint64_t r = reduce == TN_SUM ? (uint64_t)a + (uint64_t)b : (uint64_t)((reduce == TN_MAX) == (a > b) ? a : b);

    if (dtype == TN_I32)
        ((int32_t *)y)[i] = (int32_t)(uint32_t)r;
    else if (dtype == TN_I64)
        ((int64_t *)y)[i] = (int64_t)r;
    else
        ((uint8_t *)y)[i] = (uint8_t)r;
}

/* to [count] = part 0 op part 1 op ..., n parts of count elements behind each other; halves are added in fp32 and
 * rounded once. to is none of the parts. */
TN_KIT void tn_kit_combine(uint32_t dtype, uint32_t reduce, char *to, const char *parts, uint32_t n, uint64_t count)
{
    const uint64_t bytes = count * tn_kit_width(dtype);

    if (dtype == TN_I32 || dtype == TN_I64 || dtype == TN_U8) {
        memcpy(to, parts, (size_t)bytes);
        for (uint32_t p = 1; p < n; p++)
            for (uint64_t i = 0; i < count; i++)
                tn_kit_combine_whole(dtype, reduce, to, parts + p * bytes, i);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        double y = tn_kit_load(dtype, parts, (int64_t)i);

        for (uint32_t p = 1; p < n; p++) {
            const double x = tn_kit_load(dtype, parts + p * bytes, (int64_t)i);

            y = reduce != TN_SUM ? tn_kit_choose(reduce, y, x) : dtype == TN_F64 ? y + x : (double)((float)y + (float)x);
        }
        tn_kit_store(dtype, to, (int64_t)i, y);
    }
}

/* --- the end of the world */

/* The store in which the ranks have met; NULL in a world of one. Any thread. */
TN_KIT const struct tn_store *tn_kit_store_of_run(void)
{
    return (const struct tn_store *)tn_host->interface(TN_STORE_ID);
}

/* The key under which a rank says why it left. */
TN_KIT void tn_kit_ended_key(const struct tn_kit_world *w, uint32_t rank, char *key, size_t room)
{
    snprintf(key, room, "%.40s/ended/%u/%u", w->wire->name, (unsigned)w->number, (unsigned)rank);
}

/* Says why before it goes, so that whoever misses this rank names the one that is at fault. Lock held. */
TN_KIT void tn_kit_world_end(struct tn_kit_world *w, const char *why)
{
    const struct tn_store *store = tn_kit_store_of_run();
    char key[100];

    if (w->dead)
        return;
    w->dead = 1;
    snprintf(w->why, sizeof w->why, "%s", why);
    tn_kit_ended_key(w, w->rank, key, sizeof key);
    if (store)
        store->set(key, w->why, strlen(w->why) + 1);
    for (struct tn_comm *c = w->groups; c; c = c->next)
        for (uint32_t p = 0; p < c->n; p++)
            if (c->link[p])
                w->wire->cut(c->link[p]);
}

/* The error of every call from then on. */
TN_KIT tn_status tn_kit_world_ended(const struct tn_kit_world *w)
{
    return tn_error(TN_ERR, "%s: %s", w->wire->name, w->why);
}

/* --- moving bytes. Lock held in all of these */

/* The oldest message of a queue is done. */
TN_KIT void tn_kit_message_over(struct tn_kit_queue *q)
{
    q->first->request->open--;
    q->first = q->first->next;
}

/* Rank p has left, and said why; or it is the one that is missing. */
TN_KIT void tn_kit_peer_gone(struct tn_comm *c, uint32_t p, const struct tn_kit_message *m)
{
    const struct tn_store *store = tn_kit_store_of_run();
    char key[100], why[400];
    uint64_t bytes = sizeof why - 1;

    memset(why, 0, sizeof why);
    tn_kit_ended_key(c->world, c->ranks[p], key, sizeof key);
    if (!store || store->get(key, why, &bytes, 0.05) != TN_OK || !*why)
        snprintf(why, sizeof why, "rank %u is gone; it was missed in %s %llu", (unsigned)c->ranks[p],
                 tn_kit_op_name(m->header.op), (unsigned long long)m->header.sequence);
    tn_kit_world_end(c->world, why);
}

/* "all_reduce 17, a sum of 64 elements of fp32" */
TN_KIT void tn_kit_header_text(const struct tn_kit_header *h, char *out, size_t room)
{
    static const char *const types[] = {"?", "fp32", "bf16", "fp16", "int32", "fp64", "int64", "uint8"};
    static const char *const reductions[] = {"", ", a sum", ", a max", ", a min"};
    const uint64_t width = tn_kit_width(h->dtype);

    if (!width)
        snprintf(out, room, "%s %llu", tn_kit_op_name(h->op), (unsigned long long)h->sequence);
    else
        snprintf(out, room, "%s %llu%s of %llu elements of %s", tn_kit_op_name(h->op), (unsigned long long)h->sequence,
                 reductions[h->reduce & 3], (unsigned long long)(h->bytes / width), types[h->dtype & 7]);
}

/* Does the header that came fit the one that was expected? If not, the world has ended. */
TN_KIT int tn_kit_headers_agree(struct tn_comm *c, uint32_t p, const struct tn_kit_message *m)
{
    char theirs[100], ours[100], why[300];

    if (!memcmp(&m->found, &m->header, sizeof m->header))
        return 1;
    tn_kit_header_text(&m->found, theirs, sizeof theirs);
    tn_kit_header_text(&m->header, ours, sizeof ours);
    snprintf(why, sizeof why, "ranks do not agree: rank %u has %s, rank %u has %s", (unsigned)c->ranks[p], theirs,
             (unsigned)c->ranks[c->me], ours);
    tn_kit_world_end(c->world, why);
    return 0;
}

/* As much as goes of the oldest message to rank p. Whether anything moved. */
TN_KIT int tn_kit_push(struct tn_comm *c, uint32_t p)
{
    const uint64_t head = sizeof(struct tn_kit_header);
    struct tn_kit_message *m = c->out[p].first;
    const uint64_t before = m->moved, all = head + m->header.bytes;

    while (m->moved < all) {
        const int in_head = m->moved < head;
        const char *data = in_head ? (const char *)&m->header + m->moved : m->from + (m->moved - head);
        const int64_t k = c->world->wire->push(c->link[p], data, (in_head ? head : all) - m->moved);

        if (k < 0)
            return tn_kit_peer_gone(c, p, m), 0;
        if (!k)
            return m->moved > before;
        m->moved += (uint64_t)k;
    }
    tn_kit_message_over(&c->out[p]);
    return 1;
}

/* The same of the oldest message from rank p. */
TN_KIT int tn_kit_pull(struct tn_comm *c, uint32_t p)
{
    const uint64_t head = sizeof(struct tn_kit_header);
    struct tn_kit_message *m = c->in[p].first;
    const uint64_t before = m->moved, all = head + m->header.bytes;

    while (m->moved < all) {
        const int in_head = m->moved < head;
        char *room = in_head ? (char *)&m->found + m->moved : m->to + (m->moved - head);
        const int64_t k = c->world->wire->pull(c->link[p], room, (in_head ? head : all) - m->moved);

        if (k < 0)
            return tn_kit_peer_gone(c, p, m), 0;
        if (!k)
            return m->moved > before;
        m->moved += (uint64_t)k;
        if (m->moved == head && !tn_kit_headers_agree(c, p, m))
            return 0;
    }
    tn_kit_message_over(&c->in[p]);
    return 1;
}

/* What this rank sends to itself. */
TN_KIT int tn_kit_turn(struct tn_comm *c)
{
    struct tn_kit_queue *out = &c->out[c->me], *in = &c->in[c->me];

    in->first->found = out->first->header;
    if (!tn_kit_headers_agree(c, c->me, in->first))
        return 0;
    if (in->first->header.bytes)
        memmove(in->first->to, out->first->from, (size_t)in->first->header.bytes);
    tn_kit_message_over(out);
    tn_kit_message_over(in);
    return 1;
}

/* Whatever can be moved now, of all groups. Whether anything was. */
TN_KIT int tn_kit_move(struct tn_kit_world *w)
{
    int moved = 0;

    for (struct tn_comm *c = w->groups; c && !w->dead; c = c->next)
        for (uint32_t p = 0; p < c->n && !w->dead; p++) {
            if (p == c->me) {
                moved |= c->out[p].first && c->in[p].first && tn_kit_turn(c);
                continue;
            }
            moved |= c->out[p].first && tn_kit_push(c, p);
            moved |= c->in[p].first && !w->dead && tn_kit_pull(c, p);
        }
    return moved;
}

/* --- requests */

/* Takes it, and all that it has. */
TN_KIT void tn_kit_request_free(struct tn_request *r)
{
    for (uint32_t i = 0; r->part && i < r->n; i++)
        free(r->part[i]);
    free(r->part);
    free(r->messages);
    free(r->t);
    free(r);
}

/* The transfers, with counts of their own behind them, and room for the parts of reductions. NULL without memory. */
TN_KIT struct tn_request *tn_kit_request_new(struct tn_comm *c, const struct tn_transfer *t, uint32_t n)
{
    struct tn_request *r = (struct tn_request *)calloc(1, sizeof *r);
    const size_t counts = (size_t)c->n * sizeof(uint64_t);
    char *behind;

    if (!r)
        return NULL;
    r->comm = c, r->n = n;
    r->t = (struct tn_transfer *)calloc(1, n * (sizeof *t + 2 * counts) + 1);
    r->part = (char **)calloc(n + 1, sizeof *r->part);
    r->messages = (struct tn_kit_message *)calloc((size_t)n * c->n * 2 + 1, sizeof *r->messages);
    if (!r->t || !r->part || !r->messages)
        return tn_kit_request_free(r), (struct tn_request *)NULL;
    behind = (char *)(r->t + n);
    for (uint32_t i = 0; i < n; i++) {
        const int reduces = t[i].op == TN_ALL_REDUCE || t[i].op == TN_REDUCE_SCATTER;
        const uint64_t *given[2] = {t[i].counts, t[i].counts_in};
        uint64_t *kept[2] = {NULL, NULL}, before;

        r->t[i] = t[i];
        for (int k = 0; k < 2; k++, behind += counts)
            if (given[k] && t[i].op >= TN_ALL_GATHER && t[i].op <= TN_ALL_TO_ALL)
                kept[k] = (uint64_t *)memcpy(behind, given[k], counts);
        r->t[i].counts = kept[0], r->t[i].counts_in = kept[1];
        if (reduces && !(r->part[i] = (char *)malloc((size_t)(tn_kit_block(kept[0], t[i].count, c->me, &before) *
                                                             tn_kit_width(t[i].dtype) * c->n + 1))))
            return tn_kit_request_free(r), (struct tn_request *)NULL;
    }
    return r;
}

/* One more message of a request, of count elements, at the end of a queue; from or to is the caller's to set. */
TN_KIT struct tn_kit_message *tn_kit_message_add(struct tn_request *r, struct tn_kit_queue *q, const struct tn_transfer *t,
                                                 uint64_t count)
{
    struct tn_kit_message *m = &r->messages[r->n_messages++];

    m->request = r;
    m->header.op = t->op == TN_RECV ? TN_SEND : t->op;
    m->header.dtype = t->op == TN_BARRIER ? 0 : t->dtype;
    m->header.reduce = t->op == TN_ALL_REDUCE || t->op == TN_REDUCE_SCATTER ? t->reduce : 0;
    m->header.root = t->op == TN_BROADCAST ? t->peer : 0;
    m->header.bytes = count * (t->op == TN_BARRIER ? 0 : tn_kit_width(t->dtype));
    m->header.sequence = t->op == TN_SEND || t->op == TN_RECV ? 0 : t->sequence;
    if (q->first)
        q->last->next = m;
    else
        q->first = m;
    q->last = m;
    r->open++;
    return m;
}

/* Its messages behind those that wait already. Lock held. */
TN_KIT void tn_kit_request_begin(struct tn_request *r)
{
    struct tn_comm *c = r->comm;
    uint64_t count, at;

    for (uint32_t i = 0; i < r->n; i++) {
        const struct tn_transfer *t = &r->t[i];
        const uint64_t width = tn_kit_width(t->dtype);

        for (uint32_t p = 0; p < c->n; p++) {
            if (tn_kit_sends(c, t, p, &count, &at))
                tn_kit_message_add(r, &c->out[p], t, count)->from = (const char *)t->from + at * width;
            if (tn_kit_receives(c, t, p, &count, &at))
                tn_kit_message_add(r, &c->in[p], t, count)->to = (r->part[i] ? r->part[i] : (char *)t->to) + at * width;
        }
    }
}

/* All messages are over: what this rank gives to itself, and the sums. Inputs are read before results are stored. */
TN_KIT void tn_kit_request_finish(struct tn_request *r)
{
    const struct tn_comm *c = r->comm;

    for (uint32_t i = 0; i < r->n; i++) {
        const struct tn_transfer *t = &r->t[i];
        const uint64_t width = tn_kit_width(t->dtype);
        uint64_t from = 0, to = 0, count = t->count;

        if (t->op == TN_ALL_GATHER)
            count = tn_kit_block(t->counts, t->count, c->me, &to);
        else if (t->op == TN_REDUCE_SCATTER)
            count = tn_kit_block(t->counts, t->count, c->me, &from);
        else if (t->op == TN_ALL_TO_ALL) {
            tn_kit_block(t->counts_in ? t->counts_in : t->counts, t->count, c->me, &to);
            count = tn_kit_block(t->counts, t->count, c->me, &from);
        } else if (t->op != TN_ALL_REDUCE && !(t->op == TN_BROADCAST && t->peer == c->me && t->to))
            continue;
        if (!count)
            continue;
        if (r->part[i]) {
            memcpy(r->part[i] + c->me * count * width, (const char *)t->from + from * width, (size_t)(count * width));
            tn_kit_combine(t->dtype, t->reduce, (char *)t->to, r->part[i], c->n, count);
        } else
            memmove((char *)t->to + to * width, (const char *)t->from + from * width, (size_t)(count * width));
    }
}

/* --- the functions of the table; threads, states and errors are those of comm.h */

/* Begins all transfers and moves what goes at once. */
TN_KIT tn_status tn_kit_comm_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,
                                   struct tn_request **out)
{
    struct tn_kit_world *w = c->world;
    struct tn_request *r;
    tn_status s = TN_OK;

    (void)stream;
    *out = NULL;
    for (uint32_t i = 0; i < n; i++)
        if ((s = tn_kit_transfer_check(c, &t[i])) < 0)
            return s;
    if (!(r = tn_kit_request_new(c, t, n)))
        return tn_error(TN_ERR_MEMORY, "%s: no memory for a request", w->wire->name);
    pthread_mutex_lock(&w->lock);
    if (!w->dead) {
        tn_kit_request_begin(r);
        tn_kit_move(w);
        *out = r;
    } else
        s = tn_kit_world_ended(w);
    pthread_mutex_unlock(&w->lock);
    if (s < 0)
        tn_kit_request_free(r);
    return s;
}

/* Seconds, since some time that stays. */
TN_KIT double tn_kit_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What a request waits for: of the ranks that owe something the first one that has sent nothing yet. Lock held. */
TN_KIT const struct tn_kit_message *tn_kit_awaited(const struct tn_request *r, uint32_t *who)
{
    const struct tn_comm *c = r->comm;
    const struct tn_kit_message *m = NULL;

    *who = c->me;
    for (uint32_t p = 0; p < c->n; p++)
        if (c->in[p].first && (!m || (m->moved && !c->in[p].first->moved)))
            m = c->in[p].first, *who = p;
    for (uint32_t p = 0; p < c->n && !m; p++)
        if (c->out[p].first)
            m = c->out[p].first, *who = p;
    *who = c->ranks[*who];
    return m;
}

/* A key of the store under which a rank says which rank it waits for. */
TN_KIT void tn_kit_waits_key(const struct tn_kit_world *w, uint32_t rank, char *key, size_t room)
{
    snprintf(key, room, "%.40s/waits/%u/%u", w->wire->name, (unsigned)w->number, (unsigned)rank);
}

/* Half of the time is over: others who wait for this rank can then see whom it waits for. over: and now it has come. */
TN_KIT void tn_kit_say_awaited(struct tn_request *r, int over)
{
    const struct tn_store *store = tn_kit_store_of_run();
    uint32_t who = r->comm->world->rank;         /* nobody: this rank does not wait any more */
    char key[100];

    if (over == !r->said)
        return;
    r->said = !over;
    tn_kit_waits_key(r->comm->world, r->comm->world->rank, key, sizeof key);
    if (store && (over || tn_kit_awaited(r, &who)))
        store->set(key, &who, sizeof who);
}

/* From the rank that this one waits for to the one that that one waits for, and so on: the one at fault. */
TN_KIT uint32_t tn_kit_follow(const struct tn_kit_world *w, uint32_t who)
{
    const struct tn_store *store = tn_kit_store_of_run();
    char key[100];
    uint32_t next;
    uint64_t bytes = sizeof next;

    for (int i = 0; store && i < 8; i++, who = next, bytes = sizeof next) {
        tn_kit_waits_key(w, who, key, sizeof key);
        if (store->get(key, &next, &bytes, 0.005) != TN_OK || bytes != sizeof next || next == who)
            break;
    }
    return who;
}

/* The process of a rank, as the store has it. */
struct tn_kit_process {
    char where[104];                             /* host and space of process numbers: equal ones know each other's */
    int64_t number;                              /* of the process, there */
};

/* This one's, under its key. */
TN_KIT void tn_kit_process_of_this(const struct tn_kit_world *w, uint32_t rank, char *key, size_t room, struct tn_kit_process *out)
{
    memset(out, 0, sizeof *out);
    snprintf(key, room, "%.40s/process/%u/%u", w->wire->name, (unsigned)w->number, (unsigned)rank);
    if (gethostname(out->where, 64) || readlink("/proc/self/ns/pid", out->where + strlen(out->where), 36) <= 0)
        out->where[0] = 0;
    out->number = getpid();
}

/* What can be said of a rank that is silent, from the state of its process where that runs on this host. Static. */
TN_KIT const char *tn_kit_silence(const struct tn_kit_world *w, uint32_t rank)
{
    const struct tn_store *store = tn_kit_store_of_run();
    struct tn_kit_process here, there;
    uint64_t bytes = sizeof there;
    char key[100], path[40], state = 0;
    FILE *f;

    tn_kit_process_of_this(w, rank, key, sizeof key, &here);
    if (!store || !here.where[0] || store->get(key, &there, &bytes, 0.05) != TN_OK || bytes != sizeof there ||
        memcmp(here.where, there.where, sizeof here.where))
        return "does not answer";
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)there.number);
    f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    if (f)
        fclose(f);
    return state == 'T' || state == 't' ? "is stopped" : state ? "runs, but is late or elsewhere" : "does not answer";
}

/* The time is over. Lock held. */
TN_KIT void tn_kit_silent(const struct tn_request *r, double seconds)
{
    uint32_t who;
    const struct tn_kit_message *m = tn_kit_awaited(r, &who);
    const int comes = m && m->to;
    char why[300];

    who = tn_kit_follow(r->comm->world, who);
    snprintf(why, sizeof why, "rank %u %s: after %g s it has not %s %s %llu", (unsigned)who, tn_kit_silence(r->comm->world, who), seconds,
             comes ? "sent its part of" : "taken what is for it of",
             tn_kit_op_name(!m ? 0 : m->header.op == TN_SEND && comes ? TN_RECV : m->header.op),
             (unsigned long long)(m ? m->header.sequence : 0));
    tn_kit_world_end(r->comm->world, why);
}

/* One look: TN_DECLINED, or how the request ends. left: share of the time that is left. Lock held. */
TN_KIT tn_status tn_kit_look(struct tn_request *r, double seconds, double left, int *moved)
{
    struct tn_kit_world *w = r->comm->world;

    *moved = tn_kit_move(w);
    if (!r->open) {
        tn_kit_say_awaited(r, 1);
        tn_kit_request_finish(r);
        return TN_OK;
    }
    if (w->dead)
        return tn_kit_world_ended(w);
    if (left > 0 || *moved) {
        if (left < 0.5)
            tn_kit_say_awaited(r, 0);
        return TN_DECLINED;
    }
    tn_kit_silent(r, seconds);
    return tn_error(TN_ERR_TIMEOUT, "%s: %s", w->wire->name, w->why);
}

/* Looks, and rests for a moment where nothing moved. */
TN_KIT tn_status tn_kit_comm_wait(struct tn_request *r, double seconds)
{
    const struct timespec pause = {0, 20000};
    const double end = tn_kit_now() + seconds;
    struct tn_kit_world *w = r->comm->world;
    tn_status s;
    int moved;

    for (;;) {
        pthread_mutex_lock(&w->lock);
        s = tn_kit_look(r, seconds, seconds > 0 ? (end - tn_kit_now()) / seconds : 1, &moved);
        pthread_mutex_unlock(&w->lock);
        if (s != TN_DECLINED) {
            if (s == TN_OK)
                tn_kit_request_free(r);
            return s;                            /* of a world that ended the queues still point at it: see close */
        }
        if (seconds <= 0)
            return TN_DECLINED;
        if (!moved)
            nanosleep(&pause, NULL);
    }
}

/* Ends the world by this rank's wish. */
TN_KIT void tn_kit_comm_abort(struct tn_comm *c)
{
    char why[80];

    snprintf(why, sizeof why, "rank %u aborted", (unsigned)c->ranks[c->me]);
    pthread_mutex_lock(&c->world->lock);
    tn_kit_world_end(c->world, why);
    pthread_mutex_unlock(&c->world->lock);
}

/* What is left in the queues of a world that ended belongs to requests that wait has given up. */
TN_KIT void tn_kit_queues_free(struct tn_comm *c)
{
    for (uint32_t i = 0; i < 2 * c->n; i++) {
        struct tn_kit_queue *q = i < c->n ? &c->out[i] : &c->in[i - c->n];

        while (q->first) {
            struct tn_request *r = q->first->request;

            q->first = q->first->next;
            if (!--r->open)
                tn_kit_request_free(r);
        }
    }
}

/* Takes c; the last one that is closed takes the world. */
TN_KIT void tn_kit_comm_close(struct tn_comm *c)
{
    struct tn_kit_world *w = c ? c->world : NULL;
    uint32_t users;

    if (!c)
        return;
    pthread_mutex_lock(&w->lock);
    for (struct tn_comm **at = &w->groups; *at; at = *at ? &(*at)->next : at)
        if (*at == c) {
            *at = c->next;
            break;
        }
    tn_kit_queues_free(c);
    users = --w->users;
    pthread_mutex_unlock(&w->lock);
    for (uint32_t p = 0; p < c->n; p++)
        if (c->link[p])
            w->wire->close(c->link[p]);
    free(c->link), free(c->in), free(c->out), free(c->ranks), free(c);
    if (users)
        return;
    pthread_mutex_destroy(&w->lock);
    free(w->opened);
    free(w);
}

/* A number for a list of ranks: FNV-1a. */
TN_KIT uint64_t tn_kit_hash(const uint32_t *ranks, uint32_t n)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (uint32_t i = 0; i < n; i++)
        h = (h ^ ranks[i]) * UINT64_C(1099511628211);
    return h;
}

/* A word for the group: of the world, of its list, and how many of that list there were before. */
TN_KIT int tn_kit_group_word(struct tn_kit_world *w, const uint32_t *ranks, uint32_t n, char *out, size_t room)
{
    const uint64_t hash = tn_kit_hash(ranks, n);
    uint64_t *more = (uint64_t *)realloc(w->opened, (w->n_opened + 1) * sizeof *more);
    uint32_t before = 0;

    if (!more)
        return 0;
    w->opened = more;
    for (uint32_t i = 0; i < w->n_opened; i++)
        before += w->opened[i] == hash;
    w->opened[w->n_opened++] = hash;
    snprintf(out, room, "%u.%016llx.%u", (unsigned)w->number, (unsigned long long)hash, (unsigned)before);
    return 1;
}

/* A group of the world, its own one included. */
TN_KIT tn_status tn_kit_comm_join(struct tn_kit_world *w, const uint32_t *ranks, uint32_t n, uint32_t me,
                                  struct tn_comm **out)
{
    struct tn_comm *c = (struct tn_comm *)calloc(1, sizeof *c);
    char word[64];
    tn_status s;

    *out = NULL;
    if (!c)
        return tn_error(TN_ERR_MEMORY, "%s: no memory for a communicator", w->wire->name);
    c->world = w, c->n = n, c->me = me;
    c->ranks = (uint32_t *)calloc(n, sizeof *c->ranks), c->link = (struct tn_kit_link **)calloc(n, sizeof *c->link);
    c->out = (struct tn_kit_queue *)calloc(n, sizeof *c->out), c->in = (struct tn_kit_queue *)calloc(n, sizeof *c->in);
    s = c->ranks && c->link && c->out && c->in ? TN_OK : TN_ERR_MEMORY;
    pthread_mutex_lock(&w->lock);
    w->users++;
    if (s == TN_OK && !tn_kit_group_word(w, ranks, n, word, sizeof word))
        s = TN_ERR_MEMORY;
    pthread_mutex_unlock(&w->lock);
    if (s < 0) {
        c->n = 0;                                /* nothing to close yet */
        tn_kit_comm_close(c);
        return tn_error(s, "%s: no memory for a group of %u ranks", w->wire->name, (unsigned)n);
    }
    memcpy(c->ranks, ranks, n * sizeof *ranks);
    s = n > 1 ? w->wire->meet(word, c->ranks, n, me, w->seconds, c->link) : TN_OK;
    if (s < 0) {
        tn_kit_comm_close(c);
        return s;
    }
    pthread_mutex_lock(&w->lock);
    c->next = w->groups, w->groups = c;
    pthread_mutex_unlock(&w->lock);
    *out = c;
    return TN_OK;
}

/* A world over these links; wire is static. To be called by the plugin's open, and as comm.h says of it. */
TN_KIT tn_status tn_kit_comm_open(const struct tn_kit_wire *wire, uint32_t rank, uint32_t size, double seconds,
                                  struct tn_comm **world)
{
    static uint32_t worlds;                      /* main thread */
    struct tn_kit_world *w = (struct tn_kit_world *)calloc(1, sizeof *w);
    uint32_t *ranks = (uint32_t *)calloc(size, sizeof *ranks);
    struct tn_kit_process process;
    char key[100];
    tn_status s;

    *world = NULL;
    if (rank >= size) {
        free(w), free(ranks);
        return tn_error(TN_ERR_CONFIG, "%s: rank %u of %u", wire->name, (unsigned)rank, (unsigned)size);
    }
    if (!w || !ranks) {
        free(w), free(ranks);
        return tn_error(TN_ERR_MEMORY, "%s: no memory for a world of %u ranks", wire->name, (unsigned)size);
    }
    w->wire = wire, w->seconds = seconds, w->rank = rank, w->number = worlds++;
    pthread_mutex_init(&w->lock, NULL);
    for (uint32_t i = 0; i < size; i++)
        ranks[i] = i;
    tn_kit_process_of_this(w, rank, key, sizeof key, &process);
    if (tn_kit_store_of_run())
        tn_kit_store_of_run()->set(key, &process, sizeof process);
    s = tn_kit_comm_join(w, ranks, size, rank, world);
    free(ranks);
    return s;
}

/* A group with links of its own. */
TN_KIT tn_status tn_kit_comm_group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    struct tn_kit_world *w = world->world;
    tn_status s = TN_OK;

    *out = NULL;
    pthread_mutex_lock(&w->lock);
    if (w->dead)
        s = tn_kit_world_ended(w);
    pthread_mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < n && s >= 0; i++)
        if (ranks[i] == world->ranks[world->me])
            return tn_kit_comm_join(w, ranks, n, i, out);
    return s < 0 ? s : tn_error(TN_ERR, "%s: rank %u is not in the group that it opens", w->wire->name,
                                (unsigned)world->ranks[world->me]);
}

/* The table: whose memory it takes (the host's is "cpu"), who says that it can be had, and how a world is opened. */
#define TN_KIT_COMM(DEVICES, PROBE, OPEN)                                                                    \
    {                                                                                                        \
        .struct_size = sizeof(struct tn_comm_api), .reserved0 = 0, .devices = DEVICES, .probe = PROBE,       \
        .open = OPEN, .group = tn_kit_comm_group, .start = tn_kit_comm_start, .wait = tn_kit_comm_wait,      \
        .abort = tn_kit_comm_abort, .close = tn_kit_comm_close, .wait_on = NULL, .check = NULL               \
    }
#endif
