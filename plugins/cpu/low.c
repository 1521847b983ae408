/* low.c - any operation on bf16 and fp16: copies in fp32, the fp32 kernel, and back.
 *
 * For what has no better way of its own. The copies lie in the workspace without gaps, with the dims in the
 * order in which they lie in the operand, so that what the kernel can walk it still can. What is computed in
 * between is never rounded; a result is rounded once, to nearest even. */
#include "cpu.h"
#include "half.h"

#define OPERANDS 24
#define GRAIN 32768

struct part {                                    /* an operand with a copy; dims from the outermost in memory on */
    uint32_t dtype, rank;                        /* dtype 0: none */
    int64_t size[TN_MAX_RANK], stride[TN_MAX_RANK];
    int64_t count, inner, at;                    /* inner: elements of a row; at: floats into the workspace */
    uint32_t reads, writes;
};
struct low {
    struct tn_kernel inner;
    uint32_t n;
    int64_t floats;
    struct part part[OPERANDS];
};

/* --- copying */
struct run {
    const struct part *p;
    char *low;
    float *wide;
    int back;
};

/* lo..hi number rows of the innermost dim. */
static void copy_rows(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    const struct part *p = r->p;
    int64_t step = p->rank ? p->stride[p->rank - 1] : 1;

    for (int64_t row = lo; row < hi; row++) {
        int64_t at = 0, rest = row;

        for (uint32_t d = p->rank; d-- > 1; rest /= p->size[d - 1])
            at += rest % p->size[d - 1] * p->stride[d - 1];
        if (r->back)
            tn_half_store(p->dtype, r->wide + row * p->inner, step, p->inner, r->low + 2 * at);
        else
            tn_half_load(p->dtype, r->low + 2 * at, step, p->inner, r->wide + row * p->inner);
    }
}

/* lo..hi number elements of an operand without gaps. */
static void copy_run(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;

    if (r->back)
        tn_half_store(r->p->dtype, r->wide + lo, 1, hi - lo, r->low + 2 * lo);
    else
        tn_half_load(r->p->dtype, r->low + 2 * lo, 1, hi - lo, r->wide + lo);
}

static void copy(const struct part *p, void *low, float *wide, int back)
{
    struct run r = {p, low, wide, back};

    if (p->rank == 1 && p->stride[0] == 1)
        tn_host->parallel(p->count, GRAIN, copy_run, &r);
    else
        tn_host->parallel(p->count / p->inner, TN_MAX(1, GRAIN / p->inner), copy_rows, &r);
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct low *w = state;
    struct tn_launch inner = *l;
    void *buffer[OPERANDS];
    tn_status s;

    for (uint32_t i = 0; i < w->n; i++) {
        const struct part *p = &w->part[i];

        buffer[i] = p->dtype ? (float *)l->workspace + p->at : l->buffer[i];
        if (p->dtype && p->reads)
            copy(p, l->buffer[i], buffer[i], 0);
    }
    inner.buffer = buffer;
    inner.workspace = (float *)l->workspace + w->floats;
    s = w->inner.launch(w->inner.state, &inner);
    for (uint32_t i = 0; i < w->n && !s; i++)
        if (w->part[i].dtype && w->part[i].writes)
            copy(&w->part[i], l->buffer[i], buffer[i], 1);
    return s;
}

static void release(void *state)
{
    struct low *w = state;

    if (w->inner.release)
        w->inner.release(w->inner.state);
    free(w);
}

/* --- the problem in fp32 */
struct problem {
    struct tn_problem p;
    struct tn_operand operand[OPERANDS];
    int64_t stride[OPERANDS][TN_MAX_RANK];
    struct tn_loop loop[2 * TN_NEST_LOOPS];
};

/* Where the elements with this stride are in the copy: behind all that lie closer together. */
static int64_t packed(const struct tn_operand *o, int64_t stride)
{
    int64_t n = 1;

    for (uint32_t d = 0; d < o->rank; d++)
        if (o->size[d] > 1 && o->stride[d] < stride)
            n *= o->size[d];
    return stride ? n : 0;
}

