/* test_order.c - what a pass says about order and about values that belong together: nodes of the last micro-batch,
 * moving, one collective for several values, the order in which gradients complete; and what strategies make of it. */
#include "../pass/build.h"

static struct tn_graph *g;
static struct tn_value *x, *y, *w;

/* x, y [batch, embed] and w [embed] on dp = 2, tp = 2; x and y are partial on dp. */
static void begin(void)
{
    static const char *const dim[] = {"batch", "embed"};
    const int64_t size[] = {4, 6};
    const struct tn_param_spec spec = {.dim = dim + 1, .size = size + 1, .rank = 1, .file_rank = 1, .file_shape = {6}};
    struct tn_mesh m = tn_mesh_single();

    m.size[0] = m.size[4] = 2;
    g = tn_graph_new(&m);
    x = tn_graph_input(g, "x", TN_F32, 2, dim, size, 1);
    y = tn_graph_input(g, "y", TN_BF16, 2, dim, size, 1);
    w = tn_graph_param(g, "w", &spec);
    tn_set_layout(x, "dp", TN_P);
    tn_set_layout(y, "dp", TN_P);
    tn_at_end(g, TN_BACKWARD, "u");
    tn_set_role(g, "part");
}

static void says(const char *part)
{
    ck_assert_int_ne(tn_graph_status(g), TN_OK);
    ck_assert_msg(strstr(tn_error_text(), part) != NULL, "\"%s\" is not in: %s", part, tn_error_text());
    tn_graph_free(g);
}

static void well(void)
{
    ck_assert_msg(tn_graph_verify(g) == TN_OK, "%s", tn_error_text());
    tn_graph_free(g);
}

/* --- the last micro-batch */

START_TEST(last_until_the_place_is_set)
{
    struct tn_value *a, *b, *c;
    char *text;
    struct tn_graph *again;

    begin();
    a = tn_expr(g, "a*2", TN_IN(x));
    tn_when_last(g, 1);
    b = tn_expr(g, "a*3", TN_IN(a));
    tn_after(g, tn_producer(a));
    c = tn_expr(g, "a*4", TN_IN(a));
    ck_assert(!tn_node_last(tn_producer(a)) && tn_node_last(tn_producer(b)) && !tn_node_last(tn_producer(c)));
    tn_after(g, tn_producer(b));                             /* beside one of that kind a new one is of it too */
    ck_assert(tn_node_last(tn_producer(tn_expr(g, "a*5", TN_IN(b)))));
    tn_at_end(g, TN_AFTER, "u");
    tn_graph_output(g, "out", tn_expr(g, "a + b", TN_IN(b, c)));
    ck_assert(!tn_node_last(tn_producer(tn_graph_find_output(g, "out"))));
    text = tn_graph_dump(g, g->arena, NULL);
    ck_assert_ptr_nonnull(strstr(text, "role=part f=\"a*3\" when=last\n"));
    again = tn_graph_read(text);
    ck_assert_msg(again != NULL, "%s", tn_error_text());
    ck_assert_str_eq(tn_graph_dump(again, again->arena, NULL), text);
    tn_graph_free(again);
    well();
}
END_TEST

START_TEST(last_is_for_the_backward)
{
    begin();
    tn_at_end(g, _i ? TN_FORWARD : TN_AFTER, "u");
    tn_when_last(g, 1);
    tn_expr(g, "a*2", TN_IN(x));
    tn_graph_verify(g);
    says("when = last stands for nothing here");
}
END_TEST

START_TEST(last_is_a_word)
{
    begin();
    tn_add(g, "expr", TN_IN(x), TN_WITH(TN_TEXT("f", "a*2"), TN_TEXT("when", "first")));
    tn_graph_verify(g);
    says("when = first stands for nothing here");
}
END_TEST

START_TEST(last_is_not_read_in_every_micro_batch)
{
    struct tn_value *a;

    begin();
    tn_when_last(g, 1);
    a = tn_expr(g, "a*2", TN_IN(x));
    tn_when_last(g, 0);
    tn_expr(g, "a*3", TN_IN(a));
    tn_graph_verify(g);
    says("node 2 expr (role part, unit u) runs in every micro-batch and reads %3, which node 1 expr makes in the last one alone");
}
END_TEST

