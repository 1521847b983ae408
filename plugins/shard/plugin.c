/* shard - ZeRO on one axis, on top of a cut batch (Rajbhandari et al. 2020).
 *
 * 1: gradients are reduce-scattered once per update. 2: in every micro-batch, so that only chunks accumulate.
 * 3: parameters live as flat chunks and are gathered where a unit uses them, in backward again; autodiff turns the gather
 * into a reduce-scatter. The update follows the layout of the gradient by itself, so the optimizer's state is a chunk in
 * all three.
 *
 * What a unit needs is gathered in one go, at the begin of the unit before as far as the cap allows, and chunks of gradients
 * are added up when the next unit's are on their way: order is all that overlap takes. */
#include <tenon/gradients.h>

/* A unit in one phase. */
struct unit {
    struct tn_graph *g;
    const char *axis;
    uint32_t phase;
    struct tn_node *here, *before;                           /* first node of it, of the unit before */
};

static int is_gather(const struct unit *u, const struct tn_node *n)
{
    return n && tn_is(tn_op(n), "all_gather") && tn_is(tn_role(n), "gather", "regather") && tn_on_axis(n, u->axis);
}

static int is_here(const struct unit *u, const struct tn_node *n)
{
    return tn_phase(n) == u->phase && tn_unit(n) == tn_unit(u->here) && !is_gather(u, n);
}

/* What must be gathered for n to read v: in forward v itself, of a weight in low precision the cast; in backward the chunk
 * of which forward, or its recomputation, made v. NULL: nothing. */
static struct tn_value *chunk_of(const struct unit *u, const struct tn_node *n, struct tn_value *v)
{
    struct tn_node *gather = tn_producer(v);
    uint32_t i = 0;

    if (u->phase == TN_FORWARD)
        return tn_layout_of(v, u->axis) == TN_F ? v : NULL;
    if (!is_gather(u, gather) || tn_is(tn_role(gather), "regather") || !tn_reads(n, v))
        return NULL;
    while (tn_output(gather, i) != v)
        i++;
    return tn_input(gather, i);
}

/* Values that the unit needs gathered, and their chunks; returns how many, of more than a bucket the first. */
static uint32_t needs(const struct unit *u, struct tn_value **v, struct tn_value **chunk)
{
    uint32_t count = 0;

    tn_each_node(u->g, n)
        if (is_here(u, n))
            tn_each_operand(n, in) {
                uint32_t i = 0;

                while (i < count && v[i] != in)
                    i++;
                if (i == count && count < TN_BUCKET && chunk_of(u, n, in))
                    v[count] = in, chunk[count++] = chunk_of(u, n, in);
            }
    return count;
}

/* The last of this phase's nodes that makes one of the chunks: another axis' gather, of what is recomputed. NULL: they are there. */
static struct tn_node *maker_of(const struct unit *u, struct tn_value *const *chunk, uint32_t n)
{
    struct tn_node *last = NULL;

    tn_each_node(u->g, node)
        for (uint32_t i = 0; tn_phase(node) == u->phase && i < n; i++)
            last = tn_producer(chunk[i]) == node ? node : last;
    return last;
}

/* All in one go, with the unit before while there is room. */
static void gather(const struct unit *u)
{
    struct tn_value *v[TN_BUCKET], *chunk[TN_BUCKET], *whole[TN_BUCKET];
    double room = tn_option(u->g, "prefetch") * 1048576;
    struct tn_node *maker;
    uint32_t n;

    while ((n = needs(u, v, chunk))) {
        if ((maker = maker_of(u, chunk, n)))
            tn_after(u->g, maker);
        else
            tn_before(u->g, u->here);
        tn_set_role(u->g, u->phase == TN_FORWARD ? "gather" : "regather");
        tn_convert_all(chunk, n, u->axis, TN_R, whole);
        for (uint32_t i = 0; i < n; i++) {
            room -= (double)tn_bytes(whole[i]);
            tn_each_user(v[i], user)
                if (is_here(u, user) && chunk_of(u, user, v[i]))
                    tn_set_input(user, v[i], whole[i]);
        }
        if (!u->before || room < 0 || maker)
            continue;
        tn_before(u->g, u->before);
        for (uint32_t i = 0; i < n; i++)
            tn_move(tn_producer(whole[i]));
    }
}

/* Backward gathers anew, so that what forward gathered can be freed; but not in the unit in which forward ends and backward
 * begins. */
static void gather_units(struct tn_graph *g, const char *axis, uint32_t phase)
{
    struct unit u = {.g = g, .axis = axis, .phase = phase};
    const char *turn = phase == TN_FORWARD || tn_axis_size(g, "pp") > 1 ? "" : NULL;

    tn_each_node(g, n) {
        if (tn_phase(n) != phase || is_gather(&u, n) || (u.here && tn_unit(n) == tn_unit(u.here)))
            continue;
        u.before = u.here, u.here = n;
        turn = turn ? turn : tn_unit(n);
        if (tn_unit(n) != turn)
            gather(&u);
    }
    tn_each_node(g, n)                                       /* those of a recomputation gave way */
        if (phase == TN_BACKWARD && tn_phase(n) == phase && is_gather(&u, n) && tn_is(tn_role(n), "gather"))
            tn_remove(n);
}

/* Chunks of gradients are added up behind the next unit's reduce_scatter. */
static void add_up_late(struct tn_graph *g, const char *axis)
{
    struct tn_bucket b = {.n_waiting = 0};
    struct tn_node *made = NULL;

    tn_each_gradient(g, w) {
        struct tn_node *accum = tn_producer(tn_grad(w)), *part = tn_is(tn_op(accum), "accum") ? tn_producer(tn_input(accum, 0)) : NULL;

        if (!part || !tn_is(tn_op(part), "reduce_scatter") || !tn_on_axis(part, axis))
            continue;
        if (part != made) {
            tn_after(g, part);
            tn_bucket_add_up(&b);
        }
        made = part;
        b.waiting[b.n_waiting++] = accum;
    }
    tn_at_end(g, TN_BACKWARD, "");
    tn_bucket_add_up(&b);
}

static void forward(struct tn_graph *g, const char *axis)
{
    tn_each_input(g, v)
        if (tn_dim(v, "batch"))
            tn_set_layout(v, axis, tn_shard(g, "batch"));
    if (tn_option(g, "zero") < 3)
        return;
    tn_each_param(g, w)
        if (tn_layout_of(w, axis) == TN_R)                   /* and no strategy has cut it here: experts */
            tn_set_layout(w, axis, TN_F);
    gather_units(g, axis, TN_FORWARD);
}

static void train(struct tn_graph *g, const char *axis)
{
    double zero = tn_option(g, "zero");

    if (zero < 3) {
        tn_reduce_gradients(g, axis, TN_F, zero == 2 || tn_option(g, "sync_every") != 0);
        return;
    }
    gather_units(g, axis, TN_BACKWARD);
    add_up_late(g, axis);
}

static const struct tn_option options[] = {
    {"zero", "0", "what is sharded over dp: 1 the optimizer's state, 2 gradients too, 3 parameters too", 0, 3},
    {"prefetch", "64", "MiB of weights that are gathered one unit ahead with zero = 3", 0, 65536},
    TN_BUCKET_OPTIONS,
    {0},
};

static const struct tn_pass shard = {
    .struct_size = sizeof shard,
    .options = options,
    .forward = forward,
    .train = train,
};

TN_PLUGIN("shard", "0.1.0", "ZeRO 1 to 3: state, gradients and parameters in chunks", TN_PASS_ID, &shard);
