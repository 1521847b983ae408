/* test_layout.c - what a rank holds, the rules by which layouts travel, and conversions between them. */
#include "../pass/build.h"

static struct tn_graph *g;
static struct tn_mesh mesh;

static void on(int64_t d, int64_t c, int64_t t, int64_t p)
{
    mesh = tn_mesh_single();
    mesh.size[0] = d, mesh.size[2] = p, mesh.size[3] = c, mesh.size[4] = t;
    g = tn_graph_new(&mesh);
    tn_at_end(g, TN_FORWARD, "u");
}

static struct tn_value *input(const char *name, uint32_t rank, const char *const *dim, const int64_t *size)
{
    return tn_graph_input(g, name, TN_F32, rank, dim, size, 1);
}
#define VALUE1(name, d, n) input(name, 1, (const char *const[]){d}, (const int64_t[]){n})
#define VALUE2(name, d, n, e, m) input(name, 2, (const char *const[]){d, e}, (const int64_t[]){n, m})

static tn_layout cut(const char *dim, const char *pattern, int32_t rot)
{
    return tn_layout_shard(g, dim, pattern, rot);
}

/* --- local parts */

START_TEST(uneven_parts)
{
    struct tn_value *v;
    int64_t next = 0;

    on(1, 1, 3, 1);
    v = VALUE2("v", "vocab", 65, "embed", 4);
    tn_set_layout(v, "tp", cut("vocab", "", 0));
    for (int64_t r = 0; r < 3; r++) {
        struct tn_mesh at = tn_mesh_at(&mesh, r);
        struct tn_local l;

        tn_value_local(v, &at, g->arena, &l);
        ck_assert_int_eq(l.size[0], r < 2 ? 22 : 21);
        ck_assert_int_eq(l.origin[0], next);
        ck_assert_int_eq(l.count, 4 * l.size[0]);
        next += l.size[0];
    }
    ck_assert_int_eq(next, 65);
    tn_graph_free(g);
}
END_TEST

static void part_is(const struct tn_value *v, int64_t rank, int64_t n, const int64_t *index)
{
    struct tn_mesh at = tn_mesh_at(&mesh, rank);
    struct tn_local l;

    tn_value_local(v, &at, g->arena, &l);
    ck_assert_int_eq(l.size[0], n);
    for (int64_t i = 0; i < n; i++)
        ck_assert_int_eq(l.index[0] ? l.index[0][i] : l.origin[0] + i, index[i]);
}

START_TEST(zigzag_parts)
{
    struct tn_value *v;

    on(1, 2, 1, 1);
    v = tn_graph_positions(g, "seq", 8);
    tn_set_layout(v, "cp", cut("seq", "zigzag", 0));
    part_is(v, 0, 4, (const int64_t[]){0, 1, 6, 7});
    part_is(v, 1, 4, (const int64_t[]){2, 3, 4, 5});
    tn_set_layout(v, "cp", cut("seq", "zigzag", 1));         /* held by a ring neighbour */
    part_is(v, 1, 4, (const int64_t[]){0, 1, 6, 7});
    part_is(v, 0, 4, (const int64_t[]){2, 3, 4, 5});
    tn_set_layout(v, "cp", cut("seq", "", 0));
    part_is(v, 0, 4, (const int64_t[]){0, 1, 2, 3});
    tn_graph_free(g);
}
END_TEST

/* Pairs of a query and a key that it sees, of a rank's queries: what attention has to do there. */
static int64_t pairs(const struct tn_value *v, int64_t rank)
{
    struct tn_mesh at = tn_mesh_at(&mesh, rank);
    struct tn_local l;
    int64_t n = 0;

    tn_value_local(v, &at, g->arena, &l);
    for (int64_t i = 0; i < l.size[0]; i++)
        n += (l.index[0] ? l.index[0][i] : l.origin[0] + i) + 1;
    return n;
}

/* After one step round a ring of three, rank 1 holds what was rank 0's. */
START_TEST(rotated_parts)
{
    struct tn_value *v;

    on(1, 3, 1, 1);
    v = tn_graph_positions(g, "seq", 7);
    tn_set_layout(v, "cp", cut("seq", "", 1));
    part_is(v, 0, 2, (const int64_t[]){5, 6});
    part_is(v, 1, 3, (const int64_t[]){0, 1, 2});
    part_is(v, 2, 2, (const int64_t[]){3, 4});
    tn_graph_free(g);
}
END_TEST

