/* test_plan.c - what a plan decides, on graphs small enough to see it. */
#include "plan_kit.h"
#include "plan/planner.h"

#define NO_DIMS TN_WITH({"out", TN_ATTR_NAMES, 0, {.names = NULL}})

static struct tn_value *input(struct tn_graph *g, const char *name)
{
    return tn_graph_input(g, name, TN_F32, 2, DIMS("batch", "a"), SIZES(4, 6), 0);
}

static void finish(struct tn_graph *g, struct tn_plan *plan)
{
    tn_plan_free(plan);
    tn_graph_free(g);
}

static const struct tn_row *row(const struct tn_plan *plan, const char *op)
{
    for (uint32_t i = 0; i < plan->n_row; i++)
        if (!strcmp(plan->row[i].op, op))
            return &plan->row[i];
    ck_abort_msg("no launch of %s", op);
    return NULL;
}

/* --- loops */

START_TEST(loops_merge)
{
    const int64_t size[] = {2, 3, 1, 5}, x[] = {15, 5, 5, 1}, y[] = {45, 15, 15, 3};
    struct tn_operand in = {.rank = 4, .size = size, .stride = x, .dim = DIMS("a", "b", "c", "d")}, out = in,
                      part = in;
    struct tn_loop loop[16];
    uint32_t n, reduced;

    ck_assert_int_eq(tn_nest(&in, 1, &out, 1, 1, loop, 16, &n, &reduced), TN_OK);
    ck_assert_uint_eq(n, 1);
    ck_assert_int_eq(loop[0].size, 30);
    ck_assert_int_eq(tn_nest(&in, 1, &out, 1, 0, loop, 16, &n, &reduced), TN_OK);
    ck_assert_uint_eq(n, 4);
    part.stride = y; /* every third element: still one loop */
    ck_assert_int_eq(tn_nest(&part, 1, &out, 1, 1, loop, 16, &n, &reduced), TN_OK);
    ck_assert_uint_eq(n, 1);
    ck_assert_int_eq(loop[0].stride[0], 3);
    out.rank = 2; /* c and d are reduced: not merged with a and b */
    out.stride = (const int64_t[]){3, 1};
    ck_assert_int_eq(tn_nest(&in, 1, &out, 1, 1, loop, 16, &n, &reduced), TN_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(reduced, 1);
    ck_assert_int_eq(loop[0].size, 6);
    ck_assert_int_eq(loop[1].size, 5);
    ck_assert_int_eq(loop[1].stride[1], 0);
    out.size = (const int64_t[]){2, 4};
    ck_assert_int_eq(tn_nest(&in, 1, &out, 1, 1, loop, 16, &n, &reduced), TN_ERR_SHAPE);
}
END_TEST

/* --- what a kernel is told: seen by a plugin that looks and then refuses nothing */

static struct seen {
    int64_t causal, micro_dim, size, whole, origin, third, n_loop;
    int has_index;
} seen;
static const char *looked_for;

static int look(const struct tn_problem *p)
{
    uint32_t k = strcmp(p->op, "attention") ? 0 : 3;

    if (strcmp(p->op, looked_for))
        return 0;
    seen = (struct seen){.causal = tn_problem_int(p, "causal", -1),
                         .micro_dim = tn_problem_int(p, "micro_dim", -2),
                         .size = p->in[k].size[0],
                         .whole = p->in[k].whole[0],
                         .origin = p->in[k].origin[0],
                         .third = tn_global(&p->in[k], 0, 2),
                         .has_index = p->in[k].index && p->in[k].index[0],
                         .n_loop = p->n_loop};
    return 0;
}

static void plan_at(struct tn_graph *g, const struct tn_mesh *m, const char *op)
{
    struct tn_plan_kernels k = {"look", kit_picky()};
    struct tn_plan_options o = {.kernels = &k, .n_kernels = 1};
    struct tn_plan *plan;

    looked_for = op;
    kit_refuses = look;
    ck_assert_msg(!tn_plan_new(g, m, &o, &plan), "%s", tn_error_text());
    kit_refuses = NULL;
    tn_plan_free(plan);
}

/* Second of two ranks; the sequence of 8 is whole, cut in two, or cut zig-zag. */
static void see_attention(const char *cut)
{
    struct tn_mesh m = tn_mesh_single();
    struct tn_value *in[5];
    struct tn_graph *g;

    m.size[tn_axis_find("cp")] = 2;
    m.coord[tn_axis_find("cp")] = 1;
    tn_host = &tn_host_table;
    g = tn_graph_new(&m);
    tn_at_end(g, TN_FORWARD, "unit");
    for (int i = 0; i < 3; i++)
        in[i] = tn_graph_input(g,
                               i == 0   ? "q"
                               : i == 1 ? "k"
                                        : "v",
                               TN_F32, 4, DIMS("batch", "seq", "heads", "head_dim"), SIZES(2, 8, 2, 3), 0);
    in[3] = in[4] = tn_graph_positions(g, "seq", 8);
    for (int i = 0; i < 4 && cut; i++)
        tn_set_layout(in[i], "cp", tn_layout_shard(g, "seq", cut, 0));
    tn_graph_output(
        g, "o",
        tn_add(g, "attention", in, 5, TN_WITH({"scale", TN_ATTR_FLOAT, 1, {.f = 1}}, TN_TEXT("ring", "cp"))));
    plan_at(g, &m, "attention");
    tn_graph_free(g);
}

START_TEST(attention_is_told_of_positions)
{
    see_attention(NULL);
    ck_assert_int_eq(seen.causal, 1);
    ck_assert_int_eq(seen.micro_dim, 0);
    ck_assert_int_eq(seen.size, 8);
    see_attention("");
    ck_assert_int_eq(seen.causal, 0);
    ck_assert_int_eq(seen.size, 4);
    ck_assert_int_eq(seen.whole, 8);
    ck_assert_int_eq(seen.origin, 4);
    ck_assert_int_eq(seen.has_index, 0);
    see_attention("zigzag");
    ck_assert_int_eq(seen.causal, 0);
    ck_assert_int_eq(seen.size, 4);
    ck_assert_int_eq(seen.has_index, 1);
    ck_assert_int_eq(seen.third, 4); /* it holds 2, 3, 4, 5 */
}
END_TEST

/* The second of two chunks of 15 elements is one dim of 7 from the 8th on. */
START_TEST(chunks_are_flat)
{
    struct tn_mesh m = tn_mesh_single();
    struct tn_value *w;
    struct tn_graph *g;

    m.size[tn_axis_find("dp")] = 2;
    m.coord[tn_axis_find("dp")] = 1;
    tn_host = &tn_host_table;
    g = tn_graph_new(&m);
    w = kit_param(g, "w", 2, DIMS("a", "b"), SIZES(3, 5));
    tn_set_layout(w, "dp", TN_F);
    tn_at_end(g, TN_AFTER, "unit");
    tn_add(g, "assign", TN_IN(w, tn_expr(g, "2*a", TN_IN(w))), TN_NONE);
    plan_at(g, &m, "expr");
    ck_assert_int_eq(seen.size, 7);
    ck_assert_int_eq(seen.whole, 15);
    ck_assert_int_eq(seen.origin, 8);
    ck_assert_int_eq(seen.n_loop, 1);
    tn_graph_free(g);
}
END_TEST

/* --- fusing */

START_TEST(linear_gelu_is_one_launch)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x = input(g, "x"), *w = kit_param(g, "w", 2, DIMS("o", "a"), SIZES(5, 6)),
                    *b = kit_param(g, "b", 1, DIMS("o"), SIZES(5));
    struct tn_value *u = tn_expr(
        g, "a + b", TN_IN(tn_add(g, "einsum", TN_IN(x, w), TN_WITH(TN_NAMES("out", "batch", "o"))), b));
    struct tn_value *y = tn_expr(g, "gelu(a)", TN_IN(u)), *sum, *later;

    sum = tn_add(g, "sum", TN_IN(y), NO_DIMS);
    later = tn_add(g, "sum", TN_IN(u), NO_DIMS);
    tn_graph_output(g, "y", sum);
    tn_graph_output(g, "u", later);
    struct tn_plan *plan = kit_plan(g, NULL, NULL);
    ck_assert_uint_eq(plan->n_row, 3);
    const struct tn_row *r = row(plan, "einsum");
    ck_assert_uint_eq(r->n_in, 3);
    ck_assert_uint_eq(r->n_out, 2);
    ck_assert_uint_eq(r->merged, 3);
    ck_assert_ptr_eq(r->value[3], u);
    ck_assert_ptr_eq(r->value[4], y);
    ck_assert(r->flops > 2 * 4 * 5 * 6);
    tn_plan_free(plan);
    plan = kit_plan(g, NULL, &(struct tn_plan_options){.no_fuse = 1});
    ck_assert_uint_eq(plan->n_row, 5);
    finish(g, plan);
}
END_TEST

