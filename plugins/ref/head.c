/* head.c - the language model's head with what cross-entropy needs of it, logits never whole.
 *
 * Forward keeps the logits of one row. Backward makes each logit twice, row by row for dx and then word by
 * word for dw, so that every sum has its own few doubles and one order. */
#include "ref.h"

struct head {
    struct tn_ref_base base;
    struct tn_ref_view in[6], out[2];            /* x [I...;C] w [V;C] i, lse, dlse, dz [I...;] */
    const int64_t *global;                       /* of each row of w */
    int64_t rows, words, width;
};

static tn_status head(void *state, const struct tn_launch *l)
{
    const struct head *k = state;
    double *x = l->workspace, *w = x + k->width, *logit = w + k->width;

    for (int64_t r = 0; r < k->rows; r++) {
        int64_t here = tn_ref_find(k->global, k->words, (int64_t)tn_ref_get(l, &k->in[2], r, 0));

        tn_ref_get_row(l, &k->in[0], r, x);
        for (int64_t v = 0; v < k->words; v++) {
            tn_ref_get_row(l, &k->in[1], v, w);
            logit[v] = tn_ref_dot(x, w, k->width);
        }
        tn_ref_put(l, &k->out[0], r, 0, tn_ref_lse(logit, k->words));
        tn_ref_put(l, &k->out[1], r, 0, here < 0 ? 0 : logit[here]);
    }
    return TN_OK;
}

/* Gradient of the logit of row r and word v, whose x and w are given. */
static double dlogit(const struct head *k, const struct tn_launch *l, int64_t r, int64_t v, const double *x,
                     const double *w)
{
    const double lse = tn_ref_get(l, &k->in[3], r, 0), dlse = tn_ref_get(l, &k->in[4], r, 0);
    const int hit = (int64_t)tn_ref_get(l, &k->in[2], r, 0) == k->global[v];

    return dlse * exp(tn_ref_dot(x, w, k->width) - lse) + (hit ? tn_ref_get(l, &k->in[5], r, 0) : 0);
}

static tn_status head_bwd(void *state, const struct tn_launch *l)
{
    const struct head *k = state;
    double *x = l->workspace, *w = x + k->width, *sum = w + k->width;
    const struct tn_ref_view *vx = &k->in[0], *vw = &k->in[1];

    for (int64_t r = 0; r < k->rows; r++) {
        tn_ref_get_row(l, vx, r, x);
        memset(sum, 0, (size_t)k->width * sizeof *sum);
        for (int64_t v = 0; v < k->words; v++) {
            tn_ref_get_row(l, vw, v, w);
            tn_ref_add(sum, dlogit(k, l, r, v, x, w), w, k->width);
        }
        for (int64_t c = 0; c < k->width; c++)
            tn_ref_put(l, &k->out[0], r, c, sum[c]);
    }
    for (int64_t v = 0; v < k->words; v++) {
        tn_ref_get_row(l, vw, v, w);
        memset(sum, 0, (size_t)k->width * sizeof *sum);
        for (int64_t r = 0; r < k->rows; r++) {
            tn_ref_get_row(l, vx, r, x);
            tn_ref_add(sum, dlogit(k, l, r, v, x, w), x, k->width);
        }
        for (int64_t c = 0; c < k->width; c++)
            tn_ref_put(l, &k->out[1], v, c, sum[c]);
    }
    return TN_OK;
}

tn_status tn_ref_head(const struct tn_problem *p, struct tn_kernel *out)
{
    const int back = !strcmp(p->op, "head_bwd");
    const uint32_t rank = p->in[2].rank;         /* dims of a row's place */
    struct head *k = tn_ref_state(sizeof *k);

    if (!k)
        return TN_ERR_MEMORY;
    for (uint32_t i = 0; i < p->n_in; i++)
        tn_ref_input(k, p, i, i == 1 ? 1 : rank, &k->in[i]);
    for (uint32_t i = 0; i < 2; i++)
        tn_ref_output(k, p, i, back && i == 1 ? 1 : rank, &k->out[i]);
    k->global = tn_ref_globals(k, &p->in[1], 0);
    k->rows = k->in[0].n_row, k->words = k->in[1].n_row, k->width = k->in[0].n_col;
    return tn_ref_ready(out, k, back ? head_bwd : head, 3 * k->width + k->words);
}
