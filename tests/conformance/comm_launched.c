/* comm_launched.c - the same cases on processes that mpirun has started, for communicators that need it.
 *
 * A start of MPI takes longer than most cases, so one process runs a row of them, each in a world of its own.
 * mpirun ends the others when one process ends without MPI_Finalize, which is right after a failure; so who
 * is through with its cases says so in a file, and leaves when all that are to be left have said it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm.h"

#define SECONDS "90" /* for a row of cases */

static void mark(const char *folder, uint32_t i, uint32_t rank, char *out, size_t size)
{
    snprintf(out, size, "%s/ok.%u.%u", folder, i, rank);
}

static int is_marked(const char *folder, uint32_t i, uint32_t rank)
{
    char path[128];

    mark(folder, i, rank, path, sizeof path);
    return !access(path, F_OK);
}

/* The rank that the case kills, stops or does not start is not asked. */
static int all_marked(const char *folder, const struct tn_comm_case *list, uint32_t i, uint32_t n)
{
    for (uint32_t p = 0; p < n; p++)
        if (list[i].rank_fails != (int32_t)p && !(list[i].rank_fails == LAST_UNSTARTED && p == n - 1) &&
            !is_marked(folder, i, p))
            return 0;
    return 1;
}

/* --- the process: PLUGIN FOLDER LIST FROM TO */

static void run_one(struct tn_rank *r, const char *folder, const struct tn_comm_case *list, uint32_t i)
{
    char path[128];
    FILE *f;

    if (r->size < list[i].least)
        return;
    tn_comm_case_run(r, &list[i]);
    mark(folder, i, r->rank, path, sizeof path);
    if (!(f = fopen(path, "wb")) || fclose(f))
        tn_bench_stop("%s: %s", path, strerror(errno));
}

static uint32_t number_of(const char *name)
{
    const char *text = getenv(name);

    if (!text)
        tn_bench_stop("%s is not set: not started by mpirun", name);
    return (uint32_t)atoi(text);
}

int tn_comm_launched(char **argv)
{
    const struct tn_comm_case *list = tn_comm_list(argv[2]);
    const uint32_t from = (uint32_t)atoi(argv[3]), to = (uint32_t)atoi(argv[4]);
    struct tn_rank r = {.rank = number_of("OMPI_COMM_WORLD_RANK"), .size = number_of("OMPI_COMM_WORLD_SIZE")};
    const struct tn_plugin *p;

    tn_comm_folder(argv[1]);
    if (list[from].rank_fails == LAST_UNSTARTED && r.rank == r.size - 1) {
        for (int i = 0; i < 500 && !all_marked(argv[1], list, from, r.size); i++)
            tn_comm_sleep(0.01); /* there, but without a word */
        return 0;
    }
    p = tn_comm_load(&r, argv[0]);
    for (uint32_t i = from; i < to; i++)
        run_one(&r, argv[1], list, i);
    for (int i = 0; i < 500 && !all_marked(argv[1], list, to - 1, r.size); i++)
        tn_comm_sleep(0.01);
    if (p->stop)
        p->stop();
    return 0;
}

/* --- who starts them */

static int shell(const char *plugin, const char *name, const char *folder, uint32_t n, uint32_t from,
                 uint32_t to)
{
    char self[1000], command[1800];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);

    self[bytes > 0 ? bytes : 0] = 0;
    snprintf(command, sizeof command,
             "timeout -k 1 " SECONDS
             " mpirun --allow-run-as-root --oversubscribe --bind-to none -np %u '%s' launched "
             "%s %s %s %u %u >%s/log 2>&1 </dev/null",
             n, self, plugin, folder, name, from, to, folder);
    return system(command);
}

static void print_log(const char *folder)
{
    char line[600];
    FILE *f;

    snprintf(line, sizeof line, "%s/log", folder);
    if (!(f = fopen(line, "rb")))
        return;
    while (fgets(line, sizeof line, f))
        fprintf(stderr, "  %s", line);
    fclose(f);
}

int tn_comm_launch(const char *plugin, const char *name, uint32_t n, uint32_t from, uint32_t to)
{
    const struct tn_comm_case *list = tn_comm_list(name);
    char folder[64] = "/tmp/tenon-comm-XXXXXX", command[100];
    int failed = 0, status;

    if (!mkdtemp(folder))
        tn_bench_stop("no folder for the store: %s", strerror(errno));
    fflush(NULL);
    status = shell(plugin, name, folder, n, from, to);
    for (uint32_t i = from; i < to; i++)
        if (n >= list[i].least && !all_marked(folder, list, i, n)) {
            printf("FAIL %s, %u ranks: %s\n", plugin, n, list[i].name);
            failed++;
        }
    if (!failed && list == tn_comm_values && status) {
        printf("FAIL %s, %u ranks: mpirun ended with %d\n", plugin, n, WEXITSTATUS(status));
        failed++;
    }
    if (failed || !strcmp(name, "time"))
        print_log(folder);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) ? 1 : failed;
}
