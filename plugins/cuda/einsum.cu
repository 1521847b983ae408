/* einsum.cu - contractions: which way they go, and their epilogues.
 *
 * Without reduced loops a contraction is an element-wise product, without rows or columns of its own a sum of
 * products (reduce.cu), else a matrix product (product.cu). What a program adds to that is done, the first that goes:
 *
 *  - by the library, in its epilogue: bias, residual, gelu as tanh and its derivative;
 *  - in two: the library's epilogue makes one of the results, from which a program makes the others (gelu as erf from
 *    the product with its bias); or the product takes the place of a result and the program runs over it there: one
 *    read and one write of each tensor, by one kernel;
 *  - over the product in fp32 in the workspace, where no result can hold it, as with results that are added to. Where the
 *    first loop over the result belongs to x alone, it is cut into pieces, product and program by turns, so that the
 *    workspace is small and the program finds the product in the cache. */
#include "cu.cuh"
#include "elementwise.h"
#include "product.h"
#include "reduce.h"

struct einsum {
    struct tn_cuda_product product;
};

static tn_status launch_product(void *state, const struct tn_launch *l)
{
    const struct einsum *k = (const struct einsum *)state;

    return tn_cuda_product_run(&k->product, (const char *)l->buffer[0], (const char *)l->buffer[1],
                               (char *)l->buffer[2], l->workspace, l->queue);
}

static void release_product(void *state)
{
    tn_cuda_product_release(&((struct einsum *)state)->product);
    free(state);
}

static tn_status as_product(const struct tn_problem *p, struct tn_kernel *out)
{
    struct einsum k;
    tn_status s = tn_cuda_product_make(p, &k.product);

    if (!s && !(s = tn_cuda_keep(out, &k, sizeof k, launch_product)))
        out->release = release_product, out->workspace = k.product.workspace;
    return s;
}

/* y = x * w, element by element */
static tn_status as_elementwise(const struct tn_problem *p, struct tn_kernel *out)
{
    static const struct tn_instr instr[] = {{TN_E_IN, 0, 0, 0}, {TN_E_IN, 1, 0, 0}, {TN_E_MUL, 0, 1, 0}};
    static const uint16_t result[] = {2};
    static const struct tn_program product = {sizeof product, 3, 0, 0, 1, 0, instr, NULL, result, "a*b"};
    struct tn_problem q = *p;

    q.program = &product, q.n_loop = p->n_loop - p->n_reduced, q.n_reduced = 0;
    return tn_cuda_prepare_expr(&q, out);
}

static tn_status without_program(const struct tn_problem *p, struct tn_kernel *out)
{
    const uint32_t outer = p->n_loop - p->n_reduced;
    int64_t m = 1, n = 1, k = 1;

    for (uint32_t i = 0; i < p->n_loop; i++) {
        const struct tn_loop *l = &p->loop[i];

        if (i >= outer)
            k *= l->size;
        else if (l->stride[0] && !l->stride[1])
            m *= l->size;
        else if (l->stride[1] && !l->stride[0])
            n *= l->size;
    }
    return k == 1                ? as_elementwise(p, out)
           : m == 1 || n == 1    ? tn_cuda_reduce_make(p, TN_CUDA_PRODUCTS, out)
                                 : as_product(p, out);
}

/* --- with a program */
#ifdef TN_CUDA_SMALL
#define SMALL 400000
#else
#define SMALL (16 << 20)                         /* bytes of a product that need not be cut */
#endif

struct fused {
    struct tn_kernel product;                    /* x, w -> workspace */
    struct tn_cuda_elementwise program;          /* workspace, e... -> outputs */
    uint32_t turns, n_in, n_out;
    int64_t step[TN_MAX_OPERANDS];               /* bytes from turn to turn */
    uint64_t bytes;                              /* of the product, aligned */
};

static tn_status launch_fused(void *state, const struct tn_launch *l)
{
    const struct fused *k = (const struct fused *)state;
    char *product = (char *)l->workspace;
    struct tn_launch inner = *l;
    tn_status s = TN_OK;

    inner.workspace = product + k->bytes;
    for (uint32_t i = 0; i < k->turns && !s; i++) {
        void *buffer[TN_MAX_OPERANDS];
        char *at[TN_MAX_OPERANDS];

        buffer[0] = (char *)l->buffer[0] + i * k->step[0], buffer[1] = l->buffer[1], buffer[2] = product;
        at[0] = product;
        for (uint32_t o = 2; o < k->n_in + k->n_out; o++)
            at[o - 1] = (char *)l->buffer[o] + i * k->step[o];
        inner.buffer = buffer;
        if (!(s = k->product.launch(k->product.state, &inner)))
            s = tn_cuda_elementwise_run(&k->program, at, l->uniform, l->queue);
    }
    return s;
}

