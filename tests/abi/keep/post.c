/* post - a communicator that sends everything through the host's store: one of the plugins that are kept (keep.sh).
 *
 * What a rank gives it writes down as it starts, a key for each piece; what it gets it reads as it waits, in the order of
 * ranks. So nothing is ever in the way of anything else. Slow, and whole but for bf16, fp16, polls and abort. */
#include <stdlib.h>
#include <tenon/bootstrap.h>
#include <tenon/comm.h>

struct tn_comm {
    const struct tn_store *store;
    uint32_t me, n;
    char name[128];                              /* of the group, in keys */
    uint64_t common, *sent, *got;                /* operations of all so far; sends to, receives from each */
    uint32_t groups;                             /* made of the world */
};

struct moving {                                  /* a transfer under way */
    struct tn_transfer t;
    uint64_t number, *in;                        /* in: elements that come from each rank, [n] */
};

struct tn_request {
    struct tn_comm *c;
    uint32_t n;
    struct moving m[];
};

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "through the store, for tests");
    return TN_OK;
}

static tn_status new_comm(uint32_t me, uint32_t n, struct tn_comm **out)
{
    struct tn_comm *c = (struct tn_comm *)calloc(1, sizeof *c + 2 * n * sizeof(uint64_t));

    *out = c;
    if (!c)
        return tn_error(TN_ERR_MEMORY, "post: no memory for a group of %u ranks", n);
    c->store = (const struct tn_store *)tn_host->interface(TN_STORE_ID);
    c->me = me, c->n = n;
    c->sent = (uint64_t *)(c + 1), c->got = c->sent + n;
    snprintf(c->name, sizeof c->name, "world");
    return n == 1 || c->store ? TN_OK : tn_error(TN_ERR, "post: the host has no store");
}

static tn_status open_world(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world)
{
    (void)seconds;
    return new_comm(rank, size, world);
}

/* Of ranks that make it in the same order, so the first rank and how many groups it has made are a name. */
static tn_status group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    uint32_t me = 0, k = 0;
    tn_status s;

    while (ranks[me] != world->me)
        me++;
    s = new_comm(me, n, out);
    if (s)
        return s;
    world->groups++;
    for (uint32_t r = 0; r < n && k + 12 < sizeof (*out)->name; r++)
        k += (uint32_t)snprintf((*out)->name + k, sizeof (*out)->name - k, "%s%u", r ? "." : "", ranks[r]);
    snprintf((*out)->name + k, sizeof (*out)->name - k, "-%u", world->groups);
    return TN_OK;
}

static uint64_t width(uint32_t dtype)
{
    return dtype == TN_F64 || dtype == TN_I64 ? 8 : dtype == TN_BF16 || dtype == TN_F16 ? 2 : dtype == TN_U8 ? 1 : 4;
}

static void key_of(const struct tn_comm *c, char way, uint64_t number, uint32_t from, uint32_t to, char out[250])
{
    snprintf(out, 250, "post/%s/%c%llu/%u-%u", c->name, way, (unsigned long long)number, from, to);
}

/* Nothing is sent for a piece of no elements: both sides know. */
static tn_status give(struct tn_comm *c, const struct moving *m, char way, uint32_t to, uint64_t first, uint64_t count)
{
    const uint64_t w = width(m->t.dtype);
    char key[250];

    key_of(c, way, m->number, c->me, to, key);
    return count ? c->store->set(key, (const char *)m->t.from + first * w, count * w) : TN_OK;
}

static tn_status get(struct tn_comm *c, const struct moving *m, char way, uint32_t from, uint32_t to, void *out, uint64_t count, double seconds)
{
    uint64_t bytes = count * width(m->t.dtype), room = bytes;
    char key[250];
    tn_status s;

    if (!count)
        return TN_OK;
    key_of(c, way, m->number, from, to, key);
    s = c->store->get(key, out, &bytes, seconds);
    return s || bytes == room ? s : tn_error(TN_ERR, "post: %llu bytes came instead of %llu", (unsigned long long)bytes, (unsigned long long)room);
}

static uint64_t part(const uint64_t *counts, uint64_t count, uint32_t r)
{
    return counts ? counts[r] : count;
}

/* Writes what this rank gives, and notes what will come. */
static tn_status send_off(struct tn_comm *c, struct moving *m)
{
    const struct tn_transfer *t = &m->t;
    const uint32_t op = t->op;
    uint64_t at = 0;
    tn_status s = TN_OK;

    m->number = op == TN_SEND ? ++c->sent[t->peer] : op == TN_RECV ? ++c->got[t->peer] : ++c->common;
    for (uint32_t r = 0; r < c->n; r++)
        m->in[r] = op == TN_ALL_TO_ALL && t->counts_in ? t->counts_in[r] : part(t->counts, t->count, op == TN_REDUCE_SCATTER ? c->me : r);
    if (op == TN_BARRIER || op == TN_RECV)
        return TN_OK;
    if (op == TN_SEND)
        return give(c, m, 'p', t->peer, 0, t->count);
    if (op == TN_ALL_REDUCE || op == TN_ALL_GATHER || (op == TN_BROADCAST && t->peer == c->me))
        return give(c, m, 'c', c->n, 0, op == TN_ALL_GATHER ? part(t->counts, t->count, c->me) : t->count);
    for (uint32_t r = 0; r < c->n && !s && op != TN_BROADCAST; at += part(t->counts, t->count, r++))
        s = give(c, m, 'c', r, at, part(t->counts, t->count, r));
    return s;
}

