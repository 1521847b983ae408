/* comm_failures.c - cases of what goes wrong: ranks that do not agree, that die, stop, come late or never.
 *
 * In each every rank that is left must end its wait within the limit, with a sentence that names who is at
 * fault, and every later call must fail at once. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include "comm.h"

/* The sentence names a rank; the words around it are the communicator's. */
#define says(text) tn_comm_says(text)
#define words(text) (!tn_comm_words || tn_comm_says(text))


/* The n ranks are dead from here on. */
void tn_comm_dead(struct tn_rank *r, struct tn_comm *c)
{
    float x[2] = {0};
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, x, x, 2, NULL, NULL, 0};
    double begin = tn_comm_now();
    struct tn_comm *g;

    must(r, tn_comm_do(r, c, &t, 1) < 0);
    must(r, tn_comm_do(r, r->world, &t, 1) < 0);
    must(r, r->api->group(r->world, &r->rank, 1, &g) < 0);
    r->api->abort(c);
    must(r, tn_comm_now() - begin < (tn_comm_words ? 0.5 : 2));
}

/* --- ranks that do not agree: the last one has another size, dtype, operation, sequence, root or reduction
 */

static void differ(struct tn_rank *r, struct tn_transfer most, struct tn_transfer last, const char *one,
                   const char *other)
{
    double begin = tn_comm_now();
    char name[32];

    must(r, tn_comm_do(r, r->world, r->rank == r->size - 1 ? &last : &most, 1) < 0);
    must(r, tn_comm_now() - begin < 2);
    snprintf(name, sizeof name, "rank %u has", r->size - 1);
    must(r, says("rank") && words("do not agree") && words(name) && words(one) && words(other));
    tn_comm_dead(r, r->world);
}

static float some[1 << 18];
#define MOST                                                                                                 \
    {                                                                                                        \
        TN_ALL_REDUCE, TN_F32, TN_SUM, 0, some, some, 64, NULL, NULL, 17                                     \
    }

static void size_differs(struct tn_rank *r)
{
    struct tn_transfer most = MOST, last = MOST;

    last.count = 65;
    differ(r, most, last, "sum of 64 elements of fp32", "sum of 65 elements of fp32");
}

static void large_differs(struct tn_rank *r)
{
    struct tn_transfer most = MOST, last = MOST;

    most.count = 1 << 18;
    last.count = (1 << 18) - 1;
    differ(r, most, last, "262144 elements", "262143 elements");
}

static void dtype_differs(struct tn_rank *r)
{
    struct tn_transfer most = MOST, last = MOST;

    last.dtype = TN_I32;
    differ(r, most, last, "fp32", "int32");
}

static void order_differs(struct tn_rank *r)
{
    struct tn_transfer most = MOST, last = {TN_BROADCAST, TN_F32, 0, 0, some, some, 64, NULL, NULL, 17};

    differ(r, most, last, "all_reduce 17", "broadcast 17");
}

static void sequence_differs(struct tn_rank *r)
{
    struct tn_transfer most = MOST, last = MOST;

    last.sequence = 18;
    differ(r, most, last, "all_reduce 17", "all_reduce 18");
}

static void reduction_differs(struct tn_rank *r)
{
    struct tn_transfer most = MOST, last = MOST;

    last.reduce = TN_MAX;
    differ(r, most, last, "sum", "max");
}

static void counts_differ(struct tn_rank *r)
{
    static const uint64_t a[8] = {4, 4, 4, 4, 4, 4, 4, 4}, b[8] = {5, 5, 5, 5, 5, 5, 5, 5};
    struct tn_transfer most = {TN_ALL_GATHER, TN_F32, 0, 0, some, some + 1000, 0, a, NULL, 17}, last = most;

    last.counts = b;
    differ(r, most, last, "all_gather 17 of 4 elements", "all_gather 17 of 5 elements");
}

/* --- ranks that are not there */

void tn_comm_sum_until_error(struct tn_rank *r, struct tn_comm *c, uint64_t count, double *seconds)
{
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, some, some, count, NULL, NULL, 5};
    double begin;
    tn_status s;

    memset(some, 0, sizeof some);
    for (const double end = tn_comm_now() + 10; tn_comm_now() < end;) {
        begin = tn_comm_now();
        s = tn_comm_do(r, c, &t, 1);
        *seconds = tn_comm_now() - begin;
        if (s < 0)
            return;
    }
    tn_comm_wrong(r, __LINE__, "no error came");
}

static void *die_soon(void *arg)
{
    tn_comm_sleep(0.1);
    kill(getpid(), *(const int *)arg);
    return NULL;
}

/* Rank 1 gets the signal in the middle of its work. */
static void signalled(struct tn_rank *r, int sig, uint64_t count)
{
    pthread_t thread;
    double seconds;

    if (r->rank == 1)
        pthread_create(&thread, NULL, die_soon, &sig);
    tn_comm_sum_until_error(r, r->world, count, &seconds);
    must(r, says("rank 1") && words("all_reduce 5") && !(tn_comm_words && (says("rank 0 ") || says("rank 2 "))));
    must(r, words(sig == SIGKILL ? "is gone" : "does not answer"));
    must(r, seconds < r->limit + (tn_comm_words ? 0.1 : 1.5));
    if (sig == SIGKILL)
        must(r, seconds < (tn_comm_words ? 1 : r->limit));
    tn_comm_dead(r, r->world);
}

static void killed_small(struct tn_rank *r)
{
    signalled(r, SIGKILL, 10);
}

static void killed_large(struct tn_rank *r)
{
    signalled(r, SIGKILL, 1 << 18);
}

