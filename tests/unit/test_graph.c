/* test_graph.c - the graph under its passes: every strategy, alone and together; what the verifier catches;
 * and that a pass which misuses the API gets an error, never a crash. */
#include "../pass/build.h"

/* --- strategies: each alone, in pairs, all together, in every order; the pipeline verifies after each step
 */

static const char *const parts[4][4] = {
    {"tp=2", "tp=2 sp=1", "tp=3", NULL},
    {"cp=2", "cp=3 zigzag=1", NULL},
    {"dp=2", "dp=2 zero=1", "dp=3 zero=2", "dp=2 zero=3"},
    {"pp=2", "pp=2 schedule=interleaved layers=5", "pp=3 layers=5 micro=4", NULL},
};

/* Words of some of the four, in the order of a permutation; 0 if there is no such combination. */
static int combine(uint32_t order, uint32_t choice, char *words, size_t room)
{
    uint32_t left[4] = {0, 1, 2, 3}, n = 4;

    for (words[0] = 0; n; n--) {
        uint32_t pick = order % n, axis = left[pick], which = choice >> (3 * axis) & 7;

        order /= n;
        memmove(left + pick, left + pick + 1, (n - pick - 1) * sizeof *left);
        if (which > 4 || (which && !parts[axis][which - 1]))
            return 0;
        if (which)
            snprintf(words + strlen(words), room - strlen(words), "%s%s", *words ? " " : "",
                     parts[axis][which - 1]);
    }
    return 1;
}

/* Sums count once, on all ranks alike; the update is where its gradient is. */
static void check_finished(struct tn_graph *g, const char *words)
{
    struct tn_value *loss = tn_graph_find_output(g, "loss"), *norm = tn_graph_find_output(g, "gnorm");

    for (int a = 0; a < TN_AXES; a++) {
        ck_assert_msg(loss->layout[a] == TN_R && norm->layout[a] == TN_R, "%s: loss and norm are not whole",
                      words);
        for (struct tn_value *p = g->params; p; p = p->next)
            ck_assert_msg(p->param->grad->layout[a] != TN_P, "%s: the gradient of %s is partial on %s", words,
                          p->name, tn_axis_name[a]);
    }
}

static void finish_one(const char *words)
{
    struct tn_graph *g = finished(words);

    check_finished(g, words);
    tn_graph_free(g);
}

START_TEST(strategies_alone_and_together)
{
    uint32_t tried = 0;
    char words[200];

    for (uint32_t choice = 0; choice < 8 * 8 * 8 * 8; choice++)
        if (combine(choice % 24, choice, words, sizeof words)) {
            finish_one(words);
            tried++;
        }
    ck_assert_uint_eq(tried, 4 * 3 * 5 * 4);
}
END_TEST

START_TEST(strategies_in_any_order)
{
    static const uint32_t choices[] = {02112, 03222, 01311};

    for (uint32_t order = 0; order < 24; order++) {
        char words[200];

        ck_assert(combine(order, choices[_i], words, sizeof words));
        finish_one(words);
    }
}
END_TEST

/* --- how many collectives */

START_TEST(counts_of_tp)
{
    struct tn_graph *g = finished("tp=2"), *s = finished("tp=2 sp=1");

    for (int b = 0; b < 2; b++) {
        const char *unit = b ? "block1" : "block0";

        ck_assert_uint_eq(count_nodes(g, "all_reduce", TN_FORWARD, unit), 2);
        ck_assert_uint_eq(count_nodes(g, "all_reduce", TN_BACKWARD, unit), 2);
        ck_assert_uint_eq(count_nodes(g, "all_gather", 0, unit), 0);
        ck_assert_uint_eq(count_nodes(s, "all_gather", TN_FORWARD, unit), 2);
        ck_assert_uint_eq(count_nodes(s, "reduce_scatter", TN_FORWARD, unit), 2);
        ck_assert_uint_eq(count_nodes(s, "all_gather", TN_BACKWARD, unit), 2);
        ck_assert_uint_eq(count_nodes(s, "reduce_scatter", TN_BACKWARD, unit), 2);
        ck_assert_uint_eq(count_nodes(s, "all_reduce", 0, unit), 0);
    }
    tn_graph_free(g);
    tn_graph_free(s);
}
END_TEST

