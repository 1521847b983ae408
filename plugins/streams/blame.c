/* blame.c - who is at fault when a wait fails, and telling the others.
 *
 * Shortly before its limit a wait asks every rank whether it is there; threads that do nothing else answer.
 * At the limit the ranks whose data is missing are judged: whose process has ended, who does not answer, who
 * has not begun the operation. One that answers but waits for somebody itself, in whatever group, passes the
 * blame on to that one. The first to find out writes its sentence to all others, so that all say the same,
 * and nobody is blamed for failing. */
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include "streams.h"

#define ASK 1u /* control messages over the link */
#define ANSWER 2u
#define VERDICT 3u

struct answer {
    uint64_t begun;
    uint32_t waits_for, reserved0;
};

struct verdict {
    int32_t code;
    char text[440];
};

double tn_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- verdicts */

/* The first one stays. */
static void write_verdict(struct tn_board *b, tn_status code, const char *text)
{
    uint32_t none = 0;

    if (!atomic_compare_exchange_strong(&b->verdict, &none, 1))
        return;
    b->code = code;
    snprintf(b->text, sizeof b->text, "%s", text);
    atomic_store(&b->verdict, 2);
    tn_bell_ring(&b->bell);
    tn_bell_ring(&b->ask_bell);
}

static void die(struct tn_world *w, tn_status code, const char *text)
{
    w->code = code;
    snprintf(w->text, sizeof w->text, "%s", text);
    atomic_store(&w->dead, 1);
    tn_link_failed();
    tn_bell_ring(&w->turn);
}

tn_status tn_world_fail(struct tn_world *w, tn_status code, const char *text)
{
    struct verdict v = {.code = code};

    if (tn_world_notice(w))
        return w->code;
    die(w, code, text);
    snprintf(v.text, sizeof v.text, "%s", text);
    write_verdict(w->board, code, text);
    for (uint32_t p = 0; p < w->size; p++)
        if (p != w->rank && w->peer[p].segment)
            write_verdict(&w->peer[p].segment->board, code, text);
        else if (p != w->rank && w->link)
            tn_link_say(w->link, p, VERDICT, &v, sizeof v);
    return code;
}

tn_status tn_world_failed(struct tn_world *w)
{
    return tn_error(w->code, "%s", w->text);
}

int tn_world_notice(struct tn_world *w)
{
    if (!atomic_load(&w->dead) && atomic_load(&w->board->verdict) == 2) {
        char text[sizeof w->board->text];
        memcpy(text, w->board->text, sizeof text);
        text[sizeof text - 1] = 0;
        die(w, w->board->code < 0 ? w->board->code : TN_ERR, text);
    }
    return (int)atomic_load(&w->dead);
}

/* --- who is there */

void tn_world_look(struct tn_world *w)
{
    for (uint32_t p = 0; p < w->size; p++) {
        struct pollfd end = {.fd = w->peer[p].pidfd, .events = POLLIN};
        if (end.fd >= 0 && !w->peer[p].gone && poll(&end, 1, 0) == 1 && (end.revents & POLLIN))
            w->peer[p].gone = 1;
    }
}

void tn_world_answer(struct tn_world *w)
{
    uint32_t asked = atomic_load(&w->board->asked);

    if (asked != atomic_load(&w->board->answered))
        atomic_store(&w->board->answered, asked);
}

void tn_world_ask(struct tn_world *w, struct tn_comm *c)
{
    for (uint32_t p = 0; p < w->size; p++) {
        struct tn_peer *peer = &w->peer[p];

        if (p == w->rank)
            continue;
        if (peer->segment) {
            peer->ticket = atomic_fetch_add(&peer->segment->board.asked, 1) + 1;
            tn_bell_ring(&peer->segment->board.ask_bell);
            tn_bell_ring(&peer->segment->board.bell);
        } else {
            atomic_store(&peer->answered, 0);
            tn_link_say(w->link, p, ASK, &c->tag, sizeof c->tag);
        }
    }
}