/* u is read between its making and the gelu: the gelu may not join. */
START_TEST(fusing_minds_order)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x = input(g, "x"), *w = kit_param(g, "w", 2, DIMS("o", "a"), SIZES(5, 6));
    struct tn_value *u = tn_add(g, "einsum", TN_IN(x, w), TN_WITH(TN_NAMES("out", "batch", "o")));
    struct tn_value *s = tn_add(g, "sum", TN_IN(u), NO_DIMS), *y = tn_expr(g, "gelu(a)*b", TN_IN(u, s));

    tn_graph_output(g, "y", tn_add(g, "sum", TN_IN(y), NO_DIMS));
    struct tn_plan *plan = kit_plan(g, NULL, NULL);
    ck_assert_uint_eq(plan->n_row, 4);
    ck_assert_uint_eq(row(plan, "einsum")->n_out, 1);
    finish(g, plan);
}
END_TEST

/* A weight that is overwritten between an einsum and what would be its epilogue. */
START_TEST(fusing_minds_assignments)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x = input(g, "x"), *w = kit_param(g, "w", 2, DIMS("o", "a"), SIZES(5, 6));
    struct tn_value *u = tn_add(g, "einsum", TN_IN(x, w), TN_WITH(TN_NAMES("out", "batch", "o"))), *y;

    tn_add(g, "assign", TN_IN(w, tn_expr(g, "2*a", TN_IN(w))), TN_NONE);
    y = tn_expr(g, "gelu(a)", TN_IN(u));
    tn_graph_output(g, "y", tn_add(g, "sum", TN_IN(y), NO_DIMS));
    struct tn_plan *plan = kit_plan(g, NULL, NULL);
    ck_assert_uint_eq(row(plan, "einsum")->merged, 1);
    ck_assert_int_eq(kit_count(plan, "copy"), 0);
    finish(g, plan);
}
END_TEST