START_TEST(zigzag_balances)
{
    struct tn_value *v;

    on(1, 2, 1, 1);
    v = tn_graph_positions(g, "seq", 8);
    tn_set_layout(v, "cp", cut("seq", "zigzag", 0));
    ck_assert_int_eq(pairs(v, 0), 18);
    ck_assert_int_eq(pairs(v, 1), 18);
    tn_set_layout(v, "cp", cut("seq", "", 0));
    ck_assert_int_eq(pairs(v, 0), 10);
    ck_assert_int_eq(pairs(v, 1), 26);
    tn_graph_free(g);
}
END_TEST

/* How often each element of v is held, over all ranks. */
static void hold(const struct tn_value *v, uint32_t *held)
{
    for (int64_t r = 0; r < tn_mesh_world(&v->graph->mesh); r++) {
        struct tn_mesh at = tn_mesh_at(&v->graph->mesh, r);
        struct tn_local l;
        int64_t whole = 1;

        tn_value_local(v, &at, v->graph->arena, &l);
        for (uint32_t d = 0; d < v->rank; d++)
            whole *= l.size[d];
        for (int64_t i = 0; i < whole; i++) {
            int64_t rest = i, element = 0, stride = 1;

            if (l.flat && (i < l.flat_start || i >= l.flat_start + l.count))
                continue;
            for (uint32_t d = v->rank; d-- > 0; stride *= v->size[d], rest /= l.size[d])
                element +=
                    stride * (l.index[d] ? l.index[d][rest % l.size[d]] : l.origin[d] + rest % l.size[d]);
            held[element]++;
        }
    }
}

/* Every value of every layout: the parts make the whole, each element is held equally often. */
START_TEST(parts_make_the_whole)
{
    static const char *const words[] = {"tp=3 sp=1", "tp=2 sp=1 cp=3 zigzag=1 dp=2 zero=3",
                                        "cp=3 tp=2 sp=1 dp=3 zero=2", "dp=3 zero=1 tp=3"};
    struct tn_graph *all = finished(words[_i]);
    uint32_t checked = 0;

    for (struct tn_value *v = all->all_values; v; v = v->next_value) {
        int64_t n = tn_value_count(v), copies = tn_mesh_world(&all->mesh);
        uint32_t *held = calloc((size_t)n, sizeof *held);

        for (int a = 0; a < TN_AXES; a++)
            if (v->layout[a] == TN_F || tn_layout_get(all, v->layout[a])->kind == TN_LAYOUT_SHARD)
                copies /= all->mesh.size[a];
        hold(v, held);
        for (int64_t i = 0; i < n; i++)
            ck_assert_msg(held[i] == copies, "%%%u %s: element %lld is held %u times, not %lld", v->id,
                          v->name, (long long)i, held[i], (long long)copies);
        free(held);
        checked++;
    }
    ck_assert_uint_gt(checked, 300);
    tn_graph_free(all);
}
END_TEST

/* --- rules: layouts of the inputs, and what follows, as text; "!" if it must not fit */

static tn_layout layout_named(const char *text)
{
    static const char *const plain[] = {"R", "P", "Pmax", "F", "V"};

    for (uint32_t i = 0; i < 5; i++)
        if (!strcmp(text, plain[i]))
            return i + 1;
    return *text == '@' ? tn_layout_stage(g, (uint32_t)atoi(text + 1)) : cut(text, "", 0);
}

