/* kit_nest.h - for authors: kernels in a few lines. Walk a nest of loops, run an element-wise program on one
 * element, see any operand as rows and columns.
 *
 *     struct tn_kit_walk at = tn_kit_outer(k), in;
 *     while (tn_kit_next(&at)) {                     the positions of the output
 *         double sum = 0;
 *         for (in = tn_kit_inner(k, &at); tn_kit_next(&in);)       what is summed over, for one of them
 *             sum += tn_kit_in(k, l, &in, 0) * tn_kit_in(k, l, &in, 1);
 *         tn_kit_out(k, l, &at, 0, sum);
 *     }
 *
 * computes einsum, for any strides and dtypes. Written to be read and to be right, not to be fast: one element at a
 * time, in double, rounded once; start with it, then write what is slow by hand.
 *
 * Inline code over the public types, no part of the ABI: a plugin that uses it carries its own copy. Any thread; what reads a
 * problem belongs into prepare. */
#ifndef TENON_KIT_NEST_H
#define TENON_KIT_NEST_H
#include <stdlib.h>
#include <tenon/kernels.h>
#include <tenon/kit_number.h>

#define TN_KIT_LOOPS (2 * TN_MAX_RANK)
#define TN_KIT_REGISTERS 256                     /* instructions of the longest program */

/* --- nests */

/* What a launch needs of a problem that is a nest: its own copy, one block of memory, so free() ends it. */
struct tn_kit_nest {
    uint32_t n_in, n_out;                        /* operands */
    uint32_t n_loop, n_outer;                    /* the loops behind the first n_outer are reduced over */
    uint32_t accumulate, n_instr;                /* n_instr 0: no program */
    uint32_t dtype[TN_MAX_OPERANDS];             /* inputs, then outputs */
    struct tn_loop loop[TN_KIT_LOOPS];           /* [n_loop] */
    const struct tn_instr *instr;                /* [n_instr], like the next two in the same block of memory */
    const double *constant;                      /* as in tn_program */
    const uint16_t *result;                      /* register of each output */
};

/* How many registers an instruction reads. */
TN_KIT uint32_t tn_kit_operands(uint16_t op)
{
    return op <= TN_E_UNIFORM ? 0u : op <= TN_E_ERF ? 1u : op <= TN_E_GE ? 2u : 3u;
}

/* Can tn_kit_run run it? Newer hosts may know instructions that these headers do not. */
TN_KIT int tn_kit_program_known(const struct tn_program *p)
{
    for (uint32_t i = 0; i < p->n_instr; i++) {
        const uint16_t reg[3] = {p->instr[i].a, p->instr[i].b, p->instr[i].c};

        if (p->instr[i].op > TN_E_SELECT)
            return 0;
        for (uint32_t k = 0; k < tn_kit_operands(p->instr[i].op); k++)
            if (reg[k] >= i)
                return 0;
    }
    return p->n_instr <= TN_KIT_REGISTERS;
}

/* Can it be kept: a nest of dtypes, loops and instructions that are known here? */
TN_KIT int tn_kit_nest_known(const struct tn_problem *p)
{
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        if (!tn_kit_width((i < p->n_in ? p->in[i] : p->out[i - p->n_in]).dtype))
            return 0;
    return (p->loop || !p->n_loop) && p->n_loop <= TN_KIT_LOOPS && p->n_in + p->n_out <= TN_MAX_OPERANDS &&
           (!p->program || tn_kit_program_known(p->program));
}

/* TN_OK: *out is owned, free() ends it. TN_DECLINED: not known. TN_ERR_MEMORY. */
TN_KIT tn_status tn_kit_nest_keep(const struct tn_problem *p, struct tn_kit_nest **out)
{
    const struct tn_program none = {0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL}, *g = p->program ? p->program : &none;
    const size_t constants = g->n_constant * sizeof *g->constant, code = g->n_instr * sizeof *g->instr;
    struct tn_kit_nest *k;
    char *behind;

    *out = NULL;
    if (!tn_kit_nest_known(p))
        return TN_DECLINED;
    k = (struct tn_kit_nest *)calloc(1, sizeof *k + constants + code + g->n_result * sizeof *g->result);
    if (!k)
        return tn_error(TN_ERR_MEMORY, "no memory for a kernel of %s", p->op);
    k->n_in = p->n_in, k->n_out = p->n_out;
    k->n_loop = p->n_loop, k->n_outer = p->n_loop - p->n_reduced;
    k->accumulate = p->accumulate, k->n_instr = g->n_instr;
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        k->dtype[i] = (i < p->n_in ? p->in[i] : p->out[i - p->n_in]).dtype;
    for (uint32_t i = 0; i < p->n_loop; i++)
        k->loop[i] = p->loop[i];
    behind = (char *)(k + 1);
    k->constant = (const double *)behind;
    k->instr = (const struct tn_instr *)(behind + constants);
    k->result = (const uint16_t *)(behind + constants + code);
    if (constants)
        memcpy(behind, g->constant, constants);
    if (code) {
        memcpy(behind + constants, g->instr, code);
        memcpy(behind + constants + code, g->result, g->n_result * sizeof *g->result);
    }
    *out = k;
    return TN_OK;
}

