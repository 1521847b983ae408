/* test_timetable.c - schedules of a pipeline: order, slots, the bubble, and schedules that are no good.
 *
 * The graph is a chain of stages, one product each, with the moves between them that autodiff makes; schedules are
 * given as text: "F0 F1 B0" for each rank, with the number of the stage behind a dot where a rank has several. */
#include <check.h>
#include <stdlib.h>
#include "base/arena.h"
#include "plan/timetable.h"
#include "plan_kit.h"

static struct tn_graph *chain(int64_t ranks, uint32_t stages, int backward)
{
    struct tn_mesh m = tn_mesh_single();
    struct tn_graph *g;
    const struct tn_param_spec spec = {
        .dim = (const char *const[]){"embed"}, .size = (int64_t[]){3}, .rank = 1, .file_rank = 1, .file_shape = {3}, .init = TN_INIT_ONE};
    struct tn_value *x, *w;

    m.size[tn_axis_find("pp")] = ranks;
    g = tn_graph_new(&m);
    x = tn_graph_input(g, "x", TN_F32, 2, (const char *const[]){"batch", "embed"}, (int64_t[]){2, 3}, 1);
    w = tn_graph_param(g, "w", &spec);
    for (uint32_t phase = TN_FORWARD; phase <= (backward ? TN_BACKWARD : TN_FORWARD); phase++) {
        tn_at_end(g, phase, "block");
        for (uint32_t s = 0; s < stages; s++) {
            tn_layout here = tn_on(g, phase == TN_FORWARD ? s : stages - 1 - s);

            x = tn_convert(x, "pp", here);
            x = tn_expr(g, "a*b", TN_IN(x, tn_copy_param(w, "pp", here)));
        }
    }
    tn_graph_output(g, "y", x);
    tn_graph_settle(g);
    ck_assert_int_eq(tn_graph_status(g), TN_OK);
    return g;
}

static void schedule(struct tn_graph *g, uint32_t rank, const char *text)
{
    while (*text) {
        uint32_t phase = *text++ == 'F' ? TN_FORWARD : TN_BACKWARD, micro = (uint32_t)strtoul(text, (char **)&text, 10), stage = rank;

        if (*text == '.')
            stage = (uint32_t)strtoul(text + 1, (char **)&text, 10);
        tn_task(g, rank, phase, micro, stage);
        text += *text == ' ';
    }
}

START_TEST(one_forward_one_backward)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_graph *g = chain(2, 2, 1);
    struct tn_timetable t;

    schedule(g, 0, "F0 F1 B0 F2 B1 F3 B2 B3");
    schedule(g, 1, "F0 B0 F1 B1 F2 B2 F3 B3");
    ck_assert_int_eq(tn_timetable_make(arena, g, 4, 1, 1, &t), TN_OK);
    ck_assert_uint_eq(t.slots[0], 2);
    ck_assert_uint_eq(t.slots[1], 1);
    ck_assert_double_eq(t.length, 10);           /* 8 turns of work: 20 % of the time is lost */
    ck_assert_int_eq(tn_timetable_in_sequence(&t, 0), 0);
    ck_assert_int_eq(tn_timetable_in_sequence(&t, 1), 1);
    ck_assert_uint_eq(t.turn[0][3].slot, 0);     /* F2 has the slot that B0 gave back */
    ck_assert_double_eq(t.turn[0][2].start, 3);  /* B0 */
    tn_graph_free(g);
    tn_arena_free(arena);
}
END_TEST

START_TEST(all_forward_all_backward)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_graph *g = chain(2, 2, 1);
    struct tn_timetable t;

    schedule(g, 0, "F0 F1 F2 F3 B0 B1 B2 B3");
    schedule(g, 1, "F0 F1 F2 F3 B0 B1 B2 B3");
    ck_assert_int_eq(tn_timetable_make(arena, g, 4, 1, 2, &t), TN_OK);
    ck_assert_uint_eq(t.slots[0], 4);
    ck_assert_uint_eq(t.slots[1], 4);
    ck_assert_double_eq(t.length, 15);           /* (4 + 1) of each: the bubble is 20 % here too */
    tn_graph_free(g);
    tn_arena_free(arena);
}
END_TEST

START_TEST(without_a_schedule)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_graph *g = chain(2, 4, 1);
    struct tn_timetable t;

    ck_assert_int_eq(tn_timetable_make(arena, g, 3, 1, 1, &t), TN_OK);
    ck_assert_uint_eq(t.n_stage, 4);
    ck_assert_uint_eq(t.n_turn[0], 12);
    for (uint32_t s = 0; s < 4; s++)
        ck_assert_uint_eq(t.slots[s], 1);
    ck_assert_int_eq(tn_timetable_in_sequence(&t, 0), 1);
    tn_graph_free(g);
    g = chain(3, 3, 0);                          /* nothing to keep for a backward */
    ck_assert_int_eq(tn_timetable_make(arena, g, 3, 1, 1, &t), TN_OK);
    ck_assert_uint_eq(t.n_turn[2], 3);
    ck_assert_uint_eq(t.slots[0], 1);
    ck_assert_double_eq(t.length, 5);
    tn_graph_free(g);
    tn_arena_free(arena);
}
END_TEST

static const struct {
    uint32_t stages, micro;
    const char *turns[2], *says;
} bad[] = {
    {2, 2, {"F0 B0", "F0 B0 F1 B1"}, "the schedule lacks the forward of micro-batch 1 through stage 0"},
    {2, 2, {"F0 F1 B0", "F0 B0 F1 B1"}, "the schedule lacks the backward of micro-batch 1 through stage 0"},
    {2, 1, {"B0 F0", "F0 B0"}, "the backward of micro-batch 0 through stage 0 before its forward"},
    {2, 1, {"F0 B0 B0", "F0 B0"}, "the backward of micro-batch 0 through stage 0 twice"},
    {2, 1, {"F0 B0 F1", "F0 B0"}, "forward of micro-batch 1 through stage 0 on rank 0: there are 2 ranks, 2 stages"},
    {2, 1, {"F0.1 B0", "F0 B0"}, "through stage 1 on rank 0"},
    {2, 2, {"F0 F1 B0 B1", "F1 F0 B0 B1"},
     "rank 0 of axis pp sends in the forward micro-batch 0 to stage 1 where rank 1 expects micro-batch 1 for stage 1"},
    {2, 2, {"F0 B0 F1 B1", "F0 F1 B0 B1"}, "the schedule would never end: on axis pp rank 0 waits for its turn 1, backward of micro-batch 0"},
    {4, 1, {"F0.2 F0.0 B0.2 B0.0", "F0.1 F0.3 B0.3 B0.1"}, "the schedule crosses messages"},
};

START_TEST(no_good)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_graph *g = chain(2, bad[_i].stages, 1);
    struct tn_timetable t;

    for (uint32_t r = 0; r < 2; r++)
        schedule(g, r, bad[_i].turns[r]);
    ck_assert_int_eq(tn_timetable_make(arena, g, bad[_i].micro, 1, 1, &t), TN_ERR_CONFIG);
    ck_assert_msg(strstr(tn_error_text(), bad[_i].says) != NULL, "said: %s", tn_error_text());
    tn_error_clear();
    tn_graph_free(g);
    tn_arena_free(arena);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("timetable");
    TCase *c = tcase_create("timetable");
    SRunner *r;
    int failed;

    tcase_add_test(c, one_forward_one_backward);
    tcase_add_test(c, all_forward_all_backward);
    tcase_add_test(c, without_a_schedule);
    tcase_add_loop_test(c, no_good, 0, (int)(sizeof bad / sizeof *bad));
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