/* Values that collectives of an operation convert, in a phase: one node may take several. */
static uint32_t count_values(struct tn_graph *g, const char *op, uint32_t phase)
{
    uint32_t n = 0;

    tn_each_node(g, i)
        n += tn_is(tn_op(i), op) && tn_phase(i) == phase ? i->n_out : 0;
    return n;
}

START_TEST(counts_of_dp)
{
    struct tn_graph *d = finished("dp=2"), *z1 = finished("dp=2 zero=1"), *z2 = finished("dp=2 zero=2"),
                    *z3 = finished("dp=2 zero=3");

    ck_assert_uint_eq(count_values(d, "all_reduce", TN_BACKWARD), d->n_param);
    ck_assert_uint_eq(count_values(z1, "reduce_scatter", TN_BACKWARD), z1->n_param);
    ck_assert_uint_eq(count_values(z1, "all_gather", TN_AFTER), z1->n_param);
    ck_assert_uint_eq(count_nodes(z1, "all_gather", TN_AFTER, "optimizer"), (z1->n_param + TN_MAX_OUT - 1) / TN_MAX_OUT);
    ck_assert_uint_eq(count_values(z2, "reduce_scatter", TN_BACKWARD), z2->n_param);
    ck_assert_uint_eq(count_values(z2, "all_gather", TN_AFTER), z2->n_param);
    ck_assert_uint_eq(count_values(z3, "all_gather", TN_FORWARD), z3->n_param + 1);      /* wte in two units */
    ck_assert_uint_eq(count_nodes(z3, "all_gather", TN_FORWARD, NULL), 4);               /* one for each unit */
    ck_assert_uint_eq(count_values(z3, "reduce_scatter", TN_BACKWARD), z3->n_param + 1);
    ck_assert_uint_eq(count_nodes(z3, "reduce_scatter", TN_BACKWARD, NULL), 4);
    ck_assert_uint_eq(count_nodes(z3, "all_gather", TN_AFTER, NULL), 0);
    tn_graph_free(d), tn_graph_free(z1), tn_graph_free(z2), tn_graph_free(z3);
}
END_TEST

START_TEST(counts_of_cp)
{
    struct tn_graph *g = finished("cp=4");

    ck_assert_uint_eq(count_nodes(g, "attention", TN_FORWARD, "block0"), 4);
    ck_assert_uint_eq(count_nodes(g, "attn_bwd", TN_BACKWARD, "block0"), 4);
    ck_assert_uint_eq(count_nodes(g, "ring", TN_FORWARD, "block0"), 3 * 3); /* k, v, their positions */
    ck_assert_uint_eq(count_nodes(g, "ring", TN_BACKWARD, "block0"),
                      3 * 3 + 2 * 4); /* and dk, dv, home too */
    ck_assert_uint_eq(count_values(g, "all_reduce", TN_BACKWARD), g->n_param);
    tn_graph_free(g);
}
END_TEST

START_TEST(counts_of_pp)
{
    struct tn_graph *g = finished("pp=2 micro=4"), *alone = finished("");

    ck_assert_uint_eq(count_nodes(g, "move", TN_FORWARD, NULL), 1);
    ck_assert_uint_eq(count_nodes(g, "move", TN_BACKWARD, NULL), 1);
    ck_assert_uint_eq(count_nodes(g, "move", TN_AFTER, "reduce"), 2); /* the copies of wte */
    ck_assert_uint_eq(count_nodes(g, "once", TN_AFTER, NULL), 3);     /* norm of each stage; loss */
    ck_assert_uint_eq(count_nodes(g, "all_reduce", TN_AFTER, NULL), 2);
    ck_assert_uint_eq(count_nodes(g, "sumsq", TN_AFTER, NULL), count_nodes(alone, "sumsq", TN_AFTER, NULL));
    ck_assert_uint_eq(g->n_param, alone->n_param + 1);
    ck_assert_uint_eq(g->n_task, 2 * 2 * 4);
    tn_graph_free(g);
    tn_graph_free(alone);
}
END_TEST

