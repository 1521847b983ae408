/* elementwise.c - expr, copy, accum, expand: a program over a nest of loops, on all threads.
 *
 * The nest is simplified until it is a stack of rectangles; the two inner loops are a rectangle, long rows
 * are cut in pieces. Nothing is summed, so the cut does not show in the bits. */
#include "cpu.h"
#include "half.h"

#define PIECE 32768 /* elements that are worth a thread's while */

struct elementwise {
    struct tn_cpu_program *program;
    struct tn_nest outer;
    int64_t rows, cols; /* of one rectangle */
    int64_t row[TN_MAX_OPERANDS], col[TN_MAX_OPERANDS];
    uint32_t dtype[TN_MAX_OPERANDS];
    int64_t pieces; /* per row; more than one only if rows are long */
};
struct run {
    const struct elementwise *e;
    void *const *buffer;
    const float *uniform;
};

static void rectangle(const struct run *r, int64_t outer, int64_t row, int64_t rows, int64_t col,
                      int64_t cols)
{
    const struct elementwise *e = r->e;
    struct tn_cpu_view v[TN_MAX_OPERANDS];

    for (uint32_t i = 0; i < e->outer.n_op; i++) {
        int64_t at = tn_nest_offset(&e->outer, i, outer) + row * e->row[i] + col * e->col[i];

        at *= tn_width(e->dtype[i]);
        v[i] = (struct tn_cpu_view){(char *)((uintptr_t)r->buffer[i] + (uintptr_t)at), e->row[i], e->col[i],
                                    e->dtype[i]};
    }
    tn_cpu_program_run(e->program, v, rows, cols, r->uniform);
}

/* lo..hi number the rows of all rectangles, or the pieces of those rows. */
static void run_rows(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    const struct elementwise *e = r->e;

    for (int64_t n; lo < hi; lo += n) {
        int64_t row = lo / e->pieces % e->rows, col = lo % e->pieces * PIECE;

        n = e->pieces > 1 ? 1 : TN_MIN(hi - lo, e->rows - row);
        rectangle(r, lo / e->pieces / e->rows, row, n, col,
                  e->pieces > 1 ? TN_MIN(PIECE, e->cols - col) : e->cols);
    }
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct elementwise *e = state;
    struct run r = {e, l->buffer, l->uniform};
    int64_t n = tn_nest_count(&e->outer) * e->rows * e->pieces;

    tn_host->parallel(n, e->pieces > 1 ? 1 : TN_MAX(1, PIECE / e->cols), run_rows, &r);
    return TN_OK;
}

static void release(void *state)
{
    struct elementwise *e = state;

    free(e->program);
    free(e);
}

/* Takes the two inner loops out of the nest as the rectangle. */
static void split(struct elementwise *e)
{
    struct tn_nest *n = &e->outer;

    e->rows = e->cols = 1;
    if (n->n) {
        e->cols = n->size[--n->n];
        memcpy(e->col, n->stride[n->n], sizeof e->col);
    }
    if (n->n) {
        e->rows = n->size[--n->n];
        memcpy(e->row, n->stride[n->n], sizeof e->row);
    } else {
        for (uint32_t i = 0; i < n->n_op; i++)
            e->row[i] = e->col[i] * e->cols;
    }
    e->pieces = e->cols > PIECE ? (e->cols + PIECE - 1) / PIECE : 1;
}

tn_status tn_cpu_elementwise_make(const struct tn_problem *p, const struct tn_program *e,
                                  struct tn_kernel *out)
{
    struct elementwise plan = {0};
    tn_status s;

    if (!p->loop || !tn_nest_load(&plan.outer, p, 0, p->n_loop - p->n_reduced))
        return TN_DECLINED;
    for (uint32_t i = p->n_loop - p->n_reduced; i < p->n_loop; i++)
        if (p->loop[i].size != 1)
            return TN_DECLINED;
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++) {
        plan.dtype[i] = i < p->n_in ? p->in[i].dtype : p->out[i - p->n_in].dtype;
        if (plan.dtype[i] != TN_F32 && !tn_is_half(plan.dtype[i]) &&
            (plan.dtype[i] != TN_I32 || i >= p->n_in))
            return TN_DECLINED;
    }
    tn_nest_simplify(&plan.outer, p->n_in);
    split(&plan);
    if (e->n_result != p->n_out || !(plan.program = tn_cpu_program_make(e, p->n_in, p->accumulate)))
        return TN_DECLINED;
    if ((s = tn_keep(out, &plan, sizeof plan, p->op)) < 0)
        free(plan.program);
    else
        out->launch = launch, out->release = release;
    return s;
}

tn_status tn_cpu_prepare_expr(const struct tn_problem *p, struct tn_kernel *out)
{
    tn_status s;

    if (!p->program)
        return TN_DECLINED;
    s = tn_cpu_update_make(p, out);
    return s == TN_DECLINED ? tn_cpu_elementwise_make(p, p->program, out) : s;
}

/* y = x under the strides of both. The second input of expand is never read. */
tn_status tn_cpu_prepare_copy(const struct tn_problem *p, struct tn_kernel *out)
{
    static const struct tn_instr instr[] = {{TN_E_IN, 0, 0, 0}};
    static const uint16_t result[] = {0};
    static const struct tn_program identity = {
        .struct_size = sizeof identity,
        .n_instr = 1,
        .n_result = 1,
        .instr = instr,
        .result = result,
        .text = "a",
    };

    return p->in[0].dtype != TN_I32 ? tn_cpu_elementwise_make(p, &identity, out) : TN_DECLINED;
}
tn_status tn_cpu_prepare_accum(const struct tn_problem *p, struct tn_kernel *out)
{
    return tn_cpu_prepare_copy(p, out);
}
tn_status tn_cpu_prepare_expand(const struct tn_problem *p, struct tn_kernel *out)
{
    return tn_cpu_prepare_copy(p, out);
}