/* A position in some of the loops, and where it lies in every operand. A value: copy it freely. */
struct tn_kit_walk {
    const struct tn_kit_nest *nest;              /* borrowed */
    uint32_t from, to, begun, reserved0;         /* loops from..to-1 */
    int64_t i[TN_KIT_LOOPS];                     /* index along each of them */
    int64_t at[TN_MAX_OPERANDS];                 /* elements from the beginning of each buffer */
};

/* Before the first position of the output. */
TN_KIT struct tn_kit_walk tn_kit_outer(const struct tn_kit_nest *k)
{
    struct tn_kit_walk w;

    memset(&w, 0, sizeof w);
    w.nest = k, w.to = k->n_outer;
    return w;
}

/* How many positions the output has. */
TN_KIT int64_t tn_kit_positions(const struct tn_kit_nest *k)
{
    int64_t n = 1;

    for (uint32_t d = 0; d < k->n_outer; d++)
        n *= k->loop[d].size;
    return n;
}

/* Before position n of the output, counted in the order of tn_kit_next: for a thread that begins there. */
TN_KIT struct tn_kit_walk tn_kit_from(const struct tn_kit_nest *k, int64_t n)
{
    struct tn_kit_walk w = tn_kit_outer(k);

    for (uint32_t d = k->n_outer; d-- > 0 && n > 0; n /= k->loop[d].size) {
        w.i[d] = n % k->loop[d].size;
        for (uint32_t o = 0; o < k->n_in + k->n_out; o++)
            w.at[o] += w.i[d] * k->loop[d].stride[o];
    }
    return w;
}

/* Before the first of the reduced positions of one position of the output. */
TN_KIT struct tn_kit_walk tn_kit_inner(const struct tn_kit_nest *k, const struct tn_kit_walk *outer)
{
    struct tn_kit_walk w = *outer;

    w.from = k->n_outer, w.to = k->n_loop, w.begun = 0;
    return w;
}

/* On to the next position, the last loop the fastest; 0: there is none. No loops have one position. */
TN_KIT int tn_kit_next(struct tn_kit_walk *w)
{
    const struct tn_kit_nest *k = w->nest;
    const uint32_t n = k->n_in + k->n_out;

    if (!w->begun) {
        w->begun = 1;
        for (uint32_t d = w->from; d < w->to; d++)
            if (!k->loop[d].size)
                return 0;
        return 1;
    }
    for (uint32_t d = w->to; d-- > w->from;) {
        const struct tn_loop *loop = &k->loop[d];
        const int more = ++w->i[d] < loop->size;

        for (uint32_t o = 0; o < n; o++)
            w->at[o] += more ? loop->stride[o] : -(loop->size - 1) * loop->stride[o];
        if (more)
            return 1;
        w->i[d] = 0;
    }
    return 0;
}

/* The element of input i there. */
TN_KIT double tn_kit_in(const struct tn_kit_nest *k, const struct tn_launch *l, const struct tn_kit_walk *w, uint32_t i)
{
    return tn_kit_load(k->dtype[i], l->buffer[i], w->at[i]);
}

/* The element of output i there, overwritten, or added to where the problem says so. */
TN_KIT void tn_kit_out(const struct tn_kit_nest *k, const struct tn_launch *l, const struct tn_kit_walk *w, uint32_t i,
                       double value)
{
    const uint32_t o = k->n_in + i;

    if (k->accumulate >> i & 1)
        value += tn_kit_load(k->dtype[o], l->buffer[o], w->at[o]);
    tn_kit_store(k->dtype[o], l->buffer[o], w->at[o], value);
}

/* --- programs */

/* One instruction of the program, from registers. */
TN_KIT double tn_kit_step(const struct tn_instr *o, const double *reg)
{
    const uint32_t used = tn_kit_operands(o->op);
    const double a = reg[used > 0 ? o->a : 0], b = reg[used > 1 ? o->b : 0], c = reg[used > 2 ? o->c : 0];

    switch (o->op) {
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
    case TN_E_MIN: return a < b || isnan(a) ? a : b;
    case TN_E_MAX: return a > b || isnan(a) ? a : b;
    case TN_E_POW: return pow(a, b);
    case TN_E_GE: return a >= b ? 1 : 0;
    case TN_E_SELECT: return a != 0 ? b : c;
    default: return (double)NAN;
    }
}

