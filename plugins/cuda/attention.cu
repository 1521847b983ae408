/* attention.cu - attention in tiles with an online softmax: scores never leave the block.
 *
 * A block has a tile of queries of one head and walks over the tiles of keys; with `causal` it stops where no key
 * is seen any more. Masked and dropped weights are marked, and skipped, never multiplied by 0. This is the kernel
 * for any strides, positions and masks; where cuDNN has a plan (dnn_kernel.c) that is faster by far. */
#include "attention.cuh"

#define SKIP (-1.0f)                             /* a weight that is not there */

template <int D, int ROWS> TN_KERNEL(ROWS *TN_LANES) attend(TN_PARAM(tn_attention) a)
{
    TN_SHARED(float, q, ROWS *(D + 1));
    TN_SHARED(float, kv, ROWS *(D + 1));
    TN_SHARED(float, weight, ROWS *(ROWS + 1));
    const uint32_t row = threadIdx.x / TN_LANES, lane = threadIdx.x % TN_LANES;

    for (uint32_t at = blockIdx.x; at < a.total; at += gridDim.x) {
        const tn_place p = tn_attention_place(a, at, a.rep);
        const uint32_t t0 = p.tile * ROWS, t = t0 + row;
        const uint32_t end = a.causal && t0 + ROWS < a.keys ? t0 + ROWS : a.keys;
        float max = -INFINITY, total = 0, sum[D / TN_LANES] = {};

        __syncthreads();
        tn_attention_load<D, ROWS>(q, a.q, tn_tensor_at(a.q, p, p.r), t0, a.queries, a.width);
        for (uint32_t s0 = 0; s0 < end; s0 += ROWS) {
            float score[ROWS / TN_LANES], most = max, base, shrink, part = 0;

            __syncthreads();
            tn_attention_load<D, ROWS>(kv, a.k, tn_tensor_at(a.k, p, 0), s0, a.keys, a.width);
            __syncthreads();
#pragma unroll
            for (uint32_t i = 0; i < ROWS / TN_LANES; i++) {
                score[i] = a.scale * tn_attention_dot<D>(q, row, kv, lane + i * TN_LANES, a.width);
                if (tn_attention_sees(a, t, s0 + lane + i * TN_LANES))
                    most = score[i] > most ? score[i] : most;
            }
            for (int o = TN_LANES / 2; o; o >>= 1) {
                const float other = __shfl_xor_sync(TN_ALL, most, o);

                most = other > most ? other : most;
            }
            base = isinf(most) ? 0.0f : most;
            shrink = total == 0 ? 0.0f : expf((isinf(max) ? 0.0f : max) - base);
#pragma unroll
            for (uint32_t i = 0; i < ROWS / TN_LANES; i++) {
                const uint32_t s = s0 + lane + i * TN_LANES;
                const bool seen = tn_attention_sees(a, t, s);
                const float w = seen ? expf(score[i] - base) : 0.0f;
                const float keep = seen ? tn_attention_drop(a, p, p.r, t, s) : 0.0f;

                part += w;
                weight[row * (ROWS + 1) + lane + i * TN_LANES] = keep != 0 ? keep * w : SKIP;
            }
            for (int o = TN_LANES / 2; o; o >>= 1)
                part += __shfl_xor_sync(TN_ALL, part, o);
            max = most, total = total * shrink + part;
            __syncthreads();
            tn_attention_load<D, ROWS>(kv, a.v, tn_tensor_at(a.v, p, 0), s0, a.keys, a.width);
            __syncthreads();
#pragma unroll
            for (uint32_t i = 0; i < D / TN_LANES; i++)
                sum[i] *= shrink;
            for (uint32_t s = 0; s < ROWS; s++) {
                const float w = weight[row * (ROWS + 1) + s];

                if (w == SKIP)
                    continue;
#pragma unroll
                for (uint32_t i = 0; i < D / TN_LANES; i++)
                    if (lane + i * TN_LANES < a.width)
                        sum[i] += w * kv[s * (D + 1) + lane + i * TN_LANES];
            }
        }
        if (t >= a.queries)
            continue;
        tn_attention_store<D>(a.o, tn_tensor_at(a.o, p, p.r) + t * a.o.time, sum, total == 0 ? 0.0f : 1 / total,
                              lane, a.width);
        if (lane == 0)
            tn_put_or_add(a.lse.dtype, a.lse.add, a.lse.base, tn_tensor_at(a.lse, p, p.r) + t * a.lse.time,
                          (isinf(max) ? 0.0f : max) + logf(total));
    }
}

/* --- host, also for attn_bwd */
enum { QUERY, KEY, VALUE, QPOS, KPOS, LSE, DELTA, GRAD };

/* rows: [B,T,H] or [B,T,H,rep] and perhaps D. */
static int take(struct tn_tensor *x, const struct tn_problem *p, uint32_t i, uint32_t has_rep, uint32_t has_d)
{
    const struct tn_operand *o = i < p->n_in ? &p->in[i] : &p->out[i - p->n_in];

    memset(x, 0, sizeof *x);
    if (o->rank != 3 + has_rep + has_d || o->dtype == TN_I32)
        return 0;
    x->dtype = o->dtype, x->slot = i, x->add = i >= p->n_in ? p->accumulate >> (i - p->n_in) & 1 : 0;
    x->batch = o->stride[0], x->time = o->stride[1], x->head = o->stride[2];
    x->rep = has_rep ? o->stride[3] : 0, x->d = has_d ? o->stride[3 + has_rep] : 0;
    return 1;
}

