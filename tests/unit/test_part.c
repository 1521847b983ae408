/* test_part.c - a tensor cut in all ways, written as parts, read back by somebody who knows nothing of the
 * cut; and texts that lie. */
#include "../pass/build.h"
#include <stdlib.h>
#include "base/status.h"
#include "train/part.h"
#include "train/whole.h"

static struct tn_graph *g;
static struct tn_mesh mesh;
static struct tn_value *v;
static const int64_t shape[2] = {9, 20}; /* in files; [9, 4, 5] in the graph */

static void setup(void)
{
    mesh = tn_mesh_single();
    mesh.size[0] = 3, mesh.size[3] = 2, mesh.size[4] = 2;
    g = tn_graph_new(&mesh);
    tn_at_end(g, TN_FORWARD, "u");
    v = tn_graph_input(g, "v", TN_F32, 3, (const char *const[]){"seq", "heads", "embed"},
                       (const int64_t[]){9, 4, 5}, 1);
}

static void teardown(void)
{
    tn_graph_free(g);
}

/* Rank r's part of 0, 1, 2, …, through its text, back into whole; adds its elements to *count. */
static void pass_on(int64_t r, float *whole, int64_t *count)
{
    struct tn_world there = {.mesh = tn_mesh_at(&mesh, r)};
    struct tn_local l, read;
    float all[180], held[180];
    char *text;

    if (!tn_whole_owns(v, &there.mesh))
        return;
    for (int i = 0; i < 180; i++)
        all[i] = (float)i;
    tn_value_local(v, &there.mesh, g->arena, &l);
    tn_whole_cut(&there, v, all, held);
    text = tn_part_text(v, &l, 2, shape);
    ck_assert_ptr_nonnull(text);
    ck_assert_msg(tn_part_read(text, v, 2, shape, l.count, g->arena, &read) == TN_OK, "%s", tn_error_text());
    ck_assert_int_eq(tn_part_is_whole(v, &l), l.count == 180);
    tn_whole_place(v, sizeof *whole, &read, held, whole);
    *count += l.count;
    free(text);
}

static void comes_back(void)
{
    float whole[180];
    int64_t count = 0;

    for (int i = 0; i < 180; i++)
        whole[i] = -1;
    for (int64_t r = 0; r < tn_mesh_world(&mesh); r++)
        pass_on(r, whole, &count);
    ck_assert_int_eq(count, 180);
    for (int i = 0; i < 180; i++)
        ck_assert_float_eq(whole[i], (float)i);
}

START_TEST(every_cut_comes_back)
{
    comes_back();
    tn_set_layout(v, "tp", tn_layout_shard(g, "heads", "", 0));
    comes_back();
    tn_set_layout(v, "cp", tn_layout_shard(g, "seq", "zigzag", 0));
    comes_back();
    tn_set_layout(v, "dp", tn_layout_shard(g, "embed", "", 0)); /* 2, 2, 1 */
    comes_back();
    tn_set_layout(v, "dp", TN_F);
    comes_back();
}
END_TEST

#define SOUND "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9]],[[0,2]],[[0,5]]],\"chunk\":[10,20]}"

START_TEST(lies_are_refused)
{
    static const char *const lie[] = {
        "",
        "[]",
        "{}",
        "{\"shape\":[9,20]",
        "{\"shape\":[20,9],\"of\":[9,4,5],\"at\":[[[0,9]],[[0,2]],[[0,5]]],\"chunk\":[10,20]}",
        "{\"shape\":[9,20],\"of\":[9,5,4],\"at\":[[[0,9]],[[0,2]],[[0,5]]],\"chunk\":[10,20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9]],[[0,2]]],\"chunk\":[10,20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,10]],[[0,2]],[[0,5]]],\"chunk\":[10,20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[-1,9]],[[0,2]],[[0,5]]],\"chunk\":[10,20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[4,4]],[[0,2]],[[0,5]]],\"chunk\":[10,20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9],[0,9]],[[0,2]],[[0,5]]],\"chunk\":[10,20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9]],[[0,2.5]],[[0,5]]],\"chunk\":[10,20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9]],7,[[0,5]]],\"chunk\":[10,20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9]],[],[[0,5]]],\"chunk\":[0,20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9]],[[0,2]],[[0,5]]],\"chunk\":[71,20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9]],[[0,2]],[[0,5]]],\"chunk\":[-1,20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9]],[[0,2]],[[0,5]]],\"chunk\":[10,21]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9]],[[0,2]],[[0,5]]],\"chunk\":[9223372036854775807,20]"
        "}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9223372036854775807]],[[0,2]],[[0,5]]],\"chunk\":[10,"
        "20]}",
        "{\"shape\":[9,20],\"of\":[9,4,5],\"at\":[[[0,9]],[[0,2]],[[0,5]]]}",
    };
    struct tn_local l;

    ck_assert_int_eq(tn_part_read(SOUND, v, 2, shape, 20, g->arena, &l), TN_OK);
    ck_assert_int_eq(l.flat_start, 10);
    ck_assert_int_eq(l.size[1], 2);
    for (size_t i = 0; i < sizeof lie / sizeof *lie; i++)
        ck_assert_msg(tn_part_read(lie[i], v, 2, shape, 20, g->arena, &l) == TN_ERR_INPUT, "%s", lie[i]);
    ck_assert_int_eq(tn_part_read(SOUND, v, 2, shape, 19, g->arena, &l), TN_ERR_INPUT);
    ck_assert_int_eq(tn_part_read(SOUND, v, 2, shape, 0, g->arena, &l), TN_ERR_INPUT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("part");
    TCase *c = tcase_create("all");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, every_cut_comes_back);
    tcase_add_test(c, lies_are_refused);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