static const struct {
    const char *op, *f, *in[2], *gives;
} rules[] = {
    /* inputs a [batch, embed] and b [embed], or of embed: w [embed, mlp], i [batch] */
    {"expr", "a + b", {"R", "R"}, "R"},
    {"expr", "a + b", {"batch", "R"}, "S(batch)"},
    {"expr", "a + b", {"embed", "embed"}, "S(embed)"},
    {"expr", "a + b", {"embed", "R"}, "!"},
    {"expr", "a + b", {"batch", "embed"}, "!"},
    {"expr", "a + b", {"P", "P"}, "P"},
    {"expr", "a + b", {"P", "R"}, "!"},
    {"expr", "a*b", {"P", "R"}, "P"},
    {"expr", "a*b", {"P", "P"}, "!"},
    {"expr", "a*b", {"P", "embed"}, "!"},
    {"expr", "exp(a) + b", {"P", "P"}, "!"},
    {"expr", "a*b", {"F", "F"}, "F"},
    {"expr", "a*b", {"F", "R"}, "!"},
    {"expr", "a*b", {"V", "R"}, "!"},
    {"expr", "a*b", {"Pmax", "R"}, "!"},
    {"expr", "a*b", {"@1", "R"}, "@1"},
    {"expr", "a*b", {"@1", "@0"}, "!"},
    {"einsum", NULL, {"R", "R"}, "R"},
    {"einsum", NULL, {"batch", "R"}, "S(batch)"},
    {"einsum", NULL, {"embed", "embed"}, "P"},
    {"einsum", NULL, {"P", "R"}, "P"},
    {"einsum", NULL, {"P", "embed"}, "!"},
    {"sum", NULL, {"embed", NULL}, "P"},
    {"sum", NULL, {"batch", NULL}, "S(batch)"},
    {"sum", NULL, {"P", NULL}, "P"},
    {"rowmax", NULL, {"embed", NULL}, "Pmax"},
    {"rowmax", NULL, {"P", NULL}, "!"},
    {"sumsq", NULL, {"batch", NULL}, "P"},
    {"sumsq", NULL, {"F", NULL}, "P"},
    {"sumsq", NULL, {"R", NULL}, "R"},
    {"sumsq", NULL, {"P", NULL}, "!"},
    {"sumsq", NULL, {"@1", NULL}, "@1"},
    {"accum", NULL, {"P", NULL}, "P"},
    {"dropout", NULL, {"P", NULL}, "!"},
    {"dropout", NULL, {"embed", NULL}, "S(embed)"},
    {"layernorm", NULL, {"batch", "R"}, "S(batch)"},
    {"layernorm", NULL, {"embed", "embed"}, "!"},
    {"layernorm", NULL, {"P", "R"}, "!"},
    {"layernorm", NULL, {"R", "embed"}, "!"},
    {"rmsnorm", NULL, {"batch", "R"}, "S(batch)"},
    {"rmsnorm", NULL, {"embed", "embed"}, "!"},
    {"rmsnorm", NULL, {"P", "R"}, "!"},
};

START_TEST(rules_of_layouts)
{
    struct tn_value *a, *b, *y;
    struct tn_attr attr[2] = {{"out", TN_ATTR_NAMES, 1, {.names = (const char *const[]){"batch"}}},
                              TN_TEXT("f", rules[_i].f)};
    uint32_t with_f = rules[_i].f != NULL;

    on(1, 1, 2, 1);
    a = VALUE2("a", "batch", 4, "embed", 6), b = VALUE1("b", "embed", 6);
    tn_set_layout(a, "tp", layout_named(rules[_i].in[0]));
    if (rules[_i].in[1])
        tn_set_layout(b, "tp", layout_named(rules[_i].in[1]));
    y = tn_add(g, rules[_i].op, (struct tn_value *const[]){a, b}, rules[_i].in[1] ? 2 : 1,
               with_f ? attr + 1 : attr, 1);
    ck_assert_ptr_nonnull(y);
    if (*rules[_i].gives == '!') {
        ck_assert_int_eq(tn_graph_verify(g), TN_ERR_LAYOUT);
        ck_assert_ptr_nonnull(strstr(tn_error_text(), "does not fit on axis tp"));
        ck_assert_uint_eq(y->layout[4], 0);
    } else {
        ck_assert_int_eq(tn_graph_verify(g), TN_OK);
        ck_assert_str_eq(tn_layout_text(g, y->layout[4]), rules[_i].gives);
    }
    tn_graph_free(g);
}
END_TEST

/* --- rotary positions: layouts of x [seq, heads, head_dim], of positions and of the table [posn, head_dim] */

static const struct {
    const char *in[3], *gives;
} turned[] = {
    {{"R", "R", "R"}, "R"},      {{"heads", "R", "R"}, "S(heads)"}, {{"seq", "seq", "R"}, "S(seq)"}, {{"P", "R", "R"}, "P"},
    {{"@1", "@1", "@1"}, "@1"},  {{"seq", "R", "R"}, "!"},          {{"R", "seq", "R"}, "!"},        {{"head_dim", "R", "head_dim"}, "!"},
    {{"R", "R", "posn"}, "!"},   {{"P", "seq", "R"}, "!"},          {{"V", "R", "R"}, "!"},
};

