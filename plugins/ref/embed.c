/* embed.c - rows of a table by number, and their gradient; rows written by number.
 *
 * The table may be a part of the whole one: then most numbers belong to other ranks, a row that is not here
 * counts as zero, and the ranks' sum is right. */
#include "ref.h"

struct embed {
    struct tn_ref_base base;
    struct tn_ref_view table, index, rows;       /* w or dw [R; C...], i [I...; ], y or dy [I...; C...] */
    const int64_t *global;                       /* of each row of the table */
};

static tn_status embed(void *state, const struct tn_launch *l)
{
    const struct embed *k = state;

    for (int64_t i = 0; i < k->index.n_row; i++) {
        int64_t r = tn_ref_find(k->global, k->table.n_row, (int64_t)tn_ref_get(l, &k->index, i, 0));

        for (int64_t c = 0; c < k->rows.n_col; c++)
            tn_ref_put(l, &k->rows, i, c, r < 0 ? 0 : tn_ref_get(l, &k->table, r, c));
    }
    return TN_OK;
}

/* Row by row of the table, so that the order of each sum is the order of the places. Negative numbers meet
 * no row. */
static tn_status embed_bwd(void *state, const struct tn_launch *l)
{
    const struct embed *k = state;
    double *sum = l->workspace;

    for (int64_t r = 0; r < k->table.n_row; r++) {
        for (int64_t c = 0; c < k->table.n_col; c++)
            sum[c] = 0;
        for (int64_t i = 0; i < k->index.n_row; i++) {
            if ((int64_t)tn_ref_get(l, &k->index, i, 0) != k->global[r])
                continue;
            for (int64_t c = 0; c < k->table.n_col; c++)
                sum[c] += tn_ref_get(l, &k->rows, i, c);
        }
        for (int64_t c = 0; c < k->table.n_col; c++)
            tn_ref_put(l, &k->table, r, c, sum[c]);
    }
    return TN_OK;
}

tn_status tn_ref_embed(const struct tn_problem *p, struct tn_kernel *out)
{
    const int back = !strcmp(p->op, "embed_bwd");
    const struct tn_operand *table = back ? &p->out[0] : &p->in[0];
    const uint32_t places = p->in[1].rank;
    struct embed *k = tn_ref_state(sizeof *k);

    if (!k)
        return TN_ERR_MEMORY;
    k->global = tn_ref_globals(k, table, 0);
    tn_ref_input(k, p, 1, places, &k->index);
    (back ? tn_ref_output : tn_ref_input)(k, p, 0, 1, &k->table);
    (back ? tn_ref_input : tn_ref_output)(k, p, 0, places, &k->rows);
    return tn_ref_ready(out, k, back ? embed_bwd : embed, k->table.n_col);
}

/* --- store: what it does not name stays as it is */

struct store {
    struct tn_ref_base base;
    struct tn_ref_view from, to, place;          /* [B T; C...], [B R; C...], [T; ] */
    int64_t batch, places, rows;
};

static tn_status store(void *state, const struct tn_launch *l)
{
    const struct store *k = state;

    for (int64_t t = 0; t < k->places; t++) {
        int64_t r = (int64_t)tn_ref_get(l, &k->place, t, 0);

        if (r < 0 || r >= k->rows)
            continue;
        for (int64_t b = 0; b < k->batch; b++)
            for (int64_t c = 0; c < k->from.n_col; c++)
                tn_ref_put(l, &k->to, b * k->rows + r, c, tn_ref_get(l, &k->from, b * k->places + t, c));
    }
    return TN_OK;
}

tn_status tn_ref_store_rows(const struct tn_problem *p, struct tn_kernel *out)
{
    struct store *k;

    if (p->accumulate)
        return TN_DECLINED;
    if (!(k = tn_ref_state(sizeof *k)))
        return TN_ERR_MEMORY;
    k->batch = p->in[1].size[0], k->places = p->in[1].size[1], k->rows = p->out[0].size[1];
    tn_ref_input(k, p, 1, 2, &k->from);
    tn_ref_input(k, p, 2, 1, &k->place);
    tn_ref_output(k, p, 0, 2, &k->to);
    return tn_ref_ready(out, k, store, 0);
}
