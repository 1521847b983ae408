/* gradient_cases.h - one small graph for each way in which an operation is used. For test_gradient.c alone.
 *
 * A case makes one operation (with what it cannot be without) over parameters, and gives the values that the
 * loss is to be made of. Parameters are random between 0.2 and 1 in size; cases keep away from kinks by more
 * than 0.05. */
#ifndef GRADIENT_CASES_H
#define GRADIENT_CASES_H
#include "trial.h"

#define B 2
#define T 4

struct graph {
    struct trial t;
    struct tn_value *out[8], *prod[8]; /* what the case gives; prod: times r */
    uint32_t n_out, n_param;
    float r[8][256];
    float one;
};

/* A parameter p0, p1, ... with these dims. */
static struct tn_value *param(struct graph *c, uint32_t rank, const char *const *dim, const int64_t *size)
{
    char name[8];

    snprintf(name, sizeof name, "p%u", c->n_param++);
    return trial_param(&c->t, name, rank, dim, size);
}
#define P(rank, dims, sizes) param(c, rank, dims, sizes)
#define MATRIX P(2, DIMS("seq", "embed"), SIZES(T, 5))
#define VECTOR P(1, DIMS("embed"), SIZES(5))
#define ATTR(k, v) {k, TN_ATTR_FLOAT, 1, {.f = (v)}}

static struct tn_value *index_of(struct graph *c, const char *name, const int32_t *i)
{
    return trial_input(&c->t, name, TN_I32, 2, DIMS("batch", "seq"), SIZES(B, T), i);
}

static void give(struct graph *c, struct tn_value *v)
{
    c->out[c->n_out++] = v;
}

static void give_all(struct graph *c, struct tn_value *first)
{
    for (uint32_t i = 0; first && i < first->producer->n_out; i++)
        give(c, first->producer->out[i]);
}

/* --- the cases. Rows that are used more than once, once, never; and no row (-1). */
static const int32_t rows[B * T] = {1, 0, 4, 1, -1, 2, 1, 0};

static void einsum_matrix(struct graph *c)
{
    give(c, tn_add(c->t.g, "einsum", TN_IN(MATRIX, P(2, DIMS("mlp", "embed"), SIZES(3, 5))),
                   TN_WITH(TN_NAMES("out", "seq", "mlp"))));
}

/* Two reduced dims, one shared dim that stays, the result in another order. */
static void einsum_many(struct graph *c)
{
    struct tn_value *x = P(4, DIMS("batch", "seq", "heads", "head_dim"), SIZES(2, 2, 2, 3));
    struct tn_value *w = P(4, DIMS("embed", "heads", "batch", "head_dim"), SIZES(3, 2, 2, 3));

    give(c, tn_add(c->t.g, "einsum", TN_IN(x, w), TN_WITH(TN_NAMES("out", "embed", "batch", "seq"))));
}

static void einsum_square(struct graph *c)
{
    struct tn_value *x = MATRIX;

    give(c, tn_add(c->t.g, "einsum", TN_IN(x, x), TN_WITH(TN_NAMES("out", "seq"))));
}

static void sum_inner(struct graph *c)
{
    give(c, tn_add(c->t.g, "sum", TN_IN(P(3, DIMS("a", "b", "c"), SIZES(2, 3, 4))),
                   TN_WITH(TN_NAMES("out", "c", "a"))));
}

static void sum_all(struct graph *c)
{
    give(c, trial_sum(&c->t, MATRIX));
}

static void expand_row(struct graph *c)
{
    struct tn_value *like = MATRIX;

    give(c, tn_add(c->t.g, "expand", TN_IN(VECTOR, like), TN_NONE));
    give(c, like);
}

static void copy(struct graph *c)
{
    give(c, tn_add(c->t.g, "copy", TN_IN(MATRIX), TN_NONE));
}

