/* ring.c - streams through shared memory, and the bells that wake who sleeps.
 *
 * Each rank has one segment in each communicator, a memfd, so it has no name to be left behind and no limit
 * from the size of /dev/shm. In it lies one ring for each other rank, which writes there; the owner reads.
 * Peers open it as /proc/PID/fd/FD: what is there with the right nonce is shared, anything else (another
 * host, another container) is not. Ends of a ring count bytes and never wrap; a ring is mapped twice in a
 * row.
 *
 * A bell is a word to sleep on. The sleeper says that it sleeps, looks once more, and sleeps unless the bell
 * has rung since; who writes looks for sleepers after having written. Between the two steps of each side lies
 * a full fence, so at least one of them sees the other. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "streams.h"

#define FETCH (8u << 10) /* bytes: what is as small as that is latency, not rate */

void tn_bell_ring(_Atomic uint32_t *bell)
{
    atomic_fetch_add(bell, 1);
    syscall(SYS_futex, bell, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

void tn_bell_wake(struct tn_board *b)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&b->sleeping, memory_order_relaxed))
        tn_bell_ring(&b->bell);
}

void tn_bell_wait(_Atomic uint32_t *bell, uint32_t seen, double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    syscall(SYS_futex, bell, FUTEX_WAIT, seen, &t, NULL, 0);
}

/* --- segments */

/* All rings of a rank together take 8 MiB at most, unless that makes them too small to be of use. */
uint64_t tn_ring_bytes(uint32_t n)
{
    uint64_t bytes = 512 << 10;

    while (bytes * (n - 1) > (8 << 20) && bytes > (64 << 10))
        bytes /= 2;
    return bytes;
}

static uint64_t head_bytes(uint32_t n)
{
    uint64_t bytes = sizeof(struct tn_segment) + n * sizeof(struct tn_ring_ends),
             page = (uint64_t)sysconf(_SC_PAGESIZE);

    return (bytes + page - 1) / page * page;
}

/* Keeps in mind what was mapped, to unmap it. */
static void *keep(struct tn_comm *c, void *p, uint64_t bytes)
{
    if (p == MAP_FAILED)
        return NULL;
    c->mapped[c->n_mapped] = p;
    c->mapped_bytes[c->n_mapped++] = bytes;
    return p;
}

static void *map_head(struct tn_comm *c, int fd)
{
    uint64_t bytes = head_bytes(c->n);

    return keep(c, mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), bytes);
}

static uint8_t *map_ring(struct tn_comm *c, int fd, uint32_t writer)
{
    off_t at = (off_t)(head_bytes(c->n) + writer * c->ring);
    uint8_t *p = mmap(NULL, 2 * c->ring, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (!keep(c, p, 2 * c->ring))
        return NULL;
    for (int i = 0; i < 2; i++)
        if (mmap(p + i * c->ring, c->ring, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, at) ==
            MAP_FAILED)
            return NULL;
    return p;
}

/* *fd stays open until the others have it. */
tn_status tn_segment_new(struct tn_comm *c, int *fd)
{
    c->mapped = calloc(4 * c->n + 1, sizeof *c->mapped);
    c->mapped_bytes = calloc(4 * c->n + 1, sizeof *c->mapped_bytes);
    *fd = memfd_create("tenon-" TN_SELF, MFD_CLOEXEC);
    if (!c->mapped || !c->mapped_bytes)
        return tn_error(TN_ERR_MEMORY, TN_SELF ": no memory for a communicator");
    if (*fd < 0 || ftruncate(*fd, (off_t)(head_bytes(c->n) + c->n * c->ring)) ||
        !(c->mine = map_head(c, *fd)))
        return tn_error(TN_ERR_MEMORY, TN_SELF ": no shared memory of %llu bytes: %s",
                        (unsigned long long)(head_bytes(c->n) + c->n * c->ring), strerror(errno));
    for (uint32_t p = 0; p < c->n; p++) {
        struct tn_stream *s = &c->stream[p];
        if (p != c->rank && !(s->in = map_ring(c, *fd, p)))
            return tn_error(TN_ERR_MEMORY, TN_SELF ": cannot map shared memory: %s", strerror(errno));
        s->in_ends = &c->mine->ends[p];
    }
    return TN_OK;
}

/* Opens the segment of a peer. TN_DECLINED: it is not within reach. */
tn_status tn_segment_join(struct tn_comm *c, uint32_t peer, int64_t pid, int fd, uint64_t nonce)
{
    struct tn_stream *s = &c->stream[peer];
    char path[64];
    struct stat st;
    int at;

    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)pid, fd);
    at = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (at < 0)
        return TN_DECLINED;
    if (fstat(at, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != head_bytes(c->n) + c->n * c->ring ||
        !(s->theirs = map_head(c, at)) || s->theirs->nonce != nonce || !(s->out = map_ring(c, at, c->rank))) {
        s->theirs = NULL;
        close(at);
        return TN_DECLINED;
    }
    close(at);
    s->out_ends = &s->theirs->ends[c->rank];
    s->pid = pid;
    return TN_OK;
}