/* --- what the verifier catches: each value that a collective converts is in turn left out */

static struct tn_value *converted_number(struct tn_graph *g, uint32_t k)
{
    for (struct tn_node *n = tn_graph_first(g); n; n = tn_node_next(n)) {
        if (!(n->op->flags & TN_OP_COLLECTIVE))
            continue;
        if (k < n->n_out)
            return n->out[k];
        k -= n->n_out;
    }
    return NULL;
}

/* Leaves it out; "" if that is caught, else what it was. */
static const char *leave_out(struct tn_value *v, char *what, size_t room)
{
    struct tn_node *n = v->producer;
    struct tn_graph *g = v->graph;

    snprintf(what, room, "%s %s %s %s", n->op->name, tn_node_text(n, "axis"), n->role, n->unit);
    tn_replace(v, n->in[v->output]);
    if (n->n_out == 1)
        tn_remove(n);
    ck_assert_msg(g->status == TN_OK, "%s: %s", what, g->error);
    return tn_graph_verify(g) ? "" : what;
}

static const struct {
    const char *words;
    uint32_t converted;
} many[] = {
    {"tp=2 sp=1 cp=2 zigzag=1 dp=2 zero=2 pp=2", 194},
    {"tp=2 cp=2 dp=2 zero=3 pp=2", 153},
    {"tp=2 sp=1", 40},
    {"dp=2", 30},
    {"cp=2 ring=0 dp=2 sync_every=1", 70},
    {"llama=1 untied=1 keys=1 tp=4 sp=1", 35},
    {"experts=5 ep=2", 29},
    {"experts=5 ep=2 dp=2 tp=2 sp=1 zero=1", 165},
    {"experts=5 dp=2 ep=3 batch=6 zero=3 pp=2", 143},
    {"llama=1 untied=1 tp=2 sp=1 cp=2 zigzag=1 dp=2 zero=3 pp=2", 148},
};

START_TEST(left_out_collectives)
{
    struct tn_graph *g = finished(many[_i].words);
    char *text = tn_graph_dump(g, g->arena, NULL), what[200];
    uint32_t n = 0;

    for (; converted_number(g, n); n++) {
        struct tn_graph *h = tn_graph_read(text);

        ck_assert_msg(h != NULL, "%s", tn_error_text());
        ck_assert_str_eq(leave_out(converted_number(h, n), what, sizeof what), "");
        tn_graph_free(h);
    }
    ck_assert_uint_eq(n, many[_i].converted);
    tn_graph_free(g);
}
END_TEST

/* --- misuse */

static struct tn_graph *g;
static struct tn_value *x, *y, *w;

/* x [batch, seq] and y the same, w a parameter [embed]. */
static void small(void)
{
    struct tn_mesh m = tn_mesh_single();
    static const char *const dim[] = {"batch", "seq"}, *const embed[] = {"embed"};
    const int64_t size[] = {4, 6}, width[] = {5};
    const struct tn_param_spec spec = {
        .dim = embed, .size = width, .rank = 1, .file_rank = 1, .file_shape = {5}};

    m.size[0] = m.size[4] = 2;
    g = tn_graph_new(&m);
    x = tn_graph_input(g, "x", TN_F32, 2, dim, size, 1);
    y = tn_graph_input(g, "y", TN_F32, 2, dim, size, 1);
    w = tn_graph_param(g, "w", &spec);
    tn_at_end(g, TN_FORWARD, "unit");
    tn_set_role(g, "part");
    ck_assert_int_eq(tn_graph_status(g), TN_OK);
}

static void gone(void)
{
    tn_graph_free(g);
}

static void says(const char *part)
{
    ck_assert_int_ne(tn_graph_status(g), TN_OK);
    ck_assert_msg(strstr(tn_error_text(), part) != NULL, "\"%s\" is not in: %s", part, tn_error_text());
}

