/* near.h - did you mean …? The known word nearest to an unknown one. */
#ifndef TN_BASE_NEAR_H
#define TN_BASE_NEAR_H
#include <stdint.h>

/* Begin with {.word = unknown}, try every known word, read best: NULL if none is near. Borrows all. */
struct tn_near {
    const char *word, *best;
    uint32_t distance;                           /* of best */
};
void tn_near_try(struct tn_near *near, const char *known);

/* Letters to change, add, take away or swap with their neighbour; upper and lower case are the same. */
uint32_t tn_near_distance(const char *a, const char *b);
#endif
