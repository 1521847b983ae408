/* sea.c - addresses without memory, and the memory without those addresses.
 *
 * Two ranges of the same size. The one whose addresses are handed out has no access rights at all, so a host
 * pointer into it faults. The other is where kernels work, at a fixed distance; of it only the pages of blocks that
 * are taken may be touched, so a kernel that leaves its block by a page, or comes after the block was given back,
 * faults too. A page is left between blocks. */
#include <pthread.h>
#include <sys/mman.h>
#include "isle.h"

#define PAGE UINT64_C(4096)
#define MOST_BLOCKS 4096

struct block {
    uint64_t at, bytes;                          /* in the space; whole pages, rising */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t users, n_block;
static struct block block[MOST_BLOCKS];
static uint64_t used;
static char *shown, *hidden;                     /* shown: what devices' addresses begin with */

tn_status isle_sea_open(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    tn_status s = TN_OK;

    pthread_mutex_lock(&lock);
    if (!users) {
        shown = mmap(NULL, ISLE_BYTES, PROT_NONE, flags, -1, 0);
        hidden = mmap(NULL, ISLE_BYTES, PROT_NONE, flags, -1, 0);
        if (shown == MAP_FAILED || hidden == MAP_FAILED)
            s = tn_error(TN_ERR_MEMORY, "isle: no room for an address space of %llu bytes",
                         (unsigned long long)ISLE_BYTES);
    }
    users += !s;
    pthread_mutex_unlock(&lock);
    return s;
}

void isle_sea_close(void)
{
    pthread_mutex_lock(&lock);
    if (!--users) {
        munmap(shown, ISLE_BYTES);
        munmap(hidden, ISLE_BYTES);
        n_block = 0, used = 0;
    }
    pthread_mutex_unlock(&lock);
}

/* The first gap that is large enough; its place in block, *at in the space. MOST_BLOCKS: none. */
static uint32_t find_gap(uint64_t bytes, uint64_t *at)
{
    *at = PAGE;
    for (uint32_t i = 0; i <= n_block && n_block < MOST_BLOCKS; i++) {
        uint64_t end = i < n_block ? block[i].at : ISLE_BYTES;

        if (*at + bytes + PAGE <= end)
            return i;
        *at = i < n_block ? end + block[i].bytes + PAGE : *at;
    }
    return MOST_BLOCKS;
}

tn_status isle_sea_take(uint64_t bytes, void **out)
{
    uint64_t whole = (bytes + PAGE - 1) / PAGE * PAGE, at;
    uint32_t i = MOST_BLOCKS;

    pthread_mutex_lock(&lock);
    if (bytes && bytes < ISLE_BYTES)
        i = find_gap(whole, &at);
    if (i < MOST_BLOCKS && mprotect(hidden + at, whole, PROT_READ | PROT_WRITE))
        i = MOST_BLOCKS;
    if (i < MOST_BLOCKS) {
        memmove(block + i + 1, block + i, (n_block++ - i) * sizeof *block);
        block[i] = (struct block){at, whole};
        used += whole;
        *out = shown + at;
    }
    pthread_mutex_unlock(&lock);
    return i < MOST_BLOCKS ? TN_OK : tn_error(TN_ERR_MEMORY, "isle: no room for %llu bytes", (unsigned long long)bytes);
}

void isle_sea_give(void *address)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < n_block; i++)
        if (shown + block[i].at == (char *)address) {
            /* new pages: the old contents are gone, and access ends */
            mmap(hidden + block[i].at, block[i].bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
            used -= block[i].bytes;
            memmove(block + i, block + i + 1, (--n_block - i) * sizeof *block);
            break;
        }
    pthread_mutex_unlock(&lock);
}

uint64_t isle_sea_used(void)
{
    pthread_mutex_lock(&lock);
    uint64_t n = used;
    pthread_mutex_unlock(&lock);
    return n;
}

int isle_is_ours(const void *address, uint64_t bytes)
{
    uint64_t at = (uint64_t)((uintptr_t)address - (uintptr_t)shown);
    int found = 0;

    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < n_block && users; i++)
        found |= at >= block[i].at && at - block[i].at <= block[i].bytes && bytes <= block[i].bytes - (at - block[i].at);
    pthread_mutex_unlock(&lock);
    return found;
}

void *isle_here(const void *address)
{
    return address ? hidden + ((const char *)address - shown) : NULL;
}
