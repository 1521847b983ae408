/* experts.c - mixtures of experts: who visits whom, rows to slots and back, products of packed rows.
 *
 * Rows of one expert follow each other; count [block, expert] says how many there are. Slots behind the last row are
 * nobody's: dispatch leaves them alone, grouped makes them zero. */
#include "ref.h"

struct experts {
    struct tn_ref_base base;
    struct tn_ref_view in[4], out[2];
    int64_t k, blocks, shared;                   /* grouped: which of the weights' last dims the rows have */
    int64_t size[3];                             /* of the weights */
    const int64_t *weight[3];                    /* offsets along each of their dims */
};

/* --- route: the k largest, of equal ones the first; a NaN is larger than any number */

static int beats(double a, double b)
{
    return a > b || (isnan(a) && !isnan(b));
}

static void choose(const double *x, int64_t n, int64_t k, double *chosen)
{
    for (int64_t e = 0; e < n; e++)
        chosen[e] = 0;
    for (; k > 0; k--) {
        int64_t best = -1;

        for (int64_t e = 0; e < n; e++)
            if (chosen[e] == 0 && (best < 0 || beats(x[e], x[best])))
                best = e;
        if (best >= 0)
            chosen[best] = 1;
    }
}

static tn_status route(void *state, const struct tn_launch *l)
{
    const struct experts *s = state;
    const int64_t n = s->in[0].n_col;
    double *x = l->workspace, *chosen = x + n;

    for (int64_t r = 0; r < s->in[0].n_row; r++) {
        double max = -INFINITY, sum = 0;

        tn_ref_get_row(l, &s->in[0], r, x);
        choose(x, n, s->k, chosen);
        for (int64_t e = 0; e < n; e++)
            max = chosen[e] != 0 && x[e] > max ? x[e] : max;
        for (int64_t e = 0; e < n; e++)
            sum += chosen[e] != 0 ? exp(x[e] - max) : 0;
        for (int64_t e = 0; e < n; e++) {
            tn_ref_put(l, &s->out[0], r, e, chosen[e] != 0 ? exp(x[e] - max) / sum : 0);
            tn_ref_put(l, &s->out[1], r, e, chosen[e]);
        }
    }
    return TN_OK;
}

/* --- arrange: block by block, expert by expert, row by row */

static tn_status arrange(void *state, const struct tn_launch *l)
{
    const struct experts *s = state;
    const int64_t rows = s->in[0].n_row, each = s->size[0] ? rows / s->size[0] : 0;      /* rows for one of the first dim */
    const int64_t part = s->size[0] / s->blocks, more = s->size[0] % s->blocks;
    int64_t slot = 0, begin = 0;

    for (int64_t b = 0; b < s->blocks; b++) {
        const int64_t end = begin + each * (part + (b < more));

        for (int64_t e = 0; e < s->in[0].n_col; e++) {
            const int64_t first = slot;

            for (int64_t r = begin; r < end; r++)
                tn_ref_put(l, &s->out[0], r, e, tn_ref_get(l, &s->in[0], r, e) != 0 ? (double)slot++ : -1);
            tn_ref_put(l, &s->out[1], b, e, (double)(slot - first));
        }
        begin = end;
    }
    return TN_OK;
}

/* --- rows and slots: a place that is no slot is not visited */

static int64_t place_of(const struct tn_launch *l, const struct tn_ref_view *place, int64_t r, int64_t e, int64_t slots)
{
    const int64_t at = (int64_t)tn_ref_get(l, place, r, e);

    return at < slots ? at : -1;
}

/* x, place [, gate] */
static tn_status dispatch(void *state, const struct tn_launch *l)
{
    const struct experts *s = state;

    for (int64_t r = 0; r < s->in[1].n_row; r++)
        for (int64_t e = 0; e < s->in[1].n_col; e++) {
            const int64_t at = place_of(l, &s->in[1], r, e, s->out[0].n_row);
            const double gate = s->k ? tn_ref_get(l, &s->in[2], r, e) : 1;

            for (int64_t c = 0; at >= 0 && c < s->out[0].n_col; c++)
                tn_ref_put(l, &s->out[0], at, c, gate * tn_ref_get(l, &s->in[0], r, c));
        }
    return TN_OK;
}

/* z, place [, gate] */
static tn_status combine(void *state, const struct tn_launch *l)
{
    const struct experts *s = state;
    double *sum = l->workspace;

    for (int64_t r = 0; r < s->in[1].n_row; r++) {
        for (int64_t c = 0; c < s->out[0].n_col; c++)
            sum[c] = 0;
        for (int64_t e = 0; e < s->in[1].n_col; e++) {
            const int64_t at = place_of(l, &s->in[1], r, e, s->in[0].n_row);
            const double gate = s->k ? tn_ref_get(l, &s->in[2], r, e) : 1;

            for (int64_t c = 0; at >= 0 && c < s->out[0].n_col; c++)
                sum[c] += gate * tn_ref_get(l, &s->in[0], at, c);
        }
        for (int64_t c = 0; c < s->out[0].n_col; c++)
            tn_ref_put(l, &s->out[0], r, c, sum[c]);
    }
    return TN_OK;
}

/* dy, z, place */
static tn_status gate_bwd(void *state, const struct tn_launch *l)
{
    const struct experts *s = state;

    for (int64_t r = 0; r < s->in[2].n_row; r++)
        for (int64_t e = 0; e < s->in[2].n_col; e++) {
            const int64_t at = place_of(l, &s->in[2], r, e, s->in[1].n_row);
            double sum = 0;

            for (int64_t c = 0; at >= 0 && c < s->in[0].n_col; c++)
                sum += tn_ref_get(l, &s->in[0], r, c) * tn_ref_get(l, &s->in[1], at, c);
            tn_ref_put(l, &s->out[0], r, e, sum);
        }
    return TN_OK;
}

