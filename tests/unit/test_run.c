/* test_run.c - the executor: every optimization of the plan leaves the numbers alone, any split into
 * micro-batches gives one gradient, a step allocates nothing, and what is not finite is found. */
#include <malloc.h>
#include <tenon/philox.h>
#include "plan_kit.h"

/* --- allocations are counted while `counting`; the sanitizers have an allocator of their own, so not there
 */
#ifdef __SANITIZE_ADDRESS__
#define COUNTED 0
#else
#define COUNTED 1
#endif
static int counting, allocations;
#if COUNTED
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t k);
extern void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n)
{
    allocations += counting;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t k)
{
    allocations += counting;
    return __libc_calloc(n, k);
}
void *realloc(void *p, size_t n)
{
    allocations += counting;
    return __libc_realloc(p, n);
}
#endif

static void *(*volatile allocate)(size_t n) = malloc; /* so that no compiler leaves it out */

#define TOKENS 40 /* 8 sequences of 5 */

/* Everything that a step leaves behind, in one list of floats. */
struct trace {
    float x[20000];
    uint32_t n;
};

static void add(struct trace *t, const float *x, uint64_t bytes)
{
    ck_assert_uint_le(t->n + bytes / 4, sizeof t->x / sizeof *t->x);
    memcpy(t->x + t->n, x, bytes);
    t->n += (uint32_t)(bytes / 4);
}

static void add_memory(struct trace *t, struct tn_memory *m)
{
    float x[4096];
    const char *name;
    uint64_t bytes;

    for (uint32_t k = 0; (name = tn_memory_name(m, k, &bytes)); k++) {
        ck_assert_uint_le(bytes, sizeof x);
        ck_assert_int_eq(tn_memory_read(m, name, x, bytes), TN_OK);
        add(t, x, bytes);
    }
}

static void add_gradients(struct trace *t, struct tn_run *run, struct tn_graph *g, const struct tn_plan *plan)
{
    float x[4096];

    for (struct tn_value *p = g->params; p; p = p->next) {
        ck_assert_msg(!tn_run_read(run, p->param->grad, 0, x, tn_plan_bytes(plan, p->param->grad)), "%s",
                      tn_error_text());
        add(t, x, tn_plan_bytes(plan, p->param->grad));
    }
}

static uint32_t gradients(struct tn_graph *g, struct tn_value **out)
{
    uint32_t n = 0;

    for (struct tn_value *p = g->params; p; p = p->next)
        out[n++] = p->param->grad;
    return n;
}

struct setup {
    int64_t micro;
    double dropout;
    int tied, keep, recompute;
    const char *without; /* op */
    struct tn_plan_options o;
    const struct tn_kernels *kernels;
};

/* Two steps; loss, norm, gradients if kept, parameters and states. */
static void train(const struct setup *s, struct trace *out)
{
    struct tn_graph *g = kit_gpt2(s->micro, 8 / s->micro, s->dropout, s->tied, s->without);
    struct tn_plan_options o = s->o;
    struct tn_value *keep[64];
    struct tn_memory *m = kit_memory();
    struct tn_plan *plan;
    struct tn_run *run;

    if (s->recompute)
        ck_assert(!tn_graph_recompute(g) && !tn_graph_verify(g));
    out->n = 0;
    o.n_micro = (uint32_t)s->micro;
    o.keep = keep;
    o.n_keep = s->keep ? gradients(g, keep) : 0;
    plan = kit_plan(g, s->kernels, &o);
    ck_assert_msg(!tn_run_open(plan, m, 10, &run), "%s", tn_error_text());
    kit_fill(m);
    for (int step = 0; step < 2; step++) {
        kit_batch(run, TOKENS, 13);
        tn_run_symbol(run, "lr", 0.01);
        tn_run_symbol(run, "t", step + 1);
        tn_run_seed(run, 42, (uint64_t)step);
        ck_assert_msg(!tn_run_step(run), "%s", tn_error_text());
        float x[2] = {kit_scalar(run, g, "loss"), kit_scalar(run, g, "gnorm")};
        add(out, x, sizeof x);
        if (s->keep)
            add_gradients(out, run, g, plan);
    }
    add_memory(out, m);
    tn_run_close(run);
    tn_memory_free(m);
    tn_plan_free(plan);
    tn_graph_free(g);
}

static void same(const struct trace *a, const struct trace *b, double tolerance, const char *what)
{
    ck_assert_uint_eq(a->n, b->n);
    for (uint32_t i = 0; i < a->n; i++) {
        double d = fabs((double)a->x[i] - b->x[i]);
        ck_assert_msg(d <= tolerance * (1e-3 + fabs((double)b->x[i])), "%s: number %u is %g, expected %g",
                      what, i, a->x[i], b->x[i]);
    }
}

