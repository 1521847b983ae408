/* dnn_kernel.c - kernels of attention and its gradient by cuDNN: plans, parts, workspace, launches.
 *
 * A kernel is wrapped around the own one of the same problem, which does the launches whose addresses are not
 * at multiples of 16 bytes. Plans take seconds, so one is made for each form and shared by all layers; a form
 * that the library refuses is remembered, and said once. A plan that would take too much workspace is made
 * for a part of the batch, or of the heads of one sequence, and run once for each part.
 *
 * In the workspace lie: statistics; backward o, row sums of a part, sums of dq of a part if they are wanted;
 * cuDNN's. Addresses go to the library in a pack, made when they are first seen: a launch with the same ones
 * makes nothing. */
#include <math.h>
#include "dnn.h"

uint64_t tn_dnn_most = UINT64_C(1) << 30;

struct plan {
    struct plan *next;
    struct tn_dnn_attention of;
    struct tn_dnn_graph graph;
    struct tn_dnn_plan plan;                     /* .plan NULL: there is none */
};
static struct plan *plans; /* to the end of the process, as layers of the next session want them */

/* What one part is run with; made when the addresses are first seen, which then stay. */
struct pack {
    cudnnBackendDescriptor_t pack;
    void *at[TN_DNN_IDS], *workspace;
};
struct kernel {
    struct tn_kernel own;
    struct plan *plan;
    struct tn_dnn_attention whole;
    struct tn_cuda_rows rows;
    uint64_t at_o, at_sum, at_dq, at_cudnn;      /* in the workspace; statistics at 0 */
    float scale, masked, one;
    uint32_t low[8], n_low;                      /* buffers that must be at multiples of 16 bytes */
    uint32_t batches, heads;                     /* of one part */
    uint32_t parts_batch, parts_heads;
    struct pack pack[];
};

/* --- plans */
static void complain(const struct tn_dnn_attention *a, const char *why)
{
    char text[600];

    snprintf(text, sizeof text,
             "cuda: cuDNN has no plan for the %s of attention, %lld heads of %lld, %lld tokens, so it is slow: %s",
             a->back ? "gradient" : "forward", (long long)(a->heads * a->rep), (long long)a->width,
             (long long)a->time, why);
    tn_host->log(1, text);
}

static struct plan *plan_of(const struct tn_dnn_attention *a)
{
    struct plan *p = plans;
    char why[400] = "";

    while (p && memcmp(&p->of, a, sizeof *a))
        p = p->next;
    if (p || !(p = calloc(1, sizeof *p)))
        return p;
    p->of = *a, p->next = plans, plans = p;
    p->graph.handle = tn_dnn_handle;
    tn_dnn_attention_graph(&p->graph, a);
    if (tn_dnn_graph_plan(&p->graph, tn_dnn_most, (int)a->any_order, &p->plan, why, sizeof why)) {
        tn_dnn_graph_free(&p->graph);
        complain(a, why);
    }
    return p;
}

/* Of dS for one head of keys, in tiles of 64 by 128, and of gradients for each head of queries
 * that shares it. */
static uint64_t scores_bytes(const struct tn_dnn_attention *a)
{
    const int64_t scores = TN_CUDA_PARTS(a->time, 64) * 64 * (TN_CUDA_PARTS(a->time, 128) * 128);

    if (!a->back || a->any_order)
        return 0;
    return (uint64_t)(2 * a->rep * (scores + (a->rep > 1 ? 2 * a->time * a->width : 0)));
}

static uint32_t largest_part(int64_t n, uint64_t each, uint64_t most)
{
    int64_t part = n;

    while (part > 1 && (n % part || (uint64_t)part * each > most))
        part--;
    return (uint32_t)part;
}

/* One part: all heads of some sequences, or some heads of one. Leaves room for what a plan takes
 * besides. 0: the next part's statistics would not begin at a multiple of 16 bytes. */
static int cut(const struct kernel *k, struct tn_dnn_attention *part)
{
    const uint64_t head = scores_bytes(&k->whole), most = tn_dnn_most - tn_dnn_most / 16;

    *part = k->whole;
    if (head)
        part->heads = largest_part(part->heads, head, most);
    part->batch =
        part->heads == k->whole.heads ? largest_part(part->batch, head * (uint64_t)part->heads, most) : 1;
    return (part->heads == k->whole.heads && part->batch == k->whole.batch) ||
           part->batch * part->heads * part->rep * part->time % 4 == 0;
}

