/* recompute.c - what the backward of a block needs is computed again instead of kept.
 *
 * Before the first backward node of a block that reads something its forward made, clones of the forward
 * nodes that lead there are put, made from what enters the block: that alone then lives from forward to
 * backward, and the rest of one block at a time. A clone has all attributes of its original, so dropout draws
 * the same mask, and the gradients are the same bits.
 *
 * Runs first of what comes after autodiff: a strategy then finds its collectives in both places. What moves
 * between the stages of a pipeline is kept; what lies in the prologue (casts of weights) is there for both
 * anyway. */
#include "pass/pass.h"
#include "graph/op.h"

struct recompute {
    struct tn_graph *g;
    const char *unit;
    uint8_t *wanted;         /* by value id: read in the unit's backward, or by a clone */
    struct tn_value **again; /* by value id: the clone's */
};

static int reads_data(const struct tn_node *n, uint32_t input)
{
    return input >= 32 || !(n->op->unread & 1u << input);
}

static int made_in_forward(const struct recompute *r, const struct tn_value *v)
{
    return v->producer && v->producer->phase == TN_FORWARD && v->producer->unit == r->unit;
}

/* Marks what the unit's backward reads of its forward; the first node that does. */
static struct tn_node *mark_backward(struct recompute *r)
{
    struct tn_node *first = NULL;

    for (struct tn_node *n = r->g->first[TN_BACKWARD]; n; n = n->next)
        for (uint32_t i = 0; i < n->n_in && n->unit == r->unit; i++)
            if (reads_data(n, i) && made_in_forward(r, n->in[i])) {
                r->wanted[n->in[i]->id] = 1;
                first = first ? first : n;
            }
    return first;
}

static int is_wanted(const struct recompute *r, const struct tn_node *n)
{
    int wanted = 0;

    for (uint32_t o = 0; o < n->n_out; o++)
        wanted |= r->wanted[n->out[o]->id];
    return wanted && n->unit == r->unit && strcmp(n->op->name, "move");
}

static void mark_forward(struct recompute *r)
{
    for (struct tn_node *n = r->g->last[TN_FORWARD]; n; n = n->prev)
        for (uint32_t i = 0; i < n->n_in && is_wanted(r, n); i++)
            if (reads_data(n, i))
                r->wanted[n->in[i]->id] = 1;
}

static struct tn_value *latest(const struct recompute *r, struct tn_value *v)
{
    return r->again[v->id] ? r->again[v->id] : v;
}

static void clone(struct recompute *r, const struct tn_node *n)
{
    struct tn_value *in[TN_MAX_IN], *first;

    for (uint32_t i = 0; i < n->n_in; i++)
        in[i] = latest(r, n->in[i]);
    tn_set_role(r->g, n->role);
    first = tn_add(r->g, n->op->name, in, n->n_in, n->attr, n->n_attr);
    for (uint32_t o = 0; first && o < n->n_out; o++)
        r->again[n->out[o]->id] = first->producer->out[o];
}

static void read_clones(struct recompute *r, struct tn_node *n)
{
    for (uint32_t i = 0; i < n->n_in && n->unit == r->unit; i++)
        tn_set_input(n, n->in[i], latest(r, n->in[i]));
}

static void recompute_unit(struct recompute *r)
{
    struct tn_node *first = mark_backward(r);

    if (!first)
        return;
    mark_forward(r);
    tn_before(r->g, first);
    for (struct tn_node *n = r->g->first[TN_FORWARD]; n; n = n->next)
        if (is_wanted(r, n))
            clone(r, n);
    for (struct tn_node *n = first; n; n = n->next)
        read_clones(r, n);
}

/* A strategy may have put nodes of a unit ahead, among those of the unit before. */
static int is_first_of_unit(const struct tn_node *n)
{
    for (const struct tn_node *p = n->prev; p; p = p->prev)
        if (p->unit == n->unit)
            return 0;
    return 1;
}

tn_status tn_graph_recompute(struct tn_graph *g)
{
    uint32_t n_value = g->n_value;
    struct recompute r = {.g = g,
                          .unit = "",
                          .wanted = tn_alloc(g->arena, n_value + 1),
                          .again = tn_alloc(g->arena, (n_value + 1) * sizeof *r.again)};

    for (struct tn_node *n = g->first[TN_FORWARD]; n && !g->status; n = n->next)
        if (n->unit != r.unit && tn_is_unit(n, "block") && is_first_of_unit(n)) {
            r.unit = n->unit;
            recompute_unit(&r);
        }
    return tn_graph_status(g);
}