static uint64_t begun_by_us(struct tn_world *w, uint64_t tag)
{
    uint64_t begun = 0;

    pthread_mutex_lock(&w->inbox);
    for (struct tn_comm *c = w->comms; c; c = c->next)
        if (c->tag == tag)
            begun = c->begun;
    pthread_mutex_unlock(&w->inbox);
    return begun;
}

/* In a thread of the link, or that polls it. */
void tn_world_control(void *world, uint32_t peer, uint32_t kind, const void *data, uint32_t bytes)
{
    struct tn_world *w = world;

    if (kind == ASK && bytes == sizeof(uint64_t)) {
        struct answer a = {.waits_for = atomic_load(&w->board->waits_for)};
        uint64_t tag;
        memcpy(&tag, data, sizeof tag);
        a.begun = begun_by_us(w, tag);
        tn_link_say(w->link, peer, ANSWER, &a, sizeof a);
    } else if (kind == ANSWER && bytes == sizeof(struct answer)) {
        struct answer a;
        memcpy(&a, data, sizeof a);
        atomic_store(&w->peer[peer].begun, a.begun);
        atomic_store(&w->peer[peer].waits_for, a.waits_for);
        atomic_store(&w->peer[peer].answered, 1);
    } else if (kind == VERDICT && bytes == sizeof(struct verdict)) {
        struct verdict v;
        memcpy(&v, data, sizeof v);
        v.text[sizeof v.text - 1] = 0;
        write_verdict(w->board, v.code, v.text);
    }
}

static int answers(const struct tn_world *w, uint32_t p)
{
    const struct tn_peer *peer = &w->peer[p];

    if (p == w->rank)
        return 1;
    if (!peer->segment)
        return (int)atomic_load(&peer->answered);
    return (int32_t)(atomic_load(&peer->segment->board.answered) - peer->ticket) >= 0;
}

static uint32_t waits_for(const struct tn_world *w, uint32_t p)
{
    const struct tn_peer *peer = &w->peer[p];
    uint32_t other = atomic_load(peer->segment ? &peer->segment->board.waits_for : &peer->waits_for);

    return other > w->size ? 0 : other;
}

static uint64_t begun_by(const struct tn_comm *c, uint32_t p)
{
    return atomic_load(c->stream[p].theirs ? &c->stream[p].theirs->begun
                                           : &c->world->peer[c->ranks[p]].begun);
}

/* --- sentences */

/* "the group of ranks 0, 2, 4" or "the world of 4 ranks" */
void tn_comm_say(const struct tn_comm *c, char *out, size_t size)
{
    size_t at;

    if (!c->tag) {
        snprintf(out, size, "the world of %u ranks", c->n);
        return;
    }
    snprintf(out, size, "the group of ranks");
    for (uint32_t i = 0; i < c->n && (at = strlen(out)) + 20 < size; i++)
        snprintf(out + at, size - at,
                 i + 1 < c->n && at + 40 >= size ? " %u, …"
                 : i                             ? ", %u"
                                                 : " %u",
                 c->ranks[i]);
}

static void rank_say(const struct tn_comm *c, uint32_t world, char *out, size_t size)
{
    snprintf(out, size, "rank %u", world);
    for (uint32_t i = 0; c->tag && i < c->n; i++)
        if (c->ranks[i] == world)
            snprintf(out, size, "rank %u (%u of the group)", world, i);
}

