/* rules.c - watching functions in front of plugins' and the host's own: see rules.h.
 *
 * A table's functions know nothing of who they belong to, so each watched plugin has a number and a set of functions made
 * for it; more plugins of a kind than there are numbers are not watched. Handles are the plugin's own, but for kernels,
 * whose state is wrapped, so that a launch can be told from one that was released. */
#include "plugin/rules.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <tenon/comm.h>
#include <tenon/device.h>
#include <tenon/kernels.h>
#include <tenon/pass.h>
#include <unistd.h>
#include "base/pool.h"
#include "base/status.h"
#include "plugin/load.h"

#define LIVE 0x6c697665u

static int on;
static pthread_t main_thread;
static _Thread_local int in_step, in_body, in_team, is_rank;

/* Where the call came from: "FILE+0x1234", for addr2line. */
static const char *place(const void *caller, char *out, size_t room)
{
    Dl_info i;

    if (!caller || !dladdr(caller, &i) || !i.dli_fname)
        snprintf(out, room, "somewhere");
    else
        snprintf(out, room, "%s+%#lx", i.dli_fname, (unsigned long)((const char *)caller - (const char *)i.dli_fbase));
    return out;
}

__attribute__((format(printf, 2, 3))) _Noreturn static void broken(const void *caller, const char *fmt, ...)
{
    char text[600], where[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fflush(NULL);
    dprintf(STDERR_FILENO, "tenon: debug: %s (%s)\n", text, place(caller, where, sizeof where));
    _exit(1);
}
#define HERE __builtin_return_address(0)

static int is_main(void)
{
    return is_rank || pthread_equal(pthread_self(), main_thread);
}

static int may_compute(void)
{
    return is_main() || in_step || in_body;
}

static void main_before_steps(const char *path, const char *what)
{
    if (!is_main())
        broken(NULL, "%s: %s is called on a thread that is not the main one", path, what);
    if (in_step)
        broken(NULL, "%s: %s is called during an update", path, what);
}

/* --- what plugins call */

struct body {
    void (*range)(void *arg, int64_t lo, int64_t hi);
    void (*team)(void *arg, uint32_t thread, uint32_t threads);
    void *arg;
};

static void in_range(void *arg, int64_t lo, int64_t hi)
{
    const struct body *b = arg;

    in_body++;
    b->range(b->arg, lo, hi);
    in_body--;
}

static void in_members(void *arg, uint32_t thread, uint32_t threads)
{
    const struct body *b = arg;

    in_body++, in_team++;
    b->team(b->arg, thread, threads);
    in_body--, in_team--;
}

static void host_parallel(int64_t n, int64_t grain, void (*body)(void *arg, int64_t lo, int64_t hi), void *arg)
{
    struct body b = {.range = body, .arg = arg};

    if (!body)
        broken(HERE, "parallel is called without a body");
    if (!may_compute())
        broken(HERE, "parallel is called on a thread of the plugin's own; it is for the executor's thread");
    tn_pool_parallel(n, grain, in_range, &b);
}

static void host_team(void (*body)(void *arg, uint32_t thread, uint32_t threads), void *arg)
{
    struct body b = {.team = body, .arg = arg};

    if (!body)
        broken(HERE, "team is called without a body");
    if (!may_compute())
        broken(HERE, "team is called on a thread of the plugin's own; it is for the executor's thread");
    tn_pool_team(in_members, &b);
}

static void host_barrier(void)
{
    if (!in_team)
        broken(HERE, "barrier is called outside of a team");
    tn_pool_barrier();
}

static void (*error_below)(tn_status code, const char *text, const char *file, int32_t line);

static void host_error(tn_status code, const char *text, const char *file, int32_t line)
{
    if (!text || !*text)
        broken(HERE, "an error is recorded without a sentence");
    if (code >= 0)
        broken(HERE, "the error \"%.200s\" is recorded with status %d, which is none", text, (int)code);
    error_below(code, text, file, line);
}

/* In place of every function of the graph's table. */
static void outside(void)
{
    broken(HERE, "a function of the graph is called, and no graph is being built");
}

static const struct tn_graph_api *building;      /* the real table, while the other one is shown */
static union {
    struct tn_graph_api api;
    void (*function[sizeof(struct tn_graph_api) / sizeof(void (*)(void))])(void);
} nothing;

static void show_graph(int shown)
{
    if (shown && building) {
        tn_host_table.graph = building;
        building = NULL;
    } else if (!shown && !building && tn_host_table.graph) {
        for (size_t i = 1; i < sizeof nothing / sizeof nothing.function[0]; i++)
            nothing.function[i] = outside;
        nothing.api.struct_size = sizeof nothing.api;
        building = tn_host_table.graph;
        tn_host_table.graph = &nothing.api;
    }
}

/* --- kernels */

#define MOST 8
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

static struct {
    const char *path;
    struct tn_kernels real;
} kernels[MOST];
static uint32_t n_kernels;

struct kernel {
    struct kernel *next;                         /* all that there ever were */
    uint32_t live, plugin;
    struct tn_kernel real;
    char op[24];
};
static struct kernel *ever;                      /* kept after their release, so that a later use is seen */

static void must_say(const char *path, const char *what, tn_status s)
{
    if (s < 0 && !*tn_error_text())
        broken(NULL, "%s: %s failed with status %d and recorded no sentence", path, what, (int)s);
}

static tn_status watch_launch(void *state, const struct tn_launch *l)
{
    struct kernel *k = state;
    const char *path = kernels[k->plugin].path;
    tn_status s;

    if (k->live != LIVE)
        broken(NULL, "%s: a kernel is launched that was released", path);
    if (!may_compute())
        broken(NULL, "%s: %s is launched on a thread that is not the executor's", path, k->op);
    tn_error_clear();
    s = k->real.launch(k->real.state, l);
    must_say(path, k->op, s);
    if (s > 0)
        broken(NULL, "%s: launch of %s gives status %d; declining is for prepare", path, k->op, (int)s);
    return s;
}

static void watch_release(void *state)
{
    struct kernel *k = state;

    if (k->live != LIVE)
        broken(NULL, "%s: a kernel is released twice", kernels[k->plugin].path);
    if (k->real.release)
        k->real.release(k->real.state);
    k->live = 0;
}

static tn_status watch_prepare(uint32_t plugin, const struct tn_problem *p, struct tn_kernel *out)
{
    struct kernel *k = calloc(1, sizeof *k);
    const char *path = kernels[plugin].path;
    tn_status s;

    if (!k)
        return tn_error(TN_ERR_MEMORY, "no memory for backend.debug");
    main_before_steps(path, "prepare");
    k->real.struct_size = out->struct_size;
    tn_error_clear();
    s = kernels[plugin].real.prepare(p, &k->real);
    must_say(path, p->op, s);
    if (s == TN_OK && !k->real.launch)
        broken(NULL, "%s: prepare of %s succeeds without a launch", path, p->op);
    if (s != TN_OK) {
        free(k);
        return s;
    }
    k->live = LIVE, k->plugin = plugin, k->next = ever;
    ever = k;
    snprintf(k->op, sizeof k->op, "%s", p->op);
    out->state = k, out->launch = watch_launch, out->release = watch_release, out->workspace = k->real.workspace;
    return TN_OK;
}

#define PREPARE(I)                                                                                                   \
    static tn_status prepare_##I(const struct tn_problem *p, struct tn_kernel *out)                                  \
    {                                                                                                                \
        return watch_prepare(I, p, out);                                                                             \
    }
EACH(PREPARE)
#define NAME_PREPARE(I) prepare_##I,
static tn_status (*const prepares[])(const struct tn_problem *p, struct tn_kernel *out) = {EACH(NAME_PREPARE)};

static void watch_kernels(const char *path, struct tn_kernels *t)
{
    if (n_kernels == MOST)
        return;
    kernels[n_kernels].path = path, kernels[n_kernels].real = *t;
    t->prepare = prepares[n_kernels++];
}

/* --- devices */

static struct {
    const char *path;
    struct tn_device_api real;
} devices[MOST];
static uint32_t n_devices;

#define DEVICE(I)                                                                                                    \
    static tn_status device_open_##I(uint32_t local_rank, struct tn_device **out)                                    \
    {                                                                                                                \
        main_before_steps(devices[I].path, "open");                                                                  \
        tn_error_clear();                                                                                            \
        tn_status s = devices[I].real.open(local_rank, out);                                                         \
        return must_say(devices[I].path, "open", s), s;                                                              \
    }                                                                                                                \
    static tn_status device_alloc_##I(struct tn_device *d, uint64_t bytes, void **out)                               \
    {                                                                                                                \
        main_before_steps(devices[I].path, "alloc");                                                                 \
        tn_error_clear();                                                                                            \
        tn_status s = devices[I].real.alloc(d, bytes, out);                                                          \
        return must_say(devices[I].path, "alloc", s), s;                                                             \
    }                                                                                                                \
    static tn_status device_queue_##I(struct tn_device *d, struct tn_queue **out)                                    \
    {                                                                                                                \
        main_before_steps(devices[I].path, "queue");                                                                 \
        return devices[I].real.queue(d, out);                                                                        \
    }                                                                                                                \
    static tn_status device_sync_##I(struct tn_queue *q, double seconds)                                             \
    {                                                                                                                \
        tn_error_clear();                                                                                            \
        tn_status s = devices[I].real.sync(q, seconds);                                                              \
        return must_say(devices[I].path, "sync", s), s;                                                              \
    }
EACH(DEVICE)
#define NAME_OPEN(I) device_open_##I,
#define NAME_ALLOC(I) device_alloc_##I,
#define NAME_QUEUE(I) device_queue_##I,
#define NAME_SYNC(I) device_sync_##I,
static tn_status (*const opens[])(uint32_t local_rank, struct tn_device **out) = {EACH(NAME_OPEN)};
static tn_status (*const allocs[])(struct tn_device *d, uint64_t bytes, void **out) = {EACH(NAME_ALLOC)};
static tn_status (*const queues[])(struct tn_device *d, struct tn_queue **out) = {EACH(NAME_QUEUE)};
static tn_status (*const syncs[])(struct tn_queue *q, double seconds) = {EACH(NAME_SYNC)};

static void watch_device(const char *path, struct tn_device_api *t)
{
    const uint32_t i = n_devices;

    if (i == MOST)
        return;
    devices[i].path = path, devices[i].real = *t;
    t->open = opens[i], t->alloc = allocs[i], t->queue = queues[i], t->sync = syncs[i];
    n_devices++;
}

/* --- communicators */

static struct {
    const char *path;
    struct tn_comm_api real;
} comms[MOST];
static uint32_t n_comms;

static tn_status watch_start(uint32_t i, struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,
                             struct tn_request **out)
{
    tn_status s;

    tn_error_clear();
    *out = (struct tn_request *)(uintptr_t)1;
    s = comms[i].real.start(c, t, n, stream, out);
    must_say(comms[i].path, "start", s);
    if (s < 0 ? *out != NULL : !*out || *out == (struct tn_request *)(uintptr_t)1)
        broken(NULL, "%s: start gives status %d and %s request", comms[i].path, (int)s, *out ? "a" : "no");
    if (s > 0)
        broken(NULL, "%s: start gives status %d, which it has not", comms[i].path, (int)s);
    return s;
}

static tn_status watch_wait(uint32_t i, struct tn_request *r, double seconds)
{
    tn_status s;

    tn_error_clear();
    s = comms[i].real.wait(r, seconds);
    must_say(comms[i].path, "wait", s);
    if (s > TN_DECLINED || (s == TN_DECLINED && seconds > 0))
        broken(NULL, "%s: wait for %g s gives status %d; \"not yet\" is for polls", comms[i].path, seconds, (int)s);
    return s;
}

#define COMM(I)                                                                                                      \
    static tn_status comm_start_##I(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,        \
                                    struct tn_request **out)                                                         \
    {                                                                                                                \
        return watch_start(I, c, t, n, stream, out);                                                                 \
    }                                                                                                                \
    static tn_status comm_wait_##I(struct tn_request *r, double seconds)                                             \
    {                                                                                                                \
        return watch_wait(I, r, seconds);                                                                            \
    }