START_TEST(rules_of_rope)
{
    static const struct tn_rotary angles = {.theta = 100};
    struct tn_value *in[3], *y;

    on(1, 1, 2, 1);
    in[0] = tn_graph_input(g, "x", TN_F32, 3, (const char *const[]){"seq", "heads", "head_dim"}, (const int64_t[]){4, 2, 6}, 0);
    in[1] = tn_graph_positions(g, "seq", 4);
    in[2] = tn_graph_rotary(g, (const char *const[]){"posn", "head_dim"}, 4, 6, &angles);
    for (int i = 0; i < 3; i++)
        tn_set_layout(in[i], "tp", layout_named(turned[_i].in[i]));
    y = tn_add(g, "rope", in, 3, NULL, 0);
    ck_assert_ptr_nonnull(y);
    ck_assert_int_eq(tn_graph_verify(g), *turned[_i].gives == '!' ? TN_ERR_LAYOUT : TN_OK);
    if (*turned[_i].gives != '!')
        ck_assert_str_eq(tn_layout_text(g, y->layout[4]), turned[_i].gives);
    tn_graph_free(g);
}
END_TEST

/* --- conversions */

static const struct {
    const char *from, *to, *op;
} conversions[] = {
    {"P", "R", "all_reduce"},
    {"Pmax", "R", "all_reduce"},
    {"batch", "R", "all_gather"},
    {"F", "R", "all_gather"},
    {"P", "batch", "reduce_scatter"},
    {"P", "F", "reduce_scatter"},
    {"R", "batch", "slice"},
    {"R", "F", "slice"},
    {"batch", "embed", "all_to_all"},
    {"R", "P", "once"},
    {"@0", "@1", "move"},
    {"@1", "P", "once"},
    {"R", "@1", ""},
    {"R", "R", ""},
    {"batch", "batch", ""},
    {"F", "batch", NULL},
    {"batch", "F", NULL},
    {"V", "R", NULL},
    {"R", "V", NULL},
    {"R", "Pmax", NULL},
    {"P", "mlp", NULL},
    {"batch", "P", NULL},
    {"P", "@0", NULL},
    {"batch", "@0", NULL},
    {"@0", "batch", NULL},
    {"P", "V", NULL},
};

START_TEST(conversions_are_collectives)
{
    struct tn_value *v, *w;
    tn_layout to;

    on(1, 1, 2, 1);
    v = VALUE2("v", "batch", 4, "embed", 6);
    tn_set_layout(v, "tp", layout_named(conversions[_i].from));
    to = layout_named(conversions[_i].to);
    w = tn_convert(v, "tp", to);
    if (!conversions[_i].op) {
        ck_assert_ptr_null(w);
        ck_assert_int_eq(tn_graph_status(g), TN_ERR_LAYOUT);
    } else if (!*conversions[_i].op)
        ck_assert_ptr_eq(w, v);
    else {
        ck_assert_str_eq(tn_op(tn_producer(w)), conversions[_i].op);
        ck_assert_uint_eq(tn_layout_of(w, "tp"), to);
        ck_assert_ptr_eq(tn_convert(v, "tp", to), w);                   /* made once in a unit and phase */
        tn_at_end(g, TN_FORWARD, "other");
        ck_assert_ptr_ne(tn_convert(v, "tp", to), w);
        tn_at_end(g, TN_BACKWARD, "u");
        ck_assert_ptr_ne(tn_convert(v, "tp", to), w);
        ck_assert_int_eq(tn_graph_verify(g), TN_OK);
    }
    tn_graph_free(g);
}
END_TEST

START_TEST(a_later_conversion_is_not_used_earlier)
{
    struct tn_value *v, *first, *w;

    on(1, 1, 2, 1);
    v = VALUE1("v", "embed", 6);
    tn_set_layout(v, "tp", TN_P);
    first = tn_expr(g, "a*2", TN_IN(v));
    w = tn_convert(v, "tp", TN_R);
    tn_before(g, tn_producer(first));
    ck_assert_ptr_ne(tn_convert(v, "tp", TN_R), w);
    tn_graph_free(g);
}
END_TEST

/* A rotation is a conversion; a stage's value becomes whole as its part of a sum. */
START_TEST(rings_and_stages)
{
    struct tn_value *v, *w;

    on(1, 3, 1, 2);
    v = VALUE1("v", "seq", 6);
    tn_set_layout(v, "cp", cut("seq", "zigzag", 0));
    w = tn_convert(v, "cp", cut("seq", "zigzag", 2));
    ck_assert_str_eq(tn_op(tn_producer(w)), "ring");
    ck_assert_int_eq(tn_node_int(tn_producer(w), "shift", 0), 2);
    w = tn_convert(w, "cp", cut("seq", "zigzag", 0));
    ck_assert_int_eq(tn_node_int(tn_producer(w), "shift", 0), -2);
    ck_assert_uint_eq(tn_layout_of(w, "cp"), cut("seq", "zigzag", 0));
    ck_assert_str_eq(tn_op(tn_producer(tn_convert(v, "cp", cut("seq", "", 0)))), "all_to_all");
    v = VALUE1("stage", "embed", 6);
    tn_set_layout(v, "pp", tn_on(g, 1));
    w = tn_convert(v, "pp", TN_R);
    ck_assert_str_eq(tn_op(tn_producer(w)), "all_reduce");
    ck_assert_str_eq(tn_op(tn_producer(tn_input(tn_producer(w), 0))), "once");
    ck_assert_uint_eq(tn_layout_of(w, "pp"), TN_R);
    ck_assert_ptr_eq(tn_convert(v, "pp", TN_R), w);
    ck_assert_int_eq(tn_graph_verify(g), TN_OK);
    tn_graph_free(g);
}
END_TEST

