/* world.c - a program of several processes, for launch.sh: opens the world, sums, and does what it is told.
 *
 *     world [section.key=value ...]
 *
 * WORLD_DO="what rank": when it comes to its third sum, this rank is stopped ("stop"), killed ("kill"), gives
 * up for a reason of its own ("abandon"), computes for ever ("busy"), ends without a word ("exit") or leaves
 * early
 * ("leave"), or sleeps two seconds ("nap"); "late": it sleeps before it begins; "touch": no rank, each makes
 * the file WORLD_TOUCH when the world is open. A rank that gets through prints "rank R of N: done" with mesh
 * and sums. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/config.h"
#include "base/status.h"
#include "plugin/load.h"
#include "world/world.h"

#define SUMS 5

static const char *what = "";
static int64_t whom = -1;

static int told(const struct tn_world *w, const char *word)
{
    return !strcmp(what, word) && (!w || w->rank == whom);
}

static tn_status sum(struct tn_world *w, struct tn_comm *c, const char *name, uint64_t number, double *x)
{
    struct tn_transfer t = {.op = TN_ALL_REDUCE,
                            .dtype = TN_F64,
                            .reduce = TN_SUM,
                            .from = x,
                            .to = x,
                            .count = 1,
                            .sequence = number};
    struct tn_request *r;
    tn_status s;

    tn_world_waits(w, name, number, -1);
    if ((s = w->comm_api->start(c, &t, 1, NULL, &r)) < 0 || (s = w->comm_api->wait(r, w->timeout)) < 0)
        return tn_world_fail(w, NULL, name, number, -1);
    tn_world_waits(w, NULL, 0, -1);
    return TN_OK;
}

static tn_status obey(struct tn_world *w)
{
    if (told(w, "stop"))
        raise(SIGSTOP);
    if (told(w, "kill"))
        raise(SIGKILL);
    if (told(w, "exit"))
        _exit(3);
    if (told(w, "nap"))
        sleep(2);
    while (told(w, "busy"))
        continue;
    if (told(w, "abandon")) {
        tn_world_abandon(w, "the disk is full");
        return tn_error(TN_ERR_IO, "the disk is full");
    }
    if (told(w, "leave"))
        return tn_error(TN_ERR_NUMBER, "the loss is not finite");
    return TN_OK;
}

static tn_status work(struct tn_world *w)
{
    double all = 0, axes = 0;
    tn_status s = TN_OK;

    tn_world_phase(w, "step", 0);
    for (uint64_t i = 1; i <= SUMS && s == TN_OK; i++) {
        double x = w->rank + 1;
        if (i == 3)
            s = obey(w);
        if (s == TN_OK && w->size > 1)
            s = sum(w, w->comm, "sum", i, &x);
        all = x;
    }
    for (int a = 0; a < TN_AXES && s == TN_OK; a++)
        if (w->group[a]) {
            double x = w->rank + 1;
            s = sum(w, w->group[a], tn_axis_name[a], 1, &x);
            axes = axes * 100 + x;
        }
    if (s == TN_OK)
        printf("rank %u of %u: done, dp %lld tp %lld, sum %g, along the axes %g, local %u of %u, node %u of "
               "%u, %u on its "
               "CPUs\n",
               w->rank, w->size, (long long)w->mesh.size[0], (long long)w->mesh.size[4], all, axes,
               w->place.local_rank, w->place.local_size, w->place.node, w->place.nodes, w->cpu_sharers);
    return s;
}

static void touch(void)
{
    const char *path = getenv("WORLD_TOUCH");
    int fd = path ? open(path, O_CREAT | O_WRONLY, 0644) : -1;

    if (fd >= 0)
        close(fd);
}

static tn_status run(struct tn_config *c)
{
    struct tn_registry *r = NULL;
    struct tn_world *w = NULL;
    tn_status s = tn_registry_open(tn_config_text(c, "plugins.path"), &r);

    if (s == TN_OK)
        s = tn_world_find(r, c, NULL, &w);
    if (s == TN_OK)
        s = tn_config_check(c);
    if (w)
        s = tn_world_join(w, c, s);
    if (s == TN_OK)
        s = tn_world_open(w);
    if (s == TN_OK) {
        touch();
        s = work(w);
    }
    tn_world_close(w);
    tn_registry_close(r);
    return s;
}

int main(int argc, char **argv)
{
    const char *order = getenv("WORLD_DO"), *rank = getenv("RANK");
    static char word[16];
    struct tn_config *c;
    tn_status s;

    if (order && sscanf(order, "%15s %ld", word, &whom) == 2)
        what = word;
    if (told(NULL, "late") && rank && atoi(rank) == whom)
        sleep(2);
    s = tn_config_open(NULL, argc - 1, argv + 1, &c);
    if (s == TN_OK) {
        s = run(c);
        if (s < 0 && !tn_error_is_hushed())
            tn_log(TN_LOG_ERROR, "%s", tn_error_text());
        tn_config_free(c);
    }
    tn_plugins_close();
    fflush(stdout);
    return tn_exit_code(s);
}
