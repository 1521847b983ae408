/* measure.c - whole updates with a clock: see measure.h.
 *
 * Drawing tokens and handing them over is the phase "data". Resident memory is what /proc says of this
 * address space: the ru_maxrss of getrusage counts what the process was before exec, and stands in where
 * there is no /proc. */
#include "train/measure.h"
#include <sys/resource.h>
#include "base/debug.h"
#include "plan/report.h"
#include "train/engine.h"
#include "train/measure_own.h"

const char *const tn_measure_phase_name[TN_MEASURE_PHASES] = {
    [TN_PHASE_DATA] = "data",           [TN_PHASE_FORWARD] = "forward", [TN_PHASE_BACKWARD] = "backward",
    [TN_PHASE_OPTIMIZER] = "optimizer", [TN_PHASE_OTHER] = "other",
};

/* --- counters of the process */

struct counters {
    long minor, major;
    uint64_t allocations;
};

static void count(struct counters *out)
{
    struct rusage u;

    *out = (struct counters){.allocations = tn_debug_allocations()};
    if (!getrusage(RUSAGE_SELF, &u))
        out->minor = u.ru_minflt, out->major = u.ru_majflt;
}

static void count_end(const struct counters *before, struct tn_measure *m)
{
    struct counters after;

    count(&after);
    m->minor_faults = (double)(after.minor - before->minor) / m->steps;
    m->major_faults = (double)(after.major - before->major) / m->steps;
    m->allocations = after.allocations ? (double)(after.allocations - before->allocations) / m->steps : -1;
}

/* "VmHWM:     1234 kB" of /proc/self/status; 0 if it is not there. */
static uint64_t status_bytes(const char *key)
{
    FILE *f = fopen("/proc/self/status", "r");
    unsigned long long kilobytes = 0;
    size_t length = strlen(key);
    char line[256];

    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, length) && sscanf(line + length, ": %llu kB", &kilobytes) == 1)
            break;
    if (f)
        fclose(f);
    return kilobytes * 1024;
}

static void measure_memory(const struct tn_session *s, struct tn_measure *m)
{
    struct tn_plan_report report;
    struct rusage u;

    tn_plan_sum(tn_session_plan(s, TN_SESSION_TRAIN), &report);
    m->planned = report.total;
    m->arena = report.arena;
    m->rss = status_bytes("VmRSS");
    m->rss_peak = status_bytes("VmHWM");
    if (!m->rss_peak && !getrusage(RUSAGE_SELF, &u))
        m->rss_peak = (uint64_t)u.ru_maxrss * 1024;
}

/* What the device says of itself, and what it lacks since it was opened. */
static void measure_device(const struct tn_session *s, struct tn_measure *m)
{
    const struct tn_engine *e = tn_session_engine(s);
    struct tn_device_info now = {.struct_size = sizeof now};

    m->peak = tn_session_shape(s)->dtype == TN_F32 ? e->info.peak_fp32 : e->info.peak_low;
    if (!e->info.host_access && e->device_api->info(e->device, &now) == TN_OK &&
        now.memory_free < e->info.memory_free)
        m->device_bytes = e->info.memory_free - now.memory_free;
}

/* --- many updates */

static void split(const struct tn_session_times *t, double whole, double phase[TN_MEASURE_PHASES])
{
    const double *list = t->run.list;

    phase[TN_PHASE_DATA] = t->feed;
    phase[TN_PHASE_FORWARD] =
        list[TN_LIST_PROLOGUE] + list[TN_LIST_PER_MICRO] + list[TN_LIST_READY] + list[TN_LIST_FORWARD];
    phase[TN_PHASE_BACKWARD] = list[TN_LIST_BACKWARD];
    phase[TN_PHASE_OPTIMIZER] = list[TN_LIST_AFTER] + list[TN_LIST_UPDATE];
    phase[TN_PHASE_OTHER] = whole;
    for (int p = 0; p < TN_PHASE_OTHER; p++)
        phase[TN_PHASE_OTHER] -= phase[p];
}

static void summarize(const struct tn_session *s, const double *phase, struct tn_arena *arena,
                      struct tn_measure *m)
{
    const struct tn_session_shape *h = tn_session_shape(s);
    const struct tn_model_config *c = tn_session_model(s);
    double *one = tn_alloc_array(arena, m->steps, sizeof *one);

    m->median = tn_measure_median(m->seconds, m->steps);
    m->low = m->high = m->seconds[0];
    for (uint32_t i = 1; i < m->steps; i++) {
        m->low = m->seconds[i] < m->low ? m->seconds[i] : m->low;
        m->high = m->seconds[i] > m->high ? m->seconds[i] : m->high;
    }
    for (int p = 0; p < TN_MEASURE_PHASES; p++) {
        for (uint32_t i = 0; i < m->steps; i++)
            one[i] = phase[i * TN_MEASURE_PHASES + p];
        m->phase[p] = tn_measure_median(one, m->steps);
    }
    m->tokens = (double)(h->global_batch * h->seq_len);
    m->flops =
        (6.0 * (double)h->n_parameters_no_position + 6.0 * (double)(c->n_layer * c->n_embd * h->seq_len)) *
        m->tokens;
}

/* times and phase, if it counts: of update number i. */
static tn_status one_step(struct tn_feed *f, uint32_t i, double *phase, struct tn_measure *m)
{
    struct tn_session_times times = {0};
    struct tn_session_result result;
    double start = tn_measure_now(), whole;
    tn_status s = tn_feed_step(f, &times, &result);

    whole = tn_measure_now() - start;
    if (f->step == 1)
        m->first = whole, m->first_loss = result.loss;
    m->last_loss = result.loss;
    if (phase) {
        m->seconds[i] = whole;
        split(&times, whole, phase + i * TN_MEASURE_PHASES);
    }
    return s;
}

tn_status tn_measure_steps(struct tn_session *s, const struct tn_measure_options *o, struct tn_arena *arena,
                           struct tn_measure *out)
{
    double *phase = tn_alloc_array(arena, (size_t)o->steps * TN_MEASURE_PHASES, sizeof *phase);
    struct counters before;
    tn_status status = TN_OK;
    struct tn_feed f;

    *out = (struct tn_measure){.steps = o->steps, .seconds = tn_alloc_array(arena, o->steps, sizeof(double))};
    memset(out->seconds, 0, o->steps * sizeof(double)); /* touched: no page faults later */
    memset(phase, 0, (size_t)o->steps * TN_MEASURE_PHASES * sizeof *phase);
    tn_feed_new(&f, s, o->seed, arena);
    for (uint32_t i = 0; i < o->warmup && !status; i++)
        status = one_step(&f, i, NULL, out);
    count(&before);
    for (uint32_t i = 0; i < o->steps && !status; i++)
        status = one_step(&f, i, phase, out);
    if (status)
        return status;
    count_end(&before, out);
    if ((status = tn_session_most(s, out->seconds, o->steps)) ||
        (status = tn_session_most(s, &out->first, 1)))
        return status;
    measure_memory(s, out);
    measure_device(s, out);
    summarize(s, phase, arena, out);
    return TN_OK;
}