__attribute__((format(printf, 5, 6))) static tn_status
blame(struct tn_comm *c, const struct tn_op *op, uint32_t who, tn_status code, const char *fmt, ...)
{
    char text[440], does[100], group[100], rank[60], why[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    tn_op_say(op, does, sizeof does);
    tn_comm_say(c, group, sizeof group);
    rank_say(c, who, rank, sizeof rank);
    snprintf(text, sizeof text, TN_SELF ": %s in %s: %s %s", does, group, rank, why);
    return tn_world_fail(c->world, code, text);
}

static tn_status blame_gone(struct tn_comm *c, const struct tn_op *op, uint32_t who)
{
    return blame(c, op, who, TN_ERR, "is gone: its %s",
                 c->world->peer[who].pidfd >= 0 ? "process has ended" : "connection was closed");
}

/* gone: 1 seen; 2 seen before a pass, so what it sent before its end has been taken. */
void tn_world_gone(struct tn_world *w)
{
    for (struct tn_comm *c = w->comms; c; c = c->next)
        for (uint32_t p = 0; p < c->n && !atomic_load(&w->dead); p++) {
            const struct tn_stream *s = &c->stream[p];
            if (w->peer[s->world].gone == 2 && (s->take.op || s->give.op))
                blame_gone(c, s->take.op ? s->take.op : s->give.op, s->world);
        }
}

static int lacks(const struct tn_comm *c, const struct tn_op *op, uint32_t p)
{
    return (tn_op_takes(c, op, p) && !op->taken[p]) || (tn_op_gives(c, op, p) && !op->given[p]);
}

uint32_t tn_request_lacks(const struct tn_request *r)
{
    const struct tn_comm *c = r->comm;

    for (uint32_t p = 0; r->last && p < c->n; p++)
        if (lacks(c, r->last, p))
            return c->ranks[p] + 1;
    return 0;
}

/* Whom does a rank that answers wait for, in the end? Itself if for nobody. */
static uint32_t root_of(const struct tn_world *w, uint32_t p)
{
    for (uint32_t i = 0; i < w->size && p != w->rank && !w->peer[p].gone && answers(w, p); i++) {
        uint32_t other = waits_for(w, p);
        if (!other || other - 1 == w->rank)
            break;
        p = other - 1;
    }
    return p;
}

static tn_status judge(struct tn_comm *c, const struct tn_op *op, uint32_t who, double seconds)
{
    struct tn_world *w = c->world;

    if (w->peer[who].gone)
        return blame_gone(c, op, who);
    if (!answers(w, who))
        return blame(c, op, who, TN_ERR_TIMEOUT, "does not answer after %g s: it is stopped, or cut off",
                     seconds);
    return blame(c, op, who, TN_ERR_TIMEOUT, "has not %s within %g s; it answers, so it is late or elsewhere",
                 op->t.op == TN_RECV   ? "sent"
                 : op->t.op == TN_SEND ? "received"
                                       : "come that far",
                 seconds);
}

static int is_better(const struct tn_comm *c, const struct tn_op *op, uint32_t a, uint32_t b)
{
    const struct tn_world *w = c->world;
    const uint32_t rank[2] = {c->ranks[a], c->ranks[b]};
    int score[2];

    for (int i = 0; i < 2; i++) {
        uint32_t p = i ? b : a;
        score[i] = w->peer[rank[i]].gone  ? 4
                   : !answers(w, rank[i]) ? 3
                                          : op->index && begun_by(c, p) < op->index;
    }
    return score[0] > score[1];
}

tn_status tn_request_late(struct tn_request *r, double seconds)
{
    struct tn_comm *c = r->comm;
    struct tn_op *op = r->last;
    uint32_t worst = c->n;

    if (tn_world_notice(c->world) || !op)
        return c->world->code;
    tn_world_look(c->world);
    for (uint32_t p = 0; p < c->n; p++)
        if (p != c->rank && lacks(c, op, p) && (worst == c->n || is_better(c, op, p, worst)))
            worst = p;
    if (worst == c->n) /* a send and a receive of this rank that do not meet */
        return blame(c, op, c->world->rank, TN_ERR_TIMEOUT, "has not begun the other half within %g s",
                     seconds);
    return judge(c, op, root_of(c->world, c->ranks[worst]), seconds);
}