static void cast_wide(struct graph *c)
{
    struct tn_value *y = tn_add(c->t.g, "cast", TN_IN(MATRIX), TN_WITH(TN_INT("to", TN_F64)));

    give(c, tn_add(c->t.g, "cast", TN_IN(y), TN_WITH(TN_INT("to", TN_F32))));
}

static void dropout(struct graph *c)
{
    give(c, tn_add(c->t.g, "dropout", TN_IN(P(3, DIMS("batch", "seq", "embed"), SIZES(B, T, 5))),
                   TN_WITH(ATTR("p", 0.4), TN_INT("key", 9))));
}

static void expr(struct graph *c, const char *text)
{
    give(c, tn_expr(c->t.g, text, TN_IN(MATRIX, VECTOR)));
}
#define EXPR(name, text)                                                                                     \
    static void expr_##name(struct graph *c)                                                                 \
    {                                                                                                        \
        expr(c, text);                                                                                       \
    }
EXPR(polynomial, "a*b - b/a + 3*a - (-b) + square(a)*b")
EXPR(power, "square(a)^1.5 + (1.1 + square(b))^a")
EXPR(exponential, "exp(a*b) + log(a*a + b*b) + sqrt(1 + a*a) + rsqrt(0.5 + b*b)")
EXPR(smooth, "tanh(2*a)*b + erf(a + b) + sigmoid(a - b)")
EXPR(gelu, "gelu(a) + gelu_tanh(2*a)*b + silu(a*b)")
EXPR(kinks, "relu(a) + min(a, 0.1*b)*b + max(0.1*b, a)*a")
EXPR(choice, "select(ge(a, 0.1*b), a*b, b - a) + select(0, a, b)")

/* Several results of one program, one of which nobody reads; an input of integers has no gradient. */
static void expr_results(struct graph *c)
{
    struct tn_value *i = index_of(c, "i", rows), *x = P(2, DIMS("batch", "seq"), SIZES(B, T)), *y;

    y = tn_add(
        c->t.g, "expr", TN_IN(x, i, P(1, DIMS("seq"), SIZES(T))),
        TN_WITH(TN_TEXT("f", "u = a*c; v = exp(u) + b; s = v*a*0.5"), TN_NAMES("results", "u", "v", "s")));
    if (y)
        give(c, y), give(c, tn_output(tn_producer(y), 2));
}

static void embed(struct graph *c)
{
    give(c, tn_add(c->t.g, "embed",
                   TN_IN(P(3, DIMS("rows", "heads", "embed"), SIZES(5, 2, 3)), index_of(c, "i", rows)),
                   TN_NONE));
}

static void pick(struct graph *c)
{
    give(c,
         tn_add(c->t.g, "pick",
                TN_IN(P(3, DIMS("batch", "seq", "vocab"), SIZES(B, T, 5)), index_of(c, "i", rows)), TN_NONE));
}

static void split(struct graph *c)
{
    struct tn_value *y = tn_add(c->t.g, "split", TN_IN(P(3, DIMS("seq", "qkv", "embed"), SIZES(T, 3, 5))),
                                TN_WITH(TN_TEXT("dim", "qkv")));

    if (y) /* the one between has no gradient: zeros */
        give(c, y), give(c, tn_output(tn_producer(y), 2));
}

static void stack(struct graph *c)
{
    give(c, tn_add(c->t.g, "stack", TN_IN(MATRIX, MATRIX, MATRIX),
                   TN_WITH(TN_TEXT("dim", "qkv"), TN_INT("at", 1))));
}

/* Its own other name: how queries meet keys. */
static void rename_dim(struct graph *c)
{
    struct tn_value *x = MATRIX, *y = tn_add(c->t.g, "rename", TN_IN(x),
                                             TN_WITH(TN_TEXT("dim", "seq"), TN_TEXT("now", "keys")));

    give(c, tn_add(c->t.g, "einsum", TN_IN(x, y), TN_WITH(TN_NAMES("out", "seq", "keys"))));
    give(c, y);
}

