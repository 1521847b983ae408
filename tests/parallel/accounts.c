/* accounts.c - what a plan says of memory and bytes on the wire is what a run takes and sends, on every rank.
 *
 * Ranks are threads with the communicator `local`. The memory that was allocated on the device agrees with
 * the plan within 2 %, and what was handed to the communicator, counted transfer by transfer, is what the
 * plan has for as many updates. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <tenon/bootstrap.h>
#include "base/arena.h"
#include "base/pool.h"
#include "base/status.h"
#include "plan/report.h"
#include "run/wire.h"
#include "train/session.h"

#define MOST_RANKS 8
#define STEPS 3

struct rank {
    struct tn_config *config;
    struct tn_session *session;
    pthread_t thread;
    char error[600];
};

static int failures;
static int32_t tokens[4096], targets[4096];

static void complain(const char *layout, int rank, const char *what, double planned, double measured)
{
    printf("FAIL %s, rank %d: %s: planned %.9g, measured %.9g\n", layout, rank, what, planned, measured);
    failures++;
}

static int open_rank(struct rank *r, const char *layout, int world, int number)
{
    static const char *const usual[] = {"backend.comm=local",  "backend.threads=1",    "model.n_layer=2",
                                        "model.n_head=3",      "model.n_embd=27",      "model.vocab_size=65",
                                        "model.block_size=17", "train.global_batch=12"};
    struct tn_place place = {.struct_size = sizeof place, .rank = (uint32_t)number, .size = (uint32_t)world};
    const struct tn_session_options o = {.use = TN_SESSION_TRAIN};
    char text[1024], *setting[40], *save = NULL;
    int n = 0;

    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        setting[n++] = (char *)(uintptr_t)usual[i];
    snprintf(text, sizeof text, "%s", layout);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        setting[n++] = word;
    tn_pool_stop();
    if (!tn_config_open(NULL, n, setting, &r->config) &&
        !tn_session_configure_at(r->config, &place, &r->session) && !tn_session_open(r->session, &o) &&
        !tn_session_initialize(r->session, 5))
        return 1;
    printf("FAIL %s, rank %d does not open: %s\n", layout, number, tn_error_text());
    failures++;
    return 0;
}

static void *train(void *arg)
{
    struct rank *r = arg;
    struct tn_session_result out;

    for (uint64_t i = 0; i < STEPS && !*r->error; i++)
        if (tn_session_update(r->session, i, tokens, targets, 1e-3, &out))
            snprintf(r->error, sizeof r->error, "%.500s", tn_error_text());
    return NULL;
}

static void check_memory(const char *layout, int number, const struct rank *r)
{
    struct tn_plan_report report;
    double planned, measured = (double)tn_session_allocated(r->session);

    tn_plan_sum(tn_session_plan(r->session, TN_SESSION_TRAIN), &report);
    planned = (double)report.total;
    if (!(fabs(planned - measured) <= 0.02 * measured))
        complain(layout, number, "bytes of memory", planned, measured);
}

static void check_wire(const char *layout, int number, const struct rank *r)
{
    struct tn_arena *a = tn_arena_new();
    struct tn_wire *w;
    uint32_t n;

    tn_wire_list(tn_session_plan(r->session, TN_SESSION_TRAIN), a, &w, &n);
    for (int axis = 0; axis < TN_AXES; axis++) {
        double planned = STEPS * tn_wire_bytes(w, n, tn_axis_name[axis]),
               measured = tn_session_sent(r->session, axis);
        int has_ranks = tn_session_shape(r->session)->mesh.size[axis] > 1;

        if (!(fabs(planned - measured) <= 1e-9 * planned))
            complain(layout, number, tn_axis_name[axis], planned, measured);
        if (has_ranks != (measured > 0))
            complain(layout, number, "an axis that sends nothing", planned, measured);
    }
    tn_arena_free(a);
}

static void check(int world, const char *layout)
{
    struct rank r[MOST_RANKS] = {0};
    int before = failures, opened = 0;

    while (opened < world && open_rank(&r[opened], layout, world, opened))
        opened++;
    for (int i = 0; i < world && opened == world; i++)
        pthread_create(&r[i].thread, NULL, train, &r[i]);
    for (int i = 0; i < world && opened == world; i++)
        pthread_join(r[i].thread, NULL);
    for (int i = 0; i < world && opened == world; i++) {
        if (*r[i].error) {
            printf("FAIL %s, rank %d: %s\n", layout, i, r[i].error);
            failures++;
            continue;
        }
        check_memory(layout, i, &r[i]);
        check_wire(layout, i, &r[i]);
    }
    for (int i = 0; i < opened; i++) {
        tn_session_close(r[i].session);
        tn_config_free(r[i].config);
    }
    if (failures == before)
        printf("ok   %d ranks: %s\n", world, layout);
    fflush(stdout);
}

int main(void)
{
    for (int i = 0; i < 12 * 17; i++)
        tokens[i] = i % 65, targets[i] = (i * 7) % 65;
    check(2, "parallel.dp=2");
    check(3, "parallel.zero=1 train.micro_batch=2");
    check(3, "parallel.zero=2 train.micro_batch=2 backend.debug=yes");
    check(2, "parallel.zero=3 train.micro_batch=3");
    check(3, "parallel.tp=3 parallel.sp=yes backend.debug=yes");
    check(2, "parallel.tp=2 optimizer.name=sgd");
    check(3, "parallel.cp=3 parallel.zigzag=yes backend.debug=yes");
    check(2, "parallel.cp=2 parallel.zigzag=no");
    check(4, "parallel.dp=2 parallel.tp=2 parallel.sp=yes parallel.zero=3");
    check(8,
          "parallel.dp=2 parallel.tp=2 parallel.cp=2 parallel.zero=2 train.micro_batch=2 backend.debug=yes");
    printf("%d failures\n", failures);
    return failures != 0;
}
