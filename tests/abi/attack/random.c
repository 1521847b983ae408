/* random.c - a pass that is data parallelism, and then calls functions of the graph at random: ATTACK_SEED says which.
 * Pointers are the graph's, or NULL; words, numbers and layouts are anything. Every call is one that a mistaken pass
 * could make: the graph must end in a sentence or in a plan, not in a crash. */
#include <stdlib.h>

#include <tenon/pass.h>

#define MOST 4000

static uint64_t state;
static struct tn_value *value[MOST];
static struct tn_node *node[MOST];
static uint32_t values, nodes;

static uint32_t below(uint32_t n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 11) % n;
}

static void collect(struct tn_graph *g)
{
    values = nodes = 0;
    tn_each_param(g, p)
        if (values < MOST)
            value[values++] = p;
    tn_each_input(g, v)
        if (values < MOST)
            value[values++] = v;
    tn_each_node(g, n) {
        if (nodes < MOST)
            node[nodes++] = n;
        if (values < MOST && !tn_is(tn_op(n), "assign"))
            value[values++] = tn_output(n, 0);
    }
}

static struct tn_value *a_value(void)
{
    return below(60) && values ? value[below(values)] : NULL;
}

static struct tn_node *a_node(void)
{
    return below(60) && nodes ? node[below(nodes)] : NULL;
}

static const char *a_word(void)
{
    static const char *const words[] = {
        "dp", "tp", "pp", "batch", "seq", "embed", "vocab", "", "nosuch", "sum", "copy", "expr", "einsum", "all_reduce", "layernorm",
        "block0", "head", "zero", "out", "f", "a + b", "a*(b", "\033[31m\n", "cast", "accum", "dropout", "ce", "gather", "concat",
        "expand", "pick", "zigzag", "axis", "b t -> t b", "slice"};

    return below(50) ? words[below(sizeof words / sizeof *words)] : NULL;
}

static uint32_t a_number(void)
{
    static const uint32_t large[] = {64, 255, 65535, 65536, 0x7fffffff, 0x80000000u, 0xffffffffu};

    return below(4) ? below(10) : large[below(sizeof large / sizeof *large)];
}

static tn_layout a_layout(struct tn_graph *g)
{
    return below(2) ? a_number() : below(2) ? 1 + below(5) : TN_G->shard(g, a_word(), below(2) ? "" : a_word(), (int32_t)a_number());
}

static struct tn_value *add(struct tn_graph *g)
{
    const char *names[4] = {a_word(), a_word(), a_word(), a_word()};
    struct tn_value *in[12];
    struct tn_attr attr[3];

    for (uint32_t i = 0; i < 12; i++)
        in[i] = a_value();
    for (uint32_t i = 0; i < 3; i++) {
        attr[i] = (struct tn_attr){a_word(), 1 + below(4), below(5), {.i = a_number()}};
        if (attr[i].type == TN_ATTR_FLOAT)
            attr[i].as.f = a_number() / 3.0;
        else if (attr[i].type == TN_ATTR_TEXT)
            attr[i].as.s = a_word();
        else if (attr[i].type == TN_ATTR_NAMES)
            attr[i].as.names = names;
    }
    return TN_G->add(g, a_word(), in, below(13), attr, below(4));
}

static struct tn_value *call(struct tn_graph *g, const char *axis)
{
    const char *where = below(3) ? axis : a_word();
    struct tn_value *list[5] = {a_value(), a_value(), a_value(), a_value(), a_value()}, *out[5] = {NULL};

    switch (below(26)) {
    case 0: TN_G->attr(a_node(), a_word()); break;
    case 1: return TN_G->output(a_node(), below(3));
    case 2: TN_G->layout(a_value(), where); break;
    case 3: return TN_G->grad(a_value());
    case 4: TN_G->set_layout(a_value(), where, a_layout(g)); break;
    case 5: case 6: TN_G->at(g, a_node(), below(3)); break;
    case 7: TN_G->at_end(g, a_number(), a_word()); break;
    case 8: TN_G->set_role(g, a_word()); break;
    case 9: case 10: return add(g);
    case 11: case 12: return TN_G->convert(a_value(), where, a_layout(g));
    case 13: return TN_G->clone(a_node());
    case 14: TN_G->set_input(a_node(), a_value(), a_value()); break;
    case 15: TN_G->replace(a_value(), a_value()); break;
    case 16: TN_G->remove(a_node()); break;
    case 17: TN_G->decompose(a_node(), where); break;
    case 18: TN_G->set_grad(a_value(), a_value()); break;
    case 19: return TN_G->copy_param(a_value(), where, TN_G->on(g, a_number()));
    case 20: TN_G->task(g, a_number(), a_number(), a_number(), a_number()); break;
    case 21: TN_G->when_last(g, a_number()); break;
    case 22: TN_G->move(a_node()); break;
    case 23: TN_G->convert_all(list, below(6), where, a_layout(g), out); return out[0];
    case 24: TN_G->reads(a_node(), a_value()); break;
    case 25: return tn_expr(g, below(2) ? "a*2" : "a + 0*b", list, 1 + below(2));
    }
    return NULL;
}

/* Which of the four the seed is for, and how many calls. */
static void attack(struct tn_graph *g, const char *axis, uint32_t part)
{
    const char *text = getenv("ATTACK_SEED");
    const uint32_t seed = text ? (uint32_t)atoi(text) : 0;

    if (!text || seed % 4 != part)
        return;
    state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    collect(g);
    for (uint32_t i = 0; i < 1 + seed / 4 % 6; i++) {
        struct tn_value *v = call(g, axis);

        if (v && values < MOST)
            value[values++] = v;
    }
}

static void forward(struct tn_graph *g, const char *axis)
{
    tn_each_input(g, v)
        if (tn_dim(v, "batch"))
            tn_set_layout(v, axis, tn_shard(g, "batch"));
    attack(g, axis, 0);
}

static void train(struct tn_graph *g, const char *axis)
{
    tn_at_end(g, TN_AFTER, "");
    tn_each_param(g, p)
        tn_set_grad(p, tn_convert(tn_grad(p), axis, TN_R));
    attack(g, axis, 1);
}

static void schedule(struct tn_graph *g, const char *axis)
{
    attack(g, axis, 2);
}

static void lower(struct tn_graph *g, const char *axis)
{
    attack(g, axis, 3);
}

static const struct tn_pass table = {
    .struct_size = sizeof table, .forward = forward, .train = train, .schedule = schedule, .lower = lower};
TN_PLUGIN("random", "1", "an attack", TN_PASS_ID, &table);