static struct trace plain, other;

START_TEST(optimizations_leave_numbers_alone)
{
    struct setup s = {.dropout = 0.2};
    char what[64];

    for (s.micro = 1; s.micro <= 4; s.micro *= 4)
        for (s.tied = 0; s.tied < 2; s.tied++) {
            s.o = (struct tn_plan_options){.no_fuse = 1, .no_inplace = 1, .no_alias = 1, .no_remake = 1};
            train(&s, &plain);
            ck_assert(isfinite(plain.x[0]) && plain.x[0] > 1);
            for (uint32_t bits = 0; bits < 15; bits++) {
                s.o = (struct tn_plan_options){.no_fuse = bits & 1,
                                               .no_inplace = bits >> 1 & 1,
                                               .no_alias = bits >> 2 & 1,
                                               .no_remake = bits >> 3 & 1};
                train(&s, &other);
                snprintf(what, sizeof what, "micro %d tied %d options %u", (int)s.micro, s.tied, bits);
                same(&other, &plain, 2e-4, what);
            }
        }
}
END_TEST

/* Clones of the forward draw the same masks: the same bits where every operation is a launch of its own. */
START_TEST(recomputing_gives_the_same_bits)
{
    struct setup s = {.micro = 2, .dropout = 0.3, .tied = 1, .keep = 1, .o = {.no_fuse = 1, .no_remake = 1}};

    for (int base = 0; base < 2; base++) {
        s.without = base ? "attention" : NULL;
        s.recompute = 0;
        train(&s, &plain);
        s.recompute = 1;
        train(&s, &other);
        same(&other, &plain, 0, base ? "recomputed from base operations" : "recomputed");
    }
}
END_TEST

START_TEST(base_operations_give_the_same)
{
    static const char *const without[] = {"attention", "head", "layernorm"};
    struct setup s = {.micro = 2, .tied = 1};

    train(&s, &plain);
    for (int i = 0; i < 3; i++) {
        s.without = without[i];
        train(&s, &other);
        same(&other, &plain, 1e-3, without[i]);
    }
}
END_TEST

START_TEST(any_accumulation_gives_one_gradient)
{
    struct setup s = {.micro = 1, .tied = 1, .keep = 1};

    train(&s, &plain);
    for (s.micro = 2; s.micro <= 8; s.micro *= 2) {
        train(&s, &other);
        same(&other, &plain, 1e-3, "accumulation");
    }
}
END_TEST

/* Refuses strides, added sums, fused epilogues: each costs copies, none the result. */
static int no_gaps(const struct tn_problem *p)
{
    for (uint32_t i = 0; i < p->n_in; i++)
        if (!tn_contiguous(&p->in[i]))
            return 1;
    for (uint32_t i = 0; i < p->n_out; i++)
        if (!tn_contiguous(&p->out[i]))
            return 1;
    return 0;
}
static int no_gaps_but_copy(const struct tn_problem *p)
{
    return strcmp(p->op, "copy") && no_gaps(p);
}
static int no_adding(const struct tn_problem *p)
{
    return strcmp(p->op, "accum") && p->accumulate;
}
static int neither(const struct tn_problem *p)
{
    return no_adding(p) || no_gaps_but_copy(p);
}
static int no_epilogue(const struct tn_problem *p)
{
    return p->program && !strcmp(p->op, "einsum");
}

START_TEST(refusals_cost_copies_not_results)
{
    static int (*const refusal[])(const struct tn_problem *p) = {no_gaps_but_copy, no_adding, neither,
                                                                 no_epilogue};
    struct setup s = {.micro = 2, .tied = 1, .kernels = kit_picky()};

    kit_refuses = NULL;
    train(&s, &plain);
    for (int i = 0; i < 4; i++) {
        kit_refuses = refusal[i];
        train(&s, &other);
        same(&other, &plain, 2e-4, "refusal");
        ck_assert_int_eq(kit_live, 0);
    }
    kit_refuses = NULL;
}
END_TEST