#define CALL (tn_host->graph)
static const struct tn_attr no_key = {NULL, TN_ATTR_INT, 1, {.i = 1}}, no_text = TN_TEXT("f", NULL),
                            no_names = {"out", TN_ATTR_NAMES, 2, {.names = NULL}};

static void null_call(int i)
{
    struct tn_node *n = tn_producer(tn_expr(g, "a", TN_IN(x)));
    uint32_t count;

    ck_assert_int_eq(g->status, TN_OK);
    switch (i) {
    case 0: (CALL->fail)(NULL, TN_ERR, "x"); break;
    case 1: (CALL->fail)(g, TN_ERR, NULL); break;
    case 2: CALL->option(NULL, "x"); break;
    case 3: CALL->option(g, NULL); break;
    case 4: CALL->axis_size(NULL, "tp"); break;
    case 5: CALL->axis_size(g, NULL); break;
    case 6: CALL->next_node(NULL, NULL, n); break;
    case 7: CALL->next_param(NULL, w); break;
    case 8: CALL->next_input(NULL, x); break;
    case 9: CALL->next_user(NULL, n); break;
    case 10: CALL->newest(NULL); break;
    case 11: CALL->op(NULL); break;
    case 12: CALL->role(NULL); break;
    case 13: CALL->unit(NULL); break;
    case 14: CALL->phase(NULL); break;
    case 15: CALL->attr(NULL, "f"); break;
    case 16: CALL->attr(n, NULL); break;
    case 17: CALL->input(NULL, 0); break;
    case 18: CALL->output(NULL, 0); break;
    case 19: ck_assert_ptr_null(*CALL->operands(NULL)); break;
    case 20: CALL->producer(NULL); break;
    case 21: CALL->is_param(NULL); break;
    case 22: CALL->dim(NULL, "seq"); break;
    case 23: CALL->dim(x, NULL); break;
    case 24: CALL->layout(NULL, "tp"); break;
    case 25: CALL->layout(x, NULL); break;
    case 26: CALL->grad(NULL); break;
    case 27: CALL->shard(NULL, "seq", "", 0); break;
    case 28: CALL->shard(g, NULL, "", 0); break;
    case 29: CALL->shard(g, "seq", NULL, 0); break;
    case 30: CALL->set_layout(NULL, "tp", TN_R); break;
    case 31: CALL->set_layout(x, NULL, TN_R); break;
    case 32: CALL->at(NULL, n, 0); break;
    case 33: CALL->at(g, NULL, 0); break;
    case 34: CALL->at_end(NULL, TN_FORWARD, "u"); break;
    case 35: CALL->at_end(g, TN_FORWARD, NULL); break;
    case 36: CALL->set_role(NULL, "r"); break;
    case 37: CALL->set_role(g, NULL); break;
    case 38: CALL->add(NULL, "expr", &x, 1, NULL, 0); break;
    case 39: CALL->add(g, NULL, &x, 1, NULL, 0); break;
    case 40: CALL->add(g, "expr", NULL, 1, NULL, 0); break;
    case 41: CALL->add(g, "expr", (struct tn_value *const[]){NULL}, 1, NULL, 0); break;
    case 42: CALL->add(g, "expr", &x, 1, NULL, 1); break;
    case 43: CALL->add(g, "expr", &x, 1, &no_key, 1); break;
    case 44: CALL->add(g, "expr", &x, 1, &no_text, 1); break;
    case 45: CALL->add(g, "sum", &x, 1, &no_names, 1); break;
    case 46: CALL->convert(NULL, "tp", TN_R); break;
    case 47: CALL->convert(x, NULL, TN_R); break;
    case 48: CALL->clone(NULL); break;
    case 49: CALL->set_input(NULL, x, y); break;
    case 50: CALL->set_input(n, NULL, y); break;
    case 51: CALL->set_input(n, x, NULL); break;
    case 52: CALL->replace(NULL, y); break;
    case 53: CALL->replace(x, NULL); break;
    case 54: CALL->remove(NULL); break;
    case 55: CALL->decompose(NULL, NULL); break;
    case 56: CALL->set_grad(NULL, w); break;
    case 57: CALL->set_grad(w, NULL); break;
    case 58: CALL->on(NULL, 0); break;
    case 59: CALL->unit_index(NULL, &count); break;
    case 60: CALL->unit_index(n, NULL); break;
    case 61: CALL->copy_param(NULL, "pp", TN_R); break;
    case 62: CALL->copy_param(w, NULL, TN_R); break;
    case 63: CALL->primary(NULL); break;
    case 64: CALL->task(NULL, 0, TN_FORWARD, 0, 0); break;
    default: ck_abort();
    }
}