static void release_fused(void *state)
{
    struct fused *k = (struct fused *)state;

    k->product.release(k->product.state);
    free(k);
}

/* Into how many turns the first loop over y is cut: a divisor of its size, so that all are alike; 1 if w has the
 * loop too, the product is small, or no divisor is near. */
static uint32_t turns(const struct tn_problem *p, uint32_t outer)
{
    int64_t bytes = sizeof(float), n;

    for (uint32_t i = 0; i < outer; i++)
        bytes *= p->loop[i].size;
    if (!outer || !p->loop[0].stride[0] || p->loop[0].stride[1] || bytes <= SMALL)
        return 1;
    n = TN_CUDA_MIN(TN_CUDA_PARTS(bytes, SMALL), p->loop[0].size);
    for (int64_t most = TN_CUDA_MIN(4 * n, p->loop[0].size); n <= most; n++)
        if (p->loop[0].size % n == 0)
            return (uint32_t)n;
    return 1;
}

/* The two halves as problems of their own: q makes the product, e reads it as its input 0. */
static void split(const struct tn_problem *p, uint32_t n_turn, struct tn_loop *loop_q, struct tn_loop *loop_e,
                  struct tn_operand *in_e, struct tn_operand *product, struct tn_problem *q, struct tn_problem *e)
{
    const uint32_t outer = p->n_loop - p->n_reduced;
    int64_t n = 1;

    memset(product, 0, sizeof *product);
    product->dtype = TN_F32;
    for (uint32_t i = p->n_loop; i-- > 0;) {
        const struct tn_loop *l = &p->loop[i];
        const int64_t size = i ? l->size : l->size / n_turn;

        memset(&loop_q[i], 0, sizeof *loop_q);
        loop_q[i].size = size, loop_q[i].stride[0] = l->stride[0], loop_q[i].stride[1] = l->stride[1];
        if (i >= outer)
            continue;
        loop_q[i].stride[2] = n;
        memset(&loop_e[i], 0, sizeof *loop_e);
        loop_e[i].size = size, loop_e[i].stride[0] = n;
        for (uint32_t o = 2; o < p->n_in + p->n_out; o++)
            loop_e[i].stride[o - 1] = l->stride[o];
        n *= size;
    }
    in_e[0] = *product;
    for (uint32_t i = 2; i < p->n_in; i++)
        in_e[i - 1] = p->in[i];
    *q = *p, *e = *p;
    q->n_in = 2, q->n_out = 1, q->out = product, q->accumulate = 0, q->program = NULL;
    q->loop = loop_q;
    e->n_in = p->n_in - 1, e->in = in_e, e->loop = loop_e, e->n_loop = outer, e->n_reduced = 0;
}

static tn_status launch_in_one(void *state, const struct tn_launch *l)
{
    return tn_cuda_product_run_fused(&((const struct einsum *)state)->product, l);
}

/* By the library: result o, or all of them (TN_MAX_OPERANDS). */
static tn_status in_one(const struct tn_problem *p, uint32_t o, struct tn_kernel *out)
{
    struct einsum k;
    tn_status s = tn_cuda_product_fuse(p, o, &k.product);

    if (!s && !(s = tn_cuda_keep(out, &k, sizeof k, launch_in_one)))
        out->release = release_product, out->workspace = k.product.workspace;
    return s;
}

/* --- in two: a product into one of the results, then a program that reads it there */
struct staged {
    struct tn_kernel product;
    struct tn_cuda_elementwise program;
    uint32_t alone;                              /* product.launch wants x, w and the result alone */
    uint32_t n, y;                               /* operands of the program; the result, as an operand of the einsum */
    uint32_t from[TN_MAX_OPERANDS];              /* operand i of the program is that one of the einsum */
};