static void layernorm(struct graph *c)
{
    struct tn_value *x = P(3, DIMS("batch", "seq", "embed"), SIZES(B, T, 5));

    give(c, tn_add(c->t.g, "layernorm", TN_IN(x, VECTOR, VECTOR), TN_WITH(ATTR("eps", 1e-2))));
}

static void layernorm_no_bias(struct graph *c)
{
    give(c, tn_add(c->t.g, "layernorm", TN_IN(MATRIX, VECTOR), TN_WITH(ATTR("eps", 1e-5))));
}

static void rmsnorm(struct graph *c)
{
    struct tn_value *x = P(3, DIMS("batch", "seq", "embed"), SIZES(B, T, 5));

    give(c, tn_add(c->t.g, "rmsnorm", TN_IN(x, VECTOR), TN_WITH(ATTR("eps", 1e-2))));
}

static void halve(struct graph *c)
{
    give_all(c, tn_add(c->t.g, "halve", TN_IN(P(3, DIMS("batch", "head_dim", "seq"), SIZES(B, 6, T))),
                       TN_WITH(TN_TEXT("dim", "head_dim"), TN_TEXT("now", "half"))));
}

/* The other half has no gradient. */
static void halve_one(struct graph *c)
{
    struct tn_value *x = P(2, DIMS("batch", "head_dim"), SIZES(B, 6));
    struct tn_value *y = tn_add(c->t.g, "halve", TN_IN(x), TN_WITH(TN_TEXT("dim", "head_dim"), TN_TEXT("now", "half")));

    give(c, y ? tn_output(tn_producer(y), 1) : NULL);
}

static void join(struct graph *c)
{
    struct tn_value *x = P(3, DIMS("batch", "half", "seq"), SIZES(B, 3, T)), *y = P(3, DIMS("batch", "half", "seq"), SIZES(B, 3, T));

    give(c, tn_add(c->t.g, "join", TN_IN(x, y), TN_WITH(TN_TEXT("dim", "half"), TN_TEXT("now", "head_dim"))));
}

/* The table as the graph makes it; positions too, or as data: one that has no row gives nothing. */
static void rope_of(struct graph *c, int64_t rep, int sign, int data)
{
    static const int32_t given[T] = {3, 0, 3, 9};
    static const struct tn_rotary angles = {.theta = 100};
    const char *const dim[] = {"batch", "seq", "heads", "rep", "head_dim"}, *const flat[] = {"batch", "seq", "heads", "head_dim"};
    struct tn_value *x = rep > 1 ? P(5, dim, SIZES(B, T, 2, rep, 6)) : P(4, flat, SIZES(B, T, 2, 6));
    struct tn_value *pos = data ? trial_input(&c->t, "pos", TN_I32, 1, DIMS("seq"), SIZES(T), given) : tn_graph_positions(c->t.g, "seq", T);

    give(c, tn_add(c->t.g, "rope", TN_IN(x, pos, tn_graph_rotary(c->t.g, DIMS("posn", "head_dim"), T, 6, &angles)),
                   TN_WITH(TN_INT("sign", sign))));
}

static void rope(struct graph *c)
{
    rope_of(c, 1, 1, 0);
}

static void rope_grouped(struct graph *c)
{
    rope_of(c, 2, 1, 0);
}

static void rope_back(struct graph *c)
{
    rope_of(c, 1, -1, 1);
}

static void ce(struct graph *c)
{
    give(c,
         tn_add(c->t.g, "ce",
                TN_IN(P(3, DIMS("batch", "seq", "vocab"), SIZES(B, T, 5)), index_of(c, "i", rows)), TN_NONE));
}

static struct tn_value *head(struct graph *c)
{
    struct tn_value *x = P(3, DIMS("batch", "seq", "embed"), SIZES(B, T, 3)),
                    *w = P(2, DIMS("vocab", "embed"), SIZES(5, 3));