static int refuse_epilogue(const struct tn_problem *p)
{
    return p->program && !strcmp(p->op, "einsum") && p->program->n_instr > 3;
}

START_TEST(only_what_the_plugin_takes_is_fused)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x = input(g, "x"), *w = kit_param(g, "w", 2, DIMS("o", "a"), SIZES(5, 6)),
                    *b = kit_param(g, "b", 1, DIMS("o"), SIZES(5));
    struct tn_value *u = tn_expr(
        g, "a + b", TN_IN(tn_add(g, "einsum", TN_IN(x, w), TN_WITH(TN_NAMES("out", "batch", "o"))), b));

    tn_graph_output(g, "y", tn_add(g, "sum", TN_IN(tn_expr(g, "gelu(a)", TN_IN(u))), NO_DIMS));
    kit_refuses = refuse_epilogue;
    struct tn_plan *plan = kit_plan(g, kit_picky(), NULL);
    ck_assert_uint_eq(plan->n_row, 3);
    ck_assert_uint_eq(row(plan, "einsum")->merged, 2);
    tn_plan_free(plan);
    ck_assert_int_eq(kit_live, 0);
    kit_refuses = NULL;
    plan = kit_plan(g, kit_picky(), NULL);
    ck_assert_uint_eq(plan->n_row, 2);
    finish(g, plan);
}
END_TEST

/* --- made again */

/* How many reads in the backward of what a forward expr of this role made? */
static int kept_for_backward(const struct tn_plan *plan, const char *role)
{
    int n = 0;

    for (uint32_t i = 0; i < plan->n_row; i++)
        for (uint32_t k = 0; k < plan->row[i].n_in && plan->row[i].list == TN_LIST_BACKWARD; k++) {
            const struct tn_value *v = plan->row[i].value[k];
            n += v->producer && v->id < plan->graph->n_value && !strcmp(v->producer->role, role) &&
                 v->producer->phase == TN_FORWARD;
        }
    return n;
}

START_TEST(gelu_is_made_again)
{
    struct tn_graph *g = kit_gpt2(1, 8, 0, 1, NULL);
    struct tn_plan *plan = kit_plan(g, NULL, NULL),
                   *other = kit_plan(g, NULL, &(struct tn_plan_options){.no_remake = 1});

    ck_assert_int_eq(kept_for_backward(plan, "gelu"), 0);
    ck_assert_int_eq(kept_for_backward(other, "gelu"), 2);
    ck_assert_int_eq(kept_for_backward(plan, "bias"), kept_for_backward(other, "bias"));
    ck_assert_uint_eq(plan->n_row, other->n_row);
    ck_assert_uint_lt(plan->live_peak, other->live_peak);
    tn_plan_free(other);
    finish(g, plan);
}
END_TEST

