/* bootstraps.c - a bootstrap: does it read and change nothing, and is what it says possible?
 *
 * Each test asks with the environment emptied of every launcher's variables, and then with some set: to what a launcher
 * writes, and to what none would. The answer may be "not here"; it may not be a crash, a hang, or a place that is none. */
#include <dirent.h>
#include <sys/stat.h>
#include <tenon/bootstrap.h>
#include <unistd.h>
#include "base/status.h"
#include "suite.h"

extern char **environ;

static const char *const kept[] = {"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "TENON_LOG", "OPENBLAS_NUM_THREADS"};

/* Nothing of any launcher. */
static void empty(void)
{
    char *value[sizeof kept / sizeof *kept];

    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        value[i] = getenv(kept[i]) ? strdup(getenv(kept[i])) : NULL;
    clearenv();
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (value[i])
            setenv(kept[i], value[i], 1);
}

static uint64_t sum_environment(void)
{
    uint64_t h = 1;

    for (char **e = environ; e && *e; e++)
        for (const char *s = *e; *s; s++)
            h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

static uint32_t count_files(const char *path)
{
    DIR *d = opendir(path);
    uint32_t n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Asks, and believes nothing. Returns the score; 0 where the probe refuses nonsense with a sentence. */
static uint32_t ask(struct check_run *r, const struct tn_bootstrap *b, const char *when, int nonsense)
{
    const uint64_t before = sum_environment();
    const uint32_t files = count_files("/proc/self/fd");
    uint32_t score = 0;
    char why[256];
    tn_status s;

    memset(why, '?', sizeof why);
    tn_error_clear();
    *why = 0;
    s = b->probe(&score, why, 128);
    if (s < 0 && nonsense && *tn_error_text())
        return 0;
    if (s < 0)
        check_fail(r, "%s: the probe fails: %s", when, check_said());
    if (!memchr(why, 0, 128) || why[128] != '?')
        check_fail(r, "%s: the probe writes beyond the room for its reason, or ends it nowhere", when);
    if (!*why)
        check_fail(r, "%s: the probe gives no reason", when);
    if (sum_environment() != before)
        check_fail(r, "%s: the probe changes the environment", when);
    if (count_files("/proc/self/fd") != files)
        check_fail(r, "%s: the probe leaves a file open", when);
    return score;
}

/* A place that is one; *located: it was said at all. */
static struct tn_place locate(struct check_run *r, const struct tn_bootstrap *b, const char *when, int *located)
{
    struct tn_place p = {.struct_size = sizeof p};
    tn_status s;

    tn_error_clear();
    s = b->locate(&p);
    *located = s >= 0;
    if (s < 0 && !*tn_error_text())
        check_fail(r, "%s: locate fails without a sentence", when);
    if (s < 0)
        return p;
    if (!memchr(p.address, 0, sizeof p.address) || !memchr(p.job, 0, sizeof p.job))
        check_fail(r, "%s: an address or a job without an end", when);
    if (!p.size || p.rank >= p.size)
        check_fail(r, "%s: rank %u of %u", when, p.rank, p.size);
    if (p.local_size && (p.local_rank >= p.local_size || p.local_size > p.size))
        check_fail(r, "%s: local rank %u of %u, of %u in all", when, p.local_rank, p.local_size, p.size);
    if (p.nodes && (p.node >= p.nodes || p.nodes > p.size))
        check_fail(r, "%s: node %u of %u, of %u ranks", when, p.node, p.nodes, p.size);
    if (p.port > 65535)
        check_fail(r, "%s: port %u", when, p.port);
    if (!p.port && !b->publish && p.size > 1)
        check_fail(r, "%s: it gives no port of rank 0 and has no publish, so the ranks cannot meet", when);
    return p;
}

static void clean(struct check_run *r)
{
    const struct tn_bootstrap *b;
    uint32_t score;
    int located = 0;

    empty();
    b = check_table(r, TN_BOOTSTRAP_ID);
    score = ask(r, b, "without a launcher", 0);
    check_must(r, score == ask(r, b, "asked again", 0));
    if (!score)
        return;
    struct tn_place p = locate(r, b, "without a launcher", &located);
    if (located && p.size != 1)
        check_fail(r, "no launcher started this process, and it says rank %u of %u", p.rank, p.size);
}

/* What a launcher writes; size 0: nothing is expected. */
static const struct {
    const char *name, *set;
    uint32_t rank, size;
} launched[] = {
    {"torchrun", "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
                 "TORCHELASTIC_RUN_ID=none", 1, 4},
    {"srun", "SLURM_PROCID=2 SLURM_NTASKS=3 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_JOB_ID=77 SLURM_STEP_ID=0 "
             "SLURM_JOB_NODELIST=n[1-3] SLURM_STEP_NODELIST=n[1-3] SLURM_NNODES=3 SLURM_STEP_NUM_NODES=3 "
             "SLURM_STEP_TASKS_PER_NODE=1(x3) SLURM_TASKS_PER_NODE=1(x3)", 2, 3},
    {"a folder", "TENON_DIR=/tmp TENON_RANK=1 TENON_WORLD_SIZE=2", 1, 2},
};

static void set_all(const char *words)
{
    char text[900];

    snprintf(text, sizeof text, "%s", words);
    for (char *save, *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *value = strchr(w, '=');

        *value++ = 0;
        setenv(w, value, 1);
    }
}

static void launchers(struct check_run *r)
{
    for (size_t i = 0; i < sizeof launched / sizeof *launched; i++) {
        const struct tn_bootstrap *b;
        struct tn_place p;
        int located = 0;

        empty();
        set_all(launched[i].set);
        b = check_table(r, TN_BOOTSTRAP_ID);
        if (ask(r, b, launched[i].name, 0) <= 1)
            continue;                            /* not its launcher */
        p = locate(r, b, launched[i].name, &located);
        if (located && (p.rank != launched[i].rank || p.size != launched[i].size))
            check_fail(r, "%s says rank %u of %u, it says rank %u of %u", launched[i].name, launched[i].rank, launched[i].size, p.rank,
                       p.size);
        r->result->variants += located != 0;
    }
}

/* Each variable that launchers use, alone and with all the others as they should be, set to nonsense. */
static void nonsense(struct check_run *r)
{
    static const char *const values[] = {"", "x", "-1", "99999999999999999999", "1e3", "4294967296", "0x10", " 1", "1,2"};

    for (size_t i = 0; i < sizeof launched / sizeof *launched; i++) {
        char text[900];

        snprintf(text, sizeof text, "%s", launched[i].set);
        for (char *save, *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
            for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
                char when[200], name[64];
                const struct tn_bootstrap *b;
                int located;

                snprintf(name, sizeof name, "%.*s", (int)strcspn(w, "="), w);
                snprintf(when, sizeof when, "%s with %s=%s", launched[i].name, name, values[k]);
                empty();
                set_all(launched[i].set);
                setenv(name, values[k], 1);
                b = check_table(r, TN_BOOTSTRAP_ID);
                if (ask(r, b, when, 1))
                    locate(r, b, when, &located);
                r->result->variants++;
            }
    }
}

static void leaves(struct check_run *r)
{
    const struct tn_bootstrap *b = check_table(r, TN_BOOTSTRAP_ID);

    if (b->leave)
        b->leave();
}

void check_list_bootstraps(struct check_list *l, const struct check_subject *s)
{
    if (!s->claims.is_bootstrap)
        return;
    check_add(l, clean, "without a launcher: no rank of many, and nothing changes", "bootstrap/clean");
    check_add(l, launchers, "with the variables of torchrun, srun and a folder: that place or none", "bootstrap/launchers");
    check_add(l, nonsense, "with nonsense in each of these variables: no crash, and a place that is one", "bootstrap/nonsense");
    check_add(l, leaves, "leaving without having met anybody", "bootstrap/leave");
}