static void stopped_small(struct tn_rank *r)
{
    signalled(r, SIGSTOP, 10);
}

static void stopped_large(struct tn_rank *r)
{
    signalled(r, SIGSTOP, 1 << 18);
}

/* Rank 0 waits for rank 1, which waits for rank 2 in another group; 3 for all. Rank 2 is named. */
static void stopped_behind(struct tn_rank *r)
{
    const uint32_t first[2] = {0, 1}, second[2] = {1, 2};
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, some, some, 10, NULL, NULL, 5};
    const struct tn_transfer barrier = {.op = TN_BARRIER};
    struct tn_comm *a = NULL, *b = NULL;

    if (r->rank <= 1)
        must(r, r->api->group(r->world, first, 2, &a) == TN_OK);
    if (r->rank == 1 || r->rank == 2)
        must(r, r->api->group(r->world, second, 2, &b) == TN_OK);
    must(r, tn_comm_do(r, r->world, &barrier, 1) == TN_OK);
    if (r->rank == 2)
        raise(SIGSTOP);
    if (r->rank == 1)
        tn_comm_sleep(0.1); /* so the wait of rank 0 ends first */
    must(r, tn_comm_do(r, r->rank == 0 ? a : r->rank == 1 ? b : r->world, &t, 1) < 0);
    must(r, says("rank 2") && words("does not answer"));
    r->api->close(a);
    r->api->close(b);
}

/* Rank 1 is alive, and comes when all others have given up. */
static void late(struct tn_rank *r)
{
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, some, some, 10, NULL, NULL, 5};
    double begin;

    r->limit = 1;
    if (r->rank == 1)
        tn_comm_sleep(2);
    begin = tn_comm_now();
    must(r, tn_comm_do(r, r->world, &t, 1) < 0);
    must(r, tn_comm_now() - begin < (tn_comm_words ? 1.2 : 2.5));
    must(r, says("rank 1") && words("it answers") && words("all_reduce 5"));
    tn_comm_dead(r, r->world);
}

/* Rank 2 is late; rank 1 has started and does not wait, so all that rank 0 lacks of it is the fault of
 * rank 2. */
static void late_behind(struct tn_rank *r)
{
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, some, some, 1 << 18, NULL, NULL, 5};
    struct tn_request *q;

    r->limit = 1;
    if (r->rank == 2)
        tn_comm_sleep(2);
    if (r->rank == 1) {
        must(r, r->api->start(r->world, &t, 1, NULL, &q) == TN_OK);
        tn_comm_sleep(1.5);
        must(r, r->api->wait(q, r->limit) < 0);
    } else {
        must(r, tn_comm_do(r, r->world, &t, 1) < 0);
    }
    must(r, says("rank 2") && words("it answers"));
}

/* A receive that nobody sends to. */
static void never_sent(struct tn_rank *r)
{
    const struct tn_transfer t = {TN_RECV, TN_F32, 0, (r->rank + 1) % r->size, NULL, some, 10, NULL, NULL, 0};

    r->limit = 0.5;
    must(r, tn_comm_do(r, r->world, &t, 1) < 0);
    must(r, says("rank") && words("recv") && words("has not sent"));
    tn_comm_dead(r, r->world);
}

static void never_started(struct tn_rank *r)
{
    double begin = tn_comm_now();
    char name[32];

    must(r, r->api->open(r->rank, r->size, 1, &r->world) < 0 && !r->world);
    must(r, tn_comm_now() - begin < (tn_comm_words ? 2 : 4));
    snprintf(name, sizeof name, "rank %u", r->size - 1);
    must(r, says(name));
}

static void *abort_soon(void *arg)
{
    struct tn_rank *r = arg;

    tn_comm_sleep(0.1);
    r->api->abort(r->world);
    return NULL;
}

static void aborted(struct tn_rank *r)
{
    const struct tn_transfer barrier = {.op = TN_BARRIER};
    double begin = tn_comm_now();
    pthread_t thread;

    if (r->rank == 1) {
        must(r, pthread_create(&thread, NULL, abort_soon, r) == 0);
        pthread_join(thread, NULL);
    } else {
        must(r, tn_comm_do(r, r->world, &barrier, 1) < 0);
        must(r, tn_comm_now() - begin < (tn_comm_words ? 2 : r->limit));
        must(r, says("rank 1") && words("rank 1 aborted"));
    }
    tn_comm_dead(r, r->world);
}

const struct tn_comm_case tn_comm_failures[] = {
    {"another size", size_differs, 2, NOBODY, 0},
    {"another size, large", large_differs, 2, NOBODY, 0},
    {"another dtype", dtype_differs, 2, NOBODY, 0},
    {"another order", order_differs, 2, NOBODY, 0},
    {"another sequence", sequence_differs, 2, NOBODY, 0},
    {"another reduction", reduction_differs, 2, NOBODY, 0},
    {"other counts", counts_differ, 2, NOBODY, 0},
    {"killed", killed_small, 2, 1, 0},
    {"killed in large sums", killed_large, 2, 1, 0},
    {"stopped", stopped_small, 2, 1, 0},
    {"stopped in large sums", stopped_large, 2, 1, 0},
    {"stopped behind another rank", stopped_behind, 3, 2, 0},
    {"late", late, 2, NOBODY, 0},
    {"late, behind one that is not", late_behind, 3, NOBODY, 0},
    {"never sent", never_sent, 2, NOBODY, 0},
    {"never started", never_started, 2, LAST_UNSTARTED, 0},
    {"aborted", aborted, 2, NOBODY, 0},
    {0},
};
