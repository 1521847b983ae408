/* @NAME@ - a device of the kind "@NAME@" with kernels for every base operation, in one file.
 *
 * The device is host memory (tenon/kit_device.h): begin a real one by putting functions of your own into its table.
 * The kernels are the base set: fused operations (attention, layernorm, the head with its loss) are not claimed, so
 * the host makes them of these. That is enough to train GPT, slowly. What arrives as a nest of loops is one function
 * here, four operations have a shape of their own. */
#include <tenon/kit_device.h>
#include <tenon/kit_nest.h>
#include <tenon/philox.h>

#define KIND "@NAME@"

static const struct tn_device_api device = TN_KIT_DEVICE(KIND, tn_kit_device_probe);

/* --- nests: einsum sum sumsq rowmax expand copy cast accum expr */

struct nest {
    struct tn_kit_nest *k;                       /* owned */
    uint32_t what, reserved0;
};
enum { LOAD, SUM, PRODUCT, SQUARES, MAX, PROGRAM };

/* The number that one position of the output starts from; only `expr` has none. */
static double reduce(const struct nest *s, const struct tn_launch *l, const struct tn_kit_walk *at)
{
    struct tn_kit_walk in = tn_kit_inner(s->k, at);
    double y = s->what == MAX ? -(double)INFINITY : 0;

    while (tn_kit_next(&in)) {
        const double x = tn_kit_in(s->k, l, &in, 0);

        switch (s->what) {
        case LOAD: y = x; break;
        case SUM: y += x; break;
        case PRODUCT: y += x * tn_kit_in(s->k, l, &in, 1); break;
        case SQUARES: y += x * x; break;
        case MAX: y = x > y || isnan(x) ? x : y; break;
        default: break;
        }
    }
    return y;
}

/* Every input of an element is read before its outputs are written: they may share a buffer. */
static tn_status nest(void *state, const struct tn_launch *l)
{
    const struct nest *s = (const struct nest *)state;
    const struct tn_kit_nest *k = s->k;
    double v[TN_MAX_OPERANDS];
    uint32_t n, next;

    for (struct tn_kit_walk at = tn_kit_outer(k); tn_kit_next(&at);) {
        n = next = 0;
        if (s->what != PROGRAM)
            v[n++] = reduce(s, l, &at), next = 2; /* an epilogue's other inputs are those from 2 on */
        while (k->n_instr && next < k->n_in)
            v[n++] = tn_kit_in(k, l, &at, next++);
        if (k->n_instr)
            tn_kit_run(k, l, v, v);
        for (uint32_t i = 0; i < k->n_out; i++)
            tn_kit_out(k, l, &at, i, v[i]);
    }
    return TN_OK;
}

static void nest_release(void *state)
{
    free(((struct nest *)state)->k);
    free(state);
}

static tn_status nest_prepare(const struct tn_problem *p, struct tn_kernel *out, uint32_t what)
{
    struct nest *s = (struct nest *)calloc(1, sizeof *s);
    tn_status status = s ? tn_kit_nest_keep(p, &s->k) : tn_error(TN_ERR_MEMORY, KIND ": no memory for a kernel");

    if (status != TN_OK) {
        free(s);
        return status;
    }
    s->what = what;
    out->state = s, out->launch = nest, out->release = nest_release;
    return TN_OK;
}

/* --- operations with a shape of their own: rows, columns, and a number for each row */

struct shaped {
    struct tn_kit_view x, y, i;                  /* y [row, col] of x and the numbers i [row] */
    int64_t *global, *global_row, *global_col;   /* owned: see prepare */
    int64_t per_micro;                           /* dropout: elements of a whole micro-batch */
    uint32_t key, threshold;
    double kept;                                 /* what is not dropped grows by */
};

/* embed: y[r] = x[row i[r]]; a row that is not here, or a negative number, gives 0. */
static tn_status embed(void *state, const struct tn_launch *l)
{
    const struct shaped *s = (const struct shaped *)state;

    for (int64_t r = 0; r < s->y.n_row; r++) {
        const int64_t from = tn_kit_find(s->global, s->x.n_row, (int64_t)tn_kit_get(l, &s->i, r, 0));

        for (int64_t c = 0; c < s->y.n_col; c++)
            tn_kit_put(l, &s->y, r, c, from < 0 ? 0 : tn_kit_get(l, &s->x, from, c));
    }
    return TN_OK;
}

