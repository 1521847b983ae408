/* nest.c - everything that arrives as a nest of loops, dropout included.
 *
 * One odometer walks the loops over the output, one within it those that are reduced over. Sums are kept in four
 * doubles, each of every fourth element of the innermost loop, so their order does not depend on anything. An
 * epilogue is declined: the core then leaves it an operation of its own. */
#include <math.h>
#include <stdlib.h>
#include <tenon/philox.h>
#include "isle.h"

#define MOST_LOOPS (2 * TN_MAX_RANK + 1)
#define MOST_INSTR 256
#define MOST_CONSTANTS 64

struct odometer {
    const struct tn_loop *loop;
    uint32_t n, operands;
    int64_t i[MOST_LOOPS], at[ISLE_OPERANDS];    /* at: elements from the buffers' beginnings */
};

struct nest {
    struct isle_kernel base;
    uint32_t n_in, n_out, n_kept, n_reduced, accumulate;
    uint32_t second;                             /* the operand that the first is multiplied with */
    uint32_t integer;                            /* bit i: input i is int32 */
    struct tn_loop loop[MOST_LOOPS];
    /* expr */
    uint32_t n_instr;
    struct tn_instr instr[MOST_INSTR];
    double constant[MOST_CONSTANTS];
    uint16_t result[ISLE_OPERANDS];
};

/* Is there a position at all? */
static int begin(struct odometer *o, const struct tn_loop *loop, uint32_t n, uint32_t operands)
{
    *o = (struct odometer){.loop = loop, .n = n, .operands = operands};
    for (uint32_t l = 0; l < n; l++)
        if (!loop[l].size)
            return 0;
    return 1;
}

static int next(struct odometer *o)
{
    for (uint32_t l = o->n; l-- > 0; o->i[l] = 0) {
        int64_t step = ++o->i[l] < o->loop[l].size ? 1 : 1 - o->loop[l].size;

        for (uint32_t k = 0; k < o->operands; k++)
            o->at[k] += step * o->loop[l].stride[k];
        if (step == 1)
            return 1;
    }
    return 0;
}

static void store(const struct nest *k, const struct isle_call *c, uint32_t out, int64_t at, double value)
{
    float *y = (float *)c->buffer[k->n_in + out] + at;

    *y = (float)(k->accumulate >> out & 1 ? *y + value : value);
}

/* --- sums: einsum, sum, sumsq */

