/* ops.c - from an operation's name to its prepare. */
#include "cuda.h"

#define NAME(op) #op,
#define ENTRY(op) tn_cuda_prepare_##op,
const char *const tn_cuda_ops[] = {TN_CUDA_OPS(NAME) NULL};
static tn_status (*const prepare[])(const struct tn_problem *p, struct tn_kernel *out) = {TN_CUDA_OPS(ENTRY)};

const struct tn_cuda_blas *tn_cuda_blas;
const struct tn_cuda_dnn *tn_cuda_dnn;

static int knows(const struct tn_operand *o)
{
    return o->dtype == TN_F32 || o->dtype == TN_BF16 || o->dtype == TN_F16 || o->dtype == TN_I32;
}

tn_status tn_cuda_prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        if (!knows(i < p->n_in ? &p->in[i] : &p->out[i - p->n_in]))
            return TN_DECLINED;
    for (uint32_t i = 0; tn_cuda_ops[i]; i++)
        if (!strcmp(p->op, tn_cuda_ops[i]))
            return prepare[i](p, out);
    return TN_DECLINED;
}

tn_status tn_cuda_keep(struct tn_kernel *out, const void *plan, size_t size,
                       tn_status (*launch)(void *state, const struct tn_launch *l))
{
    if (!(out->state = malloc(size)))
        return tn_error(TN_ERR_MEMORY, "cuda: no memory for a kernel's plan of %zu bytes", size);
    memcpy(out->state, plan, size);
    out->launch = launch, out->release = free;
    return TN_OK;
}

tn_status tn_cuda_by_dnn(const struct tn_problem *p, struct tn_kernel *io)
{
    const tn_status s = tn_cuda_dnn ? tn_cuda_dnn->attention(p, io) : TN_DECLINED;

    if (s < 0 && io->release)
        io->release(io->state);
    return s == TN_DECLINED ? TN_OK : s;
}