static tn_status launch_staged(void *state, const struct tn_launch *l)
{
    const struct staged *k = (const struct staged *)state;
    void *three[] = {l->buffer[0], l->buffer[1], l->buffer[k->y]};
    char *at[TN_MAX_OPERANDS];
    struct tn_launch inner = *l;
    tn_status s;

    if (k->alone)
        inner.buffer = three;
    for (uint32_t i = 0; i < k->n; i++)
        at[i] = (char *)l->buffer[k->from[i]];
    s = k->product.launch(k->product.state, &inner);
    return s ? s : tn_cuda_elementwise_run(&k->program, at, l->uniform, l->queue);
}

static void release_staged(void *state)
{
    struct staged *k = (struct staged *)state;

    k->product.release(k->product.state);
    free(k);
}

/* The program without result o, which it reads as its input 0. instr, result: room. 0: it needs the contraction too. */
static int without_result(const struct tn_program *p, uint32_t o, struct tn_program *out, struct tn_instr *instr,
                          uint16_t *result)
{
    uint8_t live[TN_CUDA_INSTR] = {};
    uint32_t n = 0;

    if (p->n_instr > TN_CUDA_INSTR)
        return 0;
    *out = *p, out->instr = instr, out->result = result, out->n_result = p->n_result - 1;
    memcpy(instr, p->instr, p->n_instr * sizeof *instr);
    for (uint32_t i = 0; i < p->n_result; i++)
        if (i != o)
            live[result[n++] = p->result[i]] = 1;
    instr[p->result[o]] = (struct tn_instr){TN_E_IN, 0, 0, 0};
    for (uint32_t i = p->n_instr; i-- > 0;) {
        const struct tn_instr x = instr[i];
        const uint32_t reads = x.op <= TN_E_UNIFORM ? 0 : x.op <= TN_E_ERF ? 1 : x.op <= TN_E_GE ? 2 : 3;

        if (!live[i])
            instr[i] = (struct tn_instr){TN_E_CONST, 0, 0, 0}; /* nobody reads it */
        else if (x.op == TN_E_IN && x.a == 0 && i != p->result[o])
            return 0;
        for (uint32_t r = 0; r < reads && live[i]; r++)
            live[(&x.a)[r]] = 1;
    }
    return 1;
}

/* The program's own problem: input 0 is result o; all results, or all but o. */
static void rest_of(const struct tn_problem *p, uint32_t o, int all, struct staged *k, struct tn_loop *loop,
                    struct tn_operand *operand, struct tn_problem *e)
{
    const uint32_t outer = p->n_loop - p->n_reduced;

    k->from[k->n++] = p->n_in + o;
    for (uint32_t i = 2; i < p->n_in + p->n_out; i++)
        if (all || i != p->n_in + o)
            k->from[k->n++] = i;
    for (uint32_t i = 0; i < k->n; i++)
        operand[i] = k->from[i] < p->n_in ? p->in[k->from[i]] : p->out[k->from[i] - p->n_in];
    memset(loop, 0, outer * sizeof *loop);
    for (uint32_t l = 0; l < outer; l++) {
        loop[l].size = p->loop[l].size;
        for (uint32_t i = 0; i < k->n; i++)
            loop[l].stride[i] = p->loop[l].stride[k->from[i]];
    }
    *e = *p;
    e->n_in = p->n_in - 1, e->n_out = k->n - e->n_in, e->in = operand, e->out = operand + e->n_in;
    e->loop = loop, e->n_loop = outer, e->n_reduced = 0;
    if (!all)
        e->accumulate = (p->accumulate & ((1u << o) - 1)) | p->accumulate >> (o + 1) << o;
}

/* x * w into result o. */
static tn_status product_into(const struct tn_problem *p, uint32_t o, struct tn_loop *loop, struct tn_kernel *out)
{
    struct tn_problem q = *p;

    for (uint32_t l = 0; l < p->n_loop; l++) {
        memset(&loop[l], 0, sizeof *loop);
        loop[l].size = p->loop[l].size;
        loop[l].stride[0] = p->loop[l].stride[0], loop[l].stride[1] = p->loop[l].stride[1];
        loop[l].stride[2] = p->loop[l].stride[p->n_in + o];
    }
    q.n_in = 2, q.n_out = 1, q.out = &p->out[o], q.loop = loop, q.accumulate = 0, q.program = NULL;
    return without_program(&q, out);
}

