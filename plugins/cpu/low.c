/* low.c - any operation on bf16 and fp16: copies in fp32, the fp32 kernel, and back.
 *
 * For what has no better way of its own. The copies lie in the workspace without gaps, with the dims in the
 * order in which they lie in the operand, so that what the kernel can walk it still can. What is computed in
 * between is never rounded; a result is rounded once, to nearest even.
 *
 * A nest of loops goes in slabs along one loop, so that the copies stay small and in the cache: the loop that
 * leaves least to be copied as a whole, rows of a matrix or the tokens that a weight's gradient sums over. In
 * the latter case slabs after the first add. */
#include "cpu.h"
#include "half.h"

#define OPERANDS 24
#define GRAIN 32768
#define SLAB (1 << 19) /* floats of copies in a slab, about */
#define UNIT 96        /* turns of the loop: a multiple for matrix products */
#define NO_LOOP UINT32_MAX

struct part {             /* an operand; dims from the outermost in memory on */
    uint32_t dtype, rank; /* dtype 0: no copy */
    int64_t size[TN_NEST_LOOPS], stride[TN_NEST_LOOPS];
    int64_t count, inner, at; /* inner: elements of a row; at: floats into the workspace */
    int64_t step;             /* elements from slab to slab; 0: it is the same in all */
};
struct shape { /* of a slab: all but the last have one, the last has another */
    struct part part[OPERANDS];
    struct tn_kernel kernel[2]; /* of the first slab; of later ones that add */
};
struct low {
    uint32_t n, n_in, accumulate;
    int64_t slabs, floats;
    struct shape shape[2];
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

/* Is operand i copied now, in this direction? Those that are the same in all slabs at the begin and the end.
 */
static int is_due(const struct low *w, const struct part *p, uint32_t i, int64_t slab, int back)
{
    int writes = i >= w->n_in, adds = writes && w->accumulate >> (i - w->n_in) & 1;

    if (!p->dtype || !(back ? writes : !writes || adds))
        return 0;
    return p->step || slab == (back ? w->slabs - 1 : 0);
}

static tn_status run_slab(const struct low *w, const struct tn_launch *l, int64_t slab)
{
    const struct shape *shape = &w->shape[slab == w->slabs - 1];
    const struct tn_kernel *k = &shape->kernel[slab && shape->kernel[1].launch];
    struct tn_launch inner = *l;
    char *low[OPERANDS];
    void *buffer[OPERANDS];
    tn_status s;

    for (uint32_t i = 0; i < w->n; i++) {
        const struct part *p = &shape->part[i];

        low[i] = (char *)l->buffer[i] + slab * p->step * tn_width(p->dtype);
        buffer[i] = p->dtype ? (void *)((float *)l->workspace + p->at) : low[i];
        if (is_due(w, p, i, slab, 0) && l->buffer[i])        /* of which only the shape is read, there may be none */
            copy(p, low[i], buffer[i], 0);
    }
    inner.buffer = buffer;
    inner.workspace = (float *)l->workspace + w->floats;
    s = k->launch(k->state, &inner);
    for (uint32_t i = 0; i < w->n && !s; i++)
        if (is_due(w, &shape->part[i], i, slab, 1))
            copy(&shape->part[i], low[i], buffer[i], 1);
    return s;
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct low *w = state;
    tn_status s = TN_OK;

    for (int64_t slab = 0; slab < w->slabs && !s; slab++)
        s = run_slab(w, l, slab);
    return s;
}

static void release(void *state)
{
    struct low *w = state;

    for (int i = 0; i < 4; i++)
        if (w->shape[i / 2].kernel[i % 2].launch && w->shape[i / 2].kernel[i % 2].release)
            w->shape[i / 2].kernel[i % 2].release(w->shape[i / 2].kernel[i % 2].state);
    free(w);
}

/* --- the problem in fp32 */
struct problem {
    struct tn_problem p;
    struct tn_operand operand[OPERANDS];
    int64_t stride[OPERANDS][TN_MAX_RANK];
    struct tn_loop loop[TN_NEST_LOOPS];
};

static const struct tn_operand *operand(const struct tn_problem *p, uint32_t i)
{
    return i < p->n_in ? &p->in[i] : &p->out[i - p->n_in];
}

/* Is only the shape of this input used? docs/ops.md. */
static int is_unread(const struct tn_problem *p, uint32_t i)
{
    return (!strcmp(p->op, "embed_bwd") && i == 2) || (!strcmp(p->op, "expand") && i == 1);
}

/* The dims of the operand, or the loops that move in it, in the order of memory. 0 if two elements share a
 * place. */
static int describe(const struct tn_operand *o, const struct tn_problem *p, uint32_t i, struct part *part)
{
    uint32_t n = p->loop ? p->n_loop : o->rank;

    for (uint32_t d = 0; d < n; d++) {
        int64_t size = p->loop ? p->loop[d].size : o->size[d],
                stride = p->loop ? p->loop[d].stride[i] : o->stride[d];
        uint32_t k = part->rank;

        if (size == 1 || (p->loop && !stride))
            continue;
        for (; k && part->stride[k - 1] < stride; k--)
            part->size[k] = part->size[k - 1], part->stride[k] = part->stride[k - 1];
        part->size[k] = size, part->stride[k] = stride;
        part->rank++;
    }
    part->count = 1;
    for (uint32_t k = part->rank; k-- > 0; part->count *= part->size[k])
        if (part->stride[k] < 1 ||
            (k + 1 < part->rank && part->stride[k] < part->stride[k + 1] * part->size[k + 1]))
            return 0;
    return 1;
}

/* Where elements at this stride are in the copy: behind all that lie closer together. */
static int64_t packed(const struct part *p, int64_t stride)
{
    int64_t n = 1;

    for (uint32_t d = 0; d < p->rank; d++)
        if (p->stride[d] < stride)
            n *= p->size[d];
    return stride ? n : 0;
}

/* Neighbours without a gap become one dim. */
static void merge(struct part *p)
{
    uint32_t n = 0;

    for (uint32_t d = 0; d < p->rank; d++) {
        if (n && p->stride[n - 1] == p->stride[d] * p->size[d])
            p->size[n - 1] *= p->size[d], p->stride[n - 1] = p->stride[d];
        else
            p->size[n] = p->size[d], p->stride[n++] = p->stride[d];
    }
    p->rank = n;
    p->inner = n ? p->size[n - 1] : 1;
}

static int widen(struct problem *q, const struct tn_problem *p, uint32_t i, struct part *part)
{
    const struct tn_operand *o = operand(p, i);

    q->operand[i] = *o;
    if (!tn_is_half(o->dtype))
        return 1;
    q->operand[i].dtype = TN_F32, q->operand[i].stride = q->stride[i];
    if (!describe(o, &q->p, i, part))
        return 0;
    for (uint32_t d = 0; d < o->rank; d++)
        q->stride[i][d] = packed(part, o->stride[d]);
    for (uint32_t l = 0; l < p->n_loop; l++)
        q->loop[l].stride[i] = packed(part, p->loop[l].stride[i]);
    merge(part);
    part->dtype = is_unread(p, i) ? 0 : o->dtype;
    return 1;
}

/* --- slabs */

static int64_t turns(const struct tn_problem *p, uint32_t loop)
{
    return loop == NO_LOOP ? 1 : p->loop[loop].size;
}

/* Floats of copies that do not get smaller with the slab, and those of one turn of the loop. */
static void count_floats(const struct tn_problem *p, uint32_t loop, int64_t *whole, int64_t *turn)
{
    *whole = *turn = 0;
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++) {
        const struct tn_operand *o = operand(p, i);

        if (!tn_is_half(o->dtype) || is_unread(p, i))
            continue;
        if (loop == NO_LOOP || !p->loop[loop].stride[i])
            *whole += tn_count(o);
        else
            *turn += tn_count(o) / p->loop[loop].size;
    }
}

