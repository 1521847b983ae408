/* memory.c - memory of the fake devices, and page-locked memory of the host.
 *
 * Each device has a range of addresses of its own, never used twice. An allocation ends (but for its
 * alignment of 256 bytes) at the end of a page, with pages nobody may touch behind it and in front of it;
 * what is left of its own pages is filled and looked at after each operation. It begins as all ones, so as
 * NaN in every dtype. The host may not touch a device's memory; while an operation runs its device's
 * allocations are opened, and no others. */
#include "fake.h"
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define REGION ((size_t)1 << 38)
#define TOTAL (UINT64_C(143771) << 20) /* of a device, as an H200 has */
#define PAGE ((size_t)4096)
#define GUARD ((size_t)64 << 10)
#define LARGE ((size_t)2 << 20) /* a large page: memory of many is opened and closed at once */
#define FILL 0xff

struct block {
    char *at, *pages;
    size_t bytes, page_bytes;
    int device, live; /* device -1: page-locked memory of the host */
};

static struct region {
    char *at;
    size_t used, taken; /* addresses; bytes of live allocations */
} regions[TN_FAKE_DEVICES];
static struct block *blocks;
static uint32_t n_block;
static int opened = -1;
static const char *operation;

/* --- looking up */
static struct block *find(const void *p)
{
    const char *c = p;

    for (uint32_t i = n_block; i > 0; i--) {
        struct block *b = &blocks[i - 1];

        if (b->live && c >= b->at && c < b->at + (b->bytes ? b->bytes : 1))
            return b;
    }
    return NULL;
}

/* The allocation, live or not, that is nearest. */
static const struct block *near(const void *p)
{
    const struct block *best = NULL;
    const char *c = p;
    ptrdiff_t least = GUARD;

    for (uint32_t i = n_block; i > 0; i--) {
        const struct block *b = &blocks[i - 1];
        const ptrdiff_t away = c < b->at              ? b->at - c
                               : c < b->at + b->bytes ? 0
                                                      : c - b->at - (ptrdiff_t)b->bytes + 1;

        if (away < least)
            best = b, least = away;
    }
    return best;
}

int tn_fake_is_device(const void *p)
{
    const char *c = p;

    for (int d = 0; d < TN_FAKE_DEVICES; d++)
        if (regions[d].at && c >= regions[d].at && c < regions[d].at + REGION)
            return d + 1;
    return 0;
}

int tn_fake_is_pinned(const void *p, size_t bytes)
{
    const struct block *b = find(p);

    return b && b->device < 0 && (const char *)p + bytes <= b->at + b->bytes;
}

size_t tn_fake_room(const void *p)
{
    const struct block *b = find(p);

    return b ? (size_t)(b->at + b->bytes - (const char *)p) : 0;
}

/* Where an address is, in words. */
static const char *place(const void *p)
{
    static char text[200];
    const struct block *b = near(p);
    const int device = tn_fake_is_device(p);
    const char *c = p;

    if (!device)
        snprintf(text, sizeof text, "%p is memory of the host", p);
    else if (!b)
        snprintf(text, sizeof text, "%p is in no allocation", p);
    else if (c >= b->at && c < b->at + b->bytes)
        snprintf(text, sizeof text, "%p is %td bytes into an allocation of %zu bytes%s", p, c - b->at,
                 b->bytes, b->live ? "" : " that was freed");
    else
        snprintf(text, sizeof text, "%p is %td bytes %s an allocation of %zu bytes%s", p,
                 c < b->at ? b->at - c : c - b->at - (ptrdiff_t)b->bytes,
                 c < b->at ? "in front of" : "past the end of", b->bytes, b->live ? "" : " that was freed");
    return text;
}

const char *tn_fake_range(int device, const void *p, size_t bytes)
{
    static char text[300];
    const struct block *b = find(p);

    if (!b || b->device < 0) {
        snprintf(text, sizeof text, "%s",
                 b ? "page-locked memory of the host is taken for the device's" : place(p));
        return text;
    }
    if (b->device != device) {
        snprintf(text, sizeof text, "%p is memory of device %d, not of device %d", p, b->device, device);
        return text;
    }
    if ((const char *)p + bytes > b->at + b->bytes) {
        snprintf(text, sizeof text,
                 "%zu bytes from %p go %td bytes past the end of an allocation of %zu bytes", bytes, p,
                 (const char *)p + bytes - (b->at + b->bytes), b->bytes);
        return text;
    }
    return NULL;
}

const char *tn_fake_parameter(int device, const void *bytes, size_t size)
{
    static char text[300];
    unsigned char state;

    for (size_t i = 0; i + 8 <= size; i += 8) {
        uintptr_t word;
        const int of = (memcpy(&word, (const char *)bytes + i, 8), tn_fake_is_device((const void *)word));
        const struct block *b = near((const void *)word);

        if (of && of - 1 != device)
            snprintf(text, sizeof text, "address %#zx at byte %zu is memory of device %d", word, i, of - 1);
        else if (of && b && !b->live)
            snprintf(text, sizeof text, "at byte %zu, %s", i, place((const void *)word));
        else if (!of && word >> 32 && word >> 47 == 0 && !tn_fake_is_pinned((const void *)word, 1) &&
                 !mincore((void *)(word / PAGE * PAGE), 1, &state))
            snprintf(text, sizeof text, "at byte %zu, %s", i, place((const void *)word));
        else
            continue;
        return text;
    }
    return NULL;
}

