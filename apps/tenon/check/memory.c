/* memory.c - buffers between pages that may not be touched, and numbers of every dtype in them.
 *
 * Data begins at a multiple of 64, so up to 63 bytes may lie between its end and the page behind it. Kernels compiled
 * under the address sanitizer may not read those either. */
#include <math.h>
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

size_t tn_number_width(uint32_t dtype)
{
    return dtype == TN_BF16 || dtype == TN_F16 ? 2 : 4;
}

/* By its bits, for it is asked for often: those of a double with another bias. */
static double half_value(uint16_t h)
{
    const uint64_t e = h >> 10 & 31, fraction = h & 1023, sign = (uint64_t)(h >> 15) << 63;
    const uint64_t bits = sign | (e == 31 ? 2047 : e + 1023 - 15) << 52 | fraction << 42;
    double v;

    if (e == 0)
        return (h & 0x8000 ? -0x1p-24 : 0x1p-24) * (double)fraction;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* The nearest one, of two the even one: below 2^-14 in steps of 2^-24, else with eleven bits. */
static uint16_t half_nearest(double v)
{
    const uint16_t sign = signbit(v) ? 0x8000 : 0;
    const double a = fabs(v);
    int e;

    if (isnan(v))
        return 0x7e00;
    if (a >= 65520)
        return sign | 0x7c00;
    if (a < 0x1p-14)
        return (uint16_t)(sign | (uint16_t)nearbyint(a * 0x1p24));
    const double m = nearbyint(frexp(a, &e) * 2048);

    return (uint16_t)(sign | (((uint32_t)(e + 14) << 10) + (uint32_t)m - 1024));
}

void tn_number_write(uint32_t dtype, void *at, double v)
{
    float f = (float)v;
    uint32_t bits;

    if (dtype == TN_F32)
        memcpy(at, &f, 4);
    else if (dtype == TN_I32)
        memcpy(at, &(int32_t){(int32_t)v}, 4);
    else if (dtype == TN_BF16) {
        memcpy(&bits, &f, 4);
        if (!isnan(f))
            bits += 0x7fff + (bits >> 16 & 1);
        memcpy(at, &(uint16_t){(uint16_t)(bits >> 16)}, 2);
    } else
        memcpy(at, &(uint16_t){half_nearest(v)}, 2);
}

double tn_number_read(uint32_t dtype, const void *at)
{
    uint32_t bits = 0;
    uint16_t half;
    int32_t i;
    float f;

    if (dtype == TN_I32)
        return memcpy(&i, at, 4), i;
    if (dtype == TN_F16)
        return memcpy(&half, at, 2), half_value(half);
    if (dtype == TN_BF16)
        memcpy(&half, at, 2), bits = (uint32_t)half << 16;
    else
        memcpy(&bits, at, 4);
    return memcpy(&f, &bits, 4), f;
}
