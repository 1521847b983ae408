/* engine.c - moves what is pending, as far as it goes without waiting.
 *
 * Operations of a communicator form a list. Each direction of each stream walks along it on its own, one
 * operation at a time, item after item; an operation is done when all its flows have passed, and later ones
 * may run ahead of it where the streams allow. A sum takes from all streams at once, as much as all of them
 * have. */
#include <stdlib.h>
#include "streams.h"

static uint64_t padded(uint64_t bytes)
{
    return (bytes + TN_LINE - 1) / TN_LINE * TN_LINE;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* --- the list */

static struct tn_op *walk_give(const struct tn_comm *c, struct tn_op *op, uint32_t peer)
{
    while (op && !tn_op_gives(c, op, peer))
        op = op->next;
    return op;
}

static struct tn_op *walk_take(const struct tn_comm *c, struct tn_op *op, uint32_t peer)
{
    while (op && !tn_op_takes(c, op, peer))
        op = op->next;
    return op;
}

static void append(struct tn_comm *c, struct tn_op *op)
{
    const uint8_t *from;
    uint8_t *to;

    op->prev = c->last;
    op->next = NULL;
    *(c->last ? &c->last->next : &c->first) = op;
    c->last = op;
    op->left = tn_op_copy(c, op, &from, &to) != 0;
    for (uint32_t p = 0; p < c->n; p++) {
        struct tn_stream *s = &c->stream[p];
        uint32_t gives = tn_op_gives(c, op, p) != 0, takes = tn_op_takes(c, op, p) != 0;

        op->left += gives + takes;
        op->giving += gives;
        if (gives && !s->give.op)
            s->give.op = op;
        if (takes && !s->take.op)
            s->take.op = op;
    }
}

/* The request may be gone as soon as left is 0. */
static void finish(struct tn_comm *c, struct tn_op *op)
{
    struct tn_world *w = c->world;

    *(op->prev ? &op->prev->next : &c->first) = op->next;
    *(op->next ? &op->next->prev : &c->last) = op->prev;
    if (op->request->last == op)
        op->request->last = op->prev && op->prev->request == op->request ? op->prev : NULL;
    if (atomic_fetch_sub_explicit(&op->request->left, 1, memory_order_seq_cst) == 1 &&
        atomic_load(&w->asleep))
        tn_bell_ring(&w->turn);
    pthread_mutex_lock(&w->inbox);
    op->next = c->spare_op;
    c->spare_op = op;
    pthread_mutex_unlock(&w->inbox);
}

/* One flow of it has passed. */
static void passed(struct tn_comm *c, struct tn_op *op)
{
    if (--op->left == 0)
        finish(c, op);
}

static void pass_give(struct tn_stream *s)
{
    struct tn_op *op = s->give.op;

    s->give = (struct tn_flow){.op = walk_give(s->comm, op->next, s->peer)};
    op->given[s->peer] = 1;
    op->giving--;
    passed(s->comm, op);
}

static void pass_take(struct tn_stream *s)
{
    struct tn_op *op = s->take.op;

    s->take = (struct tn_flow){.op = walk_take(s->comm, op->next, s->peer)};
    op->taken[s->peer] = 1;
    passed(s->comm, op);
}

/* The last item passes when all that was lent has come back: the caller may then have its memory. */
static int next_give(struct tn_stream *s)
{
    int last = s->give.item + 1 == tn_op_gives(s->comm, s->give.op, s->peer);

    if (last && tn_loans_out(s))
        return 0;
    s->give.at = s->give.loan = 0;
    s->give.item++;
    if (last)
        pass_give(s);
    return 1;
}

static void next_take(struct tn_stream *s)
{
    if (s->take.loan == TN_LOAN)
        tn_loan_return(s);
    s->take.at = s->take.loan = 0;
    if (++s->take.item == tn_op_takes(s->comm, s->take.op, s->peer))
        pass_take(s);
}

/* --- headers */

static int give_header(struct tn_stream *s)
{
    struct tn_item item;
    struct tn_header h;
    uint64_t room;
    uint8_t *to = tn_stream_room(s, &room);

    if (room < TN_LINE)
        return 0;
    tn_op_give(s->comm, s->give.op, s->peer, 0, &item);
    h = tn_header_of(s->give.op, item.bytes);
    memcpy(to, &h, sizeof h);
    tn_stream_wrote(s, sizeof h);
    return s->give.headed = 1;
}

static int take_header(struct tn_stream *s)
{
    struct tn_item item;
    struct tn_header h, mine;
    uint64_t have;
    const uint8_t *from = tn_stream_read(s, &have);

    if (have < TN_LINE)
        return 0;
    memcpy(&h, from, sizeof h);
    tn_op_take(s->comm, s->take.op, s->peer, 0, &item);
    mine = tn_header_of(s->take.op, item.bytes);
    if (!tn_header_agree(&h, &mine)) {
        tn_header_differ(s, &h, &mine);
        return 0;
    }
    tn_stream_took(s, sizeof h);
    return s->take.headed = 1;
}

/* --- flows */

/* A piece of the item, with the padding behind its last: room, steps and sums are whole lines until then. Did
 * anything move. */
static int give_piece(struct tn_stream *s)
{
    struct tn_item item;
    uint64_t room, rest, n;
    uint8_t *to;

    tn_op_give(s->comm, s->give.op, s->peer, s->give.item, &item);
    if (item.large && s->may_lend && !s->give.loan && !tn_loan_give(s, &item))
        return 0;
    if (s->give.loan == TN_LOAN)
        s->give.at = item.bytes;
    rest = item.bytes - s->give.at;
    if (rest) {
        to = tn_stream_room(s, &room);
        n = least(least(item.ready - s->give.at, room), TN_STREAM_STEP);
        if (!n)
            return 0;
        memcpy(to, item.data + s->give.at, n);
        s->give.at += n;
        tn_stream_wrote(s, padded(n));
    }
    return s->give.at < item.bytes || next_give(s);
}

static int give(struct tn_stream *s)
{
    int moved = 0;

    for (uint64_t before = s->head; s->give.op && s->head - before < 2 * TN_STREAM_STEP; moved = 1)
        if (!(s->give.headed || give_header(s)) || !give_piece(s))
            break;
    tn_stream_tell(s);
    return moved;
}

/* May it be lent, and the line that says so has not come. */
static int is_unknown(const struct tn_stream *s, const struct tn_item *item)
{
    return item->large && s->may_borrow && !s->take.loan;
}

static int take_piece(struct tn_stream *s)
{
    struct tn_item item;
    uint64_t have, rest, n;
    const uint8_t *from;

    tn_op_take(s->comm, s->take.op, s->peer, s->take.item, &item);
    if (is_unknown(s, &item) && !tn_loan_take(s, &item))
        return 0;
    rest = item.bytes - s->take.at;
    if (item.reduce)
        return 0; /* goes with the other streams */
    if (rest && s->take.loan == TN_LOAN) {
        n = least(rest, TN_LOAN_SLICE);
        if (!tn_loan_read(s, s->take.at, item.data + s->take.at, n))
            return 0;
        s->take.at += n;
        s->borrowed += n;
    } else if (rest) {
        from = tn_stream_read(s, &have);
        n = least(least(rest, have), TN_STREAM_STEP);
        if (!n)
            return 0;
        memcpy(item.data + s->take.at, from, n);
        s->take.at += n;
        tn_stream_took(s, padded(n));
    }
    if (s->take.at == item.bytes)
        next_take(s);
    return 1;
}

static int take(struct tn_stream *s)
{
    int moved = 0;

    for (uint64_t before = s->tail + s->borrowed;
         s->take.op && s->tail + s->borrowed - before < 2 * TN_STREAM_STEP; moved = 1)
        if (!(s->take.headed || take_header(s)) || !take_piece(s))
            break;
    return moved;
}

/* --- sums */

/* The operation whose sum all streams are at, or NULL. */
static struct tn_op *at_sum(const struct tn_comm *c)
{
    struct tn_op *op = NULL;

    for (uint32_t p = 0; p < c->n; p++) {
        const struct tn_flow *f = &c->stream[p].take;
        struct tn_item item;

        if (p == c->rank)
            continue;
        if (!f->op || !f->headed || (op && f->op != op))
            return NULL;
        op = f->op;
        tn_op_take(c, op, p, f->item, &item);
        if (!item.reduce || is_unknown(&c->stream[p], &item))
            return NULL;
    }
    return op;
}

/* The sum is complete: on to the next item of each stream. */
static void sum_done(struct tn_comm *c, struct tn_op *op)
{
    op->reduced = 0;
    op->segment++;
    for (uint32_t p = 0; p < c->n; p++)
        if (p != c->rank)
            next_take(&c->stream[p]);
}

/* What rank p adds next, n elements at most: on the ring, or as much as it has lent, which is read then. */
static uint64_t part_of(struct tn_comm *c, const struct tn_op *op, uint32_t p, uint64_t n, const void **part)
{
    struct tn_stream *s = &c->stream[p];
    uint64_t have;

    if (s->take.loan == TN_LOAN) {
        *part = c->scratch + p * c->loan_step;
        return n;
    }
    *part = tn_stream_read(s, &have);
    return least(n, least(have, TN_STREAM_STEP) / op->width);
}

static int borrow_parts(struct tn_comm *c, const struct tn_op *op, uint64_t n)
{
    for (uint32_t p = 0; p < c->n; p++)
        if (p != c->rank && c->stream[p].take.loan == TN_LOAN &&
            !tn_loan_read(&c->stream[p], op->reduced * op->width, c->scratch + p * c->loan_step,
                          n * op->width))
            return 0;
    return 1;
}

static int sum_piece(struct tn_comm *c)
{
    struct tn_op *op = at_sum(c);
    const void *part[c->n];
    const uint8_t *from;
    uint8_t *to;
    uint64_t count, n;

    if (!op || (op->giving && !op->slice && op->t.from == op->t.to))
        return 0; /* in place: what is not given yet must not be overwritten */
    count = tn_op_own(c, op, &from, &to);
    n = least(count - op->reduced, c->loan_step / op->width);
    for (uint32_t p = 0; n && p < c->n; p++)
        if (p == c->rank)
            part[p] = from + op->reduced * op->width;
        else
            n = part_of(c, op, p, n, &part[p]);
    if (!n && count > op->reduced)
        return 0;
    if (!borrow_parts(c, op, n))
        return 0;
    if (n) {
        tn_reduce(op->t.dtype, op->t.reduce, part, c->n, n, to + op->reduced * op->width);
        for (uint32_t p = 0; p < c->n; p++)
            if (p != c->rank && c->stream[p].take.loan != TN_LOAN)
                tn_stream_took(&c->stream[p], padded(n * op->width));
        op->reduced += n;
    }
    if (op->reduced == count)
        sum_done(c, op);
    return 1;
}

/* --- this rank with itself */

static int same(struct tn_comm *c)
{
    struct tn_stream *s = &c->stream[c->rank];
    struct tn_item give_item, take_item;
    struct tn_header a, b;

    if (!s->give.op || !s->take.op)
        return 0;
    tn_op_give(c, s->give.op, c->rank, 0, &give_item);
    tn_op_take(c, s->take.op, c->rank, 0, &take_item);
    a = tn_header_of(s->give.op, give_item.bytes);
    b = tn_header_of(s->take.op, take_item.bytes);
    if (!tn_header_agree(&a, &b)) {
        tn_header_differ(s, &a, &b);
        return 0;
    }
    if (a.count)
        memmove(take_item.data, give_item.data, give_item.bytes);
    pass_give(s);
    pass_take(s);
    return 1;
}

/* What a rank keeps of its own, when nobody else waits for this one. */
static int copy(struct tn_comm *c)
{
    for (struct tn_op *op = c->first; op; op = op->next) {
        const uint8_t *from;
        uint8_t *to;
        uint64_t bytes = tn_op_copy(c, op, &from, &to), n = least(bytes - op->copied, 4 * TN_STREAM_STEP);

        if (!n)
            continue;
        memmove(to + op->copied, from + op->copied, n);
        op->copied += n;
        if (op->copied == bytes)
            passed(c, op);
        return 1;
    }
    return 0;
}

/* --- passes */

static void collect(struct tn_world *w)
{
    if (!atomic_load(&w->posted))
        return;
    atomic_store(&w->busy, 1); /* until the pass knows: nobody may see neither */
    atomic_store(&w->posted, 0);
    pthread_mutex_lock(&w->inbox);
    for (struct tn_comm *c = w->comms; c; c = c->next) {
        struct tn_op *op = c->inbox;
        c->inbox = NULL;
        c->inbox_end = &c->inbox;
        while (op) {
            struct tn_op *next = op->next;
            append(c, op);
            op = next;
        }
    }
    pthread_mutex_unlock(&w->inbox);
}

static int pass(struct tn_comm *c)
{
    int moved = 0;

    for (struct tn_op *op = c->first, *next; op; op = next) {
        next = op->next; /* nothing to move at all: a list of one rank */
        if (!op->left)
            finish(c, op);
    }
    for (uint32_t p = 0; p < c->n; p++)
        if (p != c->rank)
            moved |= give(&c->stream[p]);
    for (uint32_t p = 0; p < c->n && !c->world->dead; p++)
        if (p != c->rank)
            moved |= take(&c->stream[p]);
    for (int i = 0; i < 2 && c->n > 1 && !c->world->dead && sum_piece(c); i++)
        moved = 1;
    moved |= same(c);
    return moved || (!c->world->dead && copy(c));
}

/* Is there work that must not wait until somebody asks for its result? */
static uint32_t is_busy(const struct tn_comm *c)
{
    for (uint32_t p = 0; p < c->n; p++)
        if (p != c->rank && c->stream[p].give.op)
            return 1;
    for (const struct tn_op *op = c->first; op; op = op->next)
        if (!op->small)
            return 1;
    return 0;
}

int tn_engine_pass(struct tn_world *w)
{
    uint32_t busy = 0;
    int moved = 0;

    if (atomic_load(&w->dead))
        return 0;
    collect(w);
    for (struct tn_comm *c = w->comms; c && !atomic_load(&w->dead); c = c->next)
        if (c->first) {
            moved |= pass(c);
            busy |= is_busy(c);
        }
    atomic_store(&w->busy, busy);
    return moved;
}

static void free_list(struct tn_op *op)
{
    while (op) {
        struct tn_op *next = op->next;
        free(op);
        op = next;
    }
}

void tn_engine_free(struct tn_comm *c)
{
    free_list(c->first);
    free_list(c->inbox);
    free_list(c->spare_op);
    while (c->spare_request) {
        struct tn_request *next = c->spare_request->next;
        free(c->spare_request);
        c->spare_request = next;
    }
}