/* Readers and makers are kept up to date fusion by fusion; made anew they must be the same. */
START_TEST(the_index_follows_what_is_fused)
{
    struct tn_graph *g = kit_gpt2(2, 4, 0.1, 1, NULL);
    struct tn_plan_kernels k = {"ref", kit_ref(TN_KERNELS_ID)};
    const struct tn_plan_options o = {.kernels = &k, .n_kernels = 1, .n_micro = 2};
    struct tn_arena *arena = tn_arena_new();
    struct tn_planner p = {.plan = tn_alloc(arena, sizeof *p.plan), .graph = g, .o = &o, .arena = arena};
    uint32_t *made, *n, **use, dead = 0;
    const uint32_t *now;

    p.plan->arena = arena;
    p.plan->graph = g;
    p.plan->mesh = tn_mesh_single();
    p.plan->n_micro = 2;
    tn_planner_room_new(&p);
    ck_assert_int_eq(tn_planner_program(&p), TN_OK);
    tn_planner_alias(&p);
    ck_assert_int_eq(tn_planner_remake(&p), TN_OK);
    for (uint32_t i = 0; i < p.n_step; i++)
        dead += p.step[i].dead;
    ck_assert_int_eq(tn_planner_fuse(&p), TN_OK);
    for (uint32_t i = 0; i < p.n_step; i++)
        dead -= p.step[i].dead;
    ck_assert_int_lt((int32_t)dead, -10);

    made = tn_alloc_array(arena, p.plan->n_value, sizeof *made);
    n = tn_alloc_array(arena, p.plan->n_value, sizeof *n);
    use = tn_alloc_array(arena, p.plan->n_value, sizeof *use);
    for (struct tn_value *v = p.values; v; v = v->next_value) {
        made[v->id] = p.made[v->id];
        n[v->id] = tn_planner_uses(&p, v, &now);
        use[v->id] = tn_alloc_array(arena, n[v->id] + 1u, sizeof **use);
        memcpy(use[v->id], now, n[v->id] * sizeof **use);
    }
    tn_planner_index(&p);
    for (struct tn_value *v = p.values; v; v = v->next_value) {
        ck_assert_msg(made[v->id] == p.made[v->id], "%s: made by %u, in truth by %u", v->name, made[v->id],
                      p.made[v->id]);
        ck_assert_msg(n[v->id] == tn_planner_uses(&p, v, &now) &&
                          !memcmp(use[v->id], now, n[v->id] * sizeof *now),
                      "%s: other readers than in truth", v->name);
    }
    tn_plan_free(p.plan);
    tn_graph_free(g);
}
END_TEST

/* --- whose storage */

static struct tn_graph *split_and_stack(struct tn_value **x, struct tn_value *part[2], struct tn_value **back)
{
    struct tn_graph *g = kit_graph();
    struct tn_node *split;

    *x = tn_expr(g, "a + 1",
                 TN_IN(tn_graph_input(g, "x", TN_F32, 3, DIMS("batch", "s", "a"), SIZES(4, 2, 3), 0)));
    split = tn_producer(tn_add(g, "split", TN_IN(*x), TN_WITH(TN_TEXT("dim", "s"))));
    for (int i = 0; i < 2; i++)
        part[i] = tn_expr(g, i ? "exp(a)" : "2*a", TN_IN(tn_output(split, (uint32_t)i)));
    *back = tn_add(g, "stack", part, 2, TN_WITH(TN_TEXT("dim", "s"), TN_INT("at", 1)));
    tn_graph_output(g, "y", tn_add(g, "sum", TN_IN(*back), NO_DIMS));
    return g;
}

