/* bpe_long.c - the merges of one long stretch of bytes (bpe.h), in time linear in it.
 *
 * out is the list of tokens while they grow: the first byte of a token holds its id, its last byte, if it has two,
 * the complement of where it begins, all between nothing; so both neighbours are found without links. Positions whose
 * token and the next one have a merge are in that merge's list, in order of position. A heap has one entry, rank and
 * position, for each list that has something in it: the position is the list's first, or was. A position that comes
 * out of order (two merges may make the same token, each in its turn) has an entry of its own instead. Entries are
 * looked at again when they come up, so nothing is ever searched in the heap.
 *
 * Invariants: a position is in one list at most; a list is ascending; queued[r], where its entry in the heap points,
 * is not behind its head, and -1 where there is no entry. At the end all lists are empty. */
#include "data/bpe.h"

#include <inttypes.h>
#include <stdlib.h>

#define NONE (-1)                                /* the end of a list, or no entry */
#define OUTSIDE (-2)                             /* prev: in no list */
#define INSIDE INT32_MIN                         /* a byte within a token */

struct stretch {
    const struct tn_bpe *b;
    struct tn_bpe_long *l;
    int32_t *token;                              /* [bytes] */
    int32_t bytes;
    int failed;                                  /* no memory for the heap */
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
    if (!l->head)
        l->head = lists(b->merges), l->tail = lists(b->merges), l->queued = lists(b->merges);
    if (bytes > l->room) {
        free(l->next);
        free(l->prev);
        l->room = bytes;
        l->next = malloc(bytes * sizeof *l->next);
        l->prev = malloc(bytes * sizeof *l->prev);
    }
    return l->head && l->tail && l->queued && l->next && l->prev;
}

/* --- the heap: rank << 32 | position, smallest first */

static void push(struct stretch *s, int32_t rank, int32_t at)
{
    struct tn_bpe_long *l = s->l;
    uint64_t entry = (uint64_t)rank << 32 | (uint32_t)at, i;

    if (l->heap_count == l->heap_room) {
        uint64_t room = l->heap_room ? 2 * l->heap_room : 256;
        uint64_t *grown = realloc(l->heap, room * sizeof *grown);
        if (!grown) {
            s->failed = 1;
            return;
        }
        l->heap = grown;
        l->heap_room = room;
    }
    for (i = l->heap_count++; i > 0 && l->heap[(i - 1) / 2] > entry; i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = entry;
}

static uint64_t pop(struct tn_bpe_long *l)
{
    uint64_t first = l->heap[0], last = l->heap[--l->heap_count], i = 0, child;

    while ((child = 2 * i + 1) < l->heap_count) {
        child += child + 1 < l->heap_count && l->heap[child + 1] < l->heap[child];
        if (l->heap[child] >= last)
            break;
        l->heap[i] = l->heap[child];
        i = child;
    }
    l->heap[i] = last;
    return first;
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
    if (at < l->queued[r] || at < l->tail[r]) {  /* NONE is below any */
        push(s, r, at);
        return;
    }
    l->prev[at] = l->tail[r];
    l->next[at] = NONE;
    if (l->tail[r] == NONE)
        l->head[r] = at;
    else
        l->next[l->tail[r]] = at;
    l->tail[r] = at;
    if (l->queued[r] == NONE) {
        l->queued[r] = at;
        push(s, r, at);
    }
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

/* One entry of the heap. If it was a list's, what the list has now gets the next one. */
static void look(struct stretch *s, int32_t rank, int32_t at)
{
    struct tn_bpe_long *l = s->l;

    if (s->token[at] >= 0 && rank_at(s, at) == rank)
        merge(s, at, rank);
    if (l->queued[rank] != at)
        return;
    l->queued[rank] = l->head[rank];
    if (l->head[rank] != NONE)
        push(s, rank, l->head[rank]);
}

tn_status tn_bpe_merge_long(const struct tn_bpe *b, struct tn_bpe_long *l, const unsigned char *text, uint64_t bytes,
                            int32_t *out, uint64_t *count)
{
    struct stretch s = {.b = b, .l = l, .token = out, .bytes = (int32_t)bytes};
    uint64_t n = 0;

    *count = 0;
    s.failed = !make_room(l, b, bytes);
    if (!s.failed) {
        for (int32_t i = 0; i < s.bytes; i++)
            out[i] = b->byte[text[i]], l->prev[i] = OUTSIDE;
        for (int32_t i = 0; i < s.bytes; i++)
            enter(&s, i);
        while (l->heap_count > 0 && !s.failed) {
            uint64_t entry = pop(l);
            look(&s, (int32_t)(entry >> 32), (int32_t)(entry & INT32_MAX));
        }
    }
    if (s.failed) {
        tn_bpe_long_free(l);
        return tn_error(TN_ERR_MEMORY, "no memory to encode %" PRIu64 " bytes that have no border", bytes);
    }
    for (int32_t at = 0, next; at < s.bytes; at = next) {
        next = after(&s, at);
        out[n++] = out[at];
    }
    *count = n;
    return TN_OK;
}