/* embed_bwd: y[v] = the sum of x[r] over the rows r whose number is that of v, in their order. */
static tn_status embed_bwd(void *state, const struct tn_launch *l)
{
    const struct shaped *s = (const struct shaped *)state;

    for (int64_t v = 0; v < s->y.n_row; v++)
        for (int64_t c = 0; c < s->y.n_col; c++) {
            double sum = 0;

            for (int64_t r = 0; r < s->x.n_row; r++)
                if ((int64_t)tn_kit_get(l, &s->i, r, 0) == s->global[v])
                    sum += tn_kit_get(l, &s->x, r, c);
            tn_kit_put(l, &s->y, v, c, sum);
        }
    return TN_OK;
}

/* pick: y[r] = x[r, column i[r]], 0 where it is not here. */
static tn_status pick(void *state, const struct tn_launch *l)
{
    const struct shaped *s = (const struct shaped *)state;

    for (int64_t r = 0; r < s->y.n_row; r++) {
        const int64_t c = tn_kit_find(s->global, s->x.n_col, (int64_t)tn_kit_get(l, &s->i, r, 0));

        tn_kit_put(l, &s->y, r, 0, c < 0 ? 0 : tn_kit_get(l, &s->x, r, c));
    }
    return TN_OK;
}

/* pick_bwd: y[r, c] = x[r] where c is the row's number, else 0. */
static tn_status pick_bwd(void *state, const struct tn_launch *l)
{
    const struct shaped *s = (const struct shaped *)state;

    for (int64_t r = 0; r < s->y.n_row; r++)
        for (int64_t c = 0; c < s->y.n_col; c++)
            tn_kit_put(l, &s->y, r, c,
                       (int64_t)tn_kit_get(l, &s->i, r, 0) == s->global[c] ? tn_kit_get(l, &s->x, r, 0) : 0);
    return TN_OK;
}

/* dropout: what is kept is drawn for the element's index in the whole tensor, so no cut changes the mask. */
static tn_status dropout(void *state, const struct tn_launch *l)
{
    const struct shaped *s = (const struct shaped *)state;
    const uint32_t *u = (const uint32_t *)l->uniform;
    const uint64_t seed = u[0] | (uint64_t)u[1] << 32;

    for (int64_t r = 0; r < s->y.n_row; r++)
        for (int64_t c = 0; c < s->y.n_col; c++) {
            const int64_t g = s->global_row[r] + s->global_col[c] + l->micro * s->per_micro;

            tn_kit_put(l, &s->y, r, c, tn_philox_at(seed, s->key, u[2], (uint64_t)g) >= s->threshold
                                           ? tn_kit_get(l, &s->x, r, c) * s->kept : 0);
        }
    return TN_OK;
}

static void shaped_release(void *state)
{
    struct shaped *s = (struct shaped *)state;

    tn_kit_view_free(&s->x), tn_kit_view_free(&s->y), tn_kit_view_free(&s->i);
    free(s->global), free(s->global_row), free(s->global_col);
    free(s);
}

/* Takes s. Tables that there was no memory for are NULL. */
static tn_status shaped_ready(struct shaped *s, struct tn_kernel *out, tn_status (*launch)(void *, const struct tn_launch *))
{
    const int numbers = launch != dropout;
    const int all = s->x.row && s->x.col && s->y.row && s->y.col &&
                    (numbers ? s->global && s->i.row && s->i.col : s->global_row && s->global_col);

    if (!all) {
        shaped_release(s);
        return tn_error(TN_ERR_MEMORY, KIND ": no memory for the tables of a kernel");
    }
    out->state = s, out->launch = launch, out->release = shaped_release;
    return TN_OK;
}