/* --- launches */
static void *place(void *base, const int64_t stride[3], int64_t b, int64_t h)
{
    return (char *)base + 2 * (b * stride[0] + h * stride[1]);
}

/* Addresses of the part that begins with sequence b and head h of keys. */
static void addresses(struct kernel *k, const struct tn_launch *l, char *work, int64_t b, int64_t h,
                      void **at)
{
    const struct tn_dnn_attention *a = &k->whole;
    void *const *x = l->buffer;
    const int64_t query = h * a->rep;

    memset(at, 0, TN_DNN_IDS * sizeof *at);
    at[TN_DNN_Q] = place(x[TN_DNN_IN_QUERY], a->q, b, query),
    at[TN_DNN_K] = place(x[TN_DNN_IN_KEY], a->k, b, h);
    at[TN_DNN_V] = place(x[TN_DNN_IN_VALUE], a->v, b, h);
    at[TN_DNN_STATS] = (float *)work + (b * a->heads * a->rep + query) * a->time;
    at[TN_DNN_SCALE] = &k->scale, at[TN_DNN_MASKED] = &k->masked;
    if (!a->back) {
        at[TN_DNN_O] = place(x[TN_DNN_OUT_O], a->o, b, query);
        return;
    }
    at[TN_DNN_O] = place(work + k->at_o, a->o, b, query),
    at[TN_DNN_GRAD] = place(x[TN_DNN_IN_GRAD], a->grad, b, query);
    at[TN_DNN_DQ] = place(x[TN_DNN_OUT_DQ], a->dq, b, query),
    at[TN_DNN_DK] = place(x[TN_DNN_OUT_DK], a->dk, b, h);
    at[TN_DNN_DV] = place(x[TN_DNN_OUT_DV], a->dv, b, h);
    at[TN_DNN_SUM] = work + k->at_sum, at[TN_DNN_ONE] = &k->one;
    if (a->any_order)
        at[TN_DNN_DQ_SUM] = work + k->at_dq;
}

static void forget(struct pack *p)
{
    if (p->pack)
        tn_dnn.cudnnBackendDestroyDescriptor(p->pack);
    p->pack = NULL;
}

static tn_status failed(cudnnStatus_t s, const char *what)
{
    char why[400];

    tn_dnn_say(s, why, sizeof why);
    return tn_error(TN_ERR, "cuda: cuDNN, %s: %s (status %d)", what, why, (int)s);
}

/* Only a first launch, or one with other addresses, has something to do here. */
static tn_status bind(struct pack *p, void *const *at, void *workspace)
{
    int64_t id[TN_DNN_IDS], n = 0;
    void *some[TN_DNN_IDS];
    cudnnStatus_t s;

    if (p->pack && p->workspace == workspace && !memcmp(p->at, at, sizeof p->at))
        return TN_OK;
    forget(p);
    for (int64_t i = 0; i < TN_DNN_IDS; i++)
        if (at[i])
            id[n] = i, some[n++] = at[i];
    memcpy(p->at, at, sizeof p->at), p->workspace = workspace;
    if ((s = tn_dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &p->pack)) ||
        (s = tn_dnn.cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n,
                                             id)) ||
        (s = tn_dnn.cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                             CUDNN_TYPE_VOID_PTR, n, some)) ||
        (s = tn_dnn.cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                                             1, &workspace)) ||
        (s = tn_dnn.cudnnBackendFinalize(p->pack))) {
        forget(p);
        return failed(s, "addresses of attention");
    }
    return TN_OK;
}

static tn_status run_parts(struct kernel *k, const struct tn_launch *l, char *work)
{
    for (uint32_t i = 0; i < k->parts_batch * k->parts_heads; i++) {
        const int64_t b = i / k->parts_heads * k->batches, h = i % k->parts_heads * k->heads;
        void *at[TN_DNN_IDS];
        cudnnStatus_t e;
        tn_status s;

        addresses(k, l, work, b, h, at);
        if ((s = bind(&k->pack[i], at, work + k->at_cudnn)))
            return s;
        if ((e = tn_dnn.cudnnBackendExecute(tn_dnn_handle, k->plan->plan.plan, k->pack[i].pack)))
            return failed(e, "attention");
    }
    return TN_OK;
}