/* --- allocations */
static struct block *add(void)
{
    blocks = realloc(blocks, (n_block + 1) * sizeof *blocks);
    if (!blocks)
        tn_fake_die("no memory for the list of allocations");
    return &blocks[n_block++];
}

static void protect(const struct block *b, int how)
{
    if (mprotect(b->pages, b->page_bytes, how))
        tn_fake_die("mprotect of %zu bytes: %s", b->page_bytes, strerror(errno));
}

cudaError_t tn_fake_alloc(int device, size_t bytes, void **out)
{
    struct region *r = &regions[device];
    const size_t size = (bytes + 255) / 256 * 256, pages = (size + PAGE - 1) / PAGE * PAGE;
    struct block *b;

    *out = NULL;
    if (!r->at) {
        r->at = mmap(NULL, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (r->at == MAP_FAILED)
            tn_fake_die("no addresses for device %d: %s", device, strerror(errno));
        r->used = GUARD;
    }
    if (pages >= LARGE)
        r->used = ((uintptr_t)r->at + r->used + LARGE - 1) / LARGE * LARGE - (uintptr_t)r->at;
    if (bytes > TOTAL - r->taken || r->used + pages + GUARD > REGION)
        return tn_fake_last(cudaErrorMemoryAllocation);
    if (!bytes)
        return cudaSuccess;
    b = add();
    *b = (struct block){.at = r->at + r->used + pages - size,
                        .pages = r->at + r->used,
                        .bytes = bytes,
                        .page_bytes = pages,
                        .device = device,
                        .live = 1};
    r->used += pages + GUARD, r->taken += bytes;
    protect(b, PROT_READ | PROT_WRITE);
    if (pages >= LARGE)
        madvise(b->pages, pages, MADV_HUGEPAGE);
    memset(b->pages, FILL, pages);
    if (opened != device)
        protect(b, PROT_NONE);
    *out = b->at;
    return cudaSuccess;
}

cudaError_t tn_fake_free(void *p)
{
    struct block *b = find(p);

    if (!b || b->device < 0 || b->at != p)
        return tn_fake_error(cudaErrorInvalidValue, "cudaFree: %s",
                             b ? "not the begin of an allocation" : place(p));
    b->live = 0;
    regions[b->device].taken -= b->bytes;
    protect(b, PROT_NONE);
    madvise(b->pages, b->page_bytes, MADV_DONTNEED);
    return cudaSuccess;
}

cudaError_t tn_fake_pin(size_t bytes, void **out)
{
    const size_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    char *at = mmap(NULL, pages ? pages : PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    *out = NULL;
    if (at == MAP_FAILED)
        return tn_fake_last(cudaErrorMemoryAllocation);
    memset(at, FILL, pages);
    *add() =
        (struct block){.at = at, .pages = at, .bytes = bytes, .page_bytes = pages, .device = -1, .live = 1};
    *out = at;
    return cudaSuccess;
}

cudaError_t tn_fake_unpin(void *p)
{
    struct block *b = find(p);

    if (!b || b->device >= 0 || b->at != p)
        return tn_fake_error(cudaErrorInvalidValue, "cudaFreeHost: %p is not page-locked memory", p);
    b->live = 0;
    protect(b, PROT_NONE);
    return cudaSuccess;
}

void tn_fake_memory_info(int device, size_t *available, size_t *total)
{
    *available = TOTAL - regions[device].taken, *total = TOTAL;
}

uint32_t tn_fake_memory_leaks(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_block; i++)
        n += blocks[i].live != 0;
    return n;
}

/* --- who may touch it */
static void protect_all(int device, int how)
{
    for (uint32_t i = 0; i < n_block; i++)
        if (blocks[i].live && blocks[i].device == device)
            protect(&blocks[i], how);
}

void tn_fake_open(int device, const char *op)
{
    if (opened != device) {
        tn_fake_close();
        protect_all(device, PROT_READ | PROT_WRITE);
        opened = device;
    }
    operation = op;
}

void tn_fake_close(void)
{
    if (opened >= 0)
        protect_all(opened, PROT_NONE);
    opened = -1, operation = NULL;
}

static void check_filled(const struct block *b, const char *from, const char *to, const char *op)
{
    for (; from < to; from++)
        if (*from != (char)FILL)
            tn_fake_die("%s wrote: %s", op, place(from));
    (void)b;
}

void tn_fake_check_margins(int device, const char *op)
{
    for (uint32_t i = 0; i < n_block; i++) {
        const struct block *b = &blocks[i];

        if (!b->live || b->device != device)
            continue;
        check_filled(b, b->pages, b->at, op);
        check_filled(b, b->at + b->bytes, b->pages + b->page_bytes, op);
    }
}

/* --- an access that is not allowed */
static struct sigaction before;

static void fault(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    if (tn_fake_is_device(info->si_addr)) {
        if (operation)
            tn_fake_die("%s touches what it must not: %s", operation, place(info->si_addr));
        tn_fake_die("the host touches memory of a device: %s", place(info->si_addr));
    }
    if (operation)
        tn_fake_die("%s touches %p, where there is nothing", operation, info->si_addr);
    sigaction(SIGSEGV, &before, NULL); /* not ours: happens again */
}

__attribute__((constructor)) static void watch(void)
{
    struct sigaction a = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};

    sigemptyset(&a.sa_mask);
    sigaction(SIGSEGV, &a, &before);
}