/* Flat chunks are cut last: of two axes the inner one must be gathered first, and nothing changes shape below
 * one. */
START_TEST(flat_chunks_nest)
{
    struct tn_value *v;

    on(2, 1, 2, 1);
    v = VALUE1("v", "embed", 6);
    tn_set_layout(v, "dp", TN_F);
    tn_set_layout(v, "tp", TN_F);
    if (_i == 0) {
        ck_assert_uint_eq(tn_layout_of(tn_convert(tn_convert(v, "tp", TN_R), "dp", TN_R), "dp"), TN_R);
        ck_assert_int_eq(tn_graph_verify(g), TN_OK);
    } else if (_i == 1) {
        tn_convert(v, "dp", TN_R);
        ck_assert_int_eq(tn_graph_verify(g), TN_ERR_LAYOUT);
        ck_assert_ptr_nonnull(strstr(tn_error_text(), "flat chunks of inner axes must be gathered first"));
    } else {
        tn_set_layout(v, "tp", cut("embed", "", 0));
        tn_convert(v, "tp", TN_R);
        ck_assert_int_eq(tn_graph_verify(g), TN_ERR_LAYOUT);
        ck_assert_ptr_nonnull(strstr(tn_error_text(), "a flat chunk must be gathered first"));
    }
    tn_graph_free(g);
}
END_TEST

/* A change at the source reaches everything that follows, whenever somebody looks. */
START_TEST(layouts_follow_their_source)
{
    struct tn_value *v, *y;

    on(1, 1, 2, 1);
    v = VALUE2("v", "batch", 4, "embed", 6);
    y = tn_add(g, "sum", TN_IN(tn_expr(g, "a*2", TN_IN(tn_expr(g, "a*3", TN_IN(v))))),
               TN_WITH(TN_NAMES("out", "embed")));
    ck_assert_uint_eq(tn_layout_of(y, "tp"), TN_R);
    tn_set_layout(v, "tp", cut("embed", "", 0));
    ck_assert_uint_eq(tn_layout_of(y, "tp"), cut("embed", "", 0));
    tn_set_layout(v, "tp", cut("batch", "", 0));
    ck_assert_uint_eq(tn_layout_of(y, "tp"), TN_P);
    tn_set_layout(v, "tp", TN_V);
    ck_assert_uint_eq(tn_layout_of(y, "tp"), 0);
    tn_set_layout(v, "tp", TN_R);
    ck_assert_uint_eq(tn_layout_of(y, "tp"), TN_R);
    tn_set_layout(v, "cp", cut("embed", "", 0));             /* an axis of one rank has no layouts */
    ck_assert_uint_eq(tn_layout_of(v, "cp"), TN_R);
    tn_graph_free(g);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void)
{
    Suite *s = suite_create("layout");
    TCase *c = tcase_create("layout");
    SRunner *r = srunner_create(s);
    int failed;

    tcase_set_timeout(c, 300);
    tcase_add_test(c, uneven_parts);
    tcase_add_test(c, zigzag_parts);
    tcase_add_test(c, rotated_parts);
    tcase_add_test(c, zigzag_balances);
    tcase_add_loop_test(c, parts_make_the_whole, 0, 4);
    tcase_add_loop_test(c, rules_of_layouts, 0, COUNT(rules));
    tcase_add_loop_test(c, rules_of_rope, 0, COUNT(turned));
    tcase_add_loop_test(c, conversions_are_collectives, 0, COUNT(conversions));
    tcase_add_test(c, a_later_conversion_is_not_used_earlier);
    tcase_add_test(c, rings_and_stages);
    tcase_add_loop_test(c, flat_chunks_nest, 0, 3);
    tcase_add_test(c, layouts_follow_their_source);
    suite_add_tcase(s, c);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
