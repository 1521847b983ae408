/* test_pp.c - the pipeline as a pass: which unit on which stage, in which order, and what it refuses. */
#include "../pass/build.h"

/* --- the order of the micro-batches */

/* "F0 F1 B0 …" of a rank; with several stages on a rank the stage behind it, "F0.2". */
static const char *turns(struct tn_graph *g, uint32_t rank, uint32_t ranks)
{
    const char *text = "";
    uint32_t several = 0;

    for (uint32_t i = 0; i < g->n_task; i++)
        several |= g->task[i].stage >= ranks;
    for (uint32_t i = 0; i < g->n_task; i++) {
        const struct tn_task_entry *t = &g->task[i];

        if (t->rank != rank)
            continue;
        text = tn_text(g->arena, "%s%s%c%u", text, *text ? " " : "", t->phase == TN_FORWARD ? 'F' : 'B',
                       t->micro);
        if (several)
            text = tn_text(g->arena, "%s.%u", text, t->stage);
    }
    return text;
}

static const struct {
    const char *words;
    uint32_t ranks;
    const char *turns[4];
} orders[] = {
    {"pp=2 micro=4 schedule=1f1b", 2, {"F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"}},
    {"pp=2 micro=4 schedule=afab", 2, {"F0 F1 F2 F3 B0 B1 B2 B3", "F0 F1 F2 F3 B0 B1 B2 B3"}},
    {"pp=4 micro=5 layers=4 schedule=1f1b",
     4,
     {"F0 F1 F2 F3 B0 F4 B1 B2 B3 B4", "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4", "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"}},
    {"pp=4 micro=1 layers=4 schedule=1f1b", 4, {"F0 B0", "F0 B0", "F0 B0", "F0 B0"}},
    {"pp=2 micro=4 layers=4 schedule=interleaved",
     2,
     {"F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 F3.0 B1.2 F2.2 B0.0 F3.2 B1.0 B2.2 B3.2 B2.0 B3.0",
      "F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 B3.3 B2.1 B3.1"}},
    {"pp=2 micro=2 layers=6 schedule=interleaved virtual=3",
     2,
     {"F0.0 F1.0 F0.2 F1.2 F0.4 F1.4 B0.4 B1.4 B0.2 B1.2 B0.0 B1.0",
      "F0.1 F1.1 F0.3 F1.3 F0.5 B0.5 F1.5 B1.5 B0.3 B1.3 B0.1 B1.1"}},
};

START_TEST(order_of_the_micro_batches)
{
    struct tn_graph *g = finished(orders[_i].words);

    for (uint32_t r = 0; r < orders[_i].ranks; r++)
        ck_assert_str_eq(turns(g, r, orders[_i].ranks), orders[_i].turns[r]);
    tn_graph_free(g);
}
END_TEST

/* --- the cut */

/* "embed block0 | block1 head" */
static const char *cut(struct tn_graph *g)
{
    const char *text = "", *unit = NULL;
    int32_t stage = 0;

    for (struct tn_node *n = g->first[TN_FORWARD]; n; n = n->next) {
        int32_t here = tn_layout_get(g, n->out[0]->layout[tn_axis_find("pp")])->rot;

        if (n->op->flags & TN_OP_COLLECTIVE)     /* may be put ahead */
            continue;
        if (n->unit != unit) {
            text = tn_text(g->arena, "%s%s%s", text, !unit ? "" : here != stage ? " | " : " ", n->unit);
            ck_assert_msg(here == stage || here == stage + 1, "%s: stage %d after %d", n->unit, here, stage);
        } else
            ck_assert_msg(here == stage, "unit %s is on stages %d and %d", unit, stage, here);
        unit = n->unit, stage = here;
    }
    return text;
}

/* The head costs as much as a third of a block with 65 symbols, and as five blocks with 1000. */
static const struct {
    const char *words, *cut;
} cuts[] = {
    {"pp=2", "embed block0 | block1 head"},
    {"pp=2 layers=4", "embed block0 block1 | block2 block3 head"},
    {"pp=2 layers=5", "embed block0 block1 block2 | block3 block4 head"},
    {"pp=3 layers=5", "embed block0 block1 | block2 block3 | block4 head"},
    {"pp=4 layers=5", "embed block0 | block1 | block2 block3 | block4 head"},
    {"pp=4", "embed | block0 | block1 | head"},
    {"pp=2 layers=5 vocab=1000", "embed block0 block1 block2 block3 block4 | head"},
    {"pp=2 layers=5 schedule=interleaved", "embed block0 | block1 | block2 block3 | block4 head"},
    {"pp=2 layers=5 stages=1,4", "embed block0 | block1 block2 block3 block4 head"},
    {"pp=3 layers=5 stages=0,5,0", "embed | block0 block1 block2 block3 block4 | head"},
    {"dp=2 zero=3 prefetch=64 pp=4", "embed | block0 | block1 | head"},
    {"tp=2 sp=1 dp=2 zero=3 pp=2 layers=5", "embed block0 block1 block2 | block3 block4 head"},
};

START_TEST(stages_of_equal_cost)
{
    struct tn_graph *g = finished(cuts[_i].words);

    ck_assert_str_eq(cut(g), cuts[_i].cut);
    tn_graph_free(g);
}
END_TEST