START_TEST(nothing_is_an_error)
{
    small();
    null_call(_i);
    says("nothing (NULL)");
    gone();
}
END_TEST

/* A graph that is gone is not the one that later calls complain to. */
START_TEST(errors_reach_the_graph_at_hand)
{
    struct tn_graph *first;

    small();
    first = g;
    small();
    tn_graph_free(first);
    tn_convert(NULL, "tp", TN_R);
    says("convert: given nothing");
    gone();
    ck_assert_ptr_null(graph_current);
    tn_convert(NULL, "tp", TN_R);                /* no graph at all: nothing to say it to */
    tn_graph_free(NULL);
}
END_TEST

START_TEST(the_first_error_stays)
{
    struct tn_value *z;

    small();
    z = tn_add(g, "no_such", TN_IN(x), TN_NONE);
    ck_assert_ptr_null(z);
    says("no_such (role part, unit unit): there is no such operation");
    ck_assert_ptr_null(tn_expr(g, "a + b", TN_IN(x, y)));
    ck_assert_ptr_null(tn_convert(x, "tp", tn_shard(g, "seq")));
    ck_assert_ptr_null(tn_graph_input(g, "z", TN_F32, 0, NULL, NULL, 0));
    tn_set_layout(x, "tp", tn_shard(g, "seq"));
    ck_assert_uint_eq(x->layout[4], TN_R);
    tn_each_node(g, n)
        ck_abort_msg("node %u is visited", n->id);
    tn_each_param(g, p)
        ck_abort_msg("%s is visited", p->name);
    tn_replace(NULL, NULL);
    says("no_such");
    gone();
}
END_TEST

