/* loan.c - large items are not written to the ring: the giver lends its memory, the taker copies from it.
 *
 * Between processors that share no cache a ring costs each byte two ways through memory more: the line is
 * fetched to be written, and fetched again to be read. process_vm_readv goes one way, from the caller's
 * memory to where it is wanted: the result, or a scratch that stays in the cache until it is added. So in
 * place of a large item's bytes one line says where they are, and the giver's flow passes when all that it
 * lent is returned.
 *
 * Both sides know from the operation which items may be lent, and found out when they met whether one may
 * read the other; the line says whether it is so, since not all memory can be read that way (page-locked
 * memory of a driver), and the bytes follow on the ring if not.
 *
 * Memory is lent until the caller gets it back. One whose world has failed gets it back at once, so what was
 * read only counts if there is no verdict on the giver's board after it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>
#include "streams.h"

#define MAGIC 0x746e6c6fu

struct loan { /* one line */
    uint32_t magic, lent;
    uint64_t address, bytes;
    uint64_t zero[5];
};
_Static_assert(sizeof(struct loan) == TN_LINE, "a loan is one line");

/* Bytes for each of n ranks. The cache of one core is taken for 1 MiB, half of it for what the scratch is
 * added to. */
uint64_t tn_loan_step(uint32_t n)
{
    uint64_t bytes = 2 * TN_LOAN_SLICE / n / TN_LINE * TN_LINE;

    return bytes < TN_STREAM_STEP ? TN_STREAM_STEP : bytes > TN_LOAN_SLICE ? TN_LOAN_SLICE : bytes;
}

/* --- may one read the other */

int tn_loans_wanted(void)
{
    const char *cma = getenv("TENON_CMA");

    return !cma || strcmp(cma, "no");
}

/* Where only a parent may read its children's memory (Yama, 1), a process can allow it to others of its user.
 */
void tn_loans_permit(void)
{
    FILE *f = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");

    if (!f)
        return;
    if (fgetc(f) == '1')
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    fclose(f);
}

static ssize_t read_from(int64_t pid, uint64_t address, void *to, uint64_t bytes)
{
    struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)address, bytes};

    return process_vm_readv((pid_t)pid, &here, 1, &there, 1, 0);
}

int tn_loans_possible(int64_t pid, uint64_t address, uint64_t nonce)
{
    uint64_t found;

    return tn_loans_wanted() && read_from(pid, address, &found, sizeof found) == sizeof found &&
           found == nonce;
}

/* Can it be read from outside at all: its first and last byte tried. */
static int is_readable(const struct tn_item *item)
{
    uint8_t byte[2];
    struct iovec here = {byte, 2}, there[2] = {{item->data, 1}, {item->data + item->bytes - 1, 1}};

    return process_vm_readv(getpid(), &here, 1, there, 2, 0) == 2;
}

/* --- given */

/* All items of an operation lie in two pieces of memory: the first three of a flow tell. */
static int lends(struct tn_flow *f, const struct tn_item *item)
{
    if (!f->item)
        f->lends = 1;
    if (f->item < 3 && f->lends)
        f->lends = (uint32_t)is_readable(item);
    return (int)f->lends;
}

/* Did the line pass. */
int tn_loan_give(struct tn_stream *s, const struct tn_item *item)
{
    struct loan l = {.magic = MAGIC, .address = (uintptr_t)item->data, .bytes = item->bytes};
    uint64_t room;
    uint8_t *to;

    if (item->ready < item->bytes)
        return 0;
    to = tn_stream_room(s, &room);
    if (room < sizeof l)
        return 0;
    l.lent = (uint32_t)lends(&s->give, item);
    memcpy(to, &l, sizeof l);
    tn_stream_wrote(s, sizeof l);
    s->give.loan = l.lent ? TN_LOAN : TN_NO_LOAN;
    s->lent += l.lent;
    return 1;
}

int tn_loans_out(const struct tn_stream *s)
{
    return s->lent && s->lent != atomic_load_explicit(&s->out_ends->returned, memory_order_acquire);
}

/* --- taken */

__attribute__((format(printf, 2, 3))) static void fail(struct tn_stream *s, const char *fmt, ...)
{
    char why[160], text[440];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    snprintf(text, sizeof text, TN_SELF ": rank %u and rank %u: %s", s->comm->world->rank, s->world, why);
    tn_world_fail(s->comm->world, TN_ERR, text);
}

int tn_loan_take(struct tn_stream *s, const struct tn_item *item)
{
    struct loan l;
    uint64_t have;
    const uint8_t *from = tn_stream_read(s, &have);

    if (have < sizeof l)
        return 0;
    memcpy(&l, from, sizeof l);
    tn_stream_took(s, sizeof l);
    if (l.magic != MAGIC || l.bytes != item->bytes) {
        fail(s, "%llu bytes are lent where %llu are expected", (unsigned long long)l.bytes,
             (unsigned long long)item->bytes);
        return 0;
    }
    s->take.loan = l.lent ? TN_LOAN : TN_NO_LOAN;
    s->take.address = l.address;
    return 1;
}

/* Bytes of the item that is taken, from at on. 0: not now, or never: the peer is gone, or the world failed.
 */
int tn_loan_read(struct tn_stream *s, uint64_t at, void *to, uint64_t bytes)
{
    struct tn_peer *peer = &s->comm->world->peer[s->world];
    ssize_t n = 0;

    for (uint64_t done = 0; done < bytes; done += (uint64_t)n) {
        n = read_from(s->pid, s->take.address + at + done, (uint8_t *)to + done, bytes - done);
        if (n > 0)
            continue;
        if (n < 0 && errno != ESRCH)
            fail(s, "memory that was lent cannot be read: %s", strerror(errno));
        else if (!atomic_load(&peer->gone)) /* and not again: the pass after the next judges */
            atomic_store(&peer->gone, 1);
        return 0;
    }
    atomic_thread_fence(memory_order_seq_cst);
    return !atomic_load(&peer->segment->board.verdict);
}

void tn_loan_return(struct tn_stream *s)
{
    atomic_fetch_add_explicit(&s->in_ends->returned, 1, memory_order_release);
    tn_bell_wake(&s->comm->world->peer[s->world].segment->board);
}