START_TEST(splits_and_stacks_cost_nothing)
{
    struct tn_value *x, *part[2], *back;
    struct tn_graph *g = split_and_stack(&x, part, &back);
    struct tn_plan *plan = kit_plan(g, NULL, NULL);

    ck_assert_uint_eq(plan->n_row, 4);
    for (uint32_t i = 0; i < 2; i++) {
        const struct tn_plan_place *p = &plan->place[part[i]->id], *v = &plan->place[x->producer->out[0]->id];
        ck_assert_uint_eq(p->storage, plan->place[back->id].storage);
        ck_assert_uint_eq(p->offset, 12 * i);
        ck_assert_int_eq(p->stride[0], 6);
        ck_assert_int_eq(p->stride[1], 1);
        ck_assert_uint_eq(plan->row[1 + i].ref[0].storage, v->storage);
        ck_assert_uint_eq(plan->row[1 + i].ref[0].offset, 12 * i);
    }
    tn_plan_free(plan);
    plan = kit_plan(g, NULL, &(struct tn_plan_options){.no_alias = 1});
    ck_assert_uint_eq(plan->n_row, 8);
    ck_assert_int_eq(kit_count(plan, "copy"), 4);
    finish(g, plan);
}
END_TEST

/* One value in two places of a stack, or read by somebody else too: it is copied there. */
START_TEST(a_value_is_stacked_twice)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x =
        tn_expr(g, "a + 1", TN_IN(tn_graph_input(g, "x", TN_F32, 1, DIMS("a"), SIZES(3), 0)));
    struct tn_value *part[2] = {x, x},
                    *s = tn_add(g, "stack", part, 2, TN_WITH(TN_TEXT("dim", "s"), TN_INT("at", 1)));
    struct tn_memory *m = kit_memory();
    float in[3] = {1, 2, 3}, out[6];
    struct tn_run *run;

    struct tn_plan *plan = kit_plan(g, NULL, &(struct tn_plan_options){.keep = &s, .n_keep = 1});
    ck_assert_int_eq(kit_count(plan, "copy"), 2);
    ck_assert_int_eq(tn_run_open(plan, m, 1, &run), TN_OK);
    ck_assert_int_eq(tn_run_input(run, "x", in, sizeof in), TN_OK);
    ck_assert_int_eq(tn_run_step(run), TN_OK);
    ck_assert_int_eq(tn_run_read(run, s, 0, out, sizeof out), TN_OK);
    for (int i = 0; i < 6; i++)
        ck_assert(out[i] == in[i / 2] + 1);
    tn_run_close(run);
    tn_memory_free(m);
    finish(g, plan);
}
END_TEST

static int refuse_gaps(const struct tn_problem *p)
{
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        if (!tn_contiguous(i < p->n_in ? &p->in[i] : &p->out[i - p->n_in]))
            return strcmp(p->op, "copy") != 0;
    return 0;
}

/* The better plugin wants no gaps: copies, not the worse plugin. */
START_TEST(a_better_plugin_is_worth_a_copy)
{
    struct tn_value *x, *part[2], *back;
    struct tn_graph *g = split_and_stack(&x, part, &back);
    struct tn_plan_kernels k[2] = {{"picky", kit_picky()}, {"ref", kit_ref(TN_KERNELS_ID)}};
    struct tn_plan *plan;

    kit_refuses = refuse_gaps;
    plan = kit_plan(g, NULL, &(struct tn_plan_options){.kernels = k, .n_kernels = 2});
    ck_assert_int_eq(kit_count(plan, "copy"), 4);
    for (uint32_t i = 0; i < plan->n_kernel; i++)
        ck_assert_str_eq(plan->kernel[i].by, "picky");
    finish(g, plan);
    ck_assert_int_eq(kit_live, 0);
    kit_refuses = NULL;
}
END_TEST

static int refuse_tanh(const struct tn_problem *p)
{
    return p->program && strstr(p->program->text, "tanh");
}

START_TEST(what_nobody_takes_is_said)
{
    struct tn_graph *g = kit_graph();
    struct tn_plan_kernels k[2] = {{"first", kit_picky()}, {"second", kit_picky()}};
    struct tn_plan_options o = {.kernels = k, .n_kernels = 2};
    struct tn_mesh m = tn_mesh_single();
    struct tn_plan *plan;

    tn_graph_output(g, "y", tn_add(g, "sum", TN_IN(tn_expr(g, "tanh(a)", TN_IN(input(g, "x")))), NO_DIMS));
    kit_refuses = refuse_tanh;
    ck_assert_int_eq(tn_plan_new(g, &m, &o, &plan), TN_ERR);
    ck_assert_ptr_null(plan);
    ck_assert_int_eq(kit_live, 0);
    for (int i = 0; i < 5; i++)
        ck_assert_msg(strstr(tn_error_text(), ((const char *const[]){"expr", "batch 4, a 6", "first",
                                                                     "second", "role"})[i]) != NULL,
                      "%s", tn_error_text());
    kit_refuses = NULL;
    tn_graph_free(g);
}
END_TEST