/* The loop to cut, and how many of its turns make a slab. Only products and sums may be cut where they
 * reduce, and not if an epilogue needs the whole sum. */
static uint32_t choose_loop(const struct tn_problem *p, int64_t *slab)
{
    uint32_t best = NO_LOOP, n_out = p->n_loop - p->n_reduced;
    int64_t least, whole, turn;
    int small;

    count_floats(p, NO_LOOP, &least, &turn);
    small = least <= SLAB;
    for (uint32_t l = 0; p->loop && l < p->n_loop && !small; l++) {
        if (l >= n_out && (p->program || (strcmp(p->op, "einsum") && strcmp(p->op, "sum"))))
            continue;
        count_floats(p, l, &whole, &turn);
        if (p->loop[l].size >= 2 * UNIT && turn && whole + UNIT * turn < least) {
            least = whole + UNIT * turn;
            *slab = TN_MAX(UNIT, SLAB / turn / UNIT * UNIT);
            best = l;
        }
    }
    if (best == NO_LOOP || *slab > turns(p, best))
        *slab = turns(p, best);
    return best;
}

/* The kernels for slabs of so many turns. later: some of them are not the first. */
static tn_status make_shape(tn_cpu_prepare_fn *inner, const struct tn_problem *p, uint32_t loop, int64_t slab,
                            int64_t step, int later, struct shape *out)
{
    uint32_t n = p->n_in + p->n_out, reduces = loop != NO_LOOP && loop >= p->n_loop - p->n_reduced;
    struct problem q = {.p = *p};
    tn_status s;

    for (uint32_t l = 0; l < p->n_loop; l++)
        q.loop[l] = p->loop[l];
    if (loop != NO_LOOP)
        q.loop[loop].size = slab;
    q.p.in = q.operand, q.p.out = q.operand + p->n_in;
    q.p.loop = p->loop ? q.loop : NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (!widen(&q, p, i, &out->part[i]))
            return TN_DECLINED;
        out->part[i].step = loop == NO_LOOP ? 0 : step * p->loop[loop].stride[i];
    }
    s = inner(&q.p, &out->kernel[0]);
    if (s || !later || !reduces)
        return s;
    q.p.accumulate = (1u << p->n_out) - 1;
    return inner(&q.p, &out->kernel[1]);
}