    return tn_add(c->t.g, "head", TN_IN(x, w, index_of(c, "i", rows)), TN_NONE);
}

static void head_both(struct graph *c)
{
    give_all(c, head(c));
}

static void head_lse(struct graph *c)
{
    give(c, head(c));
}

static void head_logit(struct graph *c)
{
    struct tn_value *y = head(c);

    give(c, y ? tn_output(tn_producer(y), 1) : NULL);
}

/* Positions as the graph makes them, or as data: a query before all keys sees none, one sees all. */
static const int32_t from[T] = {2, -1, 9, 1}, to[T] = {1, 0, 3, 9};

static struct tn_value *attention(struct graph *c, int64_t rep, double p, int data)
{
    const char *const dim[] = {"batch", "seq", "heads", "rep", "head_dim"};
    const char *const kdim[] = {"batch", "seq", "heads", "head_dim"};
    const int64_t size[] = {B, T, 2, rep, 3}, ksize[] = {B, T, 2, 3};
    struct tn_value *q = rep > 1 ? P(5, dim, size) : P(4, kdim, ksize), *k = P(4, kdim, ksize),
                    *v = P(4, kdim, ksize), *qpos, *kpos;

    qpos = data ? trial_input(&c->t, "from", TN_I32, 1, DIMS("seq"), SIZES(T), from)
                : tn_graph_positions(c->t.g, "seq", T);
    kpos = data ? trial_input(&c->t, "to", TN_I32, 1, DIMS("seq"), SIZES(T), to) : qpos;
    return tn_add(c->t.g, "attention", TN_IN(q, k, v, qpos, kpos),
                  TN_WITH(ATTR("scale", 0.7), ATTR("dropout", p), TN_INT("key", 5), TN_INT("block", T)));
}

static void attention_causal(struct graph *c)
{
    give(c, attention(c, 1, 0, 0));
}

static void attention_positions(struct graph *c)
{
    give(c, attention(c, 1, 0, 1));
}

static void attention_dropout(struct graph *c)
{
    give(c, attention(c, 1, 0.3, 0));
}

static void attention_grouped(struct graph *c)
{
    give(c, attention(c, 3, 0, 0));
}

static void attention_grouped_dropout(struct graph *c)
{
    give(c, attention(c, 2, 0.3, 0));
}

static void attention_lse(struct graph *c)
{
    give_all(c, attention(c, 1, 0.3, 0));
}

/* The values have no part in it, and so need another use. */
static void attention_lse_alone(struct graph *c)
{
    struct tn_value *o = attention(c, 2, 0, 0);

    if (o)
        give(c, tn_output(tn_producer(o), 1)), give(c, tn_input(tn_producer(o), 2));
}

/* --- experts. Who visits whom is data but in route */
static const int32_t places[B * T * 3] = {3, 7, 0, -1, 1, 4, 6, -1, 2, 5, 8, -1, 9, -1, 15, 10, 11, -1, 12, -1, 16, 13, 14, -1};
static const int32_t counts[6] = {4, 0, 3, 2, 5, 1};         /* of two blocks; one slot is nobody's */

static struct tn_value *whole_numbers(struct graph *c, const char *name, uint32_t rank, const char *const *dim, const int64_t *size, const int32_t *x)
{
    return trial_input(&c->t, name, TN_I32, rank, dim, size, x);
}
#define PACKED(dim, size) P(4, DIMS("batch", "seq", "choice", dim), SIZES(B, T, 2, size))
#define PLACES whole_numbers(c, "place", 3, DIMS("batch", "seq", "expert"), SIZES(B, T, 3), places)
#define GATES P(3, DIMS("batch", "seq", "expert"), SIZES(B, T, 3))