/* One of every micro-batch is good for the last too, not the other way round. */
START_TEST(conversions_and_their_time)
{
    struct tn_value *last, *every;

    begin();
    tn_when_last(g, 1);
    last = tn_convert(x, "dp", TN_R);
    tn_when_last(g, 0);
    every = tn_convert(x, "dp", TN_R);
    ck_assert_ptr_ne(last, every);
    ck_assert_ptr_eq(tn_convert(x, "dp", TN_R), every);
    tn_when_last(g, 1);
    tn_after(g, tn_producer(every));
    tn_when_last(g, 1);
    ck_assert(tn_convert(x, "dp", TN_R) == every || tn_convert(x, "dp", TN_R) == last);
    well();
}
END_TEST

/* --- moving */

START_TEST(moving)
{
    struct tn_value *a, *b, *c, *d;

    begin();
    a = tn_expr(g, "a*2", TN_IN(x)), b = tn_expr(g, "a*3", TN_IN(x)), c = tn_expr(g, "a*4", TN_IN(x));
    tn_before(g, tn_producer(a));
    tn_move(tn_producer(c));                                 /* c a b */
    ck_assert_ptr_eq(tn_producer(c)->next, tn_producer(a));
    ck_assert_ptr_eq(g->first[TN_BACKWARD], tn_producer(c));
    ck_assert_ptr_eq(g->last[TN_BACKWARD], tn_producer(b));
    tn_after(g, tn_producer(b));
    tn_move(tn_producer(c));                                 /* a b c; what follows comes behind */
    d = tn_expr(g, "a*5", TN_IN(c));
    ck_assert_ptr_eq(g->first[TN_BACKWARD], tn_producer(a));
    ck_assert_ptr_eq(tn_producer(c)->next, tn_producer(d));
    ck_assert(tn_node_before(tn_producer(b), tn_producer(c)));
    tn_move(tn_producer(d));                                 /* beside itself: it stays */
    tn_at_end(g, TN_BACKWARD, "v");
    tn_move(tn_producer(a));                                 /* b c d a, in its unit */
    ck_assert_ptr_eq(g->last[TN_BACKWARD], tn_producer(a));
    ck_assert_str_eq(tn_unit(tn_producer(a)), "u");
    ck_assert_ptr_eq(tn_producer(a)->prev, tn_producer(d));
    well();
}
END_TEST

START_TEST(moving_stays_in_the_phase)
{
    struct tn_value *a;

    begin();
    a = tn_expr(g, "a*2", TN_IN(x));
    tn_at_end(g, TN_AFTER, "u");
    tn_move(tn_producer(a));
    says("node 1 expr (role part, unit u) cannot be moved: the place is in another phase");
}
END_TEST

START_TEST(moving_before_what_it_reads)
{
    struct tn_value *a, *b;

    begin();
    a = tn_expr(g, "a*2", TN_IN(x)), b = tn_expr(g, "a*3", TN_IN(a));
    tn_before(g, tn_producer(a));
    tn_move(tn_producer(b));
    tn_graph_verify(g);
    says("node 2 expr (role part, unit u) uses %3 before node 1 expr makes it");
}
END_TEST

START_TEST(moving_what_is_gone)
{
    struct tn_value *a;

    begin();
    a = tn_expr(g, "a*2", TN_IN(x));
    tn_remove(tn_producer(a));
    tn_move(tn_producer(a));
    says("cannot be moved: it was removed");
}
END_TEST

/* --- several values */

START_TEST(one_collective_for_several)
{
    struct tn_value *in[40], *out[40];

    begin();
    for (int i = 0; i < 40; i++)
        in[i] = i % 2 ? x : y;
    tn_convert_all(in, 2, "dp", TN_R, out);
    ck_assert_ptr_eq(tn_producer(out[0]), tn_producer(out[1]));
    ck_assert_str_eq(tn_op(tn_producer(out[0])), "all_reduce");
    ck_assert_uint_eq(out[0]->dtype, TN_BF16);
    ck_assert_uint_eq(out[1]->dtype, TN_F32);
    ck_assert_uint_eq(tn_layout_of(out[0], "dp"), TN_R);
    tn_convert_all(in, 40, "dp", TN_F, out);
    ck_assert_uint_eq(count_nodes(g, "reduce_scatter", 0, NULL), 2);
    ck_assert_uint_eq(tn_producer(out[0])->n_in, TN_MAX_OUT);
    ck_assert_ptr_ne(tn_producer(out[0]), tn_producer(out[39]));
    for (int i = 0; i < 40; i++)
        ck_assert_uint_eq(tn_layout_of(out[i], "dp"), TN_F);
    tn_convert_all(in, 0, "dp", TN_R, out);
    well();
}
END_TEST