START_TEST(a_step_allocates_nothing)
{
    struct tn_graph *g = kit_gpt2(2, 4, 0.1, 1, NULL);
    struct tn_plan *plan = kit_plan(g, NULL, &(struct tn_plan_options){.n_micro = 2});
    struct tn_memory *m = kit_memory();
    struct tn_run *run;
    tn_status status[3];

    ck_assert_int_eq(tn_run_open(plan, m, 10, &run), TN_OK);
    kit_fill(m);
    kit_batch(run, TOKENS, 13);
    counting = 1;
    free(allocate(1)); /* the counter counts */
    status[0] = tn_run_step(run);
    status[1] = tn_run_compute(run);
    status[2] = tn_run_update(run);
    counting = 0;
    ck_assert_int_eq(allocations, COUNTED);
    ck_assert(!status[0] && !status[1] && !status[2]);
    tn_run_close(run);
    tn_memory_free(m);
    tn_plan_free(plan);
    tn_graph_free(g);
}
END_TEST

START_TEST(compute_then_update_is_a_step)
{
    struct tn_graph *g = kit_gpt2(2, 4, 0, 1, NULL);
    struct tn_plan *plan = kit_plan(g, NULL, &(struct tn_plan_options){.n_micro = 2});
    struct tn_memory *m = kit_memory();
    double seconds[1000] = {0}, total = 0;
    struct tn_run *run;

    ck_assert_int_eq(tn_run_open(plan, m, 10, &run), TN_OK);
    for (int way = 0; way < 3; way++) {
        struct trace *t = way ? &other : &plain;
        kit_fill(m);
        kit_batch(run, TOKENS, 13);
        tn_run_symbol(run, "lr", 0.01);
        tn_run_symbol(run, "t", 1);
        if (way == 0)
            ck_assert_int_eq(tn_run_step(run), TN_OK);
        if (way == 1) {
            plain.n = 0;
            add_memory(&plain, m);
            other.n = 0;
            ck_assert_int_eq(tn_run_compute(run), TN_OK);
            add_memory(&other, m);
            same(&other, &plain, 0, "compute changes nothing");
            ck_assert_int_eq(tn_run_update(run), TN_OK);
        }
        if (way == 2) {
            ck_assert_uint_lt(plan->n_row, 1000);
            ck_assert_int_eq(tn_run_step_timed(run, seconds), TN_OK);
        }
        t->n = 0;
        add_memory(t, m);
        if (way == 1) {
            kit_fill(m);
            kit_batch(run, TOKENS, 13);
            ck_assert_int_eq(tn_run_step(run), TN_OK);
            plain.n = 0;
            add_memory(&plain, m);
        }
        if (way)
            same(t, &plain, 0, "halves");
    }
    for (uint32_t r = 0; r < plan->n_row; r++)
        total += seconds[r];
    ck_assert(total > 0);
    tn_run_close(run);
    tn_memory_free(m);
    tn_plan_free(plan);
    tn_graph_free(g);
}
END_TEST

START_TEST(names_the_first_that_is_not_finite)
{
    struct tn_graph *g = kit_gpt2(2, 4, 0, 1, NULL);
    struct tn_plan *plan = kit_plan(g, NULL, &(struct tn_plan_options){.n_micro = 2});
    struct tn_memory *m = kit_memory();
    float huge[8] = {3e38f, 3e38f, -3e38f, 3e38f, 1, 1, 1, 1}, w[8];
    const char *name = "transformer.h.1.ln_2.weight";
    struct tn_bad bad;
    struct tn_run *run;
    int finite;

    ck_assert_int_eq(tn_run_open(plan, m, 10, &run), TN_OK);
    kit_fill(m);
    kit_batch(run, TOKENS, 13);
    ck_assert_int_eq(tn_run_compute(run), TN_OK);
    ck_assert_int_eq(tn_run_finite(run, tn_graph_find_output(g, "loss"), &finite), TN_OK);
    ck_assert_int_eq(finite, 1);
    ck_assert_int_eq(tn_run_first_nonfinite(run, &bad), TN_OK);
    ck_assert_ptr_null(bad.value);
    ck_assert_int_eq(tn_memory_read(m, name, w, sizeof w), TN_OK);
    ck_assert_int_eq(tn_memory_write(m, name, huge, sizeof huge), TN_OK);
    ck_assert_int_eq(tn_run_compute(run), TN_OK);
    ck_assert_int_eq(tn_run_finite(run, tn_graph_find_output(g, "loss"), &finite), TN_OK);
    ck_assert_int_eq(finite, 0);
    ck_assert_int_eq(tn_run_first_nonfinite(run, &bad), TN_OK);
    ck_assert_ptr_nonnull(bad.row);
    ck_assert_str_eq(bad.row->node->unit, "block1");
    ck_assert_str_eq(bad.row->op, "layernorm");
    ck_assert_int_eq(bad.micro, 0);
    ck_assert(!isfinite(bad.number));
    w[5] = NAN;
    ck_assert_int_eq(tn_memory_write(m, name, w, sizeof w), TN_OK);
    ck_assert_int_eq(tn_run_first_nonfinite(run, &bad), TN_OK);
    ck_assert_ptr_null(bad.row);
    ck_assert_str_eq(bad.value->name, name);
    ck_assert_int_eq(bad.element, 5);
    tn_run_close(run);
    tn_memory_free(m);
    tn_plan_free(plan);
    tn_graph_free(g);
}
END_TEST

