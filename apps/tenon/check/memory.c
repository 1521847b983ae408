/* memory.c - buffers between pages that may not be touched.
 *
 * Data begins at a multiple of 64, so up to 63 bytes may lie between its end and the page behind it. Kernels compiled
 * under the address sanitizer may not read those either. */
#include <sys/mman.h>
#include <unistd.h>
#include "bench_inside.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

/* Up to the page that may not be touched. */
static size_t behind(const struct tn_guarded *g)
{
    return (size_t)(g->map + g->mapped - (size_t)sysconf(_SC_PAGESIZE) - (g->data + g->bytes));
}

struct tn_guarded tn_guarded_new(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + 63) / 64 * 64;
    const size_t pages = (room + page - 1) / page * page;
    struct tn_guarded g = {.mapped = pages + 2 * page, .bytes = bytes};

    g.map = mmap(NULL, g.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map, page, PROT_NONE) ||
        mprotect(g.map + page + pages, page, PROT_NONE))
        tn_bench_stop("no guarded memory of %zu bytes", bytes);
    memset(g.map + page, POISON, pages);
    g.data = g.map + page + pages - room;
    ASAN_POISON_MEMORY_REGION(g.data + bytes, behind(&g));
    return g;
}

void tn_guarded_front(struct tn_guarded *g)
{
    ASAN_UNPOISON_MEMORY_REGION(g->data + g->bytes, behind(g));
    g->data = g->map + (size_t)sysconf(_SC_PAGESIZE);
    ASAN_POISON_MEMORY_REGION(g->data + g->bytes, behind(g));
}

int tn_guarded_overrun(const struct tn_guarded *g)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = behind(g);
    int over = 0;

    ASAN_UNPOISON_MEMORY_REGION(g->data + g->bytes, n);
    for (size_t i = 0; i < n; i++)
        over = g->data[g->bytes + i] != (char)POISON ? 1 : over;
    for (const char *at = g->map + page; at < g->data; at++)
        over = *at != (char)POISON ? -1 : over;
    ASAN_POISON_MEMORY_REGION(g->data + g->bytes, n);
    return over;
}

void tn_guarded_free(struct tn_guarded *g)
{
    ASAN_UNPOISON_MEMORY_REGION(g->data + g->bytes, behind(g));
    munmap(g->map, g->mapped);
}
