/* server_peer.c - one connection of the store's server: what comes and what goes. See server.h.
 *
 * What comes is gathered until a message is whole, what goes is kept until the peer takes it, and a peer that
 * breaks a rule, or leaves too much unread, is dropped. Dropped ones are marked, and taken away between two
 * rounds. */
#include <errno.h>
#include <stdlib.h>
#include "world/server.h"

void server_drop(struct tn_store_server *s, struct peer *p, const char *how)
{
    if (p->gone)
        return;
    p->gone = 1;
    if (p->rank == TN_NOBODY) {
        s->strangers--;
        return;
    }
    s->of_rank[p->rank] = NULL;
    server_forget(s, p);
    server_lost(s, p, how);
}

void server_flush(struct tn_store_server *s, struct peer *p)
{
    while (p->out_at < p->out_used && !p->gone) {
        ssize_t k = send(p->fd, p->out + p->out_at, p->out_used - p->out_at, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (k < 0) {
            server_drop(s, p, strerror(errno));
            return;
        }
        p->out_at += (size_t)k;
    }
    p->out_at = p->out_used = 0;
}

static void queue(struct tn_store_server *s, struct peer *p, const void *data, size_t bytes)
{
    if (p->gone || !bytes)
        return;
    if (p->out_used + bytes > p->out_room) {
        size_t room = (p->out_used + bytes) * 2;
        char *more = p->out_used - p->out_at + bytes > SERVER_BEHIND ? NULL : realloc(p->out, room);
        if (!more) {
            server_drop(s, p, "it left too much unread");
            return;
        }
        p->out = more;
        p->out_room = room;
    }
    memcpy(p->out + p->out_used, data, bytes);
    p->out_used += bytes;
}

void server_send(struct tn_store_server *s, struct peer *p, const struct tn_wire_head *h, const void *value)
{
    queue(s, p, h, sizeof *h);
    queue(s, p, value, h->bytes);
    if (!p->gone)
        server_flush(s, p);
}

/* --- the handshake */
static void refuse(struct tn_store_server *s, struct peer *p, uint32_t answer, const char *text)
{
    struct tn_wire_welcome w = {.answer = answer};

    snprintf(w.text, sizeof w.text, "%s", text);
    queue(s, p, &w, sizeof w);
    if (!p->gone)
        server_flush(s, p);
    server_drop(s, p, "refused");
}

static void welcome(struct tn_store_server *s, struct peer *p, uint32_t rank)
{
    struct tn_wire_welcome w = {.answer = TN_WIRE_WELCOME};

    p->rank = rank;
    s->strangers--;
    s->joined++;
    s->of_rank[rank] = p;
    s->was_here[rank] = 1;
    queue(s, p, &w, sizeof w);
    if (!p->gone)
        server_flush(s, p);
    if (!p->gone)
        server_tell(s, p);
}

static void shake(struct tn_store_server *s, struct peer *p)
{
    struct tn_wire_hello h;
    char text[120];

    memcpy(&h, p->in, sizeof h);
    h.job.job[sizeof h.job.job - 1] = 0;
    if (memcmp(h.magic, TN_WIRE_MAGIC, sizeof h.magic) || h.order != TN_WIRE_ORDER)
        server_drop(s, p, "not a rank");
    else if (h.job.nonce != s->job.nonce || strcmp(h.job.job, s->job.job)) {
        snprintf(text, sizeof text, "it is the store of the run \"%.60s\"", s->job.job);
        refuse(s, p, TN_WIRE_OTHER, text);
    } else if (h.job.size != s->job.size || h.rank >= s->job.size) {
        snprintf(text, sizeof text, "rank %u of %u came to rank 0 of %u", h.rank, h.job.size, s->job.size);
        refuse(s, p, TN_WIRE_REFUSED, text);
    } else if (s->was_here[h.rank]) {
        snprintf(text, sizeof text, "a rank %u was here before: two processes have the same rank", h.rank);
        refuse(s, p, TN_WIRE_REFUSED, text);
    } else
        welcome(s, p, h.rank);
}

/* --- messages */
static void frame(struct tn_store_server *s, struct peer *p, const struct tn_wire_head *h, const char *key)
{
    const char *value = key + h->key_bytes;
    struct tn_report r;

    switch (h->type) {
    case TN_WIRE_REPORT:
    case TN_WIRE_ACCUSE:
        if (h->bytes != sizeof r) {
            server_drop(s, p, "it broke the protocol");
            return;
        }
        memcpy(&r, value, sizeof r);
        server_reported(s, p, &r, h->type == TN_WIRE_ACCUSE);
        return;
    case TN_WIRE_GOODBYE: server_goodbye(s, p, value, h->bytes); return;
    default: server_request(s, p, h, key, value);
    }
}

/* Is the head one of this protocol? Keys end with their only 0, which is checked when they are here. */
static int is_sound(const struct tn_wire_head *h)
{
    return h->type >= TN_WIRE_SET && h->type <= TN_WIRE_GOODBYE && h->key_bytes <= TN_STORE_KEY &&
           h->bytes <= TN_STORE_VALUE && (h->type > TN_WIRE_ADD) == !h->key_bytes;
}

/* How many bytes must be here before something can be done. */
static size_t wanted(const struct peer *p)
{
    struct tn_wire_head h;

    if (p->rank == TN_NOBODY)
        return sizeof(struct tn_wire_hello);
    if (p->in_used < sizeof h)
        return sizeof h;
    memcpy(&h, p->in, sizeof h);
    return is_sound(&h) ? sizeof h + h.key_bytes + h.bytes : 0;
}

static void digest(struct tn_store_server *s, struct peer *p)
{
    size_t want = 0;

    while (!p->gone && (want = wanted(p)) && p->in_used >= want) {
        struct tn_wire_head h = {0};

        if (p->rank != TN_NOBODY) {
            memcpy(&h, p->in, sizeof h);
            if (h.key_bytes &&
                memchr(p->in + sizeof h, 0, h.key_bytes) != p->in + sizeof h + h.key_bytes - 1) {
                server_drop(s, p, "it broke the protocol");
                return;
            }
            frame(s, p, &h, p->in + sizeof h);
        } else
            shake(s, p);
        p->in_used -= want;
        memmove(p->in, p->in + want, p->in_used);
    }
    if (!p->gone && !want)
        server_drop(s, p, "it broke the protocol");
}

static int make_room(struct peer *p, size_t room)
{
    char *more;

    if (p->in_room >= room)
        return 1;
    if (!(more = realloc(p->in, room)))
        return 0;
    p->in = more;
    p->in_room = room;
    return 1;
}

void server_take_in(struct tn_store_server *s, struct peer *p)
{
    for (int rounds = 0; rounds < 64 && !p->gone; rounds++) {
        size_t want = wanted(p);
        if (!make_room(p, want)) {
            server_drop(s, p, "no memory for its message");
            return;
        }
        ssize_t k = recv(p->fd, p->in + p->in_used, want - p->in_used, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (k <= 0) {
            server_drop(s, p, k ? strerror(errno) : "its connection was closed");
            return;
        }
        p->in_used += (size_t)k;
        digest(s, p);
    }
}

void server_greet(struct tn_store_server *s, struct peer *p)
{
    queue(s, p, TN_WIRE_MAGIC, 8);
    if (!p->gone)
        server_flush(s, p);
}