/* What is there already stays, what comes from another layout has its own node, what is alone is one as ever. */
START_TEST(those_that_differ_go_apart)
{
    struct tn_value *a, *b, *out[5], *back[4];

    begin();
    a = tn_convert(x, "dp", TN_F), b = tn_convert(y, "dp", tn_shard(g, "embed"));
    tn_convert_all((struct tn_value *const[]){a, w, b, x, a}, 5, "dp", TN_R, out);
    ck_assert_ptr_eq(out[1], w);
    ck_assert_ptr_eq(tn_producer(out[0]), tn_producer(out[4]));
    ck_assert_uint_eq(tn_producer(out[2])->n_in, 1);
    ck_assert_str_eq(tn_op(tn_producer(out[2])), "all_gather");
    ck_assert_str_eq(tn_op(tn_producer(out[3])), "all_reduce");
    ck_assert_ptr_eq(tn_convert(x, "dp", TN_R), out[3]);
    tn_convert_all((struct tn_value *const[]){x, y}, 2, "tp", TN_R, back);
    ck_assert(back[0] == x && back[1] == y);
    well();
}
END_TEST

START_TEST(stages_go_apart)
{
    struct tn_mesh m = tn_mesh_single();
    struct tn_value *in[3], *out[3];
    const char *const dim[] = {"embed"};

    m.size[0] = m.size[2] = 2;
    g = tn_graph_new(&m);
    tn_at_end(g, TN_BACKWARD, "u");
    for (uint32_t i = 0; i < 3; i++) {
        in[i] = tn_graph_input(g, "in", TN_F32, 1, dim, (const int64_t[]){6}, 1);
        tn_set_layout(in[i], "dp", TN_P);
        tn_set_layout(in[i], "pp", tn_on(g, i % 2));
    }
    tn_convert_all(in, 3, "dp", TN_R, out);
    ck_assert_ptr_eq(tn_producer(out[0]), tn_producer(out[2]));
    ck_assert_ptr_ne(tn_producer(out[0]), tn_producer(out[1]));
    ck_assert_uint_eq(tn_layout_of(out[2], "pp"), tn_on(g, 0));
    tn_convert_all(in, 3, "pp", tn_on(g, 1), out);
    ck_assert_ptr_eq(out[1], in[1]);
    ck_assert_str_eq(tn_op(tn_producer(out[0])), "move");
    well();
}
END_TEST

START_TEST(what_cannot_be_converted)
{
    struct tn_value *out[2];

    begin();
    tn_convert_all((struct tn_value *const[]){x, y}, 2, "dp", TN_V, out);
    ck_assert(!out[0] && !out[1]);
    says("no collective takes %0 x from P to V on axis dp");
}
END_TEST

/* --- looking */

START_TEST(bytes_of_the_largest_part)
{
    struct tn_mesh m = tn_mesh_single();
    const char *const dim[] = {"vocab", "embed"};
    struct tn_value *v;

    m.size[0] = 2, m.size[4] = 3;
    g = tn_graph_new(&m);
    v = tn_graph_input(g, "v", TN_F32, 2, dim, (const int64_t[]){65, 6}, 1);
    ck_assert_int_eq(tn_bytes(v), 65 * 6 * 4);
    tn_set_layout(v, "tp", tn_shard(g, "vocab"));
    ck_assert_int_eq(tn_bytes(v), 22 * 6 * 4);
    tn_set_layout(v, "dp", TN_F);
    ck_assert_int_eq(tn_bytes(v), 66 * 4);
    ck_assert_int_eq(tn_bytes(tn_graph_input(g, "n", TN_BF16, 0, NULL, NULL, 0)), 2);
    tn_graph_free(g);
}
END_TEST

START_TEST(shapes_are_not_numbers)
{
    struct tn_graph *f = finished("");
    uint32_t shapes = 0;

    tn_each_node(f, n)
        tn_each_operand(n, v)
            if (!tn_reads(n, v)) {
                ck_assert(tn_is(tn_op(n), "embed_bwd", "expand"));
                shapes += tn_is(tn_op(n), "embed_bwd");
            }
    ck_assert_uint_eq(shapes, 2);
    ck_assert(!tn_reads(tn_producer(f->params->param->grad), f->params));
    tn_graph_free(f);
}
END_TEST