/* Each node of the micro-batches has a stage, and inputs are where they are used. */
START_TEST(everything_has_its_stage)
{
    static const char *const words[] = {"pp=2", "pp=2 dp=2 zero=3 tp=2 sp=1",
                                        "pp=3 layers=5 cp=2 zigzag=1 schedule=afab"};
    int pp = tn_axis_find("pp");

    for (size_t w = 0; w < 3; w++) {
        struct tn_graph *g = finished(words[w]);

        for (struct tn_node *n = tn_graph_first(g); n; n = tn_node_next(n))
            for (uint32_t o = 0; o < n->n_out && (n->phase == TN_FORWARD || n->phase == TN_BACKWARD); o++)
                ck_assert_msg(tn_layout_get(g, n->out[o]->layout[pp])->kind == TN_LAYOUT_STAGE,
                              "%s: node %u %s", words[w], n->id, n->op->name);
        ck_assert_uint_eq(tn_graph_find_input(g, "tokens")->layout[pp], tn_layout_stage(g, 0));
        ck_assert_uint_eq(tn_graph_find_input(g, "targets")->layout[pp],
                          tn_layout_stage(g, (uint32_t)g->mesh.size[pp] - 1));
        tn_graph_free(g);
    }
}
END_TEST

/* --- copies of a tied parameter */

static struct tn_value *param(struct tn_graph *g, const char *name, int copy)
{
    for (struct tn_value *v = g->params; v; v = v->next)
        if (!strcmp(v->name, name) && !v->param->twin == !copy)
            return v;
    return NULL;
}

/* What the user says of a parameter holds for its copy. */
START_TEST(copies_are_alike)
{
    struct tn_graph *g = model_of("pp=2");
    struct tn_value *first, *copy;

    param(g, "transformer.wte.weight", 0)->param->lr_scale = 0.25;
    param(g, "transformer.wte.weight", 0)->param->decay = 0;
    ck_assert_msg(run_steps(g, "pp=2", NULL, NULL) == TN_OK, "%s", tn_error_text());
    first = param(g, "transformer.wte.weight", 0), copy = param(g, "transformer.wte.weight", 1);
    ck_assert_ptr_nonnull(copy);
    ck_assert_double_eq(copy->param->lr_scale, 0.25);
    ck_assert_uint_eq(copy->param->decay, 0);
    ck_assert_uint_eq(copy->param->number, first->param->number);
    for (int i = 0; i < 2; i++) { /* both sums have the first stage's part first */
        const struct tn_node *sum = (i ? copy : first)->param->grad->producer, *moved;

        ck_assert_str_eq(sum->op->name, "expr");
        moved = sum->in[!i]->producer;
        ck_assert_str_eq(moved->op->name, "move");
        ck_assert_str_eq(sum->in[i]->producer->op->name, "accum");
        ck_assert_str_eq(moved->in[0]->producer->op->name, "accum");
        ck_assert_uint_eq(moved->in[0]->layout[tn_axis_find("pp")], tn_layout_stage(g, !i));
    }
    tn_graph_free(g);
}
END_TEST

START_TEST(an_untied_head_has_no_copy)
{
    struct tn_graph *g = finished("pp=2 untied=1");

    for (struct tn_value *v = g->params; v; v = v->next)
        ck_assert_msg(!v->param->twin, "%s has a copy", v->name);
    ck_assert_uint_eq(count_nodes(g, "move", TN_AFTER, NULL), 0);
    tn_graph_free(g);
}
END_TEST

/* --- what is refused, and what the user is told */

static const struct {
    const char *words, *part;
} refused[] = {
    {"pp=2 layers=4 micro=3 schedule=interleaved",
     "an update has 3 of them (train.global_batch / (micro_batch dp)): 2 or 4 would do"},
    {"pp=4 layers=8 micro=2 schedule=interleaved",
     "an update has 2 of them (train.global_batch / (micro_batch dp)): 4 would do"},
    {"pp=2 virtual=2", "parallel.virtual = 2: "},
    {"pp=2 layers=4 schedule=interleaved virtual=1.5", "parallel.virtual = 1.5: a whole number"},
    {"pp=5", "parallel.pp = 5 makes 5 stages, and the model has only 4 parts"},
    {"pp=3 schedule=interleaved micro=3", "parallel.pp = 3 makes 6 stages, and the model has only 4 parts"},
    {"pp=2 layers=5 stages=1,3", "parallel.stages = 1,3: there are 2 stages for 5 blocks"},
    {"pp=2 layers=5 stages=3,3", "parallel.stages = 3,3: "},
    {"pp=2 layers=5 stages=5", "parallel.stages = 5: "},
    {"pp=2 layers=5 stages=3,1,1", "parallel.stages = 3,1,1: "},
    {"pp=3 layers=5 stages=3,0,2", "none 0 but the first and the last"},
    {"pp=2 layers=5 stages=3,x", "parallel.stages = 3,x: "},
    {"pp=2 layers=5 stages=-1,6", "parallel.stages = -1,6: "},
    {"pp=2 layers=5 stages=3,2,", "parallel.stages = 3,2,: "},
    {"pp=2 layers=5 stages=18446744073709551613,8", "parallel.stages = 18446744073709551613,8: "},
};

START_TEST(what_is_refused)
{
    struct tn_graph *g = model_of(refused[_i].words);

    ck_assert_int_eq(run_steps(g, refused[_i].words, NULL, NULL), TN_ERR_CONFIG);
    ck_assert_msg(strstr(tn_error_text(), refused[_i].part) != NULL, "\"%s\" is not in: %s", refused[_i].part,
                  tn_error_text());
    tn_graph_free(g);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void)
{
    Suite *s = suite_create("pp");
    TCase *c = tcase_create("pp");
    SRunner *r;
    int failed;

    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, order_of_the_micro_batches, 0, COUNT(orders));
    tcase_add_loop_test(c, stages_of_equal_cost, 0, COUNT(cuts));
    tcase_add_test(c, everything_has_its_stage);
    tcase_add_test(c, copies_are_alike);
    tcase_add_test(c, an_untied_head_has_no_copy);
    tcase_add_loop_test(c, what_is_refused, 0, COUNT(refused));
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
