/* server_keys.c - the keys of the store, and who waits for one: see server.h. */
#include "world/server.h"

#include <math.h>
#include <stdlib.h>

static struct entry **find(struct tn_store_server *s, const char *key)
{
    uint32_t hash = 2166136261u;
    struct entry **e;

    for (const char *c = key; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    e = &s->bucket[hash % SERVER_BUCKETS];
    while (*e && strcmp((*e)->key, key))
        e = &(*e)->next;
    return e;
}

static void answer(struct tn_store_server *s, struct peer *p, uint64_t id, tn_status status,
                   const void *value, uint32_t bytes)
{
    struct tn_wire_head h = {.type = TN_WIRE_ANSWER, .bytes = bytes, .arg = status, .id = id};

    server_send(s, p, &h, value);
}

/* Takes those that fit out of the list first: an answer may drop its peer, which changes the list. */
static void wake(struct tn_store_server *s, const struct entry *e)
{
    struct waiting **w = &s->waiting, *ready = NULL;

    while (*w) {
        struct waiting *one = *w;
        if (strcmp(one->key, e->key)) {
            w = &one->next;
            continue;
        }
        *w = one->next;
        one->next = ready;
        ready = one;
    }
    while (ready) {
        struct waiting *one = ready;
        ready = one->next;
        one->peer->waits--;
        answer(s, one->peer, one->id, TN_OK, e->value, e->bytes);
        free(one);
    }
}

static struct entry *entry_new(const char *key)
{
    size_t n = strlen(key) + 1;
    struct entry *e = malloc(sizeof *e + n);

    if (e) {
        *e = (struct entry){.key_bytes = (uint32_t)n};
        memcpy(e->key, key, n);
    }
    return e;
}

static tn_status put(struct tn_store_server *s, const char *key, const void *value, uint32_t bytes)
{
    struct entry **at = find(s, key), *e = *at;
    size_t before = e ? e->bytes : strlen(key) + sizeof *e;
    char *copy = malloc(bytes + 1);

    if (!copy || s->stored - (e ? before : 0) + bytes > TN_STORE_TOTAL || (!e && !(e = entry_new(key)))) {
        free(copy);
        return TN_ERR_MEMORY;
    }
    memcpy(copy, value, bytes);
    copy[bytes] = 0;
    if (*at)
        s->stored -= before;
    else
        s->stored += before;
    free(e->value);
    e->value = copy;
    e->bytes = bytes;
    s->stored += bytes;
    *at = e;
    wake(s, e);
    return TN_OK;
}

static void get(struct tn_store_server *s, struct peer *p, const struct tn_wire_head *h, const char *key)
{
    struct entry *e = *find(s, key);
    struct waiting *w;

    if (e || h->arg <= 0) {
        answer(s, p, h->id, e ? TN_OK : TN_ERR_TIMEOUT, e ? e->value : NULL, e ? e->bytes : 0);
        return;
    }
    if (p->waits == SERVER_WAITS || !(w = malloc(sizeof *w))) {
        answer(s, p, h->id, TN_ERR_MEMORY, NULL, 0);
        return;
    }
    *w = (struct waiting){.next = s->waiting, .peer = p, .id = h->id, .until = tn_net_now() + h->arg * 1e-3};
    snprintf(w->key, sizeof w->key, "%s", key);
    s->waiting = w;
    p->waits++;
}

static void add(struct tn_store_server *s, struct peer *p, const struct tn_wire_head *h, const char *key,
                const char *value)
{
    struct entry *e = *find(s, key);
    int64_t sum = 0, amount;
    tn_status status;

    if (h->bytes != sizeof amount || (e && e->bytes != sizeof sum)) {
        answer(s, p, h->id, TN_ERR_SHAPE, NULL, 0);
        return;
    }
    memcpy(&amount, value, sizeof amount);
    if (e)
        memcpy(&sum, e->value, sizeof sum);
    sum = (int64_t)((uint64_t)sum + (uint64_t)amount);
    status = put(s, key, &sum, sizeof sum);
    answer(s, p, h->id, status, &sum, status ? 0 : sizeof sum);
}

void server_request(struct tn_store_server *s, struct peer *p, const struct tn_wire_head *h, const char *key,
                    const char *value)
{
    switch (h->type) {
    case TN_WIRE_SET: answer(s, p, h->id, put(s, key, value, h->bytes), NULL, 0); break;
    case TN_WIRE_GET: get(s, p, h, key); break;
    case TN_WIRE_CHECK: answer(s, p, h->id, *find(s, key) ? TN_OK : TN_DECLINED, NULL, 0); break;
    case TN_WIRE_ADD: add(s, p, h, key, value); break;
    }
}

void server_forget(struct tn_store_server *s, struct peer *p)
{
    struct waiting **w = &s->waiting;

    while (*w) {
        struct waiting *one = *w;
        if (one->peer != p) {
            w = &one->next;
            continue;
        }
        *w = one->next;
        free(one);
    }
    p->waits = 0;
}

double server_late(struct tn_store_server *s, double now)
{
    struct waiting **w = &s->waiting, *late = NULL;
    double next = INFINITY;

    while (*w) {
        struct waiting *one = *w;
        if (one->until > now) {
            next = fmin(next, one->until);
            w = &one->next;
            continue;
        }
        *w = one->next;
        one->next = late;
        late = one;
    }
    while (late) {
        struct waiting *one = late;
        late = one->next;
        one->peer->waits--;
        answer(s, one->peer, one->id, TN_ERR_TIMEOUT, NULL, 0);
        free(one);
    }
    return next;
}

void server_keys_free(struct tn_store_server *s)
{
    for (uint32_t b = 0; b < SERVER_BUCKETS; b++)
        while (s->bucket[b]) {
            struct entry *e = s->bucket[b];
            s->bucket[b] = e->next;
            free(e->value);
            free(e);
        }
    while (s->waiting) {
        struct waiting *w = s->waiting;
        s->waiting = w->next;
        free(w);
    }
}
