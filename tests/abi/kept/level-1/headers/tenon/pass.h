/* pass.h - rewriting the graph.
 *
 * A parallelism strategy is a pass: a few functions over struct tn_graph, for one mesh axis. Nodes and values
 * are opaque and live as long as the graph, removed ones too, so a pointer never dangles inside a pass.
 * Errors stick: the first one is kept on the graph, every later call does nothing and returns NULL or 0, NULL
 * goes in and out of every call, and the host looks once when the pass returns. So a pass has no error paths.
 * Names (ops, roles, units, dims, axes) are text; what comes back is interned and lives as long as the graph.
 * One thread; nothing here blocks. Needs an active pass (the host's debug build checks). */
#ifndef TENON_PASS_H
#define TENON_PASS_H
#include <tenon/abi.h>
#ifdef __cplusplus
#include <initializer_list>
#endif

struct tn_graph;
struct tn_node;
struct tn_value;

/* A layout on one axis: an interned number, so == compares, and new kinds need no new struct. */
typedef uint32_t tn_layout;
#define TN_R 1u                                  /* replicated */
#define TN_P 2u                                  /* partial sum */
#define TN_PMAX 3u                               /* partial maximum */
#define TN_F 4u                                  /* flat chunk */
#define TN_V 5u                                  /* per rank, no meaning as a whole */
                                                 /* cut on a dim: tn_shard(); at one stage only: tn_on() */
/* phases, in program order */
#define TN_PROLOGUE 1u
#define TN_FORWARD 2u
#define TN_BACKWARD 3u
#define TN_AFTER 4u                              /* once per update, after the last micro-batch */

#define TN_PASS_ID "tenon.pass/1"
struct tn_pass {
    uint32_t struct_size;
    uint32_t reserved0;
    const struct tn_option *options;             /* keys under parallel.; ends with {0}; may be NULL */
    /* All four: main thread, once for each graph, in this order but for schedule, which is the last; g and axis (the
     * mesh axis that the pass is for, "" for an extra pass) are borrowed for the call. Nothing is kept from one
     * call to the next: two ranks must build the same graph. What is wrong is said by tn_fail or sticks to g. */
    void (*forward)(struct tn_graph *g, const char *axis);    /* before autodiff: cut, convert, place */
    void (*train)(struct tn_graph *g, const char *axis);      /* after autodiff: gradients; may be NULL */
    void (*schedule)(struct tn_graph *g, const char *axis);   /* order of micro-batches; may be NULL */
    /* What forward only marked becomes nodes: after autodiff and before train, and in graphs that have no backward
     * (evaluation, generation), where it is the last that a strategy does. May be NULL. */
    void (*lower)(struct tn_graph *g, const char *axis);
};