void tn_segment_free(struct tn_comm *c)
{
    for (uint32_t i = 0; i < c->n_mapped; i++)
        munmap(c->mapped[i], c->mapped_bytes[i]);
    free(c->mapped);
    free(c->mapped_bytes);
    free(c->scratch);
}

/* --- streams. Bytes written and not told yet are between told and head. */
static struct tn_board *board_of(struct tn_stream *s)
{
    return &s->comm->world->peer[s->world].segment->board;
}

uint8_t *tn_stream_room(struct tn_stream *s, uint64_t *bytes)
{
    if (s->link)
        return tn_link_room(s->link, bytes);
    *bytes = s->comm->ring - (s->head - s->seen_tail);
    if (*bytes < TN_STREAM_STEP) {
        s->seen_tail = atomic_load_explicit(&s->out_ends->tail, memory_order_acquire);
        *bytes = s->comm->ring - (s->head - s->seen_tail);
    }
    return s->out + s->head % s->comm->ring;
}

void tn_stream_wrote(struct tn_stream *s, uint64_t bytes)
{
    if (s->link) {
        tn_link_wrote(s->link, bytes);
        return;
    }
    s->head += bytes;
    if (s->head - s->told >= TN_STREAM_STEP)
        tn_stream_tell(s);
}

/* The ring's lines lie in the cache of who read them. Those that are written next are fetched while the
 * answer is waited for. */
static void fetch(const uint8_t *p, uint64_t bytes)
{
#if defined(__x86_64__)
    for (uint64_t i = 0; i < bytes; i += TN_LINE)
        __asm__ volatile("prefetchw %0" : : "m"(p[i]));
#else
    for (uint64_t i = 0; i < bytes; i += TN_LINE)
        __builtin_prefetch(p + i, 1);
#endif
}

void tn_stream_tell(struct tn_stream *s)
{
    if (s->link) {
        tn_link_flush(s->link);
    } else if (s->head != s->told) {
        const uint64_t bytes = s->head - s->told;
        atomic_store_explicit(&s->out_ends->head, s->head, memory_order_release);
        s->told = s->head;
        tn_bell_wake(board_of(s));
        if (bytes <= FETCH)
            fetch(s->out + s->head % s->comm->ring, bytes);
    }
}

uint8_t *tn_stream_read(struct tn_stream *s, uint64_t *bytes)
{
    if (s->link)
        return tn_link_read(s->link, bytes);
    if (s->seen_head - s->tail < TN_STREAM_STEP)
        s->seen_head = atomic_load_explicit(&s->in_ends->head, memory_order_acquire);
    *bytes = s->seen_head - s->tail;
    return s->in + s->tail % s->comm->ring;
}

void tn_stream_took(struct tn_stream *s, uint64_t bytes)
{
    if (s->link) {
        tn_link_took(s->link, bytes);
        return;
    }
    s->tail += bytes;
    atomic_store_explicit(&s->in_ends->tail, s->tail, memory_order_release);
    tn_bell_wake(board_of(s));
}