EACH(COMM)
#define NAME_START(I) comm_start_##I,
#define NAME_WAIT(I) comm_wait_##I,
static tn_status (*const starts[])(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,
                                   struct tn_request **out) = {EACH(NAME_START)};
static tn_status (*const waits[])(struct tn_request *r, double seconds) = {EACH(NAME_WAIT)};

static void watch_comm(const char *path, struct tn_comm_api *t)
{
    if (n_comms == MOST)
        return;
    comms[n_comms].path = path, comms[n_comms].real = *t;
    t->start = starts[n_comms], t->wait = waits[n_comms];
    n_comms++;
}

/* --- tables that stay as they are */

static struct {
    const char *path, *id;
    const void *table;                           /* the plugin's */
    uint32_t bytes;
    uint64_t sum;
} kept[64];
static uint32_t n_kept;

static uint64_t sum_of(const void *table, uint32_t bytes)
{
    const unsigned char *p = table;
    uint64_t h = 1469598103934665603u;

    for (uint32_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static void keep(const struct tn_loaded *p)
{
    for (const struct tn_interface *i = p->plugin.interfaces; i->id && n_kept < 64; i++) {
        uint32_t size;

        if (!tn_interface_type(i->id) || !i->table)
            continue;
        memcpy(&size, i->table, sizeof size);
        kept[n_kept].path = p->path, kept[n_kept].id = i->id, kept[n_kept].table = i->table, kept[n_kept].bytes = size;
        kept[n_kept++].sum = sum_of(i->table, size);
    }
}

static void look_at_tables(void)
{
    for (uint32_t i = 0; i < n_kept; i++)
        if (sum_of(kept[i].table, kept[i].bytes) != kept[i].sum)
            broken(NULL, "%s: its table of %s is not what it was when it was loaded", kept[i].path, kept[i].id);
}

/* --- what the host calls */

void tn_rules_begin(void)
{
    if (on)
        return;
    on = 1;
    main_thread = pthread_self();
    error_below = tn_host_table.error;
    tn_host_table.error = host_error;
    tn_host_table.parallel = host_parallel;
    tn_host_table.team = host_team;
    tn_host_table.barrier = host_barrier;
}

void tn_rules_rank(void)
{
    is_rank = 1;
}

int tn_rules_hold(void)
{
    return on;
}

void tn_rules_watch(struct tn_loaded *p)
{
    if (!on)
        return;
    keep(p);
    for (uint32_t i = 0; i < p->tables; i++) {
        const char *id = p->table[i].type->id;

        if (!strcmp(id, TN_KERNELS_ID))
            watch_kernels(p->path, p->table[i].table);
        if (!strcmp(id, TN_DEVICE_ID))
            watch_device(p->path, p->table[i].table);
        if (!strcmp(id, TN_COMM_ID))
            watch_comm(p->path, p->table[i].table);
    }
}

void tn_rules_build(void)
{
    if (on)
        show_graph(1);
}

void tn_rules_step(int begins)
{
    if (!on)
        return;
    in_step = begins;
    if (begins)
        show_graph(0);
    else
        look_at_tables();
}