/* The host's table. Append-only. Call it through the wrappers below, which say what each member does. */
struct tn_graph_api {
    uint32_t struct_size;
    uint32_t reserved0;
    void (*fail)(struct tn_graph *g, tn_status code, const char *text);
    double (*option)(struct tn_graph *g, const char *key);
    int64_t (*axis_size)(struct tn_graph *g, const char *axis);
    /* walking */
    struct tn_node *(*next_node)(struct tn_graph *g, struct tn_node *n, struct tn_node *newest);
    struct tn_value *(*next_param)(struct tn_graph *g, struct tn_value *v);
    struct tn_value *(*next_input)(struct tn_graph *g, struct tn_value *v);
    struct tn_node *(*next_user)(struct tn_value *v, struct tn_node *n);
    struct tn_node *(*newest)(struct tn_graph *g);
    /* reading */
    const char *(*op)(const struct tn_node *n);
    const char *(*role)(const struct tn_node *n);
    const char *(*unit)(const struct tn_node *n);
    uint32_t (*phase)(const struct tn_node *n);
    const struct tn_attr *(*attr)(const struct tn_node *n, const char *key);
    struct tn_value *(*input)(const struct tn_node *n, uint32_t i);
    struct tn_value *(*output)(const struct tn_node *n, uint32_t i);
    struct tn_value *const *(*operands)(const struct tn_node *n);     /* the inputs, then NULL */
    struct tn_node *(*producer)(const struct tn_value *v);
    uint32_t (*is_param)(const struct tn_value *v);
    int64_t (*dim)(const struct tn_value *v, const char *dim);
    tn_layout (*layout)(const struct tn_value *v, const char *axis);
    struct tn_value *(*grad)(const struct tn_value *param);
    /* layouts */
    tn_layout (*shard)(struct tn_graph *g, const char *dim, const char *pattern, int32_t rot);
    void (*set_layout)(struct tn_value *source, const char *axis, tn_layout l);
    /* writing */
    void (*at)(struct tn_graph *g, struct tn_node *n, uint32_t after);
    void (*at_end)(struct tn_graph *g, uint32_t phase, const char *unit);
    void (*set_role)(struct tn_graph *g, const char *role);
    struct tn_value *(*add)(struct tn_graph *g, const char *op, struct tn_value *const *in, uint32_t nin,
                            const struct tn_attr *attr, uint32_t nattr);
    struct tn_value *(*convert)(struct tn_value *v, const char *axis, tn_layout to);
    struct tn_value *(*clone)(struct tn_node *n);
    void (*set_input)(struct tn_node *n, struct tn_value *old, struct tn_value *now);
    void (*replace)(struct tn_value *old, struct tn_value *now);
    void (*remove)(struct tn_node *n);
    void (*decompose)(struct tn_node *n, const char *axis);
    void (*set_grad)(struct tn_value *param, struct tn_value *grad);
    /* stages */
    tn_layout (*on)(struct tn_graph *g, uint32_t stage);
    uint32_t (*unit_index)(const struct tn_node *n, uint32_t *count);
    struct tn_value *(*copy_param)(struct tn_value *param, const char *axis, tn_layout at);
    struct tn_value *(*primary)(const struct tn_value *param);
    void (*task)(struct tn_graph *g, uint32_t rank, uint32_t phase, uint32_t micro_batch, uint32_t stage);
    /* order, and what lies together */
    void (*when_last)(struct tn_graph *g, uint32_t on);
    void (*move)(struct tn_node *n);
    void (*convert_all)(struct tn_value *const *v, uint32_t n, const char *axis, tn_layout to, struct tn_value **out);
    int64_t (*bytes)(const struct tn_value *v);
    uint32_t (*reads)(const struct tn_node *n, const struct tn_value *v);
    struct tn_value *const *(*gradients)(struct tn_graph *g);          /* parameters, then NULL */
    /* more about the graph */
    const char *(*option_text)(struct tn_graph *g, const char *key);
    uint32_t (*micro_batches)(const struct tn_graph *g);
    double (*flops)(const struct tn_node *n);
};

#define TN_G (tn_host->graph)
#define TN_CALL static inline __attribute__((unused))

/* walking: program order; what the body adds is not visited, what it removes is skipped. Positions (0, 1, 2, …, of one
 * dim) are among the inputs. */
