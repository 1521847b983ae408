/* host.c - the host's side of the ABI for a bench without a core: errors, threads, loading by path.
 *
 * Plugins are looked for in the build tree, at plugins/NAME/.libs/NAME.so below $top_builddir. The threads
 * are made for each call and joined at its end; a call from inside a body runs in the caller's thread alone.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "bench.h"

#define MAX_THREADS 8

static uint32_t n_threads = 1;
static pthread_barrier_t barrier_of_team;
static _Thread_local uint32_t inside, team_size = 1;
static _Thread_local char said[600];

void tn_bench_stop(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

void tn_bench_threads(uint32_t n)
{
    n_threads = n < MAX_THREADS ? n : MAX_THREADS;
}

const char *tn_bench_said(void)
{
    return said;
}

static void error(tn_status code, const char *text, const char *file, int32_t line)
{
    snprintf(said, sizeof said, "%s (%s:%d, status %d)", text, file, (int)line, (int)code);
}

static void say(uint32_t level, const char *text)
{
    if (level < 2)
        fprintf(stderr, "plugin: %s\n", text);
}

static const struct tn_store *the_store;

void tn_bench_store(const struct tn_store *store)
{
    the_store = store;
}

static const void *interface(const char *id)
{
    return strcmp(id, TN_STORE_ID) ? NULL : the_store;
}

struct job {
    void (*range)(void *arg, int64_t lo, int64_t hi);
    void (*team)(void *arg, uint32_t thread, uint32_t threads);
    void *arg;
    int64_t lo, hi;
    uint32_t thread, threads;
};

static void *run_job(void *p)
{
    struct job *j = p;

    inside++;
    team_size = j->team ? j->threads : 1;
    if (j->team)
        j->team(j->arg, j->thread, j->threads);
    else
        j->range(j->arg, j->lo, j->hi);
    team_size = 1;
    inside--;
    return NULL;
}

static void run_jobs(struct job *job, uint32_t n)
{
    pthread_t thread[MAX_THREADS];

    for (uint32_t i = 1; i < n; i++)
        if (pthread_create(&thread[i], NULL, run_job, &job[i]))
            tn_bench_stop("no thread");
    run_job(&job[0]);
    for (uint32_t i = 1; i < n; i++)
        pthread_join(thread[i], NULL);
}

static void parallel(int64_t n, int64_t grain, void (*body)(void *arg, int64_t lo, int64_t hi), void *arg)
{
    struct job job[MAX_THREADS] = {{0}};
    int64_t parts = grain > 0 ? n / grain : n;

    if (n <= 0)
        return;
    if (inside) {
        body(arg, 0, n);
        return;
    }
    parts = parts < 1 ? 1 : parts > n_threads ? n_threads : parts;
    for (int64_t i = 0; i < parts; i++)
        job[i] = (struct job){.range = body, .arg = arg, .lo = n * i / parts, .hi = n * (i + 1) / parts};
    run_jobs(job, (uint32_t)parts);
}

static void team(void (*body)(void *arg, uint32_t thread, uint32_t threads), void *arg)
{
    struct job job[MAX_THREADS] = {{0}};

    if (inside) {
        const uint32_t saved = team_size;

        team_size = 1;
        body(arg, 0, 1);
        team_size = saved;
        return;
    }
    pthread_barrier_init(&barrier_of_team, NULL, n_threads);
    for (uint32_t i = 0; i < n_threads; i++)
        job[i] = (struct job){.team = body, .arg = arg, .thread = i, .threads = n_threads};
    run_jobs(job, n_threads);
    pthread_barrier_destroy(&barrier_of_team);
}

static void barrier(void)
{
    if (team_size > 1)
        pthread_barrier_wait(&barrier_of_team);
}

static uint32_t threads(void)
{
    return n_threads;
}

static const struct tn_host host = {
    .struct_size = sizeof host,
    .abi = TN_ABI,
    .error = error,
    .log = say,
    .interface = interface,
    .parallel = parallel,
    .team = team,
    .barrier = barrier,
    .threads = threads,
};

const struct tn_host *tn_bench_host(void)
{
    return &host;
}

const struct tn_plugin *tn_bench_plugin(const char *name)
{
    const char *top = getenv("top_builddir");
    char path[4096];
    void *so;
    const struct tn_plugin *(*entry)(const struct tn_host *);
    const struct tn_plugin *p;

    snprintf(path, sizeof path, "%s/plugins/%s/.libs/%s.so", top ? top : ".", name, name);
    if (access(path, F_OK))
        return NULL;
    if (!(so = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
        tn_bench_stop("%s", dlerror());
    *(void **)&entry = dlsym(so, "tn_plugin_entry");
    if (!entry || !(p = entry(&host)))
        tn_bench_stop("%s: no tn_plugin_entry", path);
    if (p->start && p->start() < 0)
        tn_bench_stop("%s does not start: %s", path, said);
    return p;
}

const void *tn_bench_interface(const struct tn_plugin *p, const char *id)
{
    for (const struct tn_interface *i = p->interfaces; i->id; i++)
        if (!strcmp(i->id, id))
            return i->table;
    return NULL;
}