/* The distance of the k-th from the next is more than what the differences move. */
static void route(struct graph *c)
{
    static const float far[4] = {-3, 2, 0, 5};
    struct tn_value *shift = trial_input(&c->t, "far", TN_F32, 1, DIMS("expert"), SIZES(4), far);
    struct tn_value *x = P(2, DIMS("seq", "expert"), SIZES(T, 4));

    give(c, tn_add(c->t.g, "route", TN_IN(tn_expr(c->t.g, "a + b", TN_IN(x, shift))), TN_WITH(TN_INT("k", 2))));
}

static void dispatch(struct graph *c)
{
    give(c, tn_add(c->t.g, "dispatch", TN_IN(P(3, DIMS("batch", "seq", "embed"), SIZES(B, T, 3)), PLACES), TN_WITH(TN_INT("k", 2))));
}

static void combine(struct graph *c)
{
    give(c, tn_add(c->t.g, "combine", TN_IN(PACKED("embed", 3), PLACES, GATES), TN_NONE));
}

static void grouped_to(struct graph *c, const char *a, int64_t a_size, const char *b, int64_t b_size)
{
    struct tn_value *w = P(3, DIMS("expert", a, b), SIZES(3, a_size, b_size));
    struct tn_value *count = whole_numbers(c, "count", 2, DIMS("block", "expert"), SIZES(2, 3), counts);

    give(c, tn_add(c->t.g, "grouped", TN_IN(PACKED("embed", 3), w, count), TN_NONE));
}

static void grouped(struct graph *c)
{
    grouped_to(c, "mlp", 2, "embed", 3);
}

static void grouped_other(struct graph *c)
{
    grouped_to(c, "embed", 3, "mlp", 2);
}

/* The maximum only stabilises: it has no gradient, so it is no parameter here. */
static void lse_open(struct graph *c)
{
    static const float max[B * T] = {0.5f, 1, -0.25f, 0, 1, 0.75f, 0.5f, -0.5f};
    struct tn_value *m = trial_input(&c->t, "max", TN_F32, 2, DIMS("batch", "seq"), SIZES(B, T), max);

    give(c, tn_add(c->t.g, "lse_open", TN_IN(P(2, DIMS("batch", "seq"), SIZES(B, T)), m), TN_NONE));
}

static const struct {
    const char *op;
    void (*build)(struct graph *c);
} cases[] = {
    {"einsum", einsum_matrix},
    {"einsum", einsum_many},
    {"einsum", einsum_square},
    {"sum", sum_inner},
    {"sum", sum_all},
    {"expand", expand_row},
    {"copy", copy},
    {"cast", cast_wide},
    {"dropout", dropout},
    {"expr", expr_polynomial},
    {"expr", expr_power},
    {"expr", expr_exponential},
    {"expr", expr_smooth},
    {"expr", expr_gelu},
    {"expr", expr_kinks},
    {"expr", expr_choice},
    {"expr", expr_results},
    {"embed", embed},
    {"pick", pick},
    {"split", split},
    {"stack", stack},
    {"rename", rename_dim},
    {"layernorm", layernorm},
    {"layernorm", layernorm_no_bias},
    {"rmsnorm", rmsnorm},
    {"halve", halve},
    {"halve", halve_one},
    {"join", join},
    {"rope", rope},
    {"rope", rope_grouped},
    {"rope", rope_back},
    {"ce", ce},
    {"head", head_both},
    {"head", head_lse},
    {"head", head_logit},
    {"attention", attention_causal},
    {"attention", attention_positions},
    {"attention", attention_dropout},
    {"attention", attention_grouped},
    {"attention", attention_grouped_dropout},
    {"attention", attention_lse},
    {"attention", attention_lse_alone},
    {"lse_open", lse_open},
    {"route", route},
    {"dispatch", dispatch},
    {"combine", combine},
    {"grouped", grouped},
    {"grouped", grouped_other},
};
#define CASES (sizeof cases / sizeof *cases)
#endif
