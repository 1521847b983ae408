/* comm_ranks.c - how the ranks of a communicator can be had: tried, with a sum of two.
 *
 * Ranks are processes of this host that meet in a store of files. Where those find each other but nothing arrives, they
 * are threads; where a world of two is refused, there is one; where the plugin wants a launcher, its ranks are those of
 * mpirun or srun. */
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "comm.h"
#include "suite.h"

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

/* Whether it ended with 0. In a process of its own, as it may end that, and as a GPU that was asked survives no fork. */
static int apart(void (*what)(struct check_run *r, struct check_claims *out), struct check_run *r, struct check_claims *out)
{
    const pid_t pid = fork();
    int status = 1;

    if (!pid) {
        alarm(10);
        what(r, out);
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

static void threads(struct check_run *r, struct check_claims *out)
{
    (void)out;
    tn_comm_run_threads(r->subject->path, &trial, 2);
}

static void probe(struct check_run *r, struct check_claims *out)
{
    const struct tn_comm_api *api = check_table(r, TN_COMM_ID);
    uint32_t score = 0;

    if (api->probe(&score, out->why, sizeof out->why) < 0 || !score)
        _exit(1);
}

void check_ranks(struct check_run *r, struct check_claims *out)
{
    int status[2] = {0}, refused = 1;

    check_comm_devices(r, out);
    out->ranks = CHECK_LAUNCHED;
    if (r->subject->size > 1)
        return;
    out->ranks = CHECK_PROCESSES;
    if (out->devices.n == 1)                     /* so there cannot be two */
        return;
    tn_comm_root("/tmp");
    tn_comm_fork(r->subject->path, &trial, 2, status);
    if (!status[0] && !status[1])
        return;
    for (int i = 0; i < 2; i++)
        refused &= WIFEXITED(status[i]) && WEXITSTATUS(status[i]) == REFUSED;
    if (refused)
        out->ranks = apart(probe, r, out) ? CHECK_ONE_RANK : CHECK_UNLAUNCHED;
    else if (apart(threads, r, out))
        out->ranks = CHECK_THREADS;
}
