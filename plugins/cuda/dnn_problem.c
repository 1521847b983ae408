/* dnn_problem.c - which attention cuDNN gets, and as what.
 *
 * Causal, no dropout, bf16 or fp16, widths that are multiples of 8, rows of neighbours at distances of
 * multiples of 16 bytes: queries, keys and values may be views of one projection. Heads of grouped queries
 * must lie as if they were plain ones. Everything else is for the own kernel, and so is what this version or
 * this GPU would do wrong.
 * TENON_CUDA_DNN=fast: dq is summed in any order, so two runs differ in their last bits; takes less memory. */
#include "dnn.h"

static int is_plain(const struct tn_problem *p, const struct tn_operand *q, const struct tn_operand *k)
{
    const int64_t T = q->size[1], D = k->size[3];

    return tn_problem_int(p, "causal", 0) == 1 && tn_problem_float(p, "dropout", 0) == 0 && !p->accumulate &&
           (q->dtype == TN_BF16 || q->dtype == TN_F16) && k->size[1] == T && T > 0 && q->size[0] > 0 &&
           q->size[2] > 0 && (q->rank < 5 || q->size[3] > 0) && D > 0 && D <= 256 && D % 8 == 0 &&
           tn_count(q) < INT32_MAX;
}

/* Known to be wrong: attention before 9.10.2, and up to 9.15 that whose last tile of keys is not full. */
static int is_sound(const struct tn_dnn_attention *a)
{
    const size_t version = tn_dnn.cudnnGetVersion();

    return version >= 91002 && (version > 91500 || a->time % 128 == 0);
}

/* Strides of batch, head and time of [B,T,H,D] or, grouped, [B,T,H,rep,D]. 0: not for these plans. */
static int take(const struct tn_operand *o, uint32_t dtype, uint32_t grouped, int64_t stride[3])
{
    const uint32_t d = 3 + grouped;

    if (o->rank != d + 1 || o->dtype != dtype || o->stride[d] != 1)
        return 0;
    if (grouped && o->size[2] > 1 && o->size[3] > 1 && o->stride[2] != o->size[3] * o->stride[3])
        return 0;
    stride[0] = o->stride[0], stride[2] = o->stride[1];
    stride[1] = grouped && o->size[3] > 1 ? o->stride[3] : o->stride[2];
    for (uint32_t i = 0; i < d; i++)
        if (o->size[i] > 1 && (o->stride[i] <= 0 || o->stride[i] % 8))
            return 0;
    return 1;
}

static int take_row(const struct tn_operand *o, uint32_t grouped, int64_t stride[4])
{
    if (o->rank != 3 + grouped || o->dtype != TN_F32)
        return 0;
    for (uint32_t i = 0; i < 4; i++)
        stride[i] = i < o->rank ? o->stride[i] : 0;
    return 1;
}

static int take_all(const struct tn_problem *p, struct tn_dnn_attention *a, struct tn_cuda_rows *r)
{
    const struct tn_operand *q = &p->in[TN_DNN_IN_QUERY], *key = &p->in[TN_DNN_IN_KEY], *out = p->out;
    const uint32_t grouped = q->rank == 5, dtype = q->dtype, back = p->n_in > TN_DNN_IN_LSE;

    a->batch = q->size[0], a->time = q->size[1], a->heads = q->size[2], a->rep = grouped ? q->size[3] : 1;
    a->width = key->size[3], a->dtype = dtype, a->back = back;
    r->batch = (uint32_t)a->batch, r->time = (uint32_t)a->time;
    r->heads = (uint32_t)a->heads, r->rep = (uint32_t)a->rep;
    r->width = (uint32_t)a->width, r->dtype = dtype;
    if (!take(q, dtype, grouped, a->q) || !take(key, dtype, 0, a->k) ||
        !take(&p->in[TN_DNN_IN_VALUE], dtype, 0, a->v))
        return 0;
    if (!back)
        return take(&out[0], dtype, grouped, a->o) && take_row(&out[1], grouped, r->lse);
    a->o[1] = a->width, a->o[2] = a->heads * a->rep * a->width, a->o[0] = a->time * a->o[2];
    for (uint32_t i = 0; i < 4; i++)
        r->grad[i] = i < 3 + grouped ? p->in[TN_DNN_IN_GRAD].stride[i] : 0;
    return take(&p->in[TN_DNN_IN_GRAD], dtype, grouped, a->grad) && take(&out[0], dtype, grouped, a->dq) &&
           take(&out[1], dtype, 0, a->dk) && take(&out[2], dtype, 0, a->dv) &&
           take_row(&p->in[TN_DNN_IN_LSE], grouped, r->lse) &&
           take_row(&p->in[TN_DNN_IN_DELTA], grouped, r->delta);
}

/* Does the gradient with dS in the workspace have the same bits in every run? From compute capability 10.0 on
 * the library wants to be told so in another way, which nobody has tried. */
static int is_repeatable(void)
{
    static int said;

    if (tn_cuda_major() < 10)
        return 1;
    if (!said++)
        tn_host->log(1, "cuda: the gradient of attention is slow on this GPU; TENON_CUDA_DNN=fast lets cuDNN do it, "
                        "with other last bits in every run");
    return 0;
}

int tn_dnn_load_problem(const struct tn_problem *p, struct tn_dnn_attention *a, struct tn_cuda_rows *r)
{
    const char *choice = getenv("TENON_CUDA_DNN");

    if (!is_plain(p, &p->in[TN_DNN_IN_QUERY], &p->in[TN_DNN_IN_KEY]) || !take_all(p, a, r) ||
        !tn_dnn_open() || !is_sound(a))
        return 0;
    a->any_order = a->back && choice && !strcmp(choice, "fast");
    return !a->back || a->any_order || is_repeatable();
}