/* Two plans over the same parameters: the second finds them, shares the arena if it was reserved, and a graph
 * that has another shape for a name is refused. */
START_TEST(plans_share_memory)
{
    struct tn_graph *g = kit_graph(), *h = kit_graph(), *wrong = kit_graph();
    struct tn_memory *m = kit_memory();
    struct tn_plan *plan[3];
    struct tn_run *run[3];
    float w[6] = {1, 2, 3, 4, 5, 6}, x[6], y;
    uint64_t before;

    tn_add(g, "assign",
           TN_IN(kit_param(g, "w", 2, DIMS("a", "b"), SIZES(2, 3)), tn_expr(g, "2*a", TN_IN(g->params))),
           TN_NONE);
    struct tn_value *p = kit_param(h, "w", 2, DIMS("a", "b"), SIZES(2, 3));
    tn_graph_output(h, "sum",
                    tn_add(h, "sum", TN_IN(tn_expr(h, "a*a", TN_IN(p))),
                           TN_WITH({"out", TN_ATTR_NAMES, 0, {.names = NULL}})));
    p = kit_param(wrong, "w", 2, DIMS("a", "b"), SIZES(3, 2));
    tn_graph_output(wrong, "sum",
                    tn_add(wrong, "sum", TN_IN(p), TN_WITH({"out", TN_ATTR_NAMES, 0, {.names = NULL}})));
    plan[0] = kit_plan(g, NULL, NULL);
    plan[1] = kit_plan(h, NULL, NULL);
    plan[2] = kit_plan(wrong, NULL, NULL);
    tn_memory_reserve(m, plan[1]);
    ck_assert_int_eq(tn_run_open(plan[0], m, 10, &run[0]), TN_OK);
    before = tn_memory_bytes(m);
    ck_assert_int_eq(tn_run_open(plan[1], m, 10, &run[1]), TN_OK);
    ck_assert_uint_eq(tn_memory_bytes(m), before);
    ck_assert_int_eq(tn_run_open(plan[2], m, 10, &run[2]), TN_ERR_SHAPE);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "w:"));
    ck_assert_int_eq(tn_memory_write(m, "w", w, sizeof w), TN_OK);
    ck_assert_int_eq(tn_run_step(run[0]), TN_OK);
    ck_assert_int_eq(tn_run_step(run[1]), TN_OK);
    ck_assert_int_eq(tn_memory_read(m, "w", x, sizeof x), TN_OK);
    for (int i = 0; i < 6; i++)
        ck_assert(x[i] == 2 * w[i]);
    ck_assert_int_eq(tn_run_read(run[1], tn_graph_find_output(h, "sum"), 0, &y, 4), TN_OK);
    ck_assert(y == 4 * 91);
    ck_assert_int_eq(tn_memory_read(m, "w", x, 8), TN_ERR_SHAPE);
    ck_assert_int_eq(tn_memory_read(m, "v", x, 8), TN_ERR);
    tn_run_close(run[0]);
    tn_run_close(run[1]);
    tn_memory_free(m);
    for (int i = 0; i < 3; i++)
        tn_plan_free(plan[i]);
    tn_graph_free(g);
    tn_graph_free(h);
    tn_graph_free(wrong);
}
END_TEST