START_TEST(gradients_in_the_order_of_the_backward)
{
    struct tn_graph *f = finished("");
    const struct tn_value *before = NULL;
    uint32_t n = 0;

    tn_each_gradient(f, p) {
        ck_assert(!before || tn_node_before(before->param->grad->producer, p->param->grad->producer));
        before = p;
        n++;
    }
    ck_assert_uint_eq(n, f->n_param);
    ck_assert_str_eq(before->name, "transformer.wte.weight");            /* used first and last, so complete at the end */
    tn_graph_free(f);
}
END_TEST

START_TEST(nothing_is_an_error)
{
    const struct tn_graph_api *call = &tn_graph_api_table;
    struct tn_value *out[2];
    struct tn_node *n;

    begin();
    n = tn_producer(tn_expr(g, "a", TN_IN(x)));
    switch (_i) {
    case 0: call->when_last(NULL, 1); break;
    case 1: call->move(NULL); break;
    case 2: call->convert_all(NULL, 1, "dp", TN_R, out); break;
    case 3: call->convert_all(&x, 1, NULL, TN_R, out); break;
    case 4: call->convert_all(&x, 1, "dp", TN_R, NULL); break;
    case 5: call->convert_all((struct tn_value *const[]){x, NULL}, 2, "dp", TN_R, out); break;
    case 6: call->bytes(NULL); break;
    case 7: call->reads(NULL, x); break;
    case 8: call->reads(n, NULL); break;
    default: ck_assert_ptr_null(*call->gradients(NULL)); break;
    }
    says("nothing (NULL)");
}
END_TEST

/* --- what strategies make of it */

static struct tn_node *first_of(struct tn_graph *f, const char *op, const char *role, const char *unit, uint32_t phase)
{
    tn_each_node(f, n)
        if (tn_is(tn_op(n), op) && tn_is(tn_role(n), role) && (!unit || tn_is(tn_unit(n), unit)) && tn_phase(n) == phase)
            return n;
    ck_abort_msg("no %s of role %s in %s", op, role, unit ? unit : "the graph");
    return NULL;
}

/* All gradients are in buckets of the last micro-batch, each right behind its last member, none larger than said. */
START_TEST(buckets_of_ddp)
{
    struct tn_graph *f = finished(_i ? "dp=2 tp=2 bucket=0.008" : "dp=2 bucket=0.008");
    uint32_t buckets = 0, members = 0;

    tn_each_node(f, n) {
        int64_t bytes = 0;

        if (!tn_is(tn_role(n), "grad_reduce") || !tn_on_axis(n, "dp"))
            continue;
        ck_assert(tn_node_last(n) && n->phase == TN_BACKWARD);
        ck_assert_str_eq(n->prev->op->name, "accum");
        ck_assert_ptr_eq(n->prev->out[0], n->in[n->n_in - 1]);
        for (uint32_t i = 0; i < n->n_in; i++) {
            bytes += tn_bytes(n->in[i]);
            ck_assert_str_eq(tn_op(tn_producer(n->in[i])), "accum");
        }
        ck_assert(n->n_in == 1 || (double)bytes <= 0.008 * 1048576);
        buckets++;
        members += n->n_in;
    }
    ck_assert_uint_eq(members, f->n_param);
    ck_assert_uint_ge(buckets, 3);
    ck_assert_uint_lt(buckets, 12);
    ck_assert_uint_eq(count_nodes(f, "all_reduce", TN_AFTER, "reduce"), 0);
    tn_graph_free(f);
}
END_TEST

START_TEST(the_size_of_a_bucket)
{
    struct tn_graph *all = finished("dp=2 bucket=100"), *alone = finished("dp=2 bucket=0");

    ck_assert_uint_eq(count_nodes(all, "all_reduce", TN_BACKWARD, NULL), (all->n_param + 23) / 24);
    ck_assert_uint_eq(count_nodes(alone, "all_reduce", TN_BACKWARD, NULL), alone->n_param);
    tn_graph_free(all), tn_graph_free(alone);
}
END_TEST

/* In every micro-batch: what is added up was reduced before, and the adding waits for the bucket behind. */
START_TEST(buckets_of_every_micro_batch)
{
    static const char *const words[] = {"dp=2 sync_every=1", "dp=2 zero=2", "dp=2 zero=1 sync_every=1", "dp=2 zero=3", "cp=2 sync_every=1"};
    struct tn_graph *f = finished(words[_i]);
    const struct tn_node *current = NULL;
    uint32_t added = 0, at_once = 0;

    tn_each_node(f, n) {
        const struct tn_node *from = n->n_in ? n->in[0]->producer : NULL;

        ck_assert(!tn_node_last(n));
        if (n->phase == TN_BACKWARD && n->n_out && tn_is_collective(n) && tn_is(tn_op(n), "all_reduce", "reduce_scatter"))
            current = n;
        if (!tn_is(tn_role(n), "grad_accum") || !from || !tn_is_collective(from))
            continue;
        added++;
        at_once += from == current;
    }
    ck_assert_uint_ge(added, f->n_param - 1);                /* chunks of a tied weight are added first */
    ck_assert_uint_le(at_once, 14);                          /* the last bucket, for there is none behind */
    tn_graph_free(f);
}
END_TEST