static void misuse(int i)
{
    struct tn_value *e = tn_expr(g, "a + b", TN_IN(x, y)), *f = tn_expr(g, "a*2", TN_IN(e)),
                    *s = tn_add(g, "sum", TN_IN(f), TN_WITH(TN_NAMES("out", "seq")));
    struct tn_graph *here = g;
    struct tn_mesh m = tn_mesh_single();

    ck_assert_int_eq(g->status, TN_OK);
    switch (i) {
    case 0:
        tn_add(g, "expr", TN_NONE, TN_NONE);
        says("expr (role part, unit unit): wrong number of inputs");
        break;
    case 1:
        tn_add(g, "ring", TN_IN(x, y), TN_NONE);
        says("ring (role part, unit unit): wrong number of inputs");
        break;
    case 2:
        tn_remove(tn_producer(e));
        says("node 1 expr (role part, unit unit) cannot be removed: node 2 expr uses its output");
        break;
    case 3:
        tn_graph_output(g, "s", s);
        tn_remove(tn_producer(s));
        says("cannot be removed: %5 is an output of the graph");
        break;
    case 4:
        tn_set_input(tn_producer(f), x, y);
        says("node 2 expr (role part, unit unit) does not use %0 x");
        break;
    case 5:
        tn_set_input(tn_producer(f), e, s);
        says("cannot take the place of %3 expr, their shapes differ");
        break;
    case 6: tn_replace(x, w); says("their shapes differ"); break;
    case 7: tn_set_layout(e, "tp", TN_R); says("only sources can be given one"); break;
    case 8: tn_set_layout(x, "xx", TN_R); says("layout of %0 x on axis xx"); break;
    case 9:
    case 36: tn_set_layout(x, "tp", i == 9 ? 77 : 6); says("it must exist"); break;
    case 10:
        tn_set_layout(x, "tp", tn_shard(g, "embed"));
        says("it has no dim embed that could be cut");
        break;
    case 11: tn_convert(x, "xx", TN_P); says("there is no axis xx"); break;
    case 12: tn_convert(x, "tp", TN_V); says("no collective takes %0 x from R to V on axis tp"); break;
    case 13:
        tn_convert(x, "tp", tn_shard(g, "embed"));
        says("no collective takes %0 x from R to S(embed) on axis tp");
        break;
    case 14: tn_convert(x, "tp", 77); says("no collective takes %0 x from R to ? on axis tp"); break;
    case 15: tn_at_end(g, 9, "u"); says("there is no phase 9"); break;
    case 16: tn_axis_size(g, "xx"); says("there is no axis xx"); break;
    case 17: tn_option(g, "sp"); says("option sp asked for outside of a pass"); break;
    case 18: tn_input(tn_producer(e), 2); says("node 1 expr has 2 inputs, number 2 was asked for"); break;
    case 19: tn_output(tn_producer(e), 1); says("node 1 expr has 1 outputs, number 1 was asked for"); break;
    case 20: tn_grad(x); says("%0 x is no parameter"); break;
    case 21: tn_set_grad(x, e); says("%3 expr cannot be the gradient of %0 x: that is no parameter"); break;
    case 22: tn_set_grad(w, e); says("%3 expr cannot be the gradient of %2 w: their shapes differ"); break;
    case 23: tn_copy_param(x, "pp", tn_on(g, 0)); says("only parameters and positions have copies"); break;
    case 24: tn_decompose(tn_producer(e), "tp"); says("node 1 expr has no decomposition"); break;
    case 25: tn_task(g, 0, TN_AFTER, 0, 0); says("a task is TN_FORWARD or TN_BACKWARD"); break;
    case 26:
        tn_remove(tn_producer(s));
        tn_after(g, tn_producer(s));
        tn_before(g, s->producer);
        says("node 3 sum was removed");
        break;
    case 27:
        tn_add(g, "split", TN_IN(x), TN_WITH(TN_TEXT("dim", "qkv")));
        says("split: %0 x has no dim qkv");
        break;
    case 28: tn_add(g, "sum", TN_IN(x), TN_NONE); says("sum needs the attribute out"); break;
    case 29: tn_expr(g, "a +", TN_IN(x)); says("expression \"a +\" (role part, unit unit)"); break;
    case 30:
        tn_add(g, "assign", TN_IN(x, y), TN_NONE);
        says("assign: %0 x is neither a parameter nor a state");
        break;
    case 31:
        tn_add(g, "all_reduce", TN_IN(x), TN_NONE);
        says("all_reduce (role part, unit unit): \"\" is no axis");
        break;
    case 32:
        tn_graph_param(g, "q",
                       &(struct tn_param_spec){.dim = x->dim, .size = (const int64_t[]){0}, .rank = 1});
        says("q: dim batch has size 0");
        break;
    case 33:
        tn_before(g, tn_producer(e));
        tn_set_input(tn_producer(e), x, f);
        tn_graph_verify(g);
        says("node 1 expr (role part, unit unit) uses %4 before node 2 expr makes it");
        break;
    case 34:
        tn_set_layout(x, "tp", tn_shard(g, "seq"));
        tn_set_layout(y, "tp", tn_shard(g, "batch"));
        tn_graph_verify(g);
        says("node 1 expr (role part, unit unit) does not fit on axis tp: two inputs are cut differently; "
             "inputs %0:x=S(seq) %1:y=S(batch)");
        break;
    case 35:
        here = tn_graph_new(&m);
        tn_add(here, "expr", TN_IN(x), TN_WITH(TN_TEXT("f", "a")));
        ck_assert_int_ne(tn_graph_status(here), TN_OK);
        ck_assert_ptr_nonnull(strstr(tn_error_text(), "an input is of another graph"));
        tn_graph_free(here);
        break;
    default: ck_abort();
    }
}

START_TEST(misuse_is_an_error)
{
    small();
    misuse(_i);
    gone();
}
END_TEST

/* --- rewriting */

