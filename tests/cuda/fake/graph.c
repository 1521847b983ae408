/* graph.c - graphs and their replay.
 *
 * A replay is one operation on its stream that all nodes come after, the nodes, in any order that the graph
 * allows, and one that comes after all of them; replays of one graph come one after another. */
#include "fake.h"

struct CUgraph_st {
    struct CUgraph_st *next;
    struct tn_fake_body *body;
};
struct CUgraphExec_st {
    struct CUgraphExec_st *next;
    struct tn_fake_body *body;
    struct tn_fake_op *last; /* end of its last replay */
};

static struct CUgraph_st *graphs;
static struct CUgraphExec_st *execs;

/* --- bodies */
void tn_fake_body_drop(struct tn_fake_body *b)
{
    if (--b->refs)
        return;
    for (uint32_t i = 0; i < b->n; i++) {
        free(b->node[i].what);
        tn_fake_set_clear(&b->node[i].before);
    }
    free(b->node);
    free(b);
}

uint32_t tn_fake_body_add(struct tn_fake_body *b, const struct tn_fake_node *x)
{
    b->node = realloc(b->node, (b->n + 1) * sizeof *b->node);
    if (!b->node)
        tn_fake_die("no memory for a graph");
    b->node[b->n] = *x;
    if (x->bytes) {
        b->node[b->n].what = malloc(x->bytes);
        if (!b->node[b->n].what)
            tn_fake_die("no memory for a graph");
        memcpy(b->node[b->n].what, x->what, x->bytes);
    }
    return b->n++;
}

struct CUgraph_st *tn_fake_graph_new(struct tn_fake_body *b)
{
    struct CUgraph_st *g = calloc(1, sizeof *g);

    if (!g)
        tn_fake_die("no memory for a graph");
    g->body = b, g->next = graphs, graphs = g;
    return g;
}

/* --- graphs */
#define FIND(list, x)                                                                                        \
    __extension__({                                                                                          \
        __typeof__(list) *at_ = &(list);                                                                     \
        while (*at_ && *at_ != (x))                                                                          \
            at_ = &(*at_)->next;                                                                             \
        at_;                                                                                                 \
    })

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    struct CUgraphExec_st *x = calloc(1, sizeof *x);
    cudaError_t e = cudaSuccess;

    (void)flags;
    *out = NULL;
    tn_fake_lock();
    if (!x)
        tn_fake_die("no memory for a graph");
    if (!*FIND(graphs, graph)) {
        e = tn_fake_error(cudaErrorInvalidValue, "cudaGraphInstantiate: %p is no graph, or no more",
                          (void *)graph);
        free(x);
    } else {
        x->body = graph->body, x->body->refs++;
        x->next = execs, execs = x;
        *out = x;
    }
    tn_fake_unlock();
    return e;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiate(out, graph, flags);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    struct CUgraph_st **at;
    cudaError_t e = cudaSuccess;

    tn_fake_lock();
    if (!*(at = FIND(graphs, graph)))
        e = tn_fake_error(cudaErrorInvalidValue, "cudaGraphDestroy: %p is no graph, or no more",
                          (void *)graph);
    else {
        *at = graph->next;
        tn_fake_body_drop(graph->body);
        free(graph);
    }
    tn_fake_unlock();
    return e;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    struct CUgraphExec_st **at;
    cudaError_t e = cudaSuccess;

    tn_fake_lock();
    if (!*(at = FIND(execs, exec)))
        e = tn_fake_error(cudaErrorInvalidValue, "cudaGraphExecDestroy: %p is no graph, or no more",
                          (void *)exec);
    else {
        *at = exec->next;
        tn_fake_op_drop(exec->last);
        tn_fake_body_drop(exec->body);
        free(exec);
    }
    tn_fake_unlock();
    return e;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec, (void)stream;
    return cudaSuccess;
}

/* The operations of one replay, between the stream's last and its next. */
static void replay(struct CUgraphExec_st *x, struct CUstream_st *s)
{
    const struct tn_fake_body *b = x->body;
    struct tn_fake_op **op = calloc(b->n + 1, sizeof *op);
    struct tn_fake_op *first = tn_fake_op_new(s->device, &tn_fake_nothing, NULL, 0);
    struct tn_fake_op *last = tn_fake_op_new(s->device, &tn_fake_nothing, NULL, 0);

    if (!op)
        tn_fake_die("no memory for a replay");
    tn_fake_op_after(first, x->last);
    tn_fake_append(s, first);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct tn_fake_node *x_i = &b->node[i];

        op[i] = tn_fake_op_new(x_i->device, x_i->kind, x_i->what, x_i->bytes);
        tn_fake_op_after(op[i], first);
        for (uint32_t k = 0; k < x_i->before.n; k++)
            tn_fake_op_after(op[i], op[x_i->before.node[k]]);
        tn_fake_op_after(last, op[i]);
        tn_fake_op_submit(op[i]);
    }
    tn_fake_append(s, last);
    for (uint32_t i = 0; i < b->n; i++)
        tn_fake_op_drop(op[i]);
    free(op);
    tn_fake_op_drop(x->last);
    x->last = tn_fake_op_hold(last);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    struct CUstream_st *s;
    cudaError_t e = tn_fake_failed();

    tn_fake_lock();
    s = tn_fake_stream(stream, "cudaGraphLaunch");
    if (!s)
        e = cudaErrorInvalidResourceHandle;
    else if (!*FIND(execs, exec))
        e = tn_fake_error(cudaErrorInvalidValue, "cudaGraphLaunch: %p is no graph, or no more", (void *)exec);
    else if (s->capture)
        e = tn_fake_error(cudaErrorNotSupported,
                          "cudaGraphLaunch: a graph within a graph is not for this fake");
    else if (!e && !(s->blocking && (e = tn_fake_forbidden_legacy("cudaGraphLaunch")))) {
        tn_fake_counts.replays++;
        replay(exec, s);
    }
    tn_fake_unlock();
    return tn_fake_last(e);
}

uint32_t tn_fake_graph_leaks(void)
{
    uint32_t n = 0;

    for (struct CUgraph_st *g = graphs; g; g = g->next)
        n++;
    for (struct CUgraphExec_st *x = execs; x; x = x->next)
        n++;
    return n;
}
