/* pool.c - parallel, team and barrier over a fixed set of threads.
 *
 * Everything that waits, waits at a gate: a counter that only grows. Who opens it adds one; who waits knows
 * the count that it saw. There are three: `work` (a new job for the workers), `done` (the last worker is
 * through) and `meet` (the barrier). A gate is watched awake for SPIN_NS, then asleep by futex: work between
 * two kernels starts at once and an idle pool burns nothing.
 *
 * One job at a time. A call that finds the pool busy, which includes every call from inside a body, runs on
 * its own thread alone: so nesting cannot deadlock and two callers cannot mix. */
#include "base/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS 30000
#define MOST_THREADS 1024u

struct gate {
    _Alignas(64) _Atomic uint32_t count;
    _Atomic uint32_t sleepers;
};

static struct {
    struct gate work, done, meet;
    _Atomic uint32_t busy;                       /* 1 while a job runs */
    _Atomic uint32_t running, arrived;           /* workers still in the job; threads at the barrier */
    uint32_t threads;                            /* 0: not started */
    int stop;
    pthread_t *worker;                           /* threads - 1, owned */
    /* the job: written before `work` opens, read after */
    void (*range)(void *arg, int64_t lo, int64_t hi);
    void (*team)(void *arg, uint32_t thread, uint32_t threads);
    void *arg;
    int64_t n, grain, parts;
} pool;

static _Thread_local int in_team;                /* 1: a barrier here meets the others */

/* --- gates */
static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static void gate_open(struct gate *g)
{
    atomic_fetch_add(&g->count, 1);
    if (atomic_load(&g->sleepers))
        syscall(SYS_futex, &g->count, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Until the count is not `seen` any more. The order of sleepers and count here, and the reverse in gate_open,
 * is what makes sure that nobody sleeps through. */
static void gate_wait(struct gate *g, uint32_t seen)
{
    int64_t limit = now_ns() + SPIN_NS;

    do {
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(&g->count, memory_order_acquire) != seen)
                return;
            relax();
        }
    } while (now_ns() < limit);
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->count) == seen)
        syscall(SYS_futex, &g->count, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

/* --- the job */
static void job_run(uint32_t thread)
{
    if (pool.team) {
        in_team = 1;
        pool.team(pool.arg, thread, pool.threads);
        in_team = 0;
    } else if (thread < pool.parts) {
        int64_t units = pool.n / pool.grain, lo = units * thread / pool.parts,
                hi = units * (thread + 1) / pool.parts;
        pool.range(pool.arg, lo * pool.grain, thread + 1 == pool.parts ? pool.n : hi * pool.grain);
    }
}

static void *worker_main(void *arg)
{
    uint32_t thread = (uint32_t)(uintptr_t)arg, seen = 0;

    for (;;) {
        gate_wait(&pool.work, seen);
        seen++;                                  /* one job at a time: none is missed */
        if (pool.stop)
            return NULL;
        job_run(thread);
        if (atomic_fetch_sub(&pool.running, 1) == 1)
            gate_open(&pool.done);
    }
}

/* The job is filled in. Runs it on all threads, the caller's among them. */
static void job_post(void)
{
    uint32_t seen = atomic_load(&pool.done.count);

    atomic_store(&pool.running, pool.threads - 1);
    gate_open(&pool.work);
    job_run(0);
    gate_wait(&pool.done, seen);
}

/* Takes the pool for one job; 0: the caller has to do it alone. */
static int pool_take(void)
{
    uint32_t idle = 0;

    return pool.threads > 1 && atomic_compare_exchange_strong(&pool.busy, &idle, 1);
}

static void pool_give(void)
{
    atomic_store(&pool.busy, 0);
}

void tn_pool_parallel(int64_t n, int64_t grain, void (*body)(void *arg, int64_t lo, int64_t hi), void *arg)
{
    int was = in_team;

    if (n <= 0)
        return;
    if (grain < 1)
        grain = 1;
    if (n / grain > 1 && pool_take()) {
        int64_t units = n / grain;
        pool.team = NULL;
        pool.range = body, pool.arg = arg, pool.n = n, pool.grain = grain;
        pool.parts = units < pool.threads ? units : pool.threads;
        job_post();
        pool_give();
        return;
    }
    in_team = 0;
    body(arg, 0, n);
    in_team = was;
}

void tn_pool_team(void (*body)(void *arg, uint32_t thread, uint32_t threads), void *arg)
{
    int was = in_team;

    if (pool_take()) {
        pool.team = body, pool.arg = arg;
        job_post();
        pool_give();
        return;
    }
    in_team = 0;
    body(arg, 0, 1);
    in_team = was;
}

void tn_pool_barrier(void)
{
    uint32_t seen;

    if (!in_team)
        return;
    seen = atomic_load(&pool.meet.count);
    if (atomic_fetch_add(&pool.arrived, 1) + 1 == pool.threads) {
        atomic_store(&pool.arrived, 0);
        gate_open(&pool.meet);
    } else {
        gate_wait(&pool.meet, seen);
    }
}

uint32_t tn_pool_threads(void)
{
    return pool.threads ? pool.threads : 1;
}

/* --- start and stop */

/* Signals are the main thread's, but for those that a thread brings upon itself. */
static int worker_create(uint32_t thread)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF};
    sigset_t block, before;
    int error;

    sigfillset(&block);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&block, own[i]);
    pthread_sigmask(SIG_SETMASK, &block, &before);
    error = pthread_create(&pool.worker[thread - 1], NULL, worker_main, (void *)(uintptr_t)thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Ends the first n workers. */
static void workers_end(uint32_t n)
{
    pool.stop = 1;
    gate_open(&pool.work);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(pool.worker[i], NULL);
    free(pool.worker);
    pool.worker = NULL;
    pool.stop = 0;
    pool.threads = 0;
    atomic_store(&pool.work.count, 0);           /* new workers count from 0 */
}

tn_status tn_pool_start(uint32_t threads)
{
    if (pool.threads)
        return tn_error(TN_ERR, "the pool of threads is already started, with %u threads", pool.threads);
    if (!threads)
        threads = tn_cpus();
    if (threads > MOST_THREADS)
        return tn_error(TN_ERR_CONFIG, "%u threads asked for, at most %u can be had", threads, MOST_THREADS);
    pool.worker = calloc(threads, sizeof *pool.worker);
    if (!pool.worker)
        return tn_error(TN_ERR_MEMORY, "no memory for a pool of %u threads", threads);
    pool.threads = threads;
    for (uint32_t t = 1; t < threads; t++) {
        int error = worker_create(t);
        if (error) {
            workers_end(t - 1);
            return tn_error(TN_ERR_IO, "cannot create thread %u of %u: %s; set backend.threads lower", t,
                            threads, strerror(error));
        }
    }
    return TN_OK;
}

void tn_pool_stop(void)
{
    if (pool.threads)
        workers_end(pool.threads - 1);
}