START_TEST(walking_while_rewriting)
{
    struct tn_value *a, *b, *c;
    uint32_t seen = 0;

    small();
    a = tn_expr(g, "a*2", TN_IN(x)), b = tn_expr(g, "a*3", TN_IN(a)), c = tn_expr(g, "a + b", TN_IN(a, b));
    tn_graph_output(g, "c", c);
    tn_each_node(g, n) {
        seen++;
        if (n == a->producer) { /* what is added is not visited, what is removed is passed over */
            tn_after(g, n);
            tn_replace(b, tn_expr(g, "a*4", TN_IN(a)));
            tn_remove(b->producer);
        }
    }
    ck_assert_uint_eq(seen, 2);
    ck_assert_uint_eq(a->n_user, 2);
    tn_each_user(a, u) {                         /* users in program order, while they leave */
        if (u != c->producer)
            tn_set_input(u, a, x);
    }
    ck_assert_uint_eq(a->n_user, 1);
    ck_assert_int_eq(tn_graph_verify(g), TN_OK);
    gone();
}
END_TEST

START_TEST(replace_spares_what_it_is_made_from)
{
    struct tn_value *a, *b, *now;

    small();
    a = tn_expr(g, "a*2", TN_IN(x)), b = tn_expr(g, "a*3", TN_IN(a));
    tn_graph_output(g, "a", a);
    tn_after(g, tn_producer(a));
    now = tn_expr(g, "a + 1", TN_IN(a));
    tn_replace(a, now);
    ck_assert_ptr_eq(tn_input(tn_producer(b), 0), now);
    ck_assert_ptr_eq(tn_input(tn_producer(now), 0), a);
    ck_assert_ptr_eq(tn_graph_find_output(g, "a"), now);
    ck_assert_int_eq(tn_graph_verify(g), TN_OK);
    gone();
}
END_TEST

START_TEST(new_nodes_take_their_place)
{
    struct tn_value *a, *b, *c;

    small();
    a = tn_expr(g, "a*2", TN_IN(x));
    tn_at_end(g, TN_BACKWARD, "other");
    tn_set_role(g, "last");
    b = tn_expr(g, "a*3", TN_IN(a));
    tn_after(g, tn_producer(a));
    c = tn_expr(g, "a*4", TN_IN(a));
    ck_assert_str_eq(tn_unit(tn_producer(c)), "unit");
    ck_assert_str_eq(tn_role(tn_producer(c)), "part");
    ck_assert_uint_eq(tn_phase(tn_producer(c)), TN_FORWARD);
    ck_assert(tn_node_before(tn_producer(a), tn_producer(c)) &&
              tn_node_before(tn_producer(c), tn_producer(b)));
    tn_before(g, tn_producer(b));
    c = tn_clone(tn_producer(b));
    ck_assert_ptr_eq(tn_producer(c)->next, tn_producer(b));
    ck_assert_str_eq(tn_role(tn_producer(c)), "last");
    tn_graph_output(g, "b", b);
    tn_graph_sweep(g);
    ck_assert_uint_eq(count_nodes(g, NULL, 0, NULL), 2);
    gone();
}
END_TEST

/* --- any operation on any inputs: a node or an error */

static struct tn_value *any_value(uint32_t *r)
{
    static const char *const dim[] = {"batch", "seq", "heads",  "head_dim", "embed",
                                      "vocab", "rep", "expert", "qkv"};
    const char *name[5];
    int64_t size[5];
    uint32_t rank = *r % 6 > 4 ? 0 : *r % 6;
    struct tn_value *v;

    for (uint32_t d = 0; d < rank; d++) {
        *r = *r * 1664525u + 1013904223u;
        name[d] = dim[(*r >> 16) % 9];
        size[d] = 1 + (*r >> 24) % 3;
        for (uint32_t e = 0; e < d; e++)
            if (name[d] == name[e])
                rank = d;
    }
    *r = *r * 1664525u + 1013904223u;
    v = tn_graph_input(g, "v", *r >> 20 & 3 ? TN_F32 : TN_I32, rank, name, size, 1);
    for (int a = 0; v && a < TN_AXES; a += 4) {
        *r = *r * 1664525u + 1013904223u;
        if (*r >> 29 == 7 && rank)
            tn_set_layout(v, tn_axis_name[a], tn_shard(g, name[(*r >> 16) % rank]));
        else if (*r >> 29 > 3)
            tn_set_layout(v, tn_axis_name[a], 1 + (*r >> 16) % 5);
    }
    return v;
}