/* --- in place */

START_TEST(an_optimizer_updates_in_place)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *w = kit_param(g, "w", 2, DIMS("batch", "a"), SIZES(4, 6)), *x = input(g, "x"), *now;

    tn_at_end(g, TN_AFTER, "u");
    now = tn_expr(g, "a - b", TN_IN(w, x));
    tn_add(g, "assign", TN_IN(w, now), TN_NONE);
    struct tn_plan *plan = kit_plan(g, NULL, NULL);
    ck_assert_uint_eq(plan->n_row, 1);
    ck_assert_uint_eq(plan->row[0].ref[2].storage, plan->place[w->id].storage);
    ck_assert_uint_eq(plan->row[0].list, TN_LIST_UPDATE);
    ck_assert_uint_eq(plan->n_update_task, 1);
    ck_assert_uint_eq(plan->arena_bytes, 0);
    tn_plan_free(plan);
    plan = kit_plan(g, NULL, &(struct tn_plan_options){.no_inplace = 1});
    ck_assert_uint_eq(plan->n_row, 2);
    finish(g, plan);
}
END_TEST

/* The old value is needed once more before the assignment; or the maker is no element-wise operation. */
START_TEST(the_old_value_is_not_lost)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *w = kit_param(g, "w", 2, DIMS("batch", "a"), SIZES(4, 6)),
                    *v = kit_param(g, "v", 2, DIMS("a", "b"), SIZES(6, 6)), *now;

    tn_at_end(g, TN_AFTER, "u");
    now = tn_expr(g, "2*a", TN_IN(w));
    tn_graph_output(g, "old", tn_add(g, "sum", TN_IN(w), NO_DIMS));
    tn_add(g, "assign", TN_IN(w, now), TN_NONE);
    now = tn_add(g, "einsum",
                 TN_IN(tn_add(g, "rename", TN_IN(v), TN_WITH(TN_TEXT("dim", "b"), TN_TEXT("now", "c"))),
                       tn_add(g, "rename", TN_IN(v), TN_WITH(TN_TEXT("dim", "a"), TN_TEXT("now", "c")))),
                 TN_WITH(TN_NAMES("out", "a", "b")));
    tn_add(g, "assign", TN_IN(v, now), TN_NONE);
    v = kit_param(g, "u", 2, DIMS("batch", "a"), SIZES(4, 6));
    now = tn_add(g, "einsum", TN_IN(v, kit_param(g, "s", 1, DIMS("a"), SIZES(6))),
                 TN_WITH(TN_NAMES("out", "batch", "a")));
    tn_add(g, "assign", TN_IN(v, now), TN_NONE);
    struct tn_plan *plan = kit_plan(g, NULL, NULL);
    ck_assert_int_eq(kit_count(plan, "copy"), 3);
    finish(g, plan);
}
END_TEST

/* A view of a parameter that is read after the parameter has changed shows the old numbers: it is a copy. */
START_TEST(a_view_outlives_an_assignment)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *w = kit_param(g, "w", 2, DIMS("s", "a"), SIZES(2, 3)), *view;
    struct tn_memory *m = kit_memory();
    float x[6] = {1, 2, 3, 4, 5, 6}, y;
    struct tn_run *run;

    tn_at_end(g, TN_AFTER, "u");
    view = tn_output(tn_producer(tn_add(g, "split", TN_IN(w), TN_WITH(TN_TEXT("dim", "s")))), 1);
    tn_add(g, "assign", TN_IN(w, tn_expr(g, "10*a", TN_IN(w))), TN_NONE);
    tn_graph_output(g, "y", tn_add(g, "sum", TN_IN(view), NO_DIMS));
    struct tn_plan *plan = kit_plan(g, NULL, NULL);
    ck_assert_int_eq(tn_run_open(plan, m, 1, &run), TN_OK);
    ck_assert_int_eq(tn_memory_write(m, "w", x, sizeof x), TN_OK);
    ck_assert_int_eq(tn_run_step(run), TN_OK);
    ck_assert_int_eq(tn_run_read(run, tn_graph_find_output(g, "y"), 0, &y, 4), TN_OK);
    ck_assert(y == 15);
    tn_run_close(run);
    tn_memory_free(m);
    finish(g, plan);
}
END_TEST