/* Every node of the graph, whatever its phase. */
#define tn_each_node(g, n) \
    for (struct tn_node *n = NULL, *n##_newest = TN_G->newest(g); (n = TN_G->next_node(g, n, n##_newest));)
/* Every node that takes v as an input, once. What the body makes a user and stands behind is visited too. */
#define tn_each_user(v, n) \
    for (struct tn_node *n = NULL; (n = TN_G->next_user(v, n));)
/* The inputs of a node, in their order; one that is taken twice comes twice. The body changes none of them. */
#define tn_each_operand(n, v) \
    for (struct tn_value *v = NULL, *const *v##_at = TN_G->operands(n); (v = *v##_at); v##_at++)
/* Parameters, copies of tied ones among them, in the order in which the model made them. */
#define tn_each_param(g, p) for (struct tn_value *p = NULL; (p = TN_G->next_param(g, p));)
/* Parameters in the order in which the backward completes their gradients; that of the beginning. */
#define tn_each_gradient(g, p) \
    for (struct tn_value *p = NULL, *const *p##_at = TN_G->gradients(g); (p = *p##_at); p##_at++)
/* What comes from the data, then positions. */
#define tn_each_input(g, v) for (struct tn_value *v = NULL; (v = TN_G->next_input(g, v));)

/* Which operation, as docs/ops.md names it; "" for NULL. Interned. */
TN_CALL const char *tn_op(const struct tn_node *n) { return TN_G->op(n); }
/* What it is for: "attn_qkv", "mlp_out", "lm_head"; "" where it has no role. Interned. */
TN_CALL const char *tn_role(const struct tn_node *n) { return TN_G->role(n); }
/* Which part of the model: "embed", "block0", "head"; "" for NULL. Interned. */
TN_CALL const char *tn_unit(const struct tn_node *n) { return TN_G->unit(n); }
/* TN_PROLOGUE to TN_AFTER; 0 for NULL. */
TN_CALL uint32_t tn_phase(const struct tn_node *n) { return TN_G->phase(n); }
/* Operand i, from 0. An i that the node does not have is an error. */
TN_CALL struct tn_value *tn_input(const struct tn_node *n, uint32_t i) { return TN_G->input(n, i); }
/* Result i, from 0. An i that the node does not have is an error. */
TN_CALL struct tn_value *tn_output(const struct tn_node *n, uint32_t i) { return TN_G->output(n, i); }
/* The node whose result v is; NULL for a source (parameter, input, state). */
TN_CALL struct tn_node *tn_producer(const struct tn_value *v) { return TN_G->producer(v); }
/* Is v a parameter of the model, or a copy of one? */
TN_CALL int tn_is_param(const struct tn_value *v) { return (int)TN_G->is_param(v); }
/* The gradient of a parameter as it stands now, summed over the micro-batches, fp32; NULL before autodiff. Of another
 * value it is an error. */
TN_CALL struct tn_value *tn_grad(const struct tn_value *p) { return TN_G->grad(p); }
/* v, of the same shape, is the gradient of p from now on: what the norm, the clipping and the optimizer read. */
TN_CALL void tn_set_grad(struct tn_value *p, struct tn_value *v) { TN_G->set_grad(p, v); }
/* Ranks along an axis of the mesh; 1 where it is not cut. */
TN_CALL int64_t tn_axis_size(struct tn_graph *g, const char *axis) { return TN_G->axis_size(g, axis); }
/* The number that the user gave to an option of this pass, or its preset; yes is 1, no is 0. A key that is not among its
 * options is an error. */
TN_CALL double tn_option(struct tn_graph *g, const char *key) { return TN_G->option(g, key); }

/* The words of an option that is text or a choice; "" while it is unset. */
TN_CALL const char *tn_option_text(struct tn_graph *g, const char *key) { return TN_G->option_text(g, key); }

/* How many micro-batches an update has. */
TN_CALL uint32_t tn_micro_batches(const struct tn_graph *g) { return TN_G->micro_batches(g); }

/* FLOPs of a node for a micro-batch of all ranks: the same on every rank, however the values are cut. */
TN_CALL double tn_flops(const struct tn_node *n) { return TN_G->flops(n); }

/* Ends the pass with a sentence for the user: TN_ERR_CONFIG where a key is at fault, which it names, and what would do. */
__attribute__((format(printf, 3, 4), unused))
static void tn_fail(struct tn_graph *g, tn_status code, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (TN_G->fail)(g, code, text);
}

/* Global size of a named dim in elements, whatever the cut; 0 if v has none of that name. */
TN_CALL int64_t tn_dim(const struct tn_value *v, const char *dim) { return TN_G->dim(v, dim); }
/* Layout of v on one axis as it follows now; 0 for NULL. */
TN_CALL tn_layout tn_layout_of(const struct tn_value *v, const char *axis) { return TN_G->layout(v, axis); }
/* Cut on a dim, parts in the order of ranks; sizes that do not divide give the first ranks one element more. */
TN_CALL tn_layout tn_shard(struct tn_graph *g, const char *dim) { return TN_G->shard(g, dim, "", 0); }

/* Held by one stage of a pipeline, from 0; a conversion between two is a move, and a node runs where its inputs are */
TN_CALL tn_layout tn_on(struct tn_graph *g, uint32_t stage) { return TN_G->on(g, stage); }

/* Does the unit of n begin with kind: "block"? */
TN_CALL int tn_is_unit(const struct tn_node *n, const char *kind)
{
    return !strncmp(TN_G->unit(n), kind, strlen(kind));
}

/* Block 3 of 12: index 3, *count 12; a unit of which there is one: 0 of 1. */
TN_CALL uint32_t tn_unit_index(const struct tn_node *n, uint32_t *count) { return TN_G->unit_index(n, count); }

/* The copy of a tied parameter that lives elsewhere on axis, made when first asked for. Positions have
 * copies too. */
TN_CALL struct tn_value *tn_copy_param(struct tn_value *w, const char *axis, tn_layout at) { return TN_G->copy_param(w, axis, at); }
/* The parameter, or the positions, that v is a copy of; v itself if it is none. */
TN_CALL struct tn_value *tn_primary(const struct tn_value *w) { return TN_G->primary(w); }

/* The next thing that a rank of the axis does: TN_FORWARD or TN_BACKWARD of a micro-batch through a stage. */
TN_CALL void tn_task(struct tn_graph *g, uint32_t rank, uint32_t phase, uint32_t micro_batch, uint32_t stage) { TN_G->task(g, rank, phase, micro_batch, stage); }

/* Of sources only (parameters, inputs, states): the layout of the rest follows. On an axis of size 1 it changes nothing. */
TN_CALL void tn_set_layout(struct tn_value *v, const char *axis, tn_layout l) { TN_G->set_layout(v, axis, l); }

/* tn_before, tn_after, tn_at_end: where new nodes go, until said otherwise. They inherit unit, phase, stage and role
 * of n. */
/* In front of n. */
TN_CALL void tn_before(struct tn_graph *g, struct tn_node *n) { TN_G->at(g, n, 0); }
/* Behind n; what follows comes behind what was put there before. */
TN_CALL void tn_after(struct tn_graph *g, struct tn_node *n) { TN_G->at(g, n, 1); }
/* Behind all of a phase, with this unit ("": none); the role stays. */
TN_CALL void tn_at_end(struct tn_graph *g, uint32_t phase, const char *unit) { TN_G->at_end(g, phase, unit); }
/* Of new nodes, until the place is set again. Copied. */
TN_CALL void tn_set_role(struct tn_graph *g, const char *role) { TN_G->set_role(g, role); }

/* New nodes run in the backward of the last micro-batch alone, until the place is set again: a bucket of gradients that add
 * up before, say. Only others of that kind, and TN_AFTER, may read what they make. */
TN_CALL void tn_when_last(struct tn_graph *g, int on) { TN_G->when_last(g, on != 0); }

/* n goes where a new node would, within its phase. Order is overlap: a collective starts where it stands and is waited for
 * where its result is first read. */
TN_CALL void tn_move(struct tn_node *n) { TN_G->move(n); }

/* v in another layout on one axis: the collective that does it (between rotations of a cut a ring, from a stage to the
 * whole a sum over the stages), or v itself; an equal one in the same unit
 * and phase is used again. The only maker of collectives. */
TN_CALL struct tn_value *tn_convert(struct tn_value *v, const char *axis, tn_layout to) { return TN_G->convert(v, axis, to); }

/* The same for n values, in as few collectives as can be; always new ones where several values share one. */
TN_CALL void tn_convert_all(struct tn_value *const *v, uint32_t n, const char *axis, tn_layout to, struct tn_value **out)
{
    TN_G->convert_all(v, n, axis, to, out);
}

/* Bytes that a rank holds of v, at most: sizes that do not divide count as the larger part, so it is the same for all. */
TN_CALL int64_t tn_bytes(const struct tn_value *v) { return TN_G->bytes(v); }

/* Does n read the numbers in v, which it takes, and not its shape alone? */
TN_CALL int tn_reads(const struct tn_node *n, const struct tn_value *v) { return (int)TN_G->reads(n, v); }
/* The same operation on the same inputs once more, where the cursor is; its first result. */
TN_CALL struct tn_value *tn_clone(struct tn_node *n) { return TN_G->clone(n); }
/* n takes now wherever it took old. now must be of the same shape and made before n. */
TN_CALL void tn_set_input(struct tn_node *n, struct tn_value *old, struct tn_value *now) { TN_G->set_input(n, old, now); }

/* All users of old take now, except those that now is made from. */
TN_CALL void tn_replace(struct tn_value *old, struct tn_value *now) { TN_G->replace(old, now); }
/* n goes; an error while something still takes a result of it. The pointer stays valid. */
TN_CALL void tn_remove(struct tn_node *n) { TN_G->remove(n); }

/* n gives way to base operations; sums that come out partial on axis are closed where they arise. */
TN_CALL void tn_decompose(struct tn_node *n, const char *axis) { TN_G->decompose(n, axis); }

/* Is n a collective, on whatever axis? */
TN_CALL int tn_is_collective(const struct tn_node *n) { return TN_G->attr(n, "axis") != NULL; }

/* Is n a collective on this axis? */
TN_CALL int tn_on_axis(const struct tn_node *n, const char *axis)
{
    const struct tn_attr *a = TN_G->attr(n, "axis");
    return a && !strcmp(a->as.s, axis);
}

/* The first of the two conversions that nearly every strategy is made of: n alone takes v in another layout. */
TN_CALL void tn_convert_input(struct tn_graph *g, struct tn_node *n, struct tn_value *v, const char *axis, tn_layout to)
{
    tn_before(g, n);
    tn_set_input(n, v, tn_convert(v, axis, to));
}
/* The second: all users of v take it in another layout. */
TN_CALL void tn_convert_output(struct tn_graph *g, struct tn_value *v, const char *axis, tn_layout to)
{
    tn_after(g, tn_producer(v));
    tn_replace(v, tn_convert(v, axis, to));
}

/* tn_add(g, "lse_open", TN_IN(l, m)), tn_add(g, "sum", TN_IN(x), TN_NAMES("out", "batch", "seq")). The lists live as long
 * as the call that they are written in; in C also as long as the block. */
#ifdef __cplusplus
#define TN_LIST(type, ...) std::initializer_list<type>{__VA_ARGS__}.begin()
#else
#define TN_LIST(type, ...) (type const[]){__VA_ARGS__}
#endif
#define TN_IN(...) TN_LIST(struct tn_value *, __VA_ARGS__), sizeof((struct tn_value *const[]){__VA_ARGS__}) / sizeof(void *)
#define TN_INT(k, v) {k, TN_ATTR_INT, 1, {.i = (v)}}
#define TN_TEXT(k, v) {k, TN_ATTR_TEXT, 1, {.s = (v)}}
#define TN_NAMES(k, ...) {k, TN_ATTR_NAMES, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), {.names = TN_LIST(const char *, __VA_ARGS__)}}
#define TN_WITH(...) TN_LIST(struct tn_attr, __VA_ARGS__), sizeof((const struct tn_attr[]){__VA_ARGS__}) / sizeof(struct tn_attr)
#define TN_NONE NULL, 0
/* A new node where the cursor is; its first result. Inputs and attributes are borrowed for the call. An operation, shape
 * or layout that does not fit is an error. */
TN_CALL struct tn_value *tn_add(struct tn_graph *g, const char *op, struct tn_value *const *in, size_t nin,
                                const struct tn_attr *attr, size_t nattr)
{
    return TN_G->add(g, op, in, (uint32_t)nin, attr, (uint32_t)nattr);
}
/* An element-wise expression over inputs a, b, c, ...: tn_expr(g, "log(a) + b", TN_IN(e, m)) */
TN_CALL struct tn_value *tn_expr(struct tn_graph *g, const char *text, struct tn_value *const *in, size_t nin)
{
    const struct tn_attr f = TN_TEXT("f", text);
    return tn_add(g, "expr", in, nin, &f, 1);
}

/* Is it one of these words? tn_is(tn_op(n), "sum", "rowmax") */
#define tn_is(text, ...) tn_is_(text, TN_LIST(const char *, __VA_ARGS__, NULL))
/* The function behind tn_is: w ends with NULL. */
TN_CALL int tn_is_(const char *s, const char *const *w)
{
    for (; *w; w++)
        if (!strcmp(s, *w))
            return 1;
    return 0;
}
#endif