/* fuse: result o by the library's epilogue and the program for the others; else the product in the place of result o and
 * the program for all. */
static tn_status stage(const struct tn_problem *p, uint32_t o, int fuse, struct tn_kernel *out)
{
    struct tn_loop loop[2 * TN_MAX_RANK + 1];
    struct tn_operand operand[TN_MAX_OPERANDS];
    struct tn_instr instr[TN_CUDA_INSTR];
    uint16_t result[TN_MAX_OPERANDS];
    struct tn_program rest;
    struct tn_problem e;
    struct staged k = {};
    tn_status s;

    if (p->accumulate >> o & 1 || p->out[o].dtype == TN_I32 || (fuse && !without_result(p->program, o, &rest, instr, result)))
        return TN_DECLINED;
    k.product.struct_size = sizeof k.product, k.alone = !fuse, k.y = p->n_in + o;
    if ((s = fuse ? in_one(p, o, &k.product) : product_into(p, o, loop, &k.product)))
        return s;
    rest_of(p, o, !fuse, &k, loop, operand, &e);
    s = tn_cuda_elementwise_load(&k.program, &e, fuse ? &rest : p->program) ? TN_OK : TN_DECLINED;
    if (s || (s = tn_cuda_keep(out, &k, sizeof k, launch_staged))) {
        k.product.release(k.product.state);
        return s;
    }
    out->release = release_staged, out->workspace = k.product.workspace;
    return TN_OK;
}

static tn_status in_two(const struct tn_problem *p, struct tn_kernel *out)
{
    tn_status s = TN_DECLINED;

    for (int fuse = 1; fuse >= 0; fuse--)
        for (uint32_t o = 0; o < p->n_out && s == TN_DECLINED; o++)
            if (!fuse || p->n_out > 1)
                s = stage(p, o, fuse, out);
    return s;
}

static tn_status with_program(const struct tn_problem *p, struct tn_kernel *out)
{
    const uint32_t outer = p->n_loop - p->n_reduced;
    struct tn_loop loop_q[2 * TN_MAX_RANK + 1], loop_e[2 * TN_MAX_RANK + 1];
    struct tn_operand in_e[TN_MAX_OPERANDS], product;
    struct tn_problem q, e;
    struct fused k = {};
    int64_t n = 1;
    tn_status s;

    if (p->n_loop > 2 * TN_MAX_RANK + 1 || p->n_in + p->n_out > TN_MAX_OPERANDS)
        return TN_DECLINED;
    if ((s = in_one(p, TN_MAX_OPERANDS, out)) != TN_DECLINED || (s = in_two(p, out)) != TN_DECLINED)
        return s;
    k.turns = turns(p, outer);
    for (uint32_t o = 0; k.turns > 1 && o < p->n_in + p->n_out; o++)
        k.step[o] = p->loop[0].size / k.turns * p->loop[0].stride[o] *
                    tn_cuda_width((o < p->n_in ? p->in[o] : p->out[o - p->n_in]).dtype);
    split(p, k.turns, loop_q, loop_e, in_e, &product, &q, &e);
    k.n_in = p->n_in, k.n_out = p->n_out, k.product.struct_size = sizeof k.product;
    if (!tn_cuda_elementwise_load(&k.program, &e, p->program))
        return TN_DECLINED;
    for (uint32_t i = 0; i < e.n_loop; i++)
        n *= e.loop[i].size;
    k.bytes = ((uint64_t)n * sizeof(float) + 255) / 256 * 256;
    if ((s = without_program(&q, &k.product)))
        return s;
    if ((s = tn_cuda_keep(out, &k, sizeof k, launch_fused)) < 0) {
        k.product.release(k.product.state);
        return s;
    }
    out->release = release_fused, out->workspace = k.bytes + k.product.workspace;
    return TN_OK;
}

extern "C" tn_status tn_cuda_prepare_einsum(const struct tn_problem *p, struct tn_kernel *out)
{
    if (p->n_in < 2 || !p->loop)
        return TN_DECLINED;
    for (uint32_t i = 0; i < 2; i++)
        if (p->in[i].dtype == TN_I32)
            return TN_DECLINED;
    if (p->program)
        return with_program(p, out);
    return p->n_in == 2 && p->n_out == 1 ? without_program(p, out) : TN_DECLINED;
}
