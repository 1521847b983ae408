/* comms.c - a communicator: the cases of comm_values.c, comm_failures.c and comm_streams.c on one rank to four, which
 * are had as comm_ranks.c finds out.
 *
 * Under a launcher each process of it runs all cases of what is right, in one child, since MPI begins once, and the one of
 * rank 0 reports. Where the communicator takes the memory of a device, each rank has one of its own, and what is right is
 * tried by its streams as well (comm_through.c). */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/status.h"
#include "comm.h"
#include "suite.h"

#define MOST_RANKS 4
#define LIMIT 70                                 /* seconds: more than a case has */
#define LAUNCHED_LIMIT 180

/* How memory gets to the communicator, as tests name it. */
static const char *const way_name[] = {
    [TN_COMM_HOST] = "comm", [TN_COMM_WAIT] = "comm-wait", [TN_COMM_STREAM] = "comm-stream", [TN_COMM_RECORD] = "comm-record",
};
#define WAYS 4u

/* --- tests */

/* The cases judge by the store in the subject's folder, and print what is wrong. number: ranks and way. */
static void run_case(struct check_run *r)
{
    const struct tn_comm_case *c = r->test->with;
    const uint32_t n = r->test->number / WAYS;
    const int threads = r->subject->claims.ranks == CHECK_THREADS;
    const int harmless = c->rank_fails == NOBODY;
    int failed = 1;

    tn_comm_root(r->subject->folder);
    check_comm_device(&r->subject->claims.devices);
    tn_comm_way = (enum tn_comm_way)(r->test->number % WAYS);
    /* What goes wrong on purpose has limits of a second, which a busy machine may pass for reasons of its own. */
    for (int tries = harmless ? 1 : 3; tries && failed; tries--)
        failed = threads ? tn_comm_run_threads(r->subject->path, c, n) : tn_comm_run(r->subject->path, c, n);
    r->result->variants = 1;
    if (failed)
        check_fail(r, "\"%s\" on %u ranks", c->name, n);
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

static const char *s_of(uint32_t n)
{
    return n == 1 ? "" : "s";
}

static void too_few(struct check_run *r)
{
    const struct check_devices *d = &r->subject->claims.devices;

    if (!d->n)
        check_skip(r, "it takes memory of the device %s, and there is none here: %s", d->kind, d->why);
    check_skip(r, "each rank has a device of its own, and of %s there %s %u here: %s", d->kind, d->n == 1 ? "is" : "are", d->n, d->why);
}

static void only_right(struct check_run *r)
{
    check_skip(r, "a launcher ends its job with the first rank that fails, so nothing goes wrong on purpose");
}

/* --- under a launcher */

static char *meeting(const struct check_subject *s, char *out, size_t room)
{
    snprintf(out, room, "/tmp/tenon-check-%s-%u", s->job, (unsigned)getuid());
    return out;
}

static int fits(const struct tn_comm_case *c, uint32_t way)
{
    return !(c->flags & TN_COMM_QUALITY) && !(way && c->flags & TN_COMM_HOST_ONLY) &&
           !(way == TN_COMM_RECORD && c->flags & TN_COMM_NOT_RECORDED);
}

/* The ways there are; n: of how many ranks of this host. */
static uint32_t ways(const struct check_subject *s, uint32_t n)
{
    const struct check_devices *d = &s->claims.devices;

    return !d->n || n > d->n ? TN_COMM_HOST : d->captures ? TN_COMM_RECORD : TN_COMM_STREAM;
}

static void launched_cases(struct check_run *r, struct tn_rank *rank, const struct tn_comm_case *c, uint32_t way)
{
    tn_comm_way = (enum tn_comm_way)way;
    for (; c->name; c++)
        if (rank->size >= c->least && c->rank_fails == NOBODY && fits(c, way)) {
            printf("%s, case \"%s\"\n", way_name[way], c->name);
            tn_comm_case_run(rank, c);
            r->result->variants++;
        }
}

/* A rank that ends in the middle takes all others with it, so a failure says which case it was by what it printed. */
static void launched(struct check_run *r)
{
    const struct check_subject *s = r->subject;
    char folder[120];
    struct tn_rank rank = {.rank = s->rank, .size = s->size};

    mkdir(meeting(s, folder, sizeof folder), 0700);
    tn_comm_folder(folder);
    tn_comm_load(&rank, s->path);
    check_comm_device(&s->claims.devices);
    if (tn_comm_device)
        tn_comm_device->open(&rank, s->local);
    for (uint32_t way = 0; way <= ways(s, 1); way++)
        launched_cases(r, &rank, tn_comm_values, way);
    if (tn_comm_device)
        launched_cases(r, &rank, tn_comm_streams, TN_COMM_HOST);
    if (tn_comm_device)
        tn_comm_device->close(&rank);
    tn_plugins_close();
    if (!s->rank)
        tn_comm_remove(folder);
}

/* --- the list */

/* Cases of streams have their own calls, whatever the way. */
static void add_case(struct check_list *l, const struct tn_comm_case *c, const char *group, uint32_t way, uint32_t n)
{
    char label[64];
    struct check_test *t;
    size_t k = 0;

    for (const char *s = c->name; *s && k + 1 < sizeof label; s++)
        if (*s != ',')
            label[k++] = (char)(*s == ' ' ? '-' : *s);
    label[k] = 0;
    t = check_add(l, run_case, c->name, "%s/%u-rank%s/%s", group, n, s_of(n), label);
    t->with = c, t->number = n * WAYS + way, t->alone = 1, t->limit = 3 * LIMIT;
}

/* By streams on two ranks at most, unless it takes more. */
static void add_cases(struct check_list *l, const struct tn_comm_case *c, uint32_t way, uint32_t n)
{
    for (; c->name; c++)
        if (n >= c->least && fits(c, way) && (!way || n <= 2 || n == c->least))
            add_case(l, c, way_name[way], way, n);
}

/* What goes wrong on two ranks, and what takes three; threads cannot die alone. */
static void add_failures(struct check_list *l, const struct check_subject *s, const struct tn_comm_case *c, const char *group,
                         uint32_t most)
{
    for (; c->name; c++)
        if (c->least <= most && (s->claims.ranks == CHECK_PROCESSES || c->rank_fails == NOBODY))
            add_case(l, c, group, TN_COMM_HOST, c->least);
}

static void list_ranks(struct check_list *l, const struct check_subject *s)
{
    const struct check_devices *d = &s->claims.devices;
    const uint32_t wanted = s->claims.ranks == CHECK_ONE_RANK ? 1 : MOST_RANKS, most = d->n && d->n < wanted ? d->n : wanted;

    for (uint32_t n = 1; n <= most; n++)
        for (uint32_t way = 0; way <= ways(s, n); way++)
            add_cases(l, tn_comm_values, way, n);
    for (uint32_t n = most + 1; n <= wanted; n++)
        check_add(l, too_few, "all cases", "comm/%u-ranks", n);
    if (most > 1)
        add_failures(l, s, tn_comm_failures, "comm", most);
    if (!*d->kind)
        return;
    if (d->n > 1)
        add_failures(l, s, tn_comm_streams, "comm-stream", most);
    else
        check_add(l, too_few, "all cases of streams", "comm-stream");
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
    } else if (ranks == CHECK_LAUNCHED) {
        const int enough = !s->claims.devices.n || s->claims.devices.n >= s->local_size;

        t = check_add(l, enough ? launched : too_few, "all cases of what is right, on the ranks of the launcher", "comm/launched");
        t->alone = 1, t->limit = LAUNCHED_LIMIT;
        if (!s->rank)
            check_add(l, only_right, "what goes wrong on purpose", "comm/failures");
    } else {
        list_ranks(l, s);
    }
    if (ranks == CHECK_ONE_RANK)
        check_add(l, only_one, "several ranks", "comm/ranks");
}