/* Sums over cp of what dp has just reduced begin with dp's next bucket. */
START_TEST(buckets_of_two_axes)
{
    struct tn_graph *f = finished("dp=2 cp=2");
    const struct tn_node *dp = NULL;
    uint32_t waits = 0, n_cp = 0;

    tn_each_node(f, n) {
        if (!tn_is(tn_role(n), "grad_reduce"))
            continue;
        ck_assert(tn_node_last(n));
        if (tn_on_axis(n, "dp"))
            dp = n;
        else {
            n_cp++;
            waits += n->in[n->n_in - 1]->producer == dp;
        }
    }
    ck_assert_uint_ge(n_cp, 4);
    ck_assert_uint_eq(waits, 1);
    tn_graph_free(f);
}
END_TEST

/* What a unit reads is gathered at once, at the begin of the unit before. */
START_TEST(gathers_are_ahead)
{
    struct tn_graph *f = finished("dp=2 zero=3 prefetch=1"), *own = finished("dp=2 zero=3 prefetch=0"), *some = finished("dp=2 zero=3 prefetch=0.01");
    struct tn_node *gather = first_of(f, "all_gather", "gather", "block1", TN_FORWARD);
    struct tn_node *again = first_of(f, "all_gather", "regather", "block0", TN_BACKWARD);

    ck_assert_uint_eq(gather->n_in, 12);
    ck_assert_str_eq(gather->prev->unit, "embed");           /* behind the rest of it, before block0's first node */
    ck_assert_str_eq(gather->next->unit, "block0");
    ck_assert_str_eq(again->prev->unit, "head");
    ck_assert_str_eq(again->next->unit, "block1");
    ck_assert_uint_eq(again->n_in, 6);                       /* four matrices, two norms; no bias is read */
    gather = first_of(own, "all_gather", "gather", "block1", TN_FORWARD);
    ck_assert_str_eq(gather->prev->unit, "block0");
    ck_assert_str_eq(gather->next->unit, "block1");
    ck_assert_str_eq(first_of(some, "all_gather", "gather", "block1", TN_FORWARD)->prev->unit, "block0");       /* 13 KiB do not fit */
    ck_assert_str_eq(first_of(some, "all_gather", "gather", "head", TN_FORWARD)->next->unit, "block1");         /* 5 KiB do */
    ck_assert_uint_eq(count_nodes(f, "all_gather", TN_FORWARD, NULL), 4);
    ck_assert_uint_eq(count_nodes(f, "all_gather", TN_BACKWARD, NULL), 2);       /* not the head's, nor the embeddings */
    tn_graph_free(f), tn_graph_free(own), tn_graph_free(some);
}
END_TEST

/* The sum of an activation's gradient is under way while that of the weight is computed; with sp its scattering. */
START_TEST(activations_before_weights)
{
    static const struct {
        const char *words, *op, *role;
    } t[] = {{"tp=2", "all_reduce", "grad"}, {"tp=2 sp=1", "reduce_scatter", "mlp_fc"}};
    struct tn_graph *f = finished(t[_i].words);
    struct tn_node *c = NULL;
    uint32_t n_found = 0;

    tn_each_node(f, n)
        if (tn_phase(n) == TN_BACKWARD && tn_is(tn_op(n), t[_i].op) && tn_is_unit(n, "block") && tn_on_axis(n, "tp") && !tn_node_last(n)) {
            c = n;
            ck_assert_str_eq(c->prev->op->name, "einsum");
            ck_assert_ptr_eq(c->prev->out[0], c->in[0]);
            ck_assert_str_eq(c->next->op->name, "einsum");   /* of the weight */
            ck_assert_str_eq(c->next->next->role, "grad_accum");
            n_found++;
        }
    ck_assert_uint_eq(n_found, 4);
    tn_graph_free(f);
}
END_TEST

