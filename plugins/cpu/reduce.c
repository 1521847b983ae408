/* reduce.c - sum, rowmax, sumsq, and contractions without a matrix in them (Σ x·w over loops that both have).
 *
 * Three walks, by where the memory is contiguous. ROW: along the innermost reduced loop; each output is one
 * item. COLUMN: along the innermost output loop; a strip of outputs walks a block of 64 rows in floats, the
 * blocks are added in order in double. WHOLE: one output, one long run; fixed blocks of 4096, added in order.
 * So the bits depend neither on the number of threads nor on how work is cut. */
#include "cpu.h"
#include "vsum.h"

#define STRIP 512
#define STRIP_ROWS 64
#define WHOLE_BLOCK 4096
enum walk { ROW, COLUMN, WHOLE };

struct reduce {
    struct tn_nest out, in;    /* output loops; reduced loops but for what the walk runs along */
    int64_t run, run_x, run_w;                   /* the loop that the walk runs along: turns, strides */
    int64_t run_y;
    int64_t strips, blocks;                      /* COLUMN; WHOLE has blocks only */
    uint32_t walk, kind, two, accumulate;
};
struct run {
    const struct reduce *r;
    const float *x, *w;
    float *y;
    double *part;                                /* WHOLE: sum of each block */
    float *rows;                                 /* COLUMN: [strip][block][STRIP], if blocks are several */
};

static double along(const struct reduce *r, const float *x, const float *w, int64_t n)
{
    if (r->kind == TN_REDUCE_MAX)
        return tn_max(x, n);
    return r->kind == TN_REDUCE_SQUARES ? tn_dot(x, x, n) : r->two ? tn_dot(x, w, n) : tn_sum(x, n);
}

static void put(const struct reduce *r, float *y, double value)
{
    *y = r->accumulate ? (float)(*y + value) : (float)value;
}

static void run_row(void *arg, int64_t lo, int64_t hi)
{
    const struct run *t = arg;
    const struct reduce *r = t->r;
    int64_t inner = tn_nest_count(&r->in);
    uint32_t y_op = r->two ? 2 : 1;

    for (int64_t o = lo; o < hi; o++) {
        const float *x = t->x + tn_nest_offset(&r->out, 0, o);
        const float *w = r->two ? t->w + tn_nest_offset(&r->out, 1, o) : NULL;
        double total = r->kind == TN_REDUCE_MAX ? -INFINITY : 0;

        for (int64_t i = 0; i < inner; i++) {
            double part = along(r, x + tn_nest_offset(&r->in, 0, i),
                                w ? w + tn_nest_offset(&r->in, 1, i) : NULL, r->run);

            if (r->kind != TN_REDUCE_MAX)
                total += part;
            else
                total = part != part || part > total ? part : total;
            if (total != total)
                break;
        }
        put(r, t->y + tn_nest_offset(&r->out, y_op, o), total);
    }
}

/* sum[0..n) = Σ over rows first..last */
static void add_rows(const struct reduce *r, const float *x, const float *w, int64_t first, int64_t last,
                     int64_t n, float *sum)
{
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t i = first; i < last; i++) {
        const float *a = x + tn_nest_offset(&r->in, 0, i), *b = w ? w + tn_nest_offset(&r->in, 1, i) : NULL;

        if (!b)
            for (int64_t c = 0; c < n; c++)
                sum[c] += a[c];
        else if (r->run_w)
            for (int64_t c = 0; c < n; c++)
                sum[c] += a[c] * b[c];
        else
            for (int64_t c = 0; c < n; c++)
                sum[c] += a[c] * *b;
    }
}

/* lo..hi number the strips, within each its blocks. */
static void run_column(void *arg, int64_t lo, int64_t hi)
{
    const struct run *t = arg;
    const struct reduce *r = t->r;
    int64_t rows = tn_nest_count(&r->in);

    for (int64_t o = lo; o < hi; o++) {
        int64_t strip = o / r->blocks, first = o % r->blocks * STRIP_ROWS, outer = strip / r->strips;
        int64_t at = strip % r->strips * STRIP, n = TN_MIN(STRIP, r->run - at);
        const float *x = t->x + tn_nest_offset(&r->out, 0, outer) + at;
        const float *w = r->two ? t->w + tn_nest_offset(&r->out, 1, outer) + at * r->run_w : NULL;
        float *y = t->y + tn_nest_offset(&r->out, r->two ? 2 : 1, outer) + at * r->run_y, sum[STRIP];

        add_rows(r, x, w, first, TN_MIN(rows, first + STRIP_ROWS), n,
                 r->blocks > 1 ? t->rows + o * STRIP : sum);
        for (int64_t c = 0; c < n && r->blocks == 1; c++)
            put(r, y + c * r->run_y, (double)sum[c]);
    }
}

/* The blocks of strips lo..hi to their outputs. */
static void add_blocks(void *arg, int64_t lo, int64_t hi)
{
    const struct run *t = arg;
    const struct reduce *r = t->r;

    for (int64_t strip = lo; strip < hi; strip++) {
        int64_t outer = strip / r->strips, at = strip % r->strips * STRIP, n = TN_MIN(STRIP, r->run - at);
        const float *rows = t->rows + strip * r->blocks * STRIP;
        float *y = t->y + tn_nest_offset(&r->out, r->two ? 2 : 1, outer) + at * r->run_y;
        double total[STRIP] = {0};

        for (int64_t b = 0; b < r->blocks; b++)
            for (int64_t c = 0; c < n; c++)
                total[c] += (double)rows[b * STRIP + c];
        for (int64_t c = 0; c < n; c++)
            put(r, y + c * r->run_y, total[c]);
    }
}

