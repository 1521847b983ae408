/* debug.c - see debug.h. The C library's own entry points stand behind the counting ones; sanitizers bring theirs, and
 * nothing is counted beside them. */
#include "base/debug.h"

#if defined TN_DEBUG && defined __GLIBC__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_uint_fast64_t allocations;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_realloc(p, bytes);
}

uint64_t tn_debug_allocations(void)
{
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}

void tn_debug_no_allocation_since(uint64_t before, const char *what)
{
    uint64_t n = tn_debug_allocations() - before;

    if (!n)
        return;
    fprintf(stderr, "tenon: %s made %llu allocations, it may make none\n", what, (unsigned long long)n);
    abort();
}
#else
uint64_t tn_debug_allocations(void)
{
    return 0;
}

void tn_debug_no_allocation_since(uint64_t before, const char *what)
{
    (void)before, (void)what;
}
#endif