/* The program of a kept nest on one element: in [inputs of the program] to out [n_out], which may be the same memory. */
TN_KIT void tn_kit_run(const struct tn_kit_nest *k, const struct tn_launch *l, const double *in, double *out)
{
    const float *uniform = (const float *)l->uniform;
    double reg[TN_KIT_REGISTERS];

    reg[0] = 0;
    for (uint32_t i = 0; i < k->n_instr; i++) {
        const struct tn_instr *o = &k->instr[i];

        reg[i] = o->op == TN_E_IN        ? in[o->a]
                 : o->op == TN_E_CONST   ? k->constant[o->a]
                 : o->op == TN_E_UNIFORM ? (double)uniform[o->a]
                                         : tn_kit_step(o, reg);
    }
    for (uint32_t i = 0; i < k->n_out; i++)
        out[i] = reg[k->result[i]];
}

/* --- operands as rows and columns */

/* The dims before a split and those after it, whatever their strides: element (r, c) lies at row[r] + col[c]. */
struct tn_kit_view {
    uint32_t dtype, slot;                        /* slot: in launch->buffer */
    uint32_t add, reserved0;                     /* add: this output is added to */
    int64_t n_row, n_col;                        /* products of the sizes on either side of the split */
    int64_t *row, *col;                          /* owned; NULL: there was no memory */
};

/* One number for each position along dims from..to-1 of o, row-major: offsets in elements where whole_stride is NULL,
 * else global indices with these strides. Owned, free() ends it; NULL without memory. */
TN_KIT int64_t *tn_kit_places(const struct tn_operand *o, uint32_t from, uint32_t to, const int64_t *whole_stride)
{
    int64_t n = 1, *at;

    for (uint32_t d = from; d < to; d++)
        n *= o->size[d];
    at = (int64_t *)calloc((size_t)n + 1, sizeof *at);
    for (int64_t e = 0; at && e < n; e++) {
        int64_t rest = e;

        for (uint32_t d = to; d-- > from; rest /= o->size[d]) {
            const int64_t i = rest % o->size[d];

            at[e] += whole_stride ? tn_global(o, d, i) * whole_stride[d] : i * o->stride[d];
        }
    }
    return at;
}

/* The global index of each local position along one dim. Owned, as above. */
TN_KIT int64_t *tn_kit_globals(const struct tn_operand *o, uint32_t dim)
{
    int64_t one[TN_MAX_RANK];

    for (uint32_t d = 0; d < TN_MAX_RANK; d++)
        one[d] = 1;
    return tn_kit_places(o, dim, dim + 1, one);
}

/* The local position whose global index is id, -1 if it is not here. global [n] as tn_kit_globals has it. */
TN_KIT int64_t tn_kit_find(const int64_t *global, int64_t n, int64_t id)
{
    if (n && id >= global[0] && id - global[0] < n && global[id - global[0]] == id)
        return id - global[0];                   /* contiguous up to there, as nearly always */
    for (int64_t i = 0; i < n; i++)
        if (global[i] == id)
            return i;
    return -1;
}

/* Operand `slot` of a problem, inputs first, split before dim `split`. tn_kit_view_free ends it. */
TN_KIT struct tn_kit_view tn_kit_rows(const struct tn_problem *p, uint32_t slot, uint32_t split)
{
    const struct tn_operand *o = slot < p->n_in ? &p->in[slot] : &p->out[slot - p->n_in];
    struct tn_kit_view v = {o->dtype, slot, 0, 0, 1, 1, NULL, NULL};

    if (slot >= p->n_in)
        v.add = p->accumulate >> (slot - p->n_in) & 1;
    for (uint32_t d = 0; d < o->rank; d++)
        *(d < split ? &v.n_row : &v.n_col) *= o->size[d];
    v.row = tn_kit_places(o, 0, split, NULL);
    v.col = tn_kit_places(o, split, o->rank, NULL);
    return v;
}

/* Frees what it owns; twice is once. */
TN_KIT void tn_kit_view_free(struct tn_kit_view *v)
{
    free(v->row);
    free(v->col);
    v->row = v->col = NULL;
}

/* Element (r, c). */
TN_KIT double tn_kit_get(const struct tn_launch *l, const struct tn_kit_view *v, int64_t r, int64_t c)
{
    return tn_kit_load(v->dtype, l->buffer[v->slot], v->row[r] + v->col[c]);
}

/* The same, overwritten, or added to where the problem says so. */
TN_KIT void tn_kit_put(const struct tn_launch *l, const struct tn_kit_view *v, int64_t r, int64_t c, double value)
{
    const int64_t at = v->row[r] + v->col[c];

    if (v->add)
        value += tn_kit_load(v->dtype, l->buffer[v->slot], at);
    tn_kit_store(v->dtype, l->buffer[v->slot], at, value);
}
#endif
