/* ref - naive kernels in plain C: the oracle, and the example to copy.
 *
 * One table: the operation's name and the function that prepares it. Everything is computed in double, in one
 * thread and in one order, for any strides, so ref is what other kernels are compared with. */
#include "ref.h"
#include <tenon/device.h>

#define OPERATIONS(X)                                                                                      \
    X("einsum", nest) X("sum", nest) X("sumsq", nest) X("rowmax", nest) X("expand", nest) X("expr", nest)  \
    X("copy", nest) X("accum", nest) X("cast", nest) X("dropout", dropout)                                 \
    X("embed", embed) X("embed_bwd", embed) X("pick", pick) X("pick_bwd", pick)                            \
    X("layernorm", norm) X("ln_dx", norm) X("ln_dw", norm)                                                 \
    X("rmsnorm", norm) X("rms_dx", norm) X("rms_dw", norm) X("rope", rope)                                 \
    X("attention", attention) X("attn_bwd", attention)                                                     \
    X("ce", ce) X("ce_bwd", ce) X("head", head) X("head_bwd", head)                         \
    X("head_train", head)                                                                                  \
    X("route", experts) X("arrange", experts) X("dispatch", experts) X("combine", experts)                 \
    X("gate_bwd", experts) X("grouped", experts) X("grouped_dw", experts) X("store", store_rows)

#define NAME(op, family) op,
#define ENTRY(op, family) {op, tn_ref_##family},

static const char *const ops[] = {OPERATIONS(NAME) NULL};

static const struct {
    const char *op;
    tn_status (*prepare)(const struct tn_problem *p, struct tn_kernel *out);
} table[] = {OPERATIONS(ENTRY)};

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        if (!tn_ref_knows((i < p->n_in ? p->in[i] : p->out[i - p->n_in]).dtype))
            return TN_DECLINED;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(p->op, table[i].op))
            return table[i].prepare(p, out);
    return TN_DECLINED;
}

/* Runs everywhere, and anything else is preferred. */
static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "plain C");
    return TN_OK;
}

static const struct tn_kernels kernels = {
    .struct_size = sizeof kernels,
    .device = "cpu",
    .ops = ops,
    .probe = probe,
    .prepare = prepare,
};

TN_PLUGIN2("ref", "1.0", "host memory as a device, and naive kernels in plain C", TN_DEVICE_ID,
           &tn_ref_device, TN_KERNELS_ID, &kernels);
