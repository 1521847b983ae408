/* head.c - the language model's head with what cross-entropy needs of it, logits never whole.
 *
 * Forward keeps the logits of one row. Backward makes each logit twice, row by row for dx and then word by
 * word for dw, so that every sum has its own few doubles and one order. */
#include "ref.h"

struct head {
    struct tn_ref_base base;
    struct tn_ref_view x, w, i;                  /* [I...;C] [V;C] [I...;] */
    struct tn_ref_view lse, z, dlse, dz;         /* [I...;] */
    struct tn_ref_view dx, dw;
    const int64_t *global;                       /* of each row of w */
    int64_t rows, words, width;
};

static tn_status head(void *state, const struct tn_launch *l)
{
    const struct head *k = state;
    double *x = l->workspace, *w = x + k->width, *logit = w + k->width;

    for (int64_t r = 0; r < k->rows; r++) {
        int64_t here = tn_ref_find(k->global, k->words, (int64_t)tn_ref_get(l, &k->i, r, 0));

        tn_ref_get_row(l, &k->x, r, x);
        for (int64_t v = 0; v < k->words; v++) {
            tn_ref_get_row(l, &k->w, v, w);
            logit[v] = tn_ref_dot(x, w, k->width);
        }
        tn_ref_put(l, &k->lse, r, 0, tn_ref_lse(logit, k->words));
        tn_ref_put(l, &k->z, r, 0, here < 0 ? 0 : logit[here]);
    }
    return TN_OK;
}

/* Gradient of the logit of row r and word v, whose x and w are given. */
static double dlogit(const struct head *k, const struct tn_launch *l, int64_t r, int64_t v, const double *x,
                     const double *w)
{
    const double lse = tn_ref_get(l, &k->lse, r, 0), dlse = tn_ref_get(l, &k->dlse, r, 0);
    const int hit = (int64_t)tn_ref_get(l, &k->i, r, 0) == k->global[v];

    return dlse * exp(tn_ref_dot(x, w, k->width) - lse) + (hit ? tn_ref_get(l, &k->dz, r, 0) : 0);
}

static tn_status head_bwd(void *state, const struct tn_launch *l)
{
    const struct head *k = state;
    double *x = l->workspace, *w = x + k->width, *sum = w + k->width;
    const struct tn_ref_view *vx = &k->x, *vw = &k->w;

    for (int64_t r = 0; r < k->rows; r++) {
        tn_ref_get_row(l, vx, r, x);
        memset(sum, 0, (size_t)k->width * sizeof *sum);
        for (int64_t v = 0; v < k->words; v++) {
            tn_ref_get_row(l, vw, v, w);
            tn_ref_add(sum, dlogit(k, l, r, v, x, w), w, k->width);
        }
        for (int64_t c = 0; c < k->width; c++)
            tn_ref_put(l, &k->dx, r, c, sum[c]);
    }
    for (int64_t v = 0; v < k->words; v++) {
        tn_ref_get_row(l, vw, v, w);
        memset(sum, 0, (size_t)k->width * sizeof *sum);
        for (int64_t r = 0; r < k->rows; r++) {
            tn_ref_get_row(l, vx, r, x);
            tn_ref_add(sum, dlogit(k, l, r, v, x, w), x, k->width);
        }
        for (int64_t c = 0; c < k->width; c++)
            tn_ref_put(l, &k->dw, v, c, sum[c]);
    }
    return TN_OK;
}

static tn_status head_train(void *state, const struct tn_launch *l)
{
    tn_status s = head(state, l);

    return s ? s : head_bwd(state, l);
}

/* head:       x w i            -> lse z
 * head_bwd:   x w i lse dlse dz -> dx dw
 * head_train: x w i dlse dz    -> lse z dx dw; it reads the lse that it has written */
tn_status tn_ref_head(const struct tn_problem *p, struct tn_kernel *out)
{
    const int train = p->n_out == 4, back = p->n_in == 6;
    const uint32_t rank = p->in[2].rank;         /* dims of a row's place */
    struct head *k;

    if (train && p->accumulate & 3)
        return TN_DECLINED;
    if (!(k = tn_ref_state(sizeof *k)))
        return TN_ERR_MEMORY;
    tn_ref_input(k, p, 0, rank, &k->x), tn_ref_input(k, p, 1, 1, &k->w), tn_ref_input(k, p, 2, rank, &k->i);
    if (!back)
        tn_ref_output(k, p, 0, rank, &k->lse), tn_ref_output(k, p, 1, rank, &k->z);
    else
        tn_ref_input(k, p, 3, rank, &k->lse);
    if (back || train) {
        tn_ref_input(k, p, p->n_in - 2, rank, &k->dlse), tn_ref_input(k, p, p->n_in - 1, rank, &k->dz);
        tn_ref_output(k, p, p->n_out - 2, rank, &k->dx), tn_ref_output(k, p, p->n_out - 1, 1, &k->dw);
    }
    k->global = tn_ref_globals(k, &p->in[1], 0);
    k->rows = k->x.n_row, k->words = k->w.n_row, k->width = k->x.n_col;
    return tn_ref_ready(out, k, train ? head_train : back ? head_bwd : head, 3 * k->width + k->words);
}
