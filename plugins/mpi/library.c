/* library.c - MPI begun and ended by a thread of its own, since neither call has a limit.
 *
 * MPI_Init waits until every process of the job has called it, MPI_Finalize until every process is there
 * again. So one thread makes both calls, and whoever wants one done waits for the thread, as long as there is
 * time. MPI can be begun once in a process; worlds may come and go meanwhile, and it ends when the plugin
 * does. After a failure it does not: MPI_Finalize would wait for the rank that is gone. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include "library.h"
#include "streams/link.h"

#define END_SECONDS 2.0 /* all ranks are there, so it takes milliseconds */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { UNTOUCHED, BEGINNING, RUNNING, REFUSED, ENDING, ENDED } state;
    int forsaken, foreign; /* foreign: somebody else began it, and ends it */
    char why[200];         /* refused */
    struct tn_mpi mpi;
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Open MPI's mpirun says so itself; srun gives PMIx, which says whose process it is. */
const char *tn_mpi_launcher(void)
{
    if (getenv("OMPI_COMM_WORLD_SIZE"))
        return "mpirun";
    if (getenv("PMIX_NAMESPACE") && getenv("PMIX_RANK"))
        return getenv("SLURM_PROCID") ? "srun" : "PMIx";
    return getenv("PMI_RANK") && getenv("PMI_SIZE") ? "PMI" : NULL;
}

/* --- the thread */

static void name_version(char *out, size_t size)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;

    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = 0;
    snprintf(out, size, "%s", text);
}

/* Empty if all is well. */
static void begin(struct tn_mpi *m, char *why, size_t size)
{
    int have = 0, code;

    MPI_Initialized(&have);
    library.foreign = have;
    if (have) {
        MPI_Query_thread(&have);
    } else if ((code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &have)) != MPI_SUCCESS) {
        snprintf(why, size, "MPI_Init failed with code %d", code);
        return;
    }
    name_version(m->version, sizeof m->version);
    if (have < MPI_THREAD_SERIALIZED) {
        snprintf(why, size, "%s was built without threads", m->version);
        return;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &m->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &m->size);
    if (MPI_Comm_dup(MPI_COMM_WORLD, &m->comm) != MPI_SUCCESS)
        snprintf(why, size, "%s could not copy its world", m->version);
    else
        MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
}

static void become(int state)
{
    pthread_mutex_lock(&library.lock);
    library.state = state;
    pthread_cond_broadcast(&library.changed);
    pthread_mutex_unlock(&library.lock);
}

static void *owner(void *unused)
{
    begin(&library.mpi, library.why, sizeof library.why);
    become(*library.why ? REFUSED : RUNNING);
    if (*library.why)
        return unused;
    pthread_mutex_lock(&library.lock);
    while (library.state != ENDING)
        pthread_cond_wait(&library.changed, &library.lock);
    pthread_mutex_unlock(&library.lock);
    MPI_Comm_free(&library.mpi.comm);
    if (!library.foreign)
        MPI_Finalize();
    become(ENDED);
    return unused;
}

/* --- who waits for it. Lock held. */

static void await_change(int from, double seconds)
{
    struct timespec t;
    double until;

    clock_gettime(CLOCK_MONOTONIC, &t);
    until = (double)t.tv_sec + (double)t.tv_nsec * 1e-9 + fmin(fmax(seconds, 0), 1e8);
    t = (struct timespec){(time_t)until, (long)(fmod(until, 1) * 1e9)};
    while ((int)library.state == from &&
           pthread_cond_timedwait(&library.changed, &library.lock, &t) != ETIMEDOUT)
        ;
}

static tn_status start_owner(void)
{
    pthread_condattr_t monotonic;
    pthread_t thread;
    sigset_t all, before;
    int failed;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&library.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, NULL, owner, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return tn_error(TN_ERR, "mpi: no thread for MPI: %s", strerror(failed));
    pthread_detach(thread);
    library.state = BEGINNING;
    return TN_OK;
}

tn_status tn_mpi_begin(double seconds, const struct tn_mpi **out)
{
    tn_status s = TN_OK;
    int state;

    pthread_mutex_lock(&library.lock);
    if (library.state == UNTOUCHED)
        s = start_owner();
    if (library.state == BEGINNING)
        await_change(BEGINNING, seconds);
    state = (int)library.state;
    pthread_mutex_unlock(&library.lock);
    *out = &library.mpi;
    if (s < 0 || state == RUNNING)
        return s;
    if (state == BEGINNING)
        return tn_error(TN_ERR_TIMEOUT,
                        "mpi: MPI_Init has not ended within %.3g s; it waits for all processes of "
                        "the job that %s started, so one of them is stopped or does not use MPI",
                        seconds, tn_mpi_launcher() ? tn_mpi_launcher() : "the launcher");
    if (state == REFUSED)
        return tn_error(TN_ERR, "mpi: %s", library.why);
    return tn_error(TN_ERR, "mpi: MPI was ended in this process, and cannot be begun again");
}

void tn_link_failed(void)
{
    pthread_mutex_lock(&library.lock);
    library.forsaken = 1;
    pthread_mutex_unlock(&library.lock);
}

void tn_mpi_end(void)
{
    pthread_mutex_lock(&library.lock);
    if (library.state == RUNNING && !library.forsaken) {
        library.state = ENDING;
        pthread_cond_broadcast(&library.changed);
        await_change(ENDING, END_SECONDS);
        if (library.state == ENDING && tn_host)
            tn_host->log(1, "mpi: MPI_Finalize waits for another rank; left as it is");
    }
    pthread_mutex_unlock(&library.lock);
}