static void run_whole(void *arg, int64_t lo, int64_t hi)
{
    const struct run *t = arg;

    for (int64_t b = lo; b < hi; b++) {
        int64_t at = b * WHOLE_BLOCK;

        t->part[b] = along(t->r, t->x + at, t->w ? t->w + at : NULL, TN_MIN(WHOLE_BLOCK, t->r->run - at));
    }
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct reduce *r = state;
    int64_t outputs = tn_nest_count(&r->out), turns = tn_nest_count(&r->in);
    struct run t = {
        r, l->buffer[0], r->two ? l->buffer[1] : NULL, l->buffer[r->two ? 2 : 1], l->workspace, l->workspace};

    if (r->walk == ROW) {
        tn_host->parallel(outputs, TN_MAX(1, 16384 / (turns * r->run)), run_row, &t);
    } else if (r->walk == COLUMN) {
        tn_host->parallel(outputs * r->strips * r->blocks,
                          TN_MAX(1, 16384 / (TN_MIN(turns, STRIP_ROWS) * STRIP)), run_column, &t);
        if (r->blocks > 1)
            tn_host->parallel(outputs * r->strips, TN_MAX(1, 64 / r->blocks), add_blocks, &t);
    } else {
        double total = 0;

        tn_host->parallel(r->blocks, 8, run_whole, &t);
        for (int64_t b = 0; b < r->blocks; b++)
            total += t.part[b];
        put(r, t.y, total);
    }
    return TN_OK;
}

/* Takes loop number i out of the nest as the one to run along. */
static void take(struct reduce *r, struct tn_nest *n, uint32_t i)
{
    r->run = n->size[i], r->run_x = n->stride[i][0];
    r->run_w = r->two ? n->stride[i][1] : 0;
    r->run_y = n->stride[i][r->two ? 2 : 1];
    n->n--;
    memmove(n->size + i, n->size + i + 1, (n->n - i) * sizeof *n->size);
    memmove(n->stride + i, n->stride + i + 1, (n->n - i) * sizeof *n->stride);
}

/* The loop of unit stride in x, if there is one; w must go along or, in a column, stand still. */
static int find_unit(const struct reduce *r, const struct tn_nest *n, int still)
{
    for (uint32_t i = 0; i < n->n; i++)
        if (n->stride[i][0] == 1 && (!r->two || n->stride[i][1] == 1 || (still && n->stride[i][1] == 0)))
            return (int)i;
    return -1;
}

static int choose_walk(struct reduce *r)
{
    int i = find_unit(r, &r->in, 0);

    if (i >= 0) {
        take(r, &r->in, (uint32_t)i);
        r->walk = r->kind != TN_REDUCE_MAX && !r->out.n && !r->in.n && r->run > WHOLE_BLOCK ? WHOLE : ROW;
        return 1;
    }
    i = find_unit(r, &r->out, 1);
    if (i < 0 || r->kind == TN_REDUCE_MAX)
        return 0;
    take(r, &r->out, (uint32_t)i);
    r->walk = COLUMN;
    return 1;
}

/* Blocks, and the bytes of workspace for them. */
static uint64_t cut(struct reduce *r)
{
    if (r->walk == WHOLE) {
        r->blocks = (r->run + WHOLE_BLOCK - 1) / WHOLE_BLOCK;
        return (uint64_t)r->blocks * sizeof(double);
    }
    r->strips = (r->run + STRIP - 1) / STRIP;
    r->blocks = (tn_nest_count(&r->in) + STRIP_ROWS - 1) / STRIP_ROWS;
    if (r->walk == ROW || r->blocks == 1)
        return 0;
    return (uint64_t)(tn_nest_count(&r->out) * r->strips * r->blocks * STRIP) * sizeof(float);
}

tn_status tn_cpu_reduce_make(const struct tn_problem *p, uint32_t kind, struct tn_kernel *out)
{
    struct reduce r = {.kind = kind, .two = p->n_in == 2, .accumulate = p->accumulate & 1};
    uint32_t n_out = p->n_loop - p->n_reduced;

    if (p->n_in > 2 || p->n_out != 1 || !p->loop || !tn_all_f32(p) || !tn_nest_load(&r.out, p, 0, n_out) ||
        !tn_nest_load(&r.in, p, n_out, p->n_reduced))
        return TN_DECLINED;
    tn_nest_simplify(&r.out, p->n_in);
    tn_nest_simplify(&r.in, 0);
    if (!choose_walk(&r))
        return TN_DECLINED;
    out->launch = launch, out->workspace = cut(&r);
    return tn_keep(out, &r, sizeof r, p->op);
}

tn_status tn_cpu_prepare_sum(const struct tn_problem *p, struct tn_kernel *out)
{
    return p->n_reduced ? tn_cpu_reduce_make(p, TN_REDUCE_SUM, out) : tn_cpu_prepare_copy(p, out);
}
tn_status tn_cpu_prepare_rowmax(const struct tn_problem *p, struct tn_kernel *out)
{
    return p->accumulate ? TN_DECLINED : tn_cpu_reduce_make(p, TN_REDUCE_MAX, out);
}
tn_status tn_cpu_prepare_sumsq(const struct tn_problem *p, struct tn_kernel *out)
{
    return tn_cpu_reduce_make(p, TN_REDUCE_SQUARES, out);
}