START_TEST(any_operation_on_any_inputs)
{
    static const char *const dims[] = {"batch", "seq", "embed"};
    uint32_t r = 12345, made = 0, fit = 0;

    for (uint32_t k = 0; k < 8000; k++) {
        const struct tn_op *op = tn_op_at(k % 40);
        struct tn_value *in[8];
        uint32_t n = op ? op->n_in_min + (k / 40) % 2 : 0;
        const struct tn_attr attr[] = {
            TN_TEXT("f", "a + b"),     {"out", TN_ATTR_NAMES, r >> 30, {.names = dims}},
            TN_TEXT("dim", "seq"),     TN_TEXT("now", "keys"),
            TN_TEXT("axis", "tp"),     TN_INT("from", r >> 13 & 7),
            TN_INT("to", r >> 16 & 7), TN_INT("at", r >> 19 & 3)};

        if (!op || n > 8)
            continue;
        small();
        for (uint32_t i = 0; i < n; i++)
            in[i] = i && r >> 28 < 9 ? in[0] : any_value(&r);
        if (tn_add(g, op->name, in, n, attr, sizeof attr / sizeof *attr)) {
            struct tn_node *node = tn_graph_first(g);

            made++;
            if (tn_graph_verify(g) == TN_OK) {
                fit++;
                for (uint32_t o = 0; o < node->n_out; o++)
                    ck_assert(node->out[o]->layout[0] && node->out[o]->layout[4]);
                (void)(node->op->flops ? node->op->flops(node, &g->mesh) : 0);
                if (node->op->decompose && k % 2)
                    tn_decompose(node, NULL);
                else if (node->op->grad) {
                    struct tn_value *dy[TN_MAX_OUT], *dx[TN_MAX_IN] = {0};

                    for (uint32_t o = 0; o < node->n_out; o++)
                        dy[o] = node->out[o];
                    tn_at_end(g, TN_BACKWARD, "u");
                    node->op->grad(node, dy, dx);
                    for (uint32_t i = 0; i < node->n_in && g->status == TN_OK; i++)
                        ck_assert_msg(!dx[i] || dx[i]->rank == node->in[i]->rank,
                                      "%s: gradient %u has another rank", op->name, i);
                }
            }
        } else
            ck_assert_int_ne(tn_graph_status(g), TN_OK);
        tn_graph_verify(g);
        gone();
    }
    ck_assert_uint_gt(made, 800);
    ck_assert_uint_gt(fit, 150);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("graph");
    TCase *c = tcase_create("graph");
    SRunner *r = srunner_create(s);
    int failed;

    tcase_set_timeout(c, 300);
    tcase_add_test(c, strategies_alone_and_together);
    tcase_add_loop_test(c, strategies_in_any_order, 0, 3);
    tcase_add_test(c, counts_of_tp);
    tcase_add_test(c, counts_of_dp);
    tcase_add_test(c, counts_of_cp);
    tcase_add_test(c, counts_of_pp);
    tcase_add_loop_test(c, left_out_collectives, 0, (int)(sizeof many / sizeof *many));
    tcase_add_loop_test(c, nothing_is_an_error, 0, 65);
    tcase_add_test(c, errors_reach_the_graph_at_hand);
    tcase_add_test(c, the_first_error_stays);
    tcase_add_loop_test(c, misuse_is_an_error, 0, 37);
    tcase_add_test(c, walking_while_rewriting);
    tcase_add_test(c, replace_spares_what_it_is_made_from);
    tcase_add_test(c, new_nodes_take_their_place);
    tcase_add_test(c, any_operation_on_any_inputs);
    suite_add_tcase(s, c);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
