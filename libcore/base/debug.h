/* debug.h - what only debug builds (configure --enable-debug) look at.
 *
 * A step allocates nothing: one arena was taken before. A debug build counts every allocation of the process and the
 * session compares the count around each step; other builds count nothing and compare nothing. */
#ifndef TN_BASE_DEBUG_H
#define TN_BASE_DEBUG_H
#include <stdint.h>

/* Allocations so far, of all threads; 0 for ever where they are not counted. */
uint64_t tn_debug_allocations(void);
/* Ends the process with a sentence if any were made since: they were made inside a step. */
void tn_debug_no_allocation_since(uint64_t before, const char *what);
#endif