/* --- products. Rows of a segment: how many fit behind `from` */

static int64_t segment(const struct experts *s, const struct tn_launch *l, int64_t b, int64_t e, int64_t from)
{
    const int64_t n = (int64_t)tn_ref_get(l, &s->in[2], b, e), room = s->in[0].n_row - from;

    return n < 0 ? 0 : n > room ? room : n;
}

/* x, w, count: w is [expert, a, b], of which x has one and y the other */
static tn_status grouped(void *state, const struct tn_launch *l)
{
    const struct experts *s = state;
    const struct tn_ref_view *x = &s->in[0], *y = &s->out[0];
    int64_t r = 0;

    for (int64_t b = 0; b < s->in[2].n_row; b++)
        for (int64_t e = 0; e < s->in[2].n_col; e++)
            for (int64_t n = segment(s, l, b, e, r); n > 0; n--, r++)
                for (int64_t o = 0; o < y->n_col; o++) {
                    double sum = 0;

                    for (int64_t i = 0; i < x->n_col; i++)
                        sum += tn_ref_get(l, x, r, i)
                               * tn_ref_load(s->in[1].dtype, l->buffer[s->in[1].slot],
                                             s->weight[0][e] + s->weight[s->shared][i] + s->weight[3 - s->shared][o]);
                    tn_ref_put(l, y, r, o, sum);
                }
    for (; r < y->n_row; r++)
        for (int64_t o = 0; o < y->n_col; o++)
            tn_ref_put(l, y, r, o, 0);
    return TN_OK;
}

/* dy, x, count: dw[e] is the sum over the rows of e; rows of a block begin behind those of the blocks before */
static double weight_sum(const struct experts *s, const struct tn_launch *l, int64_t e, int64_t i, int64_t o)
{
    int64_t r = 0;
    double sum = 0;

    for (int64_t b = 0; b < s->in[2].n_row; b++)
        for (int64_t f = 0; f < s->in[2].n_col; f++) {
            const int64_t end = r + segment(s, l, b, f, r);

            for (; f == e && r < end; r++)
                sum += tn_ref_get(l, &s->in[0], r, o) * tn_ref_get(l, &s->in[1], r, i);
            r = end;
        }
    return sum;
}

static tn_status grouped_dw(void *state, const struct tn_launch *l)
{
    const struct experts *s = state;

    for (int64_t e = 0; e < s->size[0]; e++)
        for (int64_t i = 0; i < s->size[s->shared]; i++)
            for (int64_t o = 0; o < s->size[3 - s->shared]; o++)
                tn_ref_store(s->out[0].dtype, l->buffer[s->out[0].slot],
                             s->weight[0][e] + s->weight[s->shared][i] + s->weight[3 - s->shared][o], weight_sum(s, l, e, i, o), s->out[0].add);
    return TN_OK;
}

/* --- preparing */

/* x: the rows that are summed over, w: the weights or their gradient. */
static void weights(struct experts *s, const struct tn_operand *x, const struct tn_operand *w)
{
    s->shared = strcmp(x->dim[x->rank - 1], w->dim[1]) ? 2 : 1;
    for (uint32_t d = 0; d < 3; d++)
        s->size[d] = w->size[d], s->weight[d] = tn_ref_offsets(s, w, d, d + 1, NULL);
}

static tn_status prepare_products(const struct tn_problem *p, struct experts *s, struct tn_kernel *out)
{
    const int dw = !strcmp(p->op, "grouped_dw");

    for (uint32_t i = 0; i < 3; i++)
        tn_ref_input(s, p, i, p->in[i].rank - 1, &s->in[i]);
    tn_ref_output(s, p, 0, p->out[0].rank - 1, &s->out[0]);
    weights(s, &p->in[dw], dw ? &p->out[0] : &p->in[1]);
    return tn_ref_ready(out, s, dw ? grouped_dw : grouped, 0);
}

tn_status tn_ref_experts(const struct tn_problem *p, struct tn_kernel *out)
{
    const struct tn_operand *first = &p->in[0];
    struct experts *s = tn_ref_state(sizeof *s);

    if (!s)
        return TN_ERR_MEMORY;
    if (!strncmp(p->op, "grouped", 7))
        return prepare_products(p, s, out);
    for (uint32_t i = 0; i < p->n_in; i++)
        tn_ref_input(s, p, i, p->in[i].rank - 1, &s->in[i]);
    for (uint32_t o = 0; o < p->n_out; o++)
        tn_ref_output(s, p, o, p->out[o].rank - 1, &s->out[o]);
    if (!strcmp(p->op, "route")) {
        s->k = tn_problem_int(p, "k", 1);
        return tn_ref_ready(out, s, route, 2 * s->in[0].n_col);
    }
    if (!strcmp(p->op, "arrange")) {
        s->blocks = tn_problem_int(p, "blocks", 1), s->size[0] = first->rank > 1 ? first->size[0] : 1;
        return tn_ref_ready(out, s, arrange, 0);
    }
    s->k = p->n_in > 2;                          /* there are gates */
    return tn_ref_ready(out, s, !strcmp(p->op, "dispatch") ? dispatch : !strcmp(p->op, "combine") ? combine : gate_bwd, s->out[0].n_col);
}