/* y = a + a's row: the row is read many times, so the sum may not be written over a. */
START_TEST(broadcasts_are_not_overwritten)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x = tn_expr(g, "a + 1",
                                 TN_IN(tn_graph_input(g, "x", TN_F32, 2, DIMS("s", "a"), SIZES(2, 3), 0))),
                    *y;
    struct tn_value *part =
        tn_output(tn_producer(tn_add(g, "split", TN_IN(x), TN_WITH(TN_TEXT("dim", "s")))), 1);

    y = tn_expr(g, "a*b", TN_IN(x, part));
    tn_graph_output(g, "y", tn_add(g, "sum", TN_IN(y), NO_DIMS));
    struct tn_plan *plan = kit_plan(g, NULL, NULL);
    ck_assert_uint_ne(plan->place[x->id].storage, plan->place[y->id].storage);
    finish(g, plan);
}
END_TEST

/* --- accumulators */

static struct tn_graph *two_contributions(struct tn_value **grad)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x = tn_graph_input(g, "x", TN_F32, 2, DIMS("batch", "a"), SIZES(4, 6), 1),
                    *w = kit_param(g, "w", 2, DIMS("o", "a"), SIZES(5, 6));
    struct tn_value *y = tn_add(g, "einsum", TN_IN(x, w), TN_WITH(TN_NAMES("out", "batch", "o"))), *one, *two;

    tn_at_end(g, TN_BACKWARD, "unit");
    one = tn_add(g, "einsum", TN_IN(y, x), TN_WITH(TN_NAMES("out", "o", "a")));
    two = tn_add(g, "einsum", TN_IN(tn_expr(g, "a*a", TN_IN(y)), x), TN_WITH(TN_NAMES("out", "o", "a")));
    *grad = tn_add(g, "accum", TN_IN(tn_expr(g, "a + b", TN_IN(one, two))), TN_NONE);
    tn_at_end(g, TN_AFTER, "unit");
    tn_add(g, "assign", TN_IN(w, tn_expr(g, "a - b", TN_IN(w, *grad))), TN_NONE);
    return g;
}

START_TEST(contributions_go_straight_into_the_gradient)
{
    struct tn_value *grad;
    struct tn_graph *g = two_contributions(&grad);
    uint32_t n = 0;

    for (uint32_t micro = 1; micro < 4; micro += 2) {
        struct tn_plan *plan = kit_plan(g, NULL, &(struct tn_plan_options){.n_micro = micro});
        ck_assert_int_eq(kit_count(plan, "accum"), 0);
        n = 0;
        for (uint32_t i = 0; i < plan->n_row; i++)
            for (uint32_t o = 0; o < plan->row[i].n_out; o++)
                n += plan->row[i].ref[plan->row[i].n_in + o].storage == plan->place[grad->id].storage;
        ck_assert_uint_eq(n, 2);
        ck_assert_uint_eq(plan->n_task, micro == 1 ? 3 : 7);
        n = 0; /* launches that later micro-batches do otherwise: only those */
        for (uint32_t i = 0; i < plan->n_row; i++)
            n += plan->row[i].kernel[0] != plan->row[i].kernel[1];
        ck_assert_uint_eq(n, micro == 1 ? 0 : 1);
        tn_plan_free(plan);
    }
    tn_graph_free(g);
}
END_TEST

/* --- the loop over the micro-batches */

START_TEST(loop_values_stay_in_the_loop)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x = tn_graph_input(g, "x", TN_F32, 2, DIMS("batch", "a"), SIZES(4, 6), 1),
                    *s = tn_add(g, "sum", TN_IN(x), NO_DIMS);
    struct tn_plan_kernels k = {"ref", kit_ref(TN_KERNELS_ID)};
    struct tn_plan_options o = {.kernels = &k, .n_kernels = 1, .n_micro = 2};
    struct tn_mesh m = tn_mesh_single();
    struct tn_plan *plan;

    tn_at_end(g, TN_AFTER, "u");
    tn_graph_output(g, "y", tn_expr(g, "2*a", TN_IN(s)));
    ck_assert_int_eq(tn_plan_new(g, &m, &o, &plan), TN_ERR);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "accum"));
    o.n_micro = 1;
    ck_assert_int_eq(tn_plan_new(g, &m, &o, &plan), TN_OK);
    finish(g, plan);
}
END_TEST

