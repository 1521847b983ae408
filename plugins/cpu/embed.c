/* embed.c - rows of a table by index, and the gradient's rows back; rows written by index (store).
 *
 * embed copies rows. embed_bwd sorts the places by their index (a counting sort in the workspace, which keeps
 * the order of equal ones), then each row of dw is the work of one thread: its places are added in order, in
 * double. A row that nobody asked for is cleared, or left alone under accumulate. The table may be a part of
 * a larger one from row `first` on; an index outside of the part, or below 0, is nobody's. */
#include "cpu.h"
#include "half.h"

#define CHUNK 512

struct embed {
    int64_t places, rows, c, first;
    int64_t table_step, i_step, step; /* between rows of the table, indices, rows of y or dy */
    uint32_t accumulate;
    uint32_t dtype; /* of rows, and of w; dw is fp32 */
};
struct run {
    const struct embed *e;
    void *table, *rows; /* w and y, or dw and dy */
    const int32_t *index;
    int32_t *start, *place; /* places of row r: place[start[r]..start[r + 1]) */
};

/* The row of the part for place i, or -1. */
static int64_t local_row(const struct run *r, int64_t i)
{
    int64_t index = r->index[i * r->e->i_step], row = index - r->e->first;

    return index < 0 || row < 0 || row >= r->e->rows ? -1 : row;
}

static void copy_rows(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    int64_t width = tn_width(r->e->dtype);
    size_t bytes = (size_t)(r->e->c * width);

    for (int64_t i = lo; i < hi; i++) {
        int64_t row = local_row(r, i);
        char *y = (char *)r->rows + i * r->e->step * width;

        if (row < 0)
            memset(y, 0, bytes);
        else
            memcpy(y, (const char *)r->table + row * r->e->table_step * width, bytes);
    }
}

static void sort_places(const struct run *r)
{
    int64_t rows = r->e->rows;

    memset(r->start, 0, (size_t)(rows + 2) * sizeof *r->start);
    for (int64_t i = 0; i < r->e->places; i++) {
        int64_t row = local_row(r, i);

        if (row >= 0)
            r->start[row + 2]++;
    }
    for (int64_t row = 2; row < rows + 2; row++)
        r->start[row] += r->start[row - 1];
    for (int64_t i = 0; i < r->e->places; i++) {
        int64_t row = local_row(r, i);

        if (row >= 0)
            r->place[r->start[row + 1]++] = (int32_t)i;
    }
}

static void add_places(const struct run *r, int64_t row, float *dw)
{
    for (int64_t at = 0; at < r->e->c; at += CHUNK) {
        int64_t n = TN_MIN(CHUNK, r->e->c - at);
        double sum[CHUNK] = {0};

        for (int32_t k = r->start[row]; k < r->start[row + 1]; k++) {
            const char *from =
                (const char *)r->rows + (r->place[k] * r->e->step + at) * tn_width(r->e->dtype);
            const float *dy = (const float *)(const void *)from;
            float copy[CHUNK];

            if (r->e->dtype != TN_F32)
                tn_half_load(r->e->dtype, from, 1, n, copy), dy = copy;
            for (int64_t c = 0; c < n; c++)
                sum[c] += (double)dy[c];
        }
        for (int64_t c = 0; c < n; c++)
            dw[at + c] = r->e->accumulate ? (float)(dw[at + c] + sum[c]) : (float)sum[c];
    }
}

static void gather_rows(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;

    for (int64_t row = lo; row < hi; row++) {
        float *dw = (float *)r->table + row * r->e->table_step;

        if (r->start[row] != r->start[row + 1])
            add_places(r, row, dw);
        else if (!r->e->accumulate)
            memset(dw, 0, (size_t)r->e->c * sizeof *dw);
    }
}

static tn_status launch_forward(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer[0], l->buffer[2], l->buffer[1], NULL, NULL};

    tn_host->parallel(r.e->places, TN_MAX(1, 16384 / r.e->c), copy_rows, &r);
    return TN_OK;
}
static tn_status launch_backward(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer[3], l->buffer[0], l->buffer[1], l->workspace, NULL};

    r.place = r.start + r.e->rows + 2;
    sort_places(&r);
    tn_host->parallel(r.e->rows, TN_MAX(1, 16384 / r.e->c), gather_rows, &r);
    return TN_OK;
}

