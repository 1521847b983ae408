/* memory.c - buffers between pages that may not be touched, and numbers of every dtype in them. */
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>
#include "bench_inside.h"

struct tn_guarded tn_guarded_new(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + 63) / 64 * 64;
    const size_t pages = (room + page - 1) / page * page;
    struct tn_guarded g = {.mapped = pages + 2 * page, .bytes = room};

    g.map = mmap(NULL, g.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map, page, PROT_NONE) ||
        mprotect(g.map + page + pages, page, PROT_NONE))
        tn_bench_stop("no guarded memory of %zu bytes", bytes);
    memset(g.map + page, POISON, pages);
    g.data = g.map + page + pages - room;
    return g;
}

void tn_guarded_front(struct tn_guarded *g)
{
    g->data = g->map + (size_t)sysconf(_SC_PAGESIZE);
}

int tn_guarded_overrun(const struct tn_guarded *g)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (const char *at = g->map + page; at < g->data; at++)
        if (*at != (char)POISON)
            return -1;
    for (const char *at = g->data + g->bytes; at < g->map + g->mapped - page; at++)
        if (*at != (char)POISON)
            return 1;
    return 0;
}

void tn_guarded_free(struct tn_guarded *g)
{
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
