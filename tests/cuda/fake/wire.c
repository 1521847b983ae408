/* wire.c - processes that exchange what they post, through files in memory.
 *
 * Each rank of a communicator appends to a file of its own: a head, then bytes. The others read it in order,
 * and sort what they find: collectives, sends to them, receives from them. A small file that all map says how
 * far each file goes, how far each rank has read each of the others, and who is here. Once all have opened
 * all, the names are removed, so nothing is left behind, however a process ends. What all have read is given
 * back. */
#include "wire.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fake.h"

#define PUNCH ((uint64_t)8 << 20)

struct member {
    _Atomic int32_t process, here, opened, left, aborted, device;
    _Atomic uint64_t end, read[TN_WIRE_RANKS]; /* read: how far this rank has read each of the others */
};
struct box {
    struct tn_wire_item *item;
    uint32_t n;
};
struct tn_wire {
    char name[200], why[200];
    uint32_t n, me;
    int shared_fd, fd[TN_WIRE_RANKS], removed;
    struct member *member; /* shared */
    uint64_t parsed[TN_WIRE_RANKS], punched;
    struct box box[TN_WIRE_RANKS][3];
};

static void name_of(const struct tn_wire *w, int rank, char *out, size_t size)
{
    snprintf(out, size, rank < 0 ? "/dev/shm/%s" : "/dev/shm/%s.%d", w->name, rank);
}

static int open_file(const struct tn_wire *w, int rank, int flags)
{
    char path[256];
    int fd;

    name_of(w, rank, path, sizeof path);
    fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        tn_fake_die("nccl: %s: %s", path, strerror(errno));
    return fd;
}

struct tn_wire *tn_wire_open(const char *name, uint32_t n, uint32_t rank, int device)
{
    struct tn_wire *w = calloc(1, sizeof *w);
    const size_t bytes = n * sizeof(struct member);

    if (!w || n > TN_WIRE_RANKS)
        tn_fake_die("nccl: %u ranks are too many for this fake", n);
    snprintf(w->name, sizeof w->name, "%s", name);
    w->n = n, w->me = rank;
    w->shared_fd = open_file(w, -1, O_RDWR | O_CREAT);
    if (ftruncate(w->shared_fd, (off_t)bytes)) /* the same for all; begins as zeros */
        tn_fake_die("nccl: no memory to share: %s", strerror(errno));
    w->member = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->shared_fd, 0);
    if (w->member == MAP_FAILED)
        tn_fake_die("nccl: no memory to share: %s", strerror(errno));
    for (uint32_t p = 0; p < n; p++)
        w->fd[p] = -1;
    w->fd[rank] = open_file(w, (int)rank, O_RDWR | O_CREAT | O_EXCL);
    atomic_store(&w->member[rank].process, getpid());
    atomic_store(&w->member[rank].device, device);
    atomic_store(&w->member[rank].here, 1);
    return w;
}

static int count(const struct tn_wire *w, size_t at)
{
    int n = 0;

    for (uint32_t p = 0; p < w->n; p++)
        n += atomic_load((_Atomic int32_t *)((char *)&w->member[p] + at)) != 0;
    return n;
}

/* The names, as soon as nobody needs them. */
static void remove_names(struct tn_wire *w)
{
    char path[256];

    if (w->removed || count(w, offsetof(struct member, opened)) < (int)w->n)
        return;
    name_of(w, (int)w->me, path, sizeof path);
    unlink(path);
    name_of(w, -1, path, sizeof path);
    unlink(path);
    w->removed = 1;
}

int tn_wire_here(struct tn_wire *w, const char **why)
{
    if (count(w, offsetof(struct member, here)) < (int)w->n)
        return 0;
    for (uint32_t p = 0; p < w->n; p++) {
        for (uint32_t q = 0; q < p; q++)
            if (w->member[p].device == w->member[q].device) {
                snprintf(w->why, sizeof w->why,
                         "Duplicate GPU detected : rank %u and rank %u both on CUDA device %x", q, p,
                         (unsigned)(0x10 + w->member[p].device));
                *why = w->why;
                return -1;
            }
        if (w->fd[p] < 0)
            w->fd[p] = open_file(w, (int)p, O_RDONLY);
    }
    atomic_store(&w->member[w->me].opened, 1);
    remove_names(w);
    return 1;
}

void tn_wire_leave(struct tn_wire *w, int aborted)
{
    if (aborted)
        atomic_store(&w->member[w->me].aborted, 1);
    atomic_store(&w->member[w->me].left, 1);
}

int tn_wire_all_left(const struct tn_wire *w)
{
    return count(w, offsetof(struct member, left)) == (int)w->n;
}