/* The dims in the order of memory, neighbours without a gap as one. 0 if two elements share a place. */
static int describe(const struct tn_operand *o, struct part *p)
{
    uint32_t n = 0;

    for (uint32_t d = 0; d < o->rank; d++) {
        uint32_t i = n;

        if (o->size[d] == 1)
            continue;
        for (; i && p->stride[i - 1] < o->stride[d]; i--)
            p->size[i] = p->size[i - 1], p->stride[i] = p->stride[i - 1];
        p->size[i] = o->size[d], p->stride[i] = o->stride[d];
        n++;
    }
    p->count = 1;
    for (uint32_t i = n; i-- > 0; p->count *= p->size[i])
        if (p->stride[i] < 1 || (i + 1 < n && p->stride[i] < p->stride[i + 1] * p->size[i + 1]))
            return 0;
    for (uint32_t i = 0; i < n; i++) {
        if (p->rank && p->stride[p->rank - 1] == p->stride[i] * p->size[i])
            p->size[p->rank - 1] *= p->size[i], p->stride[p->rank - 1] = p->stride[i];
        else
            p->size[p->rank] = p->size[i], p->stride[p->rank++] = p->stride[i];
    }
    p->inner = p->rank ? p->size[p->rank - 1] : 1;
    return 1;
}

/* Is only the shape of this input used? docs/ops.md. */
static int is_unread(const struct tn_problem *p, uint32_t i)
{
    return (!strcmp(p->op, "embed_bwd") && i == 2) || (!strcmp(p->op, "expand") && i == 1);
}

static int widen(const struct tn_problem *p, uint32_t i, struct problem *q, struct low *w)
{
    const struct tn_operand *o = i < p->n_in ? &p->in[i] : &p->out[i - p->n_in];
    struct part *part = &w->part[i];

    q->operand[i] = *o;
    if (!tn_is_half(o->dtype))
        return 1;
    q->operand[i].dtype = TN_F32, q->operand[i].stride = q->stride[i];
    for (uint32_t d = 0; d < o->rank; d++)
        q->stride[i][d] = packed(o, o->stride[d]);
    for (uint32_t l = 0; l < p->n_loop; l++)
        q->loop[l].stride[i] = packed(o, p->loop[l].stride[i]);
    if (is_unread(p, i))
        return 1;
    *part = (struct part){.dtype = o->dtype, .at = w->floats};
    if (!describe(o, part))
        return 0;
    part->writes = i >= p->n_in;
    part->reads = !part->writes || p->accumulate >> (i - p->n_in) & 1;
    w->floats += TN_ROUND_UP(part->count, 16);
    return 1;
}

static int has_half(const struct tn_problem *p)
{
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        if (tn_is_half((i < p->n_in ? &p->in[i] : &p->out[i - p->n_in])->dtype))
            return 1;
    return 0;
}

tn_status tn_cpu_through_f32(tn_cpu_prepare_fn *inner, const struct tn_problem *p, struct tn_kernel *out)
{
    struct low w = {.inner = {.struct_size = sizeof w.inner}, .n = p->n_in + p->n_out};
    struct problem q = {.p = *p};
    tn_status s;

    if (!has_half(p) || w.n > OPERANDS || p->n_loop > 2 * TN_NEST_LOOPS || (p->loop && w.n > TN_MAX_OPERANDS))
        return TN_DECLINED;
    for (uint32_t l = 0; l < p->n_loop; l++)
        q.loop[l] = p->loop[l];
    for (uint32_t i = 0; i < w.n; i++)
        if (!widen(p, i, &q, &w))
            return TN_DECLINED;
    q.p.in = q.operand, q.p.out = q.operand + p->n_in;
    q.p.loop = p->loop ? q.loop : NULL;
    if ((s = inner(&q.p, &w.inner)))
        return s;
    out->workspace = (uint64_t)w.floats * sizeof(float) + w.inner.workspace;
    if ((s = tn_keep(out, &w, sizeof w, p->op)) < 0) {
        if (w.inner.release)
            w.inner.release(w.inner.state);
        return s;
    }
    out->launch = launch, out->release = release;
    return TN_OK;
}
