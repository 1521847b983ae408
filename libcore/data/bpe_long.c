/* bpe_long.c - the merges of one long stretch of bytes (bpe.h), in time linear in it.
 *
 * out is the list of tokens while they grow: the first byte of a token holds its id, its last byte, if it has
 * two, the complement of where it begins, all between nothing; so both neighbours are found without links.
 * Positions whose token and the next one have a merge are in that merge's list, and a heap has the ranks of
 * lists that are not empty.
 *
 * A list is in order of position, as the rule wants it, though it is only ever added to at its end. Which
 * merges make a token is settled by its own bytes, for a merge across its border would leave no such token;
 * so all pairs of one kind come to be by the same merge, at the same place within them, and merges of one
 * rank go from left to right. */
#include "data/bpe.h"

#include <inttypes.h>
#include <stdlib.h>

#define NONE (-1)                                /* the end of a list */
#define OUTSIDE (-2)                             /* prev: in no list */
#define INSIDE INT32_MIN                         /* a byte within a token */

struct stretch {
    const struct tn_bpe *b;
    struct tn_bpe_long *l;
    int32_t *token;                              /* [bytes] */
    int32_t bytes;
};

void tn_bpe_long_free(struct tn_bpe_long *l)
{
    free(l->head);
    free(l->tail);
    free(l->queued);
    free(l->next);
    free(l->prev);
    free(l->heap);
    *l = (struct tn_bpe_long){0};
}

static int32_t *lists(int32_t n)
{
    int32_t *list = malloc(((size_t)n + 1) * sizeof *list);

    if (list)
        memset(list, 0xFF, ((size_t)n + 1) * sizeof *list);
    return list;
}

static int make_room(struct tn_bpe_long *l, const struct tn_bpe *b, uint64_t bytes)
{
    if (!l->head) {
        l->head = lists(b->merges);
        l->tail = lists(b->merges);
        l->heap = lists(b->merges);
        l->queued = calloc((size_t)b->merges + 1, 1);
    }
    if (bytes > l->room) {
        free(l->next);
        free(l->prev);
        l->room = bytes;
        l->next = malloc(bytes * sizeof *l->next);
        l->prev = malloc(bytes * sizeof *l->prev);
    }
    return l->head && l->tail && l->heap && l->queued && l->next && l->prev;
}

/* --- the heap of ranks, smallest first */

static void push(struct stretch *s, int32_t rank)
{
    struct tn_bpe_long *l = s->l;
    uint64_t i;

    for (i = l->heap_count++; i > 0 && l->heap[(i - 1) / 2] > rank; i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = rank;
    l->queued[rank] = 1;
}

static void pop(struct tn_bpe_long *l)
{
    int32_t last = l->heap[--l->heap_count];
    uint64_t i = 0, child;

    l->queued[l->heap[0]] = 0;
    while ((child = 2 * i + 1) < l->heap_count) {
        child += child + 1 < l->heap_count && l->heap[child + 1] < l->heap[child];
        if (l->heap[child] >= last)
            break;
        l->heap[i] = l->heap[child];
        i = child;
    }
    l->heap[i] = last;
}

/* --- the lists */

static int32_t after(const struct stretch *s, int32_t at)
{
    return at + (int32_t)tn_bpe_bytes(s->b, s->token[at]);
}

/* at is where a token begins. INT32_MAX: there is no next one, or no merge. */
static int32_t rank_at(const struct stretch *s, int32_t at)
{
    int32_t next = after(s, at);

    return next < s->bytes ? tn_bpe_rank(s->b, s->token[at], s->token[next]) : INT32_MAX;
}

static void enter(struct stretch *s, int32_t at)
{
    struct tn_bpe_long *l = s->l;
    int32_t r = rank_at(s, at);

    if (r == INT32_MAX)
        return;
    l->prev[at] = l->tail[r];
    l->next[at] = NONE;
    if (l->tail[r] == NONE)
        l->head[r] = at;
    else
        l->next[l->tail[r]] = at;
    l->tail[r] = at;
    if (!l->queued[r])
        push(s, r);
}

/* Before the token at this place or the next one changes. */
static void leave(struct stretch *s, int32_t at)
{
    struct tn_bpe_long *l = s->l;
    int32_t prev = l->prev[at], next = l->next[at], r = 0;

    if (prev == OUTSIDE)
        return;
    if (prev == NONE || next == NONE)
        r = rank_at(s, at);
    *(prev == NONE ? &l->head[r] : &l->next[prev]) = next;
    *(next == NONE ? &l->tail[r] : &l->prev[next]) = prev;
    l->prev[at] = OUTSIDE;
}

static void merge(struct stretch *s, int32_t at, int32_t rank)
{
    int32_t second = after(s, at), end = after(s, second);
    int32_t before = at == 0 ? NONE : s->token[at - 1] < 0 ? ~s->token[at - 1] : at - 1;

    leave(s, at);
    leave(s, second);
    if (before != NONE)
        leave(s, before);
    s->token[at] = s->b->merge[rank].out;
    s->token[second] = INSIDE;
    s->token[end - 1] = ~at;
    if (before != NONE)
        enter(s, before);
    enter(s, at);
}

tn_status tn_bpe_merge_long(const struct tn_bpe *b, struct tn_bpe_long *l, const unsigned char *text,
                            uint64_t bytes, int32_t *out, uint64_t *count)
{
    struct stretch s = {.b = b, .l = l, .token = out, .bytes = (int32_t)bytes};
    uint64_t n = 0;

    *count = 0;
    if (!make_room(l, b, bytes)) {
        tn_bpe_long_free(l);
        return tn_error(TN_ERR_MEMORY, "no memory to encode %" PRIu64 " bytes that have no border", bytes);
    }
    for (int32_t i = 0; i < s.bytes; i++)
        out[i] = b->byte[text[i]], l->prev[i] = OUTSIDE;
    for (int32_t i = 0; i < s.bytes; i++)
        enter(&s, i);
    while (l->heap_count > 0)
        if (l->head[l->heap[0]] == NONE)
            pop(l);
        else
            merge(&s, l->head[l->heap[0]], l->heap[0]);
    for (int32_t at = 0, next; at < s.bytes; at = next) {
        next = after(&s, at);
        out[n++] = out[at];
    }
    *count = n;
    return TN_OK;
}
