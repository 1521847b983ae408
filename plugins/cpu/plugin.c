/* plugin.c - fast kernels for device "cpu": which CPU level, which operations.
 *
 * The kernels are in this file's neighbours, compiled once for each of x86-64-v2, v3 and v4 (elsewhere once).
 * The best level that this CPU runs is chosen at start; TENON_CPU_LEVEL=v2, v3 or v4 asks for a lower one,
 * for tests. BLAS gets one thread: those that share the work are the host's. */
#include "cpu.h"

__attribute__((weak)) void openblas_set_num_threads(int n); /* absent from other BLAS */

struct level {
    const struct tn_cpu_level *kernels;
    int (*runs)(void);
};
#ifdef TN_CPU_X86
extern const struct tn_cpu_level tn_cpu_level_v2, tn_cpu_level_v3, tn_cpu_level_v4;

/* By features: the names of levels are younger than some compilers. */
static int runs_v2(void)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
}
static int runs_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
static int runs_v4(void)
{
    return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
static const struct level levels[] = {
    /* best first */
    {&tn_cpu_level_v4, runs_v4},
    {&tn_cpu_level_v3, runs_v3},
    {&tn_cpu_level_v2, runs_v2},
};
#else
extern const struct tn_cpu_level tn_cpu_level_generic;

static int runs_generic(void)
{
    return 1;
}
static const struct level levels[] = {{&tn_cpu_level_generic, runs_generic}};
#endif
#define N_LEVELS (sizeof levels / sizeof *levels)

#define NAME(op) #op,
static const char *const ops[] = {TN_CPU_OPS(NAME) NULL};

static const struct tn_cpu_level *chosen;

/* The best level that runs here and is not above the one asked for; NULL if there is none. */
static const struct tn_cpu_level *choose(const char *asked)
{
    int found = !asked;

    for (size_t i = 0; i < N_LEVELS; i++) {
        found |= asked && !strcmp(asked, levels[i].kernels->name);
        if (found && levels[i].runs())
            return levels[i].kernels;
    }
    return NULL;
}

static const char *asked_level(void)
{
    const char *asked = getenv("TENON_CPU_LEVEL");

    return asked && *asked ? asked : NULL;
}

/* Its reason tells of a level that cannot be had; prepare then ends the run. A plugin that counted as unusable
 * would be passed over, and the run go on with the slow kernels that nobody asked for. */
static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    const struct tn_cpu_level *best = choose(NULL), *level = choose(asked_level());

    *score = best ? 20 : 0;
    if (level)
        snprintf(why, why_size, "kernels for CPU level %s", level->name);
    else
        snprintf(why, why_size, best ? "TENON_CPU_LEVEL is %s, which does not run here" :
                                       "this CPU is below x86-64-v2", asked_level());
    return TN_OK;
}

static tn_status wrong_level(void)
{
    char names[64] = "";

    for (size_t i = 0; i < N_LEVELS; i++)
        if (levels[i].runs())
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? ", " : "",
                     levels[i].kernels->name);
    return tn_error(TN_ERR_CONFIG, "TENON_CPU_LEVEL is %s: the levels that this CPU runs are %s", asked_level(),
                    names);
}

static tn_status start(void)
{
    char text[80];

    if (!choose(NULL))
        return tn_error(TN_ERR, "cpu: this CPU is below x86-64-v2; the kernels of ref run anywhere");
    if (!(chosen = choose(asked_level())))
        return TN_OK;
    if (openblas_set_num_threads)
        openblas_set_num_threads(1);
    snprintf(text, sizeof text, "cpu: kernels for CPU level %s", chosen->name);
    tn_host->log(3, text);
    return TN_OK;
}

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    if (!chosen)
        return wrong_level();
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        if (tn_count(i < p->n_in ? &p->in[i] : &p->out[i - p->n_in]) == 0)
            return TN_DECLINED;
    for (uint32_t i = 0; ops[i]; i++)
        if (!strcmp(p->op, ops[i])) {
            tn_status s = chosen->prepare[i](p, out);

            if (s == TN_DECLINED)
                out->workspace = 0, s = chosen->through_f32(chosen->prepare[i], p, out);
            if (s == TN_DECLINED)
                out->workspace = 0;
            return s;
        }
    return TN_DECLINED;
}

static const struct tn_kernels kernels = {
    .struct_size = sizeof kernels,
    .device = "cpu",
    .ops = ops,
    .probe = probe,
    .prepare = prepare,
};

TN_PLUGIN_("cpu", "1.0", "fast kernels: CBLAS, vector code, threads", TN_KERNELS_ID, start, NULL,
           {TN_KERNELS_ID, &kernels});