static int is_aligned(const struct kernel *k, const struct tn_launch *l)
{
    uintptr_t all = 0;

    for (uint32_t i = 0; i < k->n_low; i++)
        all |= (uintptr_t)l->buffer[k->low[i]];
    return all % 16 == 0;
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    struct kernel *k = state;
    struct tn_cuda_rows r = k->rows;
    char *work = (char *)(((uintptr_t)l->workspace + 255) / 256 * 256);
    cudnnStatus_t e;
    tn_status s;

    if (!is_aligned(k, l))
        return k->own.launch(k->own.state, l);
    r.stats = (float *)work, r.o = work + k->at_o;
    if (k->whole.back) {
        r.lse_at = l->buffer[TN_DNN_IN_LSE], r.delta_at = l->buffer[TN_DNN_IN_DELTA],
        r.grad_at = l->buffer[TN_DNN_IN_GRAD];
        if ((s = tn_cuda_rows_o(&r, l->queue)))
            return s;
    }
    if ((e = tn_dnn.cudnnSetStream(tn_dnn_handle, tn_cuda_stream(l->queue))))
        return failed(e, "cudnnSetStream");
    if ((s = run_parts(k, l, work)) || k->whole.back)
        return s;
    r.lse_at = l->buffer[TN_DNN_OUT_LSE];
    return tn_cuda_rows_lse(&r, l->queue);
}

/* --- kernels */
static void release(void *state)
{
    struct kernel *k = state;

    for (uint32_t i = 0; i < k->parts_batch * k->parts_heads; i++)
        forget(&k->pack[i]);
    if (k->own.release)
        k->own.release(k->own.state);
    free(k);
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Places in the workspace; returns its size. */
static uint64_t lay_out(struct kernel *k)
{
    const struct tn_dnn_attention *a = &k->whole;
    const uint64_t rows = (uint64_t)(a->batch * a->time * a->heads * a->rep), D = (uint64_t)a->width;
    const uint64_t part = (uint64_t)k->batches * k->heads * (uint64_t)(a->time * a->rep);

    k->at_o = round_up(4 * rows);
    k->at_sum = k->at_o + (a->back ? round_up(2 * rows * D) : 0);
    k->at_dq = k->at_sum + (a->back ? round_up(4 * part) : 0);
    k->at_cudnn = k->at_dq + (a->any_order ? round_up(4 * part * D) : 0);
    return k->at_cudnn + k->plan->plan.workspace + 256;
}

static void list_low(struct kernel *k)
{
    static const uint32_t forward[] = {TN_DNN_IN_QUERY, TN_DNN_IN_KEY, TN_DNN_IN_VALUE, TN_DNN_OUT_O},
                          backward[] = {TN_DNN_IN_QUERY, TN_DNN_IN_KEY, TN_DNN_IN_VALUE, TN_DNN_IN_GRAD,
                                        TN_DNN_OUT_DQ,   TN_DNN_OUT_DK, TN_DNN_OUT_DV};

    k->n_low = k->whole.back ? 7 : 4;
    memcpy(k->low, k->whole.back ? backward : forward, k->n_low * sizeof *k->low);
}

static tn_status build(const struct kernel *k, const struct tn_dnn_attention *part, struct plan *plan,
                       struct tn_kernel *io)
{
    const uint32_t batches = (uint32_t)(k->whole.batch / part->batch),
                   heads = (uint32_t)(k->whole.heads / part->heads);
    struct kernel *mine = calloc(1, sizeof *mine + batches * heads * sizeof *mine->pack);
    uint64_t workspace;

    if (!mine)
        return tn_error(TN_ERR_MEMORY, "cuda: no memory for attention in %u parts", batches * heads);
    *mine = *k;
    mine->own = *io, mine->plan = plan;
    mine->batches = (uint32_t)part->batch, mine->heads = (uint32_t)part->heads;
    mine->parts_batch = batches, mine->parts_heads = heads;
    workspace = lay_out(mine);
    io->state = mine, io->launch = launch, io->release = release;
    io->workspace = TN_CUDA_MAX(workspace, io->workspace);
    return TN_OK;
}

static tn_status attention(const struct tn_problem *p, struct tn_kernel *io)
{
    struct kernel k = {.masked = -INFINITY, .one = 1, .scale = (float)tn_problem_float(p, "scale", 1)};
    struct tn_dnn_attention part;
    struct plan *plan;

    if (!tn_dnn_load_problem(p, &k.whole, &k.rows))
        return TN_DECLINED;
    list_low(&k);
    if (!cut(&k, &part))
        return TN_DECLINED;
    if (!(plan = plan_of(&part)))
        return tn_error(TN_ERR_MEMORY, "cuda: no memory for a plan of attention");
    return plan->plan.plan ? build(&k, &part, plan, io) : TN_DECLINED;
}

const struct tn_cuda_dnn tn_cuda_dnn_attention = {.attention = attention};