START_TEST(gathered_keys)
{
    struct tn_graph *f = finished("cp=2 ring=0 zigzag=1");
    struct tn_node *keys = first_of(f, "all_gather", "attn_keys", "block0", TN_FORWARD);
    struct tn_node *back = first_of(f, "reduce_scatter", "attn_keys", "block0", TN_BACKWARD);

    ck_assert_uint_eq(keys->n_in, 3);
    ck_assert_uint_eq(back->n_in, 2);
    ck_assert_str_eq(tn_op(tn_producer(back->in[0])), "attn_bwd");
    ck_assert_uint_eq(count_nodes(f, "attention", TN_FORWARD, "block0"), 1);
    ck_assert_uint_eq(count_nodes(f, "ring", 0, NULL), 0);
    tn_graph_free(f);
}
END_TEST

/* Between the start of what travels and its first reader there is a part to compute; the last of dk and dv come home. */
START_TEST(parts_of_a_ring_hide_it)
{
    struct tn_graph *f = finished("cp=3");
    uint32_t hidden = 0, home = 0;

    tn_each_node(f, n) {
        const struct tn_node *user = NULL, *between = n;

        if (!tn_is(tn_op(n), "ring") || !tn_is(tn_unit(n), "block0"))
            continue;
        tn_each_user(tn_output(n, 0), u)
            user = user ? user : u;
        while (between != user && !(tn_is(tn_op(between), "attention", "attn_bwd")))
            between = between->next;
        hidden += between != user || tn_is(tn_op(user), "ring");
        home += between == user && !tn_is(tn_op(user), "ring", "attention", "attn_bwd");
    }
    ck_assert_uint_eq(hidden, 2 * 3 + 2 * 3 + 2 * 2);
    ck_assert_uint_eq(home, 2);
    tn_graph_free(f);
}
END_TEST

/* Sharded inside, replicated across: between the groups go chunks, once an update. */
START_TEST(replicas_of_what_is_sharded)
{
    static const char *const words[] = {"dp=2 ep=2 zero=1", "dp=2 ep=2 zero=2", "dp=2 ep=2 zero=3 bucket=0.002"};
    struct tn_graph *f = finished(words[_i]);
    uint32_t across = 0;

    tn_each_node(f, n) {
        if (!tn_is_collective(n) || !tn_on_axis(n, "dp") || !tn_is(tn_role(n), "grad_reduce"))
            continue;
        ck_assert_str_eq(tn_op(n), "all_reduce");
        ck_assert(tn_node_last(n));
        tn_each_operand(n, v) {
            ck_assert_uint_eq(tn_layout_of(v, "ep"), TN_F);
            across++;
        }
    }
    ck_assert_uint_eq(across, f->n_param);
    tn_each_node(f, n)
        ck_assert(!tn_is(tn_op(n), "all_gather") || tn_on_axis(n, "ep"));
    tn_graph_free(f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("order");
    TCase *c = tcase_create("order");
    SRunner *r = srunner_create(s);
    int failed;

    tcase_set_timeout(c, 120);
    tcase_add_test(c, last_until_the_place_is_set);
    tcase_add_loop_test(c, last_is_for_the_backward, 0, 2);
    tcase_add_test(c, last_is_a_word);
    tcase_add_test(c, last_is_not_read_in_every_micro_batch);
    tcase_add_test(c, conversions_and_their_time);
    tcase_add_test(c, moving);
    tcase_add_test(c, moving_stays_in_the_phase);
    tcase_add_test(c, moving_before_what_it_reads);
    tcase_add_test(c, moving_what_is_gone);
    tcase_add_test(c, one_collective_for_several);
    tcase_add_test(c, those_that_differ_go_apart);
    tcase_add_test(c, stages_go_apart);
    tcase_add_test(c, what_cannot_be_converted);
    tcase_add_test(c, bytes_of_the_largest_part);
    tcase_add_test(c, shapes_are_not_numbers);
    tcase_add_test(c, gradients_in_the_order_of_the_backward);
    tcase_add_loop_test(c, nothing_is_an_error, 0, 10);
    tcase_add_loop_test(c, buckets_of_ddp, 0, 2);
    tcase_add_test(c, the_size_of_a_bucket);
    tcase_add_loop_test(c, buckets_of_every_micro_batch, 0, 5);
    tcase_add_test(c, buckets_of_two_axes);
    tcase_add_test(c, gathers_are_ahead);
    tcase_add_loop_test(c, activations_before_weights, 0, 2);
    tcase_add_test(c, gathered_keys);
    tcase_add_test(c, parts_of_a_ring_hide_it);
    tcase_add_loop_test(c, replicas_of_what_is_sharded, 0, 3);
    suite_add_tcase(s, c);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