/* Places of the copies, and the workspace: the larger of both shapes. */
static uint64_t lay_out(struct low *w)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < w->n; i++) {
        int64_t count = 0;

        for (int k = 0; k < 2; k++) {
            w->shape[k].part[i].at = w->floats;
            if (w->shape[k].part[i].dtype)
                count = TN_MAX(count, w->shape[k].part[i].count);
        }
        w->floats += TN_ROUND_UP(count, 16);
    }
    for (int i = 0; i < 4; i++)
        most = TN_MAX(most, w->shape[i / 2].kernel[i % 2].workspace);
    return (uint64_t)w->floats * sizeof(float) + most;
}

static tn_status make(struct low *w, tn_cpu_prepare_fn *inner, const struct tn_problem *p)
{
    int64_t slab, all;
    uint32_t loop = choose_loop(p, &slab);
    tn_status s = TN_OK;

    for (int i = 0; i < 4; i++)
        w->shape[i / 2].kernel[i % 2].struct_size = sizeof(struct tn_kernel);
    all = turns(p, loop);
    w->slabs = (all + slab - 1) / slab;
    if (w->slabs > 1)
        s = make_shape(inner, p, loop, slab, slab, w->slabs > 2, &w->shape[0]);
    return s ? s : make_shape(inner, p, loop, all - (w->slabs - 1) * slab, slab, w->slabs > 1, &w->shape[1]);
}

static int has_half(const struct tn_problem *p)
{
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        if (tn_is_half(operand(p, i)->dtype))
            return 1;
    return 0;
}

tn_status tn_cpu_through_f32(tn_cpu_prepare_fn *inner, const struct tn_problem *p, struct tn_kernel *out)
{
    uint32_t n = p->n_in + p->n_out;
    struct low *w;
    tn_status s;

    if (!strcmp(p->op, "store"))                 /* what it leaves alone has no copy to leave alone */
        return TN_DECLINED;
    if (!has_half(p) || n > OPERANDS || p->n_loop > TN_NEST_LOOPS || (p->loop && n > TN_MAX_OPERANDS))
        return TN_DECLINED;
    if (!(w = calloc(1, sizeof *w)))
        return tn_error(TN_ERR_MEMORY, "%s: no memory for its plan of %zu bytes", p->op, sizeof *w);
    w->n = n, w->n_in = p->n_in, w->accumulate = p->accumulate;
    if ((s = make(w, inner, p))) {
        release(w);
        return s;
    }
    out->workspace = lay_out(w);
    out->state = w, out->launch = launch, out->release = release;
    return TN_OK;
}
