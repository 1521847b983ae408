/* comm.c - ranks as forked processes: the store of files they meet in, their start and their end. */
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "comm.h"

#define MOST 8
#define LIMIT 60 /* seconds for a case, all of it */

static char folder[160], root[100] = "/tmp";
int tn_comm_words;
enum tn_comm_way tn_comm_way;
const struct tn_comm_device *tn_comm_device;
const struct tn_comm_hosts *tn_comm_hosts;

double tn_comm_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void tn_comm_sleep(double seconds)
{
    nanosleep(&(struct timespec){(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)}, NULL);
}

void tn_comm_wrong(const struct tn_rank *r, int line, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fprintf(stderr, "  rank %u of %u, line %d: ", r->rank, r->size, line);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    _exit(1);
}

/* --- the store: a file for each key, which appears whole */
static void path_of(const char *key, char *out, size_t size)
{
    int n = snprintf(out, size, "%s/", folder);

    for (; *key && (size_t)n + 2 < size; key++)
        out[n++] = (char)(*key == '/' ? ':' : *key);
    out[n] = 0;
}

static tn_status store_set(const char *key, const void *data, uint64_t bytes)
{
    char path[512], part[520];
    FILE *f;

    path_of(key, path, sizeof path);
    snprintf(part, sizeof part, "%s.part", path);
    f = fopen(part, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) || rename(part, path))
        tn_bench_stop("%s: %s", part, strerror(errno));
    return TN_OK;
}

static tn_status store_get(const char *key, void *data, uint64_t *bytes, double seconds)
{
    double until = tn_comm_now() + seconds;
    char path[512];
    FILE *f;

    if (tn_comm_hosts && !strncmp(key, "tenon/address/", 14)) {
        *bytes = (uint64_t)snprintf(data, *bytes, "%s", tn_comm_hosts->address((uint32_t)atoi(key + 14)));
        return TN_OK;
    }
    path_of(key, path, sizeof path);
    while (!(f = fopen(path, "rb"))) {
        if (tn_comm_now() > until)
            return TN_ERR_TIMEOUT;
        tn_comm_sleep(0.001);
    }
    *bytes = fread(data, 1, *bytes, f);
    fclose(f);
    return TN_OK;
}

static const struct tn_store store = {.struct_size = sizeof store, .set = store_set, .get = store_get};

/* --- calls */

tn_status tn_comm_do(struct tn_rank *r, struct tn_comm *c, const struct tn_transfer *t, uint32_t n)
{
    struct tn_request *q = NULL;
    tn_status s = r->api->start(c, t, n, NULL, &q);

    return s < 0 ? s : r->api->wait(q, r->limit);
}

int tn_comm_says(const char *text)
{
    return strstr(tn_bench_said(), text) != NULL;
}

/* --- processes */

void tn_comm_root(const char *path)
{
    snprintf(root, sizeof root, "%s", path);
}

void tn_comm_folder(const char *path)
{
    snprintf(folder, sizeof folder, "%s", path);
}

const struct tn_plugin *tn_comm_load(struct tn_rank *r, const char *plugin)
{
    const struct tn_plugin *p;

    tn_bench_store(&store);
    p = tn_bench_plugin(plugin);
    r->api = r->own = p ? tn_bench_interface(p, TN_COMM_ID) : NULL;
    if (!r->api)
        tn_comm_wrong(r, __LINE__, "the plugin %s has no %s", plugin, TN_COMM_ID);
    return p;
}

void tn_comm_case_run(struct tn_rank *r, const struct tn_comm_case *c)
{
    r->limit = c->rank_fails == NOBODY ? 20 : 2;
    r->world = NULL;
    if (tn_comm_device)
        tn_comm_device->enter(r);
    if (c->rank_fails < UNOPENED)
        must(r, r->api->open(r->rank, r->size, r->limit, &r->world) == TN_OK);
    c->run(r);
    if (r->world)
        r->api->close(r->world);
}

