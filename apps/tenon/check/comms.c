/* comms.c - a communicator: the cases of comm_values.c and comm_failures.c on one rank to four.
 *
 * Ranks are processes of this host that meet in a store of files. Where those find each other but nothing arrives, they
 * are threads; where a world of two is refused, there is one; where the plugin wants a launcher, its ranks are those of
 * mpirun or srun, which then has to start the check: each process of it runs all cases of what is right, in one child,
 * since MPI begins once, and the one of rank 0 reports. */
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "comm.h"
#include "suite.h"

#define MOST_RANKS 4
#define LIMIT 70                                 /* seconds: more than a case has */
#define LAUNCHED_LIMIT 180

/* --- how its ranks can be had */

#define REFUSED 10                               /* exit status of a rank whose world was refused */

static void try_sum(struct tn_rank *r)
{
    float x = 1;
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, &x, &x, 1, NULL, NULL, 0};

    r->limit = 2;
    if (r->api->open(r->rank, r->size, 5, &r->world) < 0)
        _exit(tn_error_status() == TN_ERR_CONFIG ? REFUSED : 1);
    must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK && x == (float)r->size);
}

static const struct tn_comm_case trial = {"trial", try_sum, 2, UNOPENED, 0};

/* In a process of its own, as it may end that. */
static int threads_work(const char *path)
{
    const pid_t pid = fork();
    int status = 1;

    if (!pid) {
        alarm(10);
        tn_comm_run_threads(path, &trial, 2);
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

uint32_t check_ranks(struct check_run *r, char *why, size_t room)
{
    const struct tn_comm_api *api = check_table(r, TN_COMM_ID);
    uint32_t score = 0;
    int status[2] = {0};

    if (r->subject->size > 1)
        return CHECK_LAUNCHED;
    if (api->probe(&score, why, room) < 0)
        score = 0;
    tn_comm_root("/tmp");
    tn_comm_fork(r->subject->path, &trial, 2, status);
    if (!status[0] && !status[1])
        return CHECK_PROCESSES;
    for (int i = 0; i < 2; i++)
        if (!WIFEXITED(status[i]) || WEXITSTATUS(status[i]) != REFUSED)
            return threads_work(r->subject->path) ? CHECK_THREADS : CHECK_PROCESSES;
    return score ? CHECK_ONE_RANK : CHECK_UNLAUNCHED;
}

/* --- tests */

/* The cases judge by the store in the subject's folder, and print what is wrong. */
static void run_case(struct check_run *r)
{
    const struct tn_comm_case *c = r->test->with;
    const int threads = r->subject->claims.ranks == CHECK_THREADS;
    const int harmless = c->rank_fails == NOBODY;
    int failed = 1;

    tn_comm_root(r->subject->folder);
    /* What goes wrong on purpose has limits of a second, which a busy machine may pass for reasons of its own. */
    for (int tries = harmless ? 1 : 3; tries && failed; tries--)
        failed = threads ? tn_comm_run_threads(r->subject->path, c, r->test->number)
                         : tn_comm_run(r->subject->path, c, r->test->number);
    r->result->variants = 1;
    if (failed)
        check_fail(r, "\"%s\" on %u ranks", c->name, r->test->number);
}

static void probe(struct check_run *r)
{
    const struct tn_comm_api *c = check_table(r, TN_COMM_ID);
    const int has_cpu = c->devices && c->devices[0];

    check_must(r, c->devices);
    for (const char *const *d = c->devices; *d; d++)
        if (strcmp(*d, "cpu") && !c->wait_on)
            check_fail(r, "it takes memory of the device %s, but has no wait_on", *d);
    check_must(r, !c->wait_on == !c->check);
    check_must(r, has_cpu || !c->devices[0]);
}

/* Without its launcher it says so, at once. */
static void unlaunched(struct check_run *r)
{
    const struct tn_comm_api *c = check_table(r, TN_COMM_ID);
    const double begin = check_now();
    struct tn_comm *world = NULL;

    tn_error_clear();
    check_must(r, c->open(0, 2, 5, &world) < 0 && !world);
    check_must(r, *tn_error_text());
    check_must(r, check_now() - begin < 5);
}

static void wants_launcher(struct check_run *r)
{
    check_skip(r, "it needs a launcher (%s): mpirun -np 2 tenon plugins check %s", r->subject->claims.why,
               r->subject->card.note.name);
}

static void only_one(struct check_run *r)
{
    check_skip(r, "it is for one process: worlds of 2 are refused");
}

static void only_right(struct check_run *r)
{
    check_skip(r, "a launcher ends its job with the first rank that fails, so nothing goes wrong on purpose");
}

/* --- under a launcher */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static char *meeting(const struct check_subject *s, char *out, size_t room)
{
    snprintf(out, room, "/tmp/tenon-check-%s-%u", s->job, (unsigned)getuid());
    return out;
}

/* A rank that ends in the middle takes all others with it, so a failure says which case it was by what it printed. */
static void launched(struct check_run *r)
{
    char folder[120];
    struct tn_rank rank = {.rank = r->subject->rank, .size = r->subject->size};

    mkdir(meeting(r->subject, folder, sizeof folder), 0700);
    tn_comm_folder(folder);
    tn_comm_load(&rank, r->subject->path);
    for (const struct tn_comm_case *c = tn_comm_values; c->name; c++)
        if (rank.size >= c->least && !c->quality) {
            printf("case \"%s\"\n", c->name);
            tn_comm_case_run(&rank, c);
            r->result->variants++;
        }
    tn_plugins_close();
    if (!r->subject->rank)
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- the list */

static void add_case(struct check_list *l, const struct tn_comm_case *c, uint32_t n)
{
    char label[64];
    struct check_test *t;
    size_t k = 0;

    for (const char *s = c->name; *s && k + 1 < sizeof label; s++)
        if (*s != ',')
            label[k++] = (char)(*s == ' ' ? '-' : *s);
    label[k] = 0;
    t = check_add(l, run_case, c->name, "comm/%u-rank%s/%s", n, n == 1 ? "" : "s", label);
    t->with = c, t->number = n, t->alone = 1, t->limit = 3 * LIMIT;
}

static void add_cases(struct check_list *l, const struct tn_comm_case *c, uint32_t from, uint32_t to)
{
    for (uint32_t n = from; n <= to; n++)
        for (const struct tn_comm_case *one = c; one->name; one++)
            if (n >= one->least && !one->quality)
                add_case(l, one, n);
}

void check_list_comm(struct check_list *l, const struct check_subject *s)
{
    const uint32_t ranks = s->claims.ranks;
    struct check_test *t;

    if (!ranks || (s->rank && ranks != CHECK_LAUNCHED))
        return;
    if (!s->rank)
        check_add(l, probe, "which devices it takes memory of, and what that needs", "comm/devices");
    if (ranks == CHECK_UNLAUNCHED) {
        check_add(l, unlaunched, "without its launcher it opens nothing, and says why", "comm/unlaunched");
        check_add(l, wants_launcher, "all cases", "comm/launched");
    }
    if (ranks == CHECK_LAUNCHED) {
        t = check_add(l, launched, "all cases of what is right, on the ranks of the launcher", "comm/launched");
        t->alone = 1, t->limit = LAUNCHED_LIMIT;
        if (!s->rank)
            check_add(l, only_right, "what goes wrong on purpose", "comm/failures");
    }
    if (ranks == CHECK_PROCESSES || ranks == CHECK_THREADS || ranks == CHECK_ONE_RANK)
        add_cases(l, tn_comm_values, 1, ranks == CHECK_ONE_RANK ? 1 : MOST_RANKS);
    for (const struct tn_comm_case *c = tn_comm_failures; ranks == CHECK_THREADS && c->name; c++)
        if (c->rank_fails == NOBODY)             /* threads cannot die alone */
            add_case(l, c, c->least);
    if (ranks == CHECK_PROCESSES) {
        add_cases(l, tn_comm_failures, 2, 2);
        for (const struct tn_comm_case *c = tn_comm_failures; c->name; c++)
            if (c->least == 3)
                add_case(l, c, 3);
    }
    if (ranks == CHECK_ONE_RANK)
        check_add(l, only_one, "several ranks", "comm/ranks");
}