int tn_wire_lost(const struct tn_wire *w)
{
    for (uint32_t p = 0; p < w->n; p++) {
        const struct member *m = &w->member[p];

        if (atomic_load(&m->aborted) || (atomic_load(&m->here) && !atomic_load(&m->left) &&
                                         kill(atomic_load(&m->process), 0) && errno == ESRCH))
            return (int)p;
    }
    return -1;
}

void tn_wire_close(struct tn_wire *w)
{
    char path[256];

    remove_names(w);
    if (!w->removed) { /* not all came */
        name_of(w, (int)w->me, path, sizeof path);
        unlink(path);
        name_of(w, -1, path, sizeof path);
        unlink(path);
    }
    for (uint32_t p = 0; p < w->n; p++) {
        if (w->fd[p] >= 0)
            close(w->fd[p]);
        for (int i = 0; i < 3; i++)
            free(w->box[p][i].item);
    }
    munmap(w->member, w->n * sizeof *w->member);
    close(w->shared_fd);
    free(w);
}

/* --- writing */
static void write_all(int fd, const void *bytes, uint64_t n, uint64_t at)
{
    while (n) {
        const ssize_t k = pwrite(fd, bytes, n, (off_t)at);

        if (k <= 0)
            tn_fake_die("nccl: no room to exchange %llu bytes: %s", (unsigned long long)n, strerror(errno));
        bytes = (const char *)bytes + k, n -= (uint64_t)k, at += (uint64_t)k;
    }
}

void tn_wire_post(struct tn_wire *w, const struct tn_wire_head *h, const void *bytes)
{
    struct member *m = &w->member[w->me];
    const uint64_t at = atomic_load(&m->end);
    uint64_t read = at;

    write_all(w->fd[w->me], h, sizeof *h, at);
    write_all(w->fd[w->me], bytes, h->bytes, at + sizeof *h);
    atomic_store(&m->end, at + sizeof *h + h->bytes);
    for (uint32_t p = 0; p < w->n; p++) {
        const uint64_t r = atomic_load(&w->member[p].read[w->me]);

        read = r < read ? r : read;
    }
    if (read > w->punched + PUNCH) {
        fallocate(w->fd[w->me], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)w->punched,
                  (off_t)(read - w->punched));
        w->punched = read;
    }
}

/* --- reading */
static void read_all(int fd, void *bytes, uint64_t n, uint64_t at)
{
    while (n) {
        const ssize_t k = pread(fd, bytes, n, (off_t)at);

        if (k <= 0)
            tn_fake_die("nccl: what was posted cannot be read");
        bytes = (char *)bytes + k, n -= (uint64_t)k, at += (uint64_t)k;
    }
}

static void sort_in(struct tn_wire *w, uint32_t rank, const struct tn_wire_item *item, int which)
{
    struct box *b = &w->box[rank][which];

    b->item = realloc(b->item, (b->n + 1) * sizeof *b->item);
    if (!b->item)
        tn_fake_die("no memory for what ranks post");
    b->item[b->n++] = *item;
}

/* What the rank has posted since. op 0: a send, 1: a receive; else a collective. */
static void parse(struct tn_wire *w, uint32_t rank)
{
    const uint64_t end = atomic_load(&w->member[rank].end);

    while (w->parsed[rank] < end) {
        struct tn_wire_item item;

        read_all(w->fd[rank], &item.head, sizeof item.head, w->parsed[rank]);
        item.at = w->parsed[rank] + sizeof item.head;
        w->parsed[rank] = item.at + item.head.bytes;
        if (item.head.op > 1)
            sort_in(w, rank, &item, TN_WIRE_ALL);
        else if (item.head.peer == w->me)
            sort_in(w, rank, &item, item.head.op ? TN_WIRE_WANTED : TN_WIRE_SENT);
    }
}

const struct tn_wire_item *tn_wire_peek(struct tn_wire *w, uint32_t rank, int which, uint32_t i)
{
    struct box *b = &w->box[rank][which];

    remove_names(w);
    if (i >= b->n)
        parse(w, rank);
    return i < b->n ? &b->item[i] : NULL;
}

void tn_wire_read(const struct tn_wire *w, uint32_t rank, const struct tn_wire_item *item, uint64_t offset,
                  void *to, uint64_t bytes)
{
    read_all(w->fd[rank], to, bytes, item->at + offset);
}

void tn_wire_take(struct tn_wire *w, uint32_t rank, int which, uint32_t n)
{
    struct box *b = &w->box[rank][which];
    uint64_t first = w->parsed[rank];

    memmove(b->item, b->item + n, (b->n - n) * sizeof *b->item);
    b->n -= n;
    for (int i = 0; i < 3; i++)
        if (w->box[rank][i].n && w->box[rank][i].item[0].at - sizeof(struct tn_wire_head) < first)
            first = w->box[rank][i].item[0].at - sizeof(struct tn_wire_head);
    atomic_store(&w->member[w->me].read[rank], first);
}
