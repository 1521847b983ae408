/* loss.c - cross-entropy of rows of logits, and its gradient. */
#include "cpu.h"
#include "softmax.h"

struct loss {
    int64_t rows, v, first;                      /* first: global index of the first logit */
    int64_t x, i, dy, y;                         /* steps between rows; y: of y or of dx */
    uint32_t accumulate;
};
struct run {
    const struct loss *n;
    const float *x, *dy;
    const int32_t *index;
    float *y;
};

static void forward(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;

    for (int64_t i = lo; i < hi; i++) {
        const float *x = r->x + i * r->n->x;
        int64_t index = r->index[i * r->n->i], at = index - r->n->first;
        float picked = at >= 0 && at < r->n->v ? x[at] : 0.0f;

        r->y[i * r->n->y] = index < 0 ? 0.0f : tn_log_sum_exp(x, r->n->v) - picked;
    }
}

static void backward(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    int64_t v = r->n->v;

    for (int64_t i = lo; i < hi; i++) {
        const float *x = r->x + i * r->n->x;
        int64_t index = r->index[i * r->n->i], at = index - r->n->first;
        float *dx = r->y + i * r->n->y, dy = r->dy[i * r->n->dy], lse;

        if (index < 0) {
            if (!r->n->accumulate)
                memset(dx, 0, (size_t)v * sizeof *dx);
            continue;
        }
        lse = tn_log_sum_exp(x, v);
        if (r->n->accumulate)
            for (int64_t k = 0; k < v; k++)
                dx[k] += dy * tn_exp(x[k] - lse);
        else
            for (int64_t k = 0; k < v; k++)
                dx[k] = dy * tn_exp(x[k] - lse);
        if (at >= 0 && at < v)
            dx[at] -= dy;
    }
}

static tn_status launch_forward(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer[0], NULL, l->buffer[1], l->buffer[2]};

    tn_host->parallel(r.n->rows, TN_MAX(1, 8192 / r.n->v), forward, &r);
    return TN_OK;
}
static tn_status launch_backward(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer[1], l->buffer[0], l->buffer[2], l->buffer[3]};

    tn_host->parallel(r.n->rows, TN_MAX(1, 8192 / r.n->v), backward, &r);
    return TN_OK;
}

static tn_status prepare(const struct tn_operand *x, const struct tn_operand *index,
                         const struct tn_operand *y, uint32_t y_tail, struct loss *n)
{
    if (x->dtype != TN_F32 || index->dtype != TN_I32 || y->dtype != TN_F32 || !x->rank ||
        (x->index && x->index[x->rank - 1]))
        return TN_DECLINED;
    n->v = x->size[x->rank - 1], n->rows = tn_count(x) / n->v, n->first = x->origin[x->rank - 1];
    return tn_operand_rows(x, 1, &n->x) && tn_operand_rows(index, 0, &n->i) &&
                   tn_operand_rows(y, y_tail, &n->y)
               ? TN_OK
               : TN_DECLINED;
}

tn_status tn_cpu_prepare_ce(const struct tn_problem *p, struct tn_kernel *out)
{
    struct loss n = {0};

    if (p->accumulate || prepare(&p->in[0], &p->in[1], &p->out[0], 0, &n))
        return TN_DECLINED;
    out->launch = launch_forward;
    return tn_keep(out, &n, sizeof n, p->op);
}
tn_status tn_cpu_prepare_ce_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    struct loss n = {.accumulate = p->accumulate & 1};

    if (p->in[0].dtype != TN_F32 || !tn_operand_rows(&p->in[0], 0, &n.dy) ||
        prepare(&p->in[1], &p->in[2], &p->out[0], 1, &n))
        return TN_DECLINED;
    out->launch = launch_backward;
    return tn_keep(out, &n, sizeof n, p->op);
}
