/* offset.h - one arena for buffers that do not all live at the same time.
 *
 * A span is needed from position `first` to position `last` of a program, both included. Two spans whose lives
 * meet get places that do not. Greedy in a few fixed orders, largest first being one, each span at the lowest
 * place that is free during its whole life; the order that ends lowest wins. The same spans give the same
 * places everywhere: all ranks of a run agree without talking. */
#ifndef TN_PLAN_OFFSET_H
#define TN_PLAN_OFFSET_H
#include <stdint.h>
struct tn_arena;

#define TN_OFFSET_ALIGN 64u

struct tn_span {
    uint64_t bytes, offset;
    uint32_t first, last;
};

/* Sets the offsets, multiples of TN_OFFSET_ALIGN; returns the size of the arena. Scratch lies in arena. */
uint64_t tn_offsets(struct tn_arena *arena, struct tn_span *span, uint32_t n);

/* The most bytes alive at one position, each span rounded up to the alignment: no arena can be smaller. */
uint64_t tn_live_peak(struct tn_arena *arena, const struct tn_span *span, uint32_t n);
#endif