static double row(const float *a, int64_t sa, const float *b, int64_t sb, int64_t n)
{
    double sum[4] = {0};
    int64_t i = 0;

    for (; i + 4 <= n; i += 4)
        for (int64_t j = 0; j < 4; j++)
            sum[j] += (double)a[(i + j) * sa] * (double)b[(i + j) * sb];
    for (; i < n; i++)
        sum[i % 4] += (double)a[i * sa] * (double)b[i * sb];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* Over the reduced loops, from the elements at a and b on. */
static double sum_of(const struct nest *k, const float *a, const float *b)
{
    static const struct tn_loop once = {.size = 1};
    static const float one = 1;
    const struct tn_loop *loop = k->loop + k->n_kept, *last = k->n_reduced ? loop + k->n_reduced - 1 : &once;
    struct odometer o;
    double sum = 0;

    if (!last->size || !begin(&o, loop, k->n_reduced ? k->n_reduced - 1 : 0, k->n_in))
        return 0;
    do
        sum += row(a + o.at[0], last->stride[0], b ? b + o.at[k->second] : &one, b ? last->stride[k->second] : 0, last->size);
    while (next(&o));
    return sum;
}

static void run_sum(const struct isle_kernel *base, const struct isle_call *c)
{
    const struct nest *k = (const struct nest *)base;
    const int plain = k->second == ISLE_OPERANDS;
    struct odometer o;

    if (!begin(&o, k->loop, k->n_kept, k->n_in + k->n_out))
        return;
    do {
        const float *a = (const float *)c->buffer[0] + o.at[0];

        store(k, c, 0, o.at[k->n_in], sum_of(k, a, plain ? NULL : (const float *)c->buffer[k->second] + o.at[k->second]));
    } while (next(&o));
}

static void run_max(const struct isle_kernel *base, const struct isle_call *c)
{
    const struct nest *k = (const struct nest *)base;
    struct odometer o, inner;

    if (!begin(&o, k->loop, k->n_kept, k->n_in + k->n_out))
        return;
    do {
        const float *a = (const float *)c->buffer[0] + o.at[0];
        float most = -INFINITY;

        if (begin(&inner, k->loop + k->n_kept, k->n_reduced, 1))
            do
                most = a[inner.at[0]] > most || isnan(a[inner.at[0]]) ? a[inner.at[0]] : most;
            while (next(&inner));
        store(k, c, 0, o.at[k->n_in], most);
    } while (next(&o));
}

/* --- copy, accum, expand */

static void run_copy(const struct isle_kernel *base, const struct isle_call *c)
{
    const struct nest *k = (const struct nest *)base;
    struct odometer o;

    if (!begin(&o, k->loop, k->n_kept, k->n_in + k->n_out))
        return;
    do
        if (k->integer & 1)
            ((int32_t *)c->buffer[k->n_in])[o.at[k->n_in]] = ((const int32_t *)c->buffer[0])[o.at[0]];
        else
            store(k, c, 0, o.at[k->n_in], (double)((const float *)c->buffer[0])[o.at[0]]);
    while (next(&o));
}

/* --- expr */

static double compute(const struct nest *k, const struct isle_call *c, const int64_t *at, struct tn_instr x, const double *r)
{
    const double a = x.op > TN_E_UNIFORM ? r[x.a] : 0, b = x.op > TN_E_ERF ? r[x.b] : 0;

    switch (x.op) {
    case TN_E_IN:
        return k->integer >> x.a & 1 ? ((const int32_t *)c->buffer[x.a])[at[x.a]] : (double)((const float *)c->buffer[x.a])[at[x.a]];
    case TN_E_CONST: return k->constant[x.a];
    case TN_E_UNIFORM: return (double)((const float *)c->uniform)[x.a];
    case TN_E_NEG: return -a;
    case TN_E_EXP: return exp(a);
    case TN_E_LOG: return log(a);
    case TN_E_SQRT: return sqrt(a);
    case TN_E_TANH: return tanh(a);
    case TN_E_ERF: return erf(a);
    case TN_E_ADD: return a + b;
    case TN_E_SUB: return a - b;
    case TN_E_MUL: return a * b;
    case TN_E_DIV: return a / b;
    case TN_E_MIN: return isnan(a) || a < b ? a : b;
    case TN_E_MAX: return isnan(a) || a > b ? a : b;
    case TN_E_POW: return pow(a, b);
    case TN_E_GE: return a >= b;
    default: return a != 0 ? b : r[x.c];
    }
}

/* An output may lie where an input does: all is read before anything is written. */
static void run_expr(const struct isle_kernel *base, const struct isle_call *c)
{
    const struct nest *k = (const struct nest *)base;
    double r[MOST_INSTR];
    struct odometer o;

    if (!begin(&o, k->loop, k->n_kept, k->n_in + k->n_out))
        return;
    do {
        for (uint32_t i = 0; i < k->n_instr; i++)
            r[i] = compute(k, c, o.at, k->instr[i], r);
        for (uint32_t i = 0; i < k->n_out; i++)
            store(k, c, i, o.at[k->n_in + i], r[k->result[i]]);
    } while (next(&o));
}

static int take_program(const struct tn_program *p, struct nest *k)
{
    if (p->n_instr > MOST_INSTR || p->n_constant > MOST_CONSTANTS || p->n_result > ISLE_OPERANDS)
        return 0;
    for (uint32_t i = 0; i < p->n_instr; i++)
        if (p->instr[i].op > TN_E_SELECT)        /* of a newer host */
            return 0;
    k->n_instr = p->n_instr;
    memcpy(k->instr, p->instr, p->n_instr * sizeof *p->instr);
    if (p->n_constant)
        memcpy(k->constant, p->constant, p->n_constant * sizeof *p->constant);
    memcpy(k->result, p->result, p->n_result * sizeof *p->result);
    return 1;
}

/* --- all of them */

static void choose(const struct tn_problem *p, struct nest *k)
{
    k->second = ISLE_OPERANDS;                   /* none */
    k->base.run = run_copy;
    if (!strcmp(p->op, "einsum"))
        k->second = 1, k->base.run = run_sum;
    else if (!strcmp(p->op, "sumsq"))
        k->second = 0, k->base.run = run_sum;
    else if (!strcmp(p->op, "sum"))
        k->base.run = run_sum;
    else if (!strcmp(p->op, "rowmax"))
        k->base.run = run_max;
    else if (!strcmp(p->op, "expr"))
        k->base.run = run_expr;
}

tn_status isle_nest(const struct tn_problem *p, struct isle_kernel **out, uint64_t *workspace)
{
    const int expr = !strcmp(p->op, "expr");
    struct nest *k;

    *workspace = 0;
    if ((p->program && !expr) || p->n_loop > MOST_LOOPS)
        return TN_DECLINED;
    if (!(k = calloc(1, sizeof *k)))
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a kernel");
    choose(p, k);
    k->n_in = p->n_in, k->n_out = p->n_out, k->accumulate = p->accumulate;
    k->n_kept = p->n_loop - p->n_reduced, k->n_reduced = p->n_reduced;
    if (p->n_loop)
        memcpy(k->loop, p->loop, p->n_loop * sizeof *p->loop);
    for (uint32_t i = 0; i < p->n_in; i++)
        k->integer |= (uint32_t)(p->in[i].dtype == TN_I32) << i;
    if (expr && !take_program(p->program, k)) {
        free(k);
        return TN_DECLINED;
    }
    *out = &k->base;
    return TN_OK;
}

/* --- dropout: its loops are the dims of the output, one by one */

struct dropout {
    struct nest nest;
    int64_t whole_stride[TN_MAX_RANK];           /* of the whole tensor, so that the mask does not depend on its cut */
    int64_t per_micro;
    uint32_t key, threshold;
    double scale;
    int64_t *global[TN_MAX_RANK];                /* in the same block */
};

static void run_dropout(const struct isle_kernel *base, const struct isle_call *c)
{
    const struct dropout *d = (const struct dropout *)base;
    const struct nest *k = &d->nest;
    const uint32_t *u = c->uniform;
    struct odometer o;

    if (!begin(&o, k->loop, k->n_kept, 2))
        return;
    do {
        int64_t g = c->micro * d->per_micro;

        for (uint32_t l = 0; l < k->n_kept; l++)
            g += d->global[l][o.i[l]] * d->whole_stride[l];
        int keep = tn_philox_at(u[0] | (uint64_t)u[1] << 32, d->key, u[2], (uint64_t)g) >= d->threshold;
        store(k, c, 0, o.at[1], keep ? (double)((const float *)c->buffer[0])[o.at[0]] * d->scale : 0);
    } while (next(&o));
}

static void take_globals(const struct tn_problem *p, struct dropout *d)
{
    const struct tn_operand *y = &p->out[0];
    int64_t *at = (int64_t *)(d + 1), n = 1;

    for (uint32_t i = y->rank; i-- > 0; n *= y->whole[i]) {
        d->whole_stride[i] = n;
        if (i == tn_problem_int(p, "micro_dim", -1))
            d->per_micro = n * y->whole[i];
        d->global[i] = at;
        for (int64_t j = 0; j < y->size[i]; j++)
            *at++ = tn_global(y, i, j);
    }
}

tn_status isle_dropout(const struct tn_problem *p, struct isle_kernel **out, uint64_t *workspace)
{
    const struct tn_operand *y = &p->out[0];
    const double drop = tn_problem_float(p, "p", 0);
    struct dropout *d;
    size_t places = 0;

    *workspace = 0;
    if (p->n_loop != y->rank || p->n_reduced)
        return TN_DECLINED;
    for (uint32_t i = 0; i < y->rank; i++)
        places += (size_t)y->size[i];
    if (!(d = calloc(1, sizeof *d + places * sizeof(int64_t))))
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a kernel");
    d->nest = (struct nest){.base.run = run_dropout, .n_in = 1, .n_out = 1, .n_kept = p->n_loop, .accumulate = p->accumulate};
    if (p->n_loop)
        memcpy(d->nest.loop, p->loop, p->n_loop * sizeof *p->loop);
    d->key = (uint32_t)tn_problem_int(p, "key", 0), d->threshold = tn_dropout_threshold(drop), d->scale = 1 / (1 - drop);
    take_globals(p, d);
    *out = &d->nest.base;
    return TN_OK;
}