static tn_status start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream, struct tn_request **out)
{
    struct tn_request *r = (struct tn_request *)calloc(1, sizeof *r + n * (sizeof *r->m + c->n * sizeof(uint64_t)));
    uint64_t *in = r ? (uint64_t *)(r->m + n) : NULL;
    tn_status s = TN_OK;

    *out = NULL;
    if (!r || stream)
        return tn_error(TN_ERR_MEMORY, "post: no memory for %u transfers, or a stream", n);
    r->c = c, r->n = n;
    for (uint32_t i = 0; i < n && !s; i++) {
        r->m[i].t = t[i], r->m[i].in = in + (uint64_t)i * c->n;
        s = send_off(c, &r->m[i]);
    }
    if (s)
        free(r);
    else
        *out = r;
    return s;
}

#define FOLD(TYPE)                                                                                                \
    for (uint64_t i = 0; i < n; i++) {                                                                            \
        TYPE *y = (TYPE *)to + i, x = ((const TYPE *)from)[i];                                                    \
        *y = (TYPE)(reduce == TN_SUM ? *y + x : x != x || (reduce == TN_MAX ? x > *y : x < *y) ? x : *y);         \
    }                                                                                                             \
    return TN_OK

static tn_status fold(uint32_t dtype, uint32_t reduce, void *to, const void *from, uint64_t n)
{
    switch (dtype) {
    case TN_F32: FOLD(float);
    case TN_F64: FOLD(double);
    case TN_I32: FOLD(int32_t);
    case TN_I64: FOLD(int64_t);
    case TN_U8: FOLD(uint8_t);
    }
    return tn_error(TN_ERR, "post: numbers of type %u are not reduced", dtype);
}

static tn_status reduce(struct tn_comm *c, const struct moving *m, uint64_t n, uint32_t to, double seconds)
{
    void *one = malloc(n * width(m->t.dtype) + 1);
    tn_status s = one ? TN_OK : tn_error(TN_ERR_MEMORY, "post: no memory for %llu elements", (unsigned long long)n);

    for (uint32_t r = 0; r < c->n && !s; r++) {
        s = get(c, m, 'c', r, to, r ? one : m->t.to, n, seconds);
        if (r && !s)
            s = fold(m->t.dtype, m->t.reduce, m->t.to, one, n);
    }
    free(one);
    return s;
}

static tn_status arrive(struct tn_comm *c, const struct moving *m, double seconds)
{
    const struct tn_transfer *t = &m->t;
    char *to = (char *)t->to;
    tn_status s = TN_OK;

    switch (t->op) {
    case TN_ALL_REDUCE: return reduce(c, m, t->count, c->n, seconds);
    case TN_REDUCE_SCATTER: return reduce(c, m, m->in[c->me], c->me, seconds);
    case TN_RECV: return get(c, m, 'p', t->peer, c->me, to, t->count, seconds);
    case TN_BROADCAST: return t->peer == c->me ? TN_OK : get(c, m, 'c', t->peer, c->n, to, t->count, seconds);
    case TN_ALL_GATHER:
    case TN_ALL_TO_ALL:
        for (uint32_t r = 0; r < c->n && !s; to += m->in[r++] * width(t->dtype))
            s = get(c, m, 'c', r, t->op == TN_ALL_GATHER ? c->n : c->me, to, m->in[r], seconds);
    }
    return s;
}

static tn_status wait_for(struct tn_request *r, double seconds)
{
    tn_status s = TN_OK;

    for (uint32_t i = 0; i < r->n && !s; i++)
        s = arrive(r->c, &r->m[i], seconds > 0.001 ? seconds : 0.001);
    if (s != TN_DECLINED)
        free(r);
    return s;
}

static void stop(struct tn_comm *c)
{
    (void)c;                                     /* the host wakes who waits for its store */
}

static void close_comm(struct tn_comm *c)
{
    free(c);
}

static const char *const devices[] = {"cpu", NULL};

static const struct tn_comm_api post = {
    .struct_size = sizeof post,
    .devices = devices,
    .probe = probe,
    .open = open_world,
    .group = group,
    .start = start,
    .wait = wait_for,
    .abort = stop,
    .close = close_comm,
};

TN_PLUGIN("post", "1.0", "a communicator through the store of the run", TN_COMM_ID, &post);