/* Learning rate, number of the step, seed: each kernel gets its own. */
START_TEST(numbers_of_the_step_arrive)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x = tn_graph_input(g, "x", TN_F32, 2, DIMS("batch", "a"), SIZES(2, 8), 1), *y[3];
    struct tn_memory *m = kit_memory();
    struct tn_plan *plan;
    struct tn_run *run;
    float in[32], out[16];

    y[0] = tn_add(g, "expr", TN_IN(x), TN_WITH(TN_TEXT("f", "a*lr"), TN_NAMES("uniform", "lr")));
    y[1] = tn_add(g, "expr", TN_IN(x), TN_WITH(TN_TEXT("f", "a*(t*t) + lr"), TN_NAMES("uniform", "lr", "t")));
    y[2] = tn_add(g, "dropout", TN_IN(x), TN_WITH({"p", TN_ATTR_FLOAT, 1, {.f = 0.5}}, TN_INT("key", 77)));
    plan = kit_plan(g, NULL, &(struct tn_plan_options){.n_micro = 2, .keep = y, .n_keep = 3});
    ck_assert_int_eq(tn_run_open(plan, m, 10, &run), TN_OK);
    for (int i = 0; i < 32; i++)
        in[i] = (float)i + 1;
    ck_assert_int_eq(tn_run_input(run, "x", in, sizeof in), TN_OK);
    for (uint64_t step = 1; step < 3; step++) {
        tn_run_symbol(run, "lr", 0.5 * (double)step);
        tn_run_symbol(run, "t", 3);
        tn_run_seed(run, 5 + (1ull << 40), step);
        ck_assert_int_eq(tn_run_step(run), TN_OK);
        for (uint32_t micro = 0; micro < 2; micro++)
            for (uint32_t k = 0; k < 3; k++) {
                ck_assert_int_eq(tn_run_read(run, y[k], micro, out, sizeof out), TN_OK);
                for (uint32_t i = 0; i < 16; i++) {
                    float a = in[16 * micro + i], lr = 0.5f * (float)step;
                    int kept =
                        tn_philox_at(5 + (1ull << 40), 77, step, 16 * micro + i) >= tn_dropout_threshold(0.5);
                    ck_assert(out[i] == (k == 0 ? a * lr : k == 1 ? a * 9 + lr : kept ? 2 * a : 0));
                }
            }
    }
    tn_run_close(run);
    tn_memory_free(m);
    tn_plan_free(plan);
    tn_graph_free(g);
}
END_TEST

/* What is made anew in each micro-batch and kept is kept for all of them, under every optimization. */
START_TEST(keeps_every_micro_batch)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x = tn_graph_input(g, "x", TN_F32, 2, DIMS("batch", "a"), SIZES(2, 3), 1);
    struct tn_value *y = tn_expr(g, "2*a", TN_IN(x)), *z = tn_expr(g, "a + 1", TN_IN(y)), *sum;
    float in[18], out[6], total;
    struct tn_value *keep[2] = {y, z};
    struct tn_memory *m = kit_memory();
    struct tn_plan *plan;
    struct tn_run *run;

    sum = tn_add(g, "accum",
                 TN_IN(tn_add(g, "sum", TN_IN(z), TN_WITH({"out", TN_ATTR_NAMES, 0, {.names = NULL}}))),
                 TN_NONE);
    tn_graph_output(g, "sum", sum);
    plan = kit_plan(g, NULL, &(struct tn_plan_options){.n_micro = 3, .keep = keep, .n_keep = 2});
    ck_assert_int_eq(tn_run_open(plan, m, 10, &run), TN_OK);
    for (int i = 0; i < 18; i++)
        in[i] = (float)i;
    ck_assert_int_eq(tn_run_input(run, "x", in, sizeof in), TN_OK);
    ck_assert_int_eq(tn_run_input(run, "x", in, 24), TN_ERR_SHAPE);
    ck_assert_int_eq(tn_run_input(run, "q", in, 24), TN_ERR);
    ck_assert_int_eq(tn_run_step(run), TN_OK);
    for (uint32_t micro = 0; micro < 3; micro++) {
        ck_assert_int_eq(tn_run_read(run, y, micro, out, sizeof out), TN_OK);
        for (int i = 0; i < 6; i++)
            ck_assert(out[i] == 2 * in[6 * micro + i]);
        ck_assert_int_eq(tn_run_read(run, z, micro, out, sizeof out), TN_OK);
        for (int i = 0; i < 6; i++)
            ck_assert(out[i] == 2 * in[6 * micro + i] + 1);
        ck_assert_int_eq(tn_run_read(run, x, micro, out, sizeof out), TN_OK);
        ck_assert(out[5] == in[6 * micro + 5]);
    }
    ck_assert_int_eq(tn_run_read(run, z, 3, out, sizeof out), TN_ERR_SHAPE);
    ck_assert_int_eq(tn_run_read(run, sum, 0, &total, sizeof total), TN_OK);
    ck_assert(total == 2 * 153 + 18);
    tn_run_close(run);
    tn_memory_free(m);
    tn_plan_free(plan);
    tn_graph_free(g);
}
END_TEST

KIT_MAIN("run", optimizations_leave_numbers_alone, recomputing_gives_the_same_bits, base_operations_give_the_same,
         any_accumulation_gives_one_gradient, refusals_cost_copies_not_results, a_step_allocates_nothing,
         compute_then_update_is_a_step, names_the_first_that_is_not_finite, plans_share_memory,
         numbers_of_the_step_arrive, keeps_every_micro_batch)
