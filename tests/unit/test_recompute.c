/* test_recompute.c - a block's backward from clones of its forward: the same bits, less memory. By ref:
 * test_run.c, where the plan leaves every operation alone; ref carries more bits through what is fused, in
 * one way or the other. */
#include "session_kit.h"

/* Two updates with dropout: all tensors, and the gradients of the second one. */
static void same_bits(const char *kernels)
{
    static const char *const way[] = {"train.recompute=no", "train.recompute=yes"};
    struct session_state s[2];

    for (int i = 0; i < 2; i++) {
        struct session_test t;

        SESSION_BEGIN(&t, TN_SESSION_TRAIN | TN_SESSION_STEP, "model.dropout=0.3", kernels, way[i]);
        for (uint64_t step = 0; step < 2; step++)
            ck_assert(!session_update(&t, step, 0.01).skipped);
        s[i] = session_state(&t, 1);
        session_end(&t);
    }
    ck_assert_uint_eq(s[0].bytes, s[1].bytes);
    for (uint64_t k = 0; k < s[0].bytes / sizeof *s[0].x; k++)
        ck_assert_msg(!memcmp(s[0].x + k, s[1].x + k, sizeof *s[0].x), "number %llu: %g, and %g from clones",
                      (unsigned long long)k, s[0].x[k], s[1].x[k]);
    free(s[0].x);
    free(s[1].x);
}

START_TEST(gradients_are_the_same_bits)
{
    same_bits("backend.kernels=cpu,ref");
}
END_TEST

static const struct tn_node *find(const struct tn_graph *g, uint32_t phase, const char *op, const char *unit)
{
    for (const struct tn_node *n = g->first[phase]; n; n = n->next)
        if (!strcmp(n->op->name, op) && !strcmp(n->unit, unit))
            return n;
    return NULL;
}

/* Nothing that a block makes on its way is read in the backward: what enters it, and weights, are. */
START_TEST(only_what_enters_a_block_is_kept)
{
    struct session_test t;
    const struct tn_graph *g;
    int kept = 0;

    SESSION_BEGIN(&t, TN_SESSION_TRAIN, "model.dropout=0.3", "train.recompute=yes");
    g = tn_session_graph(t.session, TN_SESSION_TRAIN);
    for (const struct tn_node *n = g->first[TN_BACKWARD]; n; n = n->next)
        for (uint32_t i = 0; i < n->n_in; i++) {
            const struct tn_node *p = n->in[i]->producer;

            if (!p || p->phase != TN_FORWARD || !tn_is_unit(p, "block"))
                continue;
            ck_assert_msg(p->unit != n->unit, "node %u %s reads %%%u of its own block", n->id, n->op->name,
                          n->in[i]->id);
            ck_assert_str_eq(p->role, "residual");
            kept++;
        }
    ck_assert_int_gt(kept, 0);
    ck_assert_ptr_nonnull(find(g, TN_BACKWARD, "attention", "block1"));
    ck_assert_ptr_null(find(g, TN_BACKWARD, "layernorm", "head"));
    session_end(&t);
}
END_TEST

static struct tn_plan_report plan_of(const char *way)
{
    struct session_test t;
    struct tn_plan_report r;

    SESSION_BEGIN(&t, TN_SESSION_TRAIN, "model.n_layer=8", "model.n_embd=64", "model.block_size=128",
                  "train.seq_len=128", "train.micro_batch=8", way);
    session_update(&t, 0, 0.01);
    tn_plan_sum(tn_session_plan(t.session, TN_SESSION_TRAIN), &r);
    session_end(&t);
    return r;
}

/* The same run in a process of its own: KiB of memory that it had at most. */
static long measured(const char *way)
{
    struct rusage usage;
    int status;
    pid_t child = fork();

    if (!child) {
        plan_of(way);
        _exit(0);
    }
    ck_assert_int_eq(wait4(child, &status, 0, &usage), child);
    ck_assert(WIFEXITED(status) && !WEXITSTATUS(status));
    return usage.ru_maxrss;
}

START_TEST(memory_is_less_planned_and_measured)
{
    long rss[2] = {measured("train.recompute=no"), measured("train.recompute=yes")};
    struct tn_plan_report keep = plan_of("train.recompute=no"), again = plan_of("train.recompute=yes");
    long planned = ((long)keep.arena - (long)again.arena) / 1024;

    ck_assert_uint_lt(again.arena, keep.arena / 2);
    ck_assert_msg(rss[0] - rss[1] > planned * 8 / 10, "%ld KiB less were planned, %ld -> %ld were measured",
                  planned, rss[0], rss[1]);
    ck_assert(again.flops_backward > keep.flops_backward);
    ck_assert(again.flops_forward == keep.flops_forward);
}
END_TEST

SESSION_MAIN("recompute", 60, gradients_are_the_same_bits, only_what_enters_a_block_is_kept,
             memory_is_less_planned_and_measured)
