/* arena.c - a bump allocator, and a table of names in one.
 *
 * Chunks come zeroed from calloc and are used from the front; what does not fit gets a new chunk, at least as
 * large as all before (so their number stays small). The table of names is open addressing at most half full;
 * old tables stay in the arena until it goes. */
#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 16u
#define FIRST_CHUNK 16384u
#define LARGEST_GROWTH (4u << 20)

struct chunk {
    struct chunk *older;
    size_t size, used;                           /* bytes of data */
    _Alignas(ALIGN) unsigned char data[];
};
struct tn_arena {
    struct chunk *chunk;                         /* the newest */
};

struct name {
    uint64_t hash;
    const char *text;                            /* NULL: free place */
    size_t bytes;
};
struct tn_names {
    struct tn_arena *arena;
    struct name *place;
    size_t places, count;                        /* places: a power of two */
};

__attribute__((noreturn)) static void out_of_memory(size_t bytes)
{
    fprintf(stderr, "tenon: out of memory: %zu bytes for bookkeeping are not to be had\n", bytes);
    exit(1);
}

struct tn_arena *tn_arena_new(void)
{
    struct tn_arena *arena = calloc(1, sizeof *arena);

    if (!arena)
        out_of_memory(sizeof *arena);
    return arena;
}

void tn_arena_free(struct tn_arena *arena)
{
    struct chunk *older;

    if (!arena)
        return;
    for (struct chunk *c = arena->chunk; c; c = older) {
        older = c->older;
        free(c);
    }
    free(arena);
}

static void chunk_add(struct tn_arena *arena, size_t bytes)
{
    size_t size = arena->chunk ? 2 * arena->chunk->size : FIRST_CHUNK;
    struct chunk *c;

    if (size > LARGEST_GROWTH)
        size = LARGEST_GROWTH;
    if (size < bytes)
        size = bytes;
    c = size < SIZE_MAX - sizeof *c ? calloc(1, sizeof *c + size) : NULL;
    if (!c)
        out_of_memory(bytes);
    c->size = size;
    c->older = arena->chunk;
    arena->chunk = c;
}

void *tn_alloc(struct tn_arena *arena, size_t bytes)
{
    void *p;

    if (bytes > SIZE_MAX / 2)
        out_of_memory(bytes);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!arena->chunk || bytes > arena->chunk->size - arena->chunk->used)
        chunk_add(arena, bytes);
    p = arena->chunk->data + arena->chunk->used;
    arena->chunk->used += bytes;
    return p;
}

void *tn_alloc_array(struct tn_arena *arena, size_t n, size_t bytes)
{
    size_t total;

    if (__builtin_mul_overflow(n, bytes, &total))
        out_of_memory(SIZE_MAX);
    return tn_alloc(arena, total);
}

void *tn_alloc_grow(struct tn_arena *arena, void *list, size_t count, size_t bytes)
{
    void *more;

    if (count && (count < 4 || count & (count - 1)))
        return list;
    more = tn_alloc_array(arena, count ? 2 * count : 4, bytes);
    if (count)
        memcpy(more, list, count * bytes);
    return more;
}

char *tn_text_list(struct tn_arena *arena, const char *fmt, va_list ap)
{
    char none[1], *text;
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(none, sizeof none, fmt, again);
    va_end(again);
    if (n < 0)
        out_of_memory(0);
    text = tn_alloc(arena, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    return text;
}

char *tn_text(struct tn_arena *arena, const char *fmt, ...)
{
    va_list ap;
    char *text;

    va_start(ap, fmt);
    text = tn_text_list(arena, fmt, ap);
    va_end(ap);
    return text;
}

/* --- names */
struct tn_names *tn_names_new(struct tn_arena *arena)
{
    struct tn_names *names = tn_alloc(arena, sizeof *names);

    names->arena = arena;
    names->places = 64;
    names->place = tn_alloc_array(arena, names->places, sizeof *names->place);
    return names;
}

static uint64_t hash_of(const char *text, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u;            /* FNV-1a */

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return h;
}

/* The place of this text, or the free one where it belongs. */
static struct name *name_find(struct tn_names *names, uint64_t hash, const char *text, size_t bytes)
{
    for (size_t i = hash;; i++) {
        struct name *p = &names->place[i & (names->places - 1)];
        if (!p->text || (p->hash == hash && p->bytes == bytes && !memcmp(p->text, text, bytes)))
            return p;
    }
}

static void names_grow(struct tn_names *names)
{
    struct name *old = names->place;
    size_t places = names->places;

    names->places *= 2;
    names->place = tn_alloc_array(names->arena, names->places, sizeof *old);
    for (size_t i = 0; i < places; i++)
        if (old[i].text)
            *name_find(names, old[i].hash, old[i].text, old[i].bytes) = old[i];
}

const char *tn_intern_bytes(struct tn_names *names, const char *text, size_t bytes)
{
    uint64_t hash = hash_of(text, bytes);
    struct name *p = name_find(names, hash, text, bytes);

    if (p->text)
        return p->text;
    if (2 * (names->count + 1) > names->places) {
        names_grow(names);
        p = name_find(names, hash, text, bytes);
    }
    char *copy = tn_alloc(names->arena, bytes + 1);
    memcpy(copy, text, bytes);
    *p = (struct name){hash, copy, bytes};
    names->count++;
    return copy;
}

const char *tn_intern(struct tn_names *names, const char *text)
{
    return tn_intern_bytes(names, text, strlen(text));
}