/* A prologue that counts over the micro-batches: each in turn, then what depends on the count, once. */
START_TEST(the_prologue_counts_all_micro_batches)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x = tn_graph_input(g, "x", TN_F32, 2, DIMS("batch", "a"), SIZES(2, 2), 1), *count,
                    *inverse;
    struct tn_memory *m = kit_memory();
    float in[12] = {1, -1, 1, 1, -1, -1, -1, 1, 1, 1, 1, 1}, y;
    struct tn_run *run;

    tn_at_end(g, TN_PROLOGUE, "u");
    count = tn_add(g, "accum", TN_IN(tn_add(g, "sum", TN_IN(tn_expr(g, "ge(a, 0)", TN_IN(x))), NO_DIMS)),
                   TN_NONE);
    inverse = tn_expr(g, "1/a", TN_IN(count));
    tn_at_end(g, TN_FORWARD, "u");
    tn_graph_output(g, "y",
                    tn_add(g, "accum",
                           TN_IN(tn_add(g, "sum", TN_IN(tn_expr(g, "a*b", TN_IN(x, inverse))), NO_DIMS)),
                           TN_NONE));
    struct tn_plan *plan = kit_plan(g, NULL, &(struct tn_plan_options){.n_micro = 3});
    ck_assert_uint_eq(plan->n_task, 3 + 1 + 3);
    ck_assert_int_eq(tn_run_open(plan, m, 1, &run), TN_OK);
    ck_assert_int_eq(tn_run_input(run, "x", in, sizeof in), TN_OK);
    ck_assert_int_eq(tn_run_step(run), TN_OK);
    ck_assert_int_eq(tn_run_read(run, tn_graph_find_output(g, "y"), 0, &y, 4), TN_OK);
    ck_assert_float_eq_tol(y, 4.0f / 8, 1e-6);
    tn_run_close(run);
    tn_memory_free(m);
    finish(g, plan);
}
END_TEST

/* --- what it costs */

START_TEST(the_report_adds_up)
{
    struct tn_graph *g = kit_gpt2(2, 4, 0, 1, NULL);
    struct tn_plan *plan = kit_plan(g, NULL, &(struct tn_plan_options){.n_micro = 2});
    struct tn_plan_report r;
    uint64_t elements = 0, launches = 0;
    double flops = 0;

    for (struct tn_value *p = g->params; p; p = p->next)
        elements += (uint64_t)tn_value_count(p);
    tn_plan_sum(plan, &r);
    ck_assert_uint_eq(r.parameters, 4 * elements);
    ck_assert_uint_eq(r.states, 8 * elements);
    ck_assert_uint_eq(r.gradients, 4 * elements);
    ck_assert_uint_ge(r.arena, r.live_peak);
    ck_assert_msg((double)r.arena <= 1.1 * (double)r.live_peak, "arena %llu, live %llu",
                  (unsigned long long)r.arena, (unsigned long long)r.live_peak);
    ck_assert_uint_eq(r.total, r.parameters + r.states + r.inputs + r.arena + r.workspace + r.uniforms);
    for (uint32_t i = 0; i < plan->n_row; i++) {
        struct tn_plan_launch l;
        tn_plan_launch_at(plan, i, &l);
        ck_assert_str_eq(l.kernel, "ref");
        launches += l.micro;
        flops += l.micro * l.flops;
    }
    ck_assert_uint_eq(r.launches, launches);
    ck_assert_double_eq_tol(r.flops_forward + r.flops_backward + r.flops_update, flops, 1);
    ck_assert_uint_le(plan->n_uniform, 2); /* of all parameters' updates: with the symbols lr and t */
    finish(g, plan);
}
END_TEST

KIT_MAIN("plan", loops_merge, attention_is_told_of_positions, chunks_are_flat, linear_gelu_is_one_launch,
         fusing_minds_order, fusing_minds_assignments, only_what_the_plugin_takes_is_fused,
         gelu_is_made_again, the_index_follows_what_is_fused, splits_and_stacks_cost_nothing, a_value_is_stacked_twice,
         a_better_plugin_is_worth_a_copy, what_nobody_takes_is_said, an_optimizer_updates_in_place,
         the_old_value_is_not_lost, a_view_outlives_an_assignment, broadcasts_are_not_overwritten,
         contributions_go_straight_into_the_gradient, loop_values_stay_in_the_loop,
         the_prologue_counts_all_micro_batches, the_report_adds_up)
