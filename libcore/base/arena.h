/* arena.h - memory for bookkeeping that lives and dies together: graphs, plans, configurations.
 *
 * An arena grows in chunks and is freed as a whole; nothing in it is freed alone. What it hands out is zeroed
 * and never moves. It is for small things only (tensors live on devices): so when memory is out, the program
 * ends with a sentence and nobody has to check. One thread at a time. */
#ifndef TN_BASE_ARENA_H
#define TN_BASE_ARENA_H
#include <stdarg.h>
#include <stddef.h>

struct tn_arena;
struct tn_names;

struct tn_arena *tn_arena_new(void);             /* returns owned */
void tn_arena_free(struct tn_arena *arena);      /* takes; NULL is fine */

/* Zeroed, aligned to 16; bytes may be 0. */
void *tn_alloc(struct tn_arena *arena, size_t bytes);
/* As tn_alloc for n elements; a product that overflows ends the program like no memory. */
void *tn_alloc_array(struct tn_arena *arena, size_t n, size_t bytes);
/* Twice the room for a list of count elements, where it is full (count 0, 4, 8, 16, ...): NULL, list, count.
 */
void *tn_alloc_grow(struct tn_arena *arena, void *list, size_t count, size_t bytes);
__attribute__((format(printf, 2, 3))) char *tn_text(struct tn_arena *arena, const char *fmt, ...);
__attribute__((format(printf, 2, 0))) char *tn_text_list(struct tn_arena *arena, const char *fmt, va_list ap);

/* Interned text: equal texts give the same pointer, which lives as long as the arena. */
struct tn_names *tn_names_new(struct tn_arena *arena);
const char *tn_intern(struct tn_names *names, const char *text);
const char *tn_intern_bytes(struct tn_names *names, const char *text, size_t bytes);
#endif