/* rows: y or dy. */
static tn_status prepare(const struct tn_operand *table, const struct tn_operand *index,
                         const struct tn_operand *rows, struct embed *e)
{
    e->dtype = rows->dtype;
    if ((e->dtype != TN_F32 && !tn_is_half(e->dtype)) || index->dtype != TN_I32 || !table->rank ||
        (table->index && table->index[0]))
        return TN_DECLINED;
    e->places = tn_count(index), e->rows = table->size[0], e->first = table->origin[0];
    e->c = tn_count(table) / e->rows;
    if (!tn_operand_rows(table, table->rank - 1, &e->table_step) || !tn_operand_rows(index, 0, &e->i_step) ||
        !tn_operand_rows(rows, table->rank - 1, &e->step) || e->places > INT32_MAX)
        return TN_DECLINED;
    return TN_OK;
}

tn_status tn_cpu_prepare_embed(const struct tn_problem *p, struct tn_kernel *out)
{
    struct embed e = {0};

    if (p->accumulate || p->in[0].dtype != p->out[0].dtype || prepare(&p->in[0], &p->in[1], &p->out[0], &e))
        return TN_DECLINED;
    out->launch = launch_forward;
    return tn_keep(out, &e, sizeof e, p->op);
}
tn_status tn_cpu_prepare_embed_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    struct embed e = {.accumulate = p->accumulate & 1};

    if (p->out[0].dtype != TN_F32 || prepare(&p->out[0], &p->in[1], &p->in[0], &e))
        return TN_DECLINED;
    out->launch = launch_backward;
    out->workspace = (uint64_t)(e.rows + 2 + e.places) * sizeof(int32_t);
    return tn_keep(out, &e, sizeof e, p->op);
}

/* --- store */
struct store {
    int64_t places, all, rows;                   /* places of a sequence, of all; rows of a sequence's cache */
    int64_t i_step, from_step, to_step;          /* bytes, but for i_step */
    size_t bytes;                                /* of a row */
};
struct store_run {
    const struct store *e;
    const char *from;
    char *to;
    const int32_t *index;
};

static void store_some(void *arg, int64_t lo, int64_t hi)
{
    const struct store_run *r = arg;
    const struct store *e = r->e;

    for (int64_t i = lo; i < hi; i++) {
        int64_t row = r->index[i % e->places * e->i_step];

        if (row >= 0 && row < e->rows)
            memcpy(r->to + (i / e->places * e->rows + row) * e->to_step, r->from + i * e->from_step, e->bytes);
    }
}

static tn_status launch_store(void *state, const struct tn_launch *l)
{
    struct store_run r = {state, l->buffer[1], l->buffer[3], l->buffer[2]};

    tn_host->parallel(r.e->all, TN_MAX(1, (int64_t)(65536 / r.e->bytes)), store_some, &r);
    return TN_OK;
}

tn_status tn_cpu_prepare_store(const struct tn_problem *p, struct tn_kernel *out)
{
    const struct tn_operand *x = &p->in[1], *y = &p->out[0];
    int64_t width = tn_width(x->dtype);
    struct store e = {.places = x->size[1], .all = x->size[0] * x->size[1], .rows = y->size[1]};

    if (p->accumulate || p->n_in != 3 || (x->dtype != TN_F32 && !tn_is_half(x->dtype)) ||
        p->in[0].dtype != x->dtype || y->dtype != x->dtype || p->in[2].dtype != TN_I32)
        return TN_DECLINED;
    if (!tn_operand_rows(&p->in[2], 0, &e.i_step) || !tn_operand_rows(x, x->rank - 2, &e.from_step) ||
        !tn_operand_rows(y, y->rank - 2, &e.to_step))
        return TN_DECLINED;
    e.from_step *= width, e.to_step *= width;
    e.bytes = (size_t)(tn_count(x) / e.all * width);
    out->launch = launch_store;
    return tn_keep(out, &e, sizeof e, p->op);
}