/* The table of numbers is that of w or dw, of x or dx. Inputs: what is read, the numbers, what only has a shape. */
static tn_status indexed_prepare(const struct tn_problem *p, struct tn_kernel *out, uint32_t what)
{
    static tn_status (*const launch[])(void *, const struct tn_launch *) = {embed, embed_bwd, pick, pick_bwd};
    const uint32_t places = p->in[1].rank, back = what & 1, rows = what < 2;
    struct shaped *s = (struct shaped *)calloc(1, sizeof *s);

    if (!s)
        return tn_error(TN_ERR_MEMORY, KIND ": no memory for a kernel");
    s->global = tn_kit_globals(back ? &p->out[0] : &p->in[0], rows ? 0 : places);
    s->x = tn_kit_rows(p, 0, rows && !back ? 1 : places);
    s->i = tn_kit_rows(p, 1, places);
    s->y = tn_kit_rows(p, p->n_in, rows && back ? 1 : places);
    return shaped_ready(s, out, launch[what]);
}

static tn_status dropout_prepare(const struct tn_problem *p, struct tn_kernel *out, uint32_t what)
{
    const struct tn_operand *y = &p->out[0];
    const uint32_t split = y->rank ? y->rank - 1 : 0;
    const int64_t batch = tn_problem_int(p, "micro_dim", -1);
    struct shaped *s = (struct shaped *)calloc(1, sizeof *s);
    int64_t stride[TN_MAX_RANK], n = 1;

    (void)what;
    if (!s)
        return tn_error(TN_ERR_MEMORY, KIND ": no memory for a kernel");
    for (uint32_t d = y->rank; d-- > 0; n *= y->whole[d]) {
        stride[d] = n;
        if (d == batch)
            s->per_micro = y->whole[d] * n;
    }
    s->x = tn_kit_rows(p, 0, split), s->y = tn_kit_rows(p, p->n_in, split);
    s->global_row = tn_kit_places(y, 0, split, stride), s->global_col = tn_kit_places(y, split, y->rank, stride);
    s->key = (uint32_t)tn_problem_int(p, "key", 0);
    s->threshold = tn_dropout_threshold(tn_problem_float(p, "p", 0));
    s->kept = 1 / (1 - tn_problem_float(p, "p", 0));
    return shaped_ready(s, out, dropout);
}

/* --- the tables */

static const struct {
    const char *op;
    tn_status (*prepare)(const struct tn_problem *p, struct tn_kernel *out, uint32_t what);
    uint32_t what;
} table[] = {
    {"einsum", nest_prepare, PRODUCT}, {"sum", nest_prepare, SUM},       {"sumsq", nest_prepare, SQUARES},
    {"rowmax", nest_prepare, MAX},     {"expand", nest_prepare, LOAD},   {"copy", nest_prepare, LOAD},
    {"cast", nest_prepare, LOAD},      {"accum", nest_prepare, LOAD},    {"expr", nest_prepare, PROGRAM},
    {"embed", indexed_prepare, 0},     {"embed_bwd", indexed_prepare, 1}, {"pick", indexed_prepare, 2},
    {"pick_bwd", indexed_prepare, 3},  {"dropout", dropout_prepare, 0},
};
#define OPS (sizeof table / sizeof *table)
static const char *const ops[] = {"einsum", "sum", "sumsq", "rowmax", "expand", "copy", "cast", "accum",
                                  "expr", "embed", "embed_bwd", "pick", "pick_bwd", "dropout", NULL};

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        if (!tn_kit_width((i < p->n_in ? p->in[i] : p->out[i - p->n_in]).dtype))
            return TN_DECLINED;
    for (size_t i = 0; i < OPS; i++)
        if (!strcmp(p->op, table[i].op))
            return table[i].prepare(p, out, table[i].what);
    return TN_DECLINED;
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, (size_t)why_size, "base operations, one thread");
    return TN_OK;
}

static const struct tn_kernels kernels = {
    .struct_size = sizeof kernels,
    .reserved0 = 0,
    .device = KIND,
    .ops = ops,
    .probe = probe,
    .prepare = prepare,
};

TN_PLUGIN2(KIND, "0.1", "a device in host memory, and the base operations", TN_DEVICE_ID, &device, TN_KERNELS_ID,
           &kernels);