static void child(const char *plugin, const struct tn_comm_case *c, uint32_t rank, uint32_t n)
{
    struct tn_rank r = {.rank = rank, .size = n};

    prctl(PR_SET_PDEATHSIG, SIGKILL);            /* nobody is left behind by a kill */
    if (c->rank_fails == LAST_UNSTARTED && rank == n - 1)
        _exit(0);
    if (tn_comm_hosts)
        tn_comm_hosts->enter(rank);
    tn_comm_load(&r, plugin);
    if (tn_comm_device)
        tn_comm_device->open(&r, rank);
    tn_comm_case_run(&r, c);
    if (tn_comm_device)
        tn_comm_device->close(&r);
    exit(0);
}

/* The rank that a case kills or stops has to be so; all others end with 0. */
static int judge(const struct tn_comm_case *c, uint32_t rank, int status)
{
    if (c->rank_fails == (int32_t)rank)
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path), 0;                      /* what can be removed is */
}

void tn_comm_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Waits for all; a rank that stopped itself is killed when the others have ended. */
static int collect(const struct tn_comm_case *c, const pid_t *pid, uint32_t n, int *status)
{
    const double until = tn_comm_now() + LIMIT;
    int ended[MOST] = {0}, in_time = 1;

    for (uint32_t left = n; left;) {
        const int late = tn_comm_now() > until;

        for (uint32_t i = 0; i < n; i++) {
            if (!ended[i] && (late || (left == 1 && c->rank_fails == (int32_t)i)))
                kill(pid[i], SIGKILL);
            if (!ended[i] && waitpid(pid[i], &status[i], WNOHANG) == pid[i])
                ended[i] = 1, in_time &= !late, left--;
        }
        tn_comm_sleep(0.001);
    }
    return in_time;
}

int tn_comm_fork(const char *plugin, const struct tn_comm_case *c, uint32_t n, int *status)
{
    pid_t pid[MOST];
    int in_time;

    snprintf(folder, sizeof folder, "%s/tenon-comm-XXXXXX", root);
    if (n > MOST || !mkdtemp(folder))
        tn_bench_stop("no folder for the store: %s", strerror(errno));
    fflush(NULL);
    for (uint32_t i = 0; i < n; i++) {
        pid[i] = fork();
        if (pid[i] < 0)
            tn_bench_stop("fork: %s", strerror(errno));
        if (pid[i] == 0)
            child(plugin, c, i, n);
    }
    in_time = collect(c, pid, n, status);
    tn_comm_remove(folder);
    return in_time;
}

int tn_comm_run(const char *plugin, const struct tn_comm_case *c, uint32_t n)
{
    int status[MOST] = {0}, failed = !tn_comm_fork(plugin, c, n, status);

    for (uint32_t i = 0; i < n; i++)
        if (!judge(c, i, status[i])) {
            failed = 1;
            fprintf(stderr, "  rank %u ended with status %#x\n", i, (unsigned)status[i]);
        }
    if (failed)
        printf("FAIL %s, %u ranks: %s\n", plugin, n, c->name);
    return failed;
}

/* --- threads */

struct one {
    struct tn_rank r;
    const struct tn_comm_case *c;
    pthread_t thread;
};

static void *one_thread(void *arg)
{
    struct one *o = arg;

    tn_comm_case_run(&o->r, o->c);
    return NULL;
}

int tn_comm_run_threads(const char *plugin, const struct tn_comm_case *c, uint32_t n)
{
    struct one one[MOST];
    struct tn_rank r = {0};

    tn_comm_load(&r, plugin);
    for (uint32_t i = 0; i < n; i++) {
        one[i] = (struct one){.r = {.api = r.api, .own = r.own, .rank = i, .size = n}, .c = c};
        if (tn_comm_device)
            tn_comm_device->open(&one[i].r, i);
    }
    for (uint32_t i = 0; i < n; i++)
        if (pthread_create(&one[i].thread, NULL, one_thread, &one[i]))
            tn_bench_stop("no thread for rank %u", i);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(one[i].thread, NULL);
    for (uint32_t i = 0; i < n && tn_comm_device; i++)
        tn_comm_device->close(&one[i].r);
    return 0;
}
