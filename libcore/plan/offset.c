/* offset.c - see offset.h. Quadratic in the number of spans, which are some thousands. */
#include "plan/offset.h"
#include <stdlib.h>
#include "base/arena.h"

#define ORDERS 5

/* One span on its way; key holds what it is sorted by, largest first. */
struct item {
    uint64_t key, bytes, at;
    uint32_t first, last, span;
};

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + TN_OFFSET_ALIGN - 1) / TN_OFFSET_ALIGN * TN_OFFSET_ALIGN;
}

static int by_key(const void *x, const void *y)
{
    const struct item *a = x, *b = y;

    if (a->key != b->key)
        return a->key < b->key ? 1 : -1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a->span < b->span ? -1 : a->span > b->span;
}

/* Sizes within a factor of two are one size to the last two orders. */
static uint64_t key(uint32_t order, const struct tn_span *s)
{
    uint64_t bytes = s->bytes, life = (uint64_t)s->last - s->first + 1,
             power = (uint64_t)(63 - __builtin_clzll(bytes)) << 32;

    switch (order) {
    case 0: return bytes;
    case 1: /* by area; at most 2^32 positions, so it may wrap: only a tie lost */
        return bytes / TN_OFFSET_ALIGN * life;
    case 2: /* those that live long first: they cannot move out of the way */
        return life << 32 | (bytes >> 16 > UINT32_MAX ? UINT32_MAX : bytes >> 16);
    case 3: /* those that end late first */
        return power | s->last;
    default: /* in the order of the program */
        return power | (UINT32_MAX - s->first);
    }
}

/* The lowest place for it among the n placed ones, which are in order of their places. */
static uint64_t lowest(const struct item *it, struct item *const *placed, uint32_t n)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct item *o = placed[i];
        if (o->last < it->first || o->first > it->last)
            continue;
        if (o->at >= at + it->bytes)
            break;
        if (o->at + o->bytes > at)
            at = o->at + o->bytes;
    }
    return at;
}

static uint64_t place_all(struct item *item, struct item **placed, uint32_t n)
{
    uint64_t top = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        item[i].at = lowest(&item[i], placed, i);
        for (; k > 0 && placed[k - 1]->at > item[i].at; k--)
            placed[k] = placed[k - 1];
        placed[k] = &item[i];
        if (item[i].at + item[i].bytes > top)
            top = item[i].at + item[i].bytes;
    }
    return top;
}

uint64_t tn_offsets(struct tn_arena *arena, struct tn_span *span, uint32_t n)
{
    struct item *item = tn_alloc_array(arena, n, sizeof *item);
    struct item **placed = tn_alloc_array(arena, n, sizeof *placed);
    uint64_t best = UINT64_MAX;

    for (uint32_t order = 0; order < ORDERS; order++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < n; i++)
            if (span[i].bytes)
                item[count++] = (struct item){
                    key(order, &span[i]), round_up(span[i].bytes), 0, span[i].first, span[i].last, i};
        qsort(item, count, sizeof *item, by_key);
        uint64_t top = place_all(item, placed, count);
        if (top >= best)
            continue;
        best = top;
        for (uint32_t i = 0; i < count; i++)
            span[item[i].span].offset = item[i].at;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!span[i].bytes)
            span[i].offset = 0;
    return n ? best : 0;
}

uint64_t tn_live_peak(struct tn_arena *arena, const struct tn_span *span, uint32_t n)
{
    uint32_t end = 0;
    uint64_t live = 0, peak = 0;

    for (uint32_t i = 0; i < n; i++)
        if (span[i].last >= end)
            end = span[i].last + 1;
    uint64_t *born = tn_alloc_array(arena, end + 1u, sizeof *born),
             *dead = tn_alloc_array(arena, end + 1u, sizeof *dead);
    for (uint32_t i = 0; i < n; i++) {
        born[span[i].first] += round_up(span[i].bytes);
        dead[span[i].last + 1] += round_up(span[i].bytes);
    }
    for (uint32_t p = 0; p < end; p++) {
        live += born[p];
        live -= dead[p];
        if (live > peak)
            peak = live;
    }
    return peak;
}