static int take_dropout(const struct tn_problem *p, struct tn_attention *a)
{
    const struct tn_operand *q = &p->in[QUERY];
    const double probability = tn_problem_float(p, "dropout", 0);

    a->global_rep.n = 1;
    a->micro_batch = tn_problem_int(p, "micro_dim", 0) < 0 ? 0 : q->whole[0];
    a->whole_heads = q->whole[2], a->whole_rep = q->rank == 5 ? q->whole[3] : 1;
    a->block = tn_problem_int(p, "block", 0), a->key = (uint32_t)tn_problem_int(p, "key", 0);
    a->threshold = tn_cuda_threshold(probability), a->kept = (float)(1 / (1 - probability));
    return tn_cuda_map_load(&a->global_batch, q, 0) && tn_cuda_map_load(&a->global_head, q, 2) &&
           (q->rank != 5 || tn_cuda_map_load(&a->global_rep, q, 3));
}

tn_status tn_attention_load_problem(const struct tn_problem *p, struct tn_attention *a)
{
    const struct tn_operand *q = &p->in[QUERY], *k = &p->in[KEY];
    const uint32_t rep = q->rank == 5;
    const int back = p->n_in > LSE;

    for (uint32_t d = 0; d < q->rank; d++)
        if (q->size[d] > INT32_MAX / 64)
            return TN_DECLINED;
    if (!take(&a->q, p, QUERY, rep, 1) || !take(&a->k, p, KEY, 0, 1) || !take(&a->v, p, VALUE, 0, 1) ||
        !take_dropout(p, a) || p->in[QPOS].dtype != TN_I32 || p->in[KPOS].dtype != TN_I32)
        return TN_DECLINED;
    if (back ? !take(&a->lse, p, LSE, rep, 0) || !take(&a->delta, p, DELTA, rep, 0) ||
                   !take(&a->grad, p, GRAD, rep, 1) || !take(&a->dq, p, p->n_in, rep, 1) ||
                   !take(&a->dk, p, p->n_in + 1, 0, 1) || !take(&a->dv, p, p->n_in + 2, 0, 1)
             : !take(&a->o, p, p->n_in, rep, 1) || !take(&a->lse, p, p->n_in + 1, rep, 0))
        return TN_DECLINED;
    a->batch = (uint32_t)q->size[0], a->queries = (uint32_t)q->size[1], a->heads = (uint32_t)q->size[2];
    a->rep = rep ? (uint32_t)q->size[3] : 1, a->keys = (uint32_t)k->size[1], a->width = (uint32_t)k->size[3];
    a->qpos_step = p->in[QPOS].stride[0], a->kpos_step = p->in[KPOS].stride[0];
    a->scale = (float)tn_problem_float(p, "scale", 1), a->causal = tn_problem_int(p, "causal", 0) != 0;
    return a->width && a->width <= 256 ? TN_OK : TN_DECLINED;
}

void tn_attention_bind(struct tn_attention *a, const struct tn_launch *l)
{
    struct tn_tensor *const all[] = {&a->q,     &a->k,    &a->v,  &a->o,  &a->lse,
                                     &a->delta, &a->grad, &a->dq, &a->dk, &a->dv};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i]->base = (char *)l->buffer[all[i]->slot];
    a->qpos = (const int32_t *)l->buffer[QPOS], a->kpos = (const int32_t *)l->buffer[KPOS];
    a->uniform = (const uint32_t *)l->uniform, a->first_batch = l->micro * a->micro_batch;
}

/* tiles of `rows`, for each head; 0: more than a grid has */
static int cut(struct tn_attention *a, uint32_t rows)
{
    const int64_t heads = (int64_t)a->batch * a->heads * a->rep;

    a->tiles = TN_CUDA_PARTS(a->queries, rows);
    a->total = (uint32_t)(heads * a->tiles);
    return heads * a->tiles <= INT32_MAX;
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    struct tn_attention a = *(const struct tn_attention *)state;

    if (!a.total)
        return TN_OK;
    tn_attention_bind(&a, l);
    if (a.width <= 64)
        return TN_LAUNCH((attend<64, 32>), tn_grid(a.total), 32 * TN_LANES, l->queue, a);
    if (a.width <= 128)
        return TN_LAUNCH((attend<128, 32>), tn_grid(a.total), 32 * TN_LANES, l->queue, a);
    return TN_LAUNCH((attend<256, 16>), tn_grid(a.total), 16 * TN_LANES, l->queue, a);
}

extern "C" tn_status tn_cuda_prepare_attention(const struct tn_problem *p, struct tn_kernel *out)
{
    struct tn_attention a = {};
    tn_status s = tn_attention_load_problem(p, &a);

    if (!s && !cut(&a, a.width <= 128 ? 32 : 16))
        s = TN_DECLINED;
    if (!s)
        s = tn_cuda_keep(out, &a, sizeof a, launch);
    return s ? s : tn_cuda_by_dnn(p, out);
}
