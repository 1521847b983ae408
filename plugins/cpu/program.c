/* program.c - element-wise programs, a block of elements at a time.
 *
 * Each instruction is one loop over a block that the compiler vectorises; registers live in a few slots that
 * stay in the first-level cache, shared by registers whose lifetimes do not overlap. Inputs that lie flat are
 * read where they are, others (broadcast, strided, int32, bf16, fp16) are gathered into a slot; constants and
 * uniforms fill theirs once per call. So AdamW costs about what its memory traffic costs, and nothing needs a
 * special case. Invariant: results are stored after every instruction of the block has run, or by the last
 * instruction itself, so an output may be the very buffer of an input. */
#include "cpu.h"
#include "gelu.h"
#include "half.h"
#include "vexp.h"

#define POOL 6144 /* floats on the stack for all slots: 24 KiB, less than a first-level cache */
#define BLOCK 512
#define BLOCK_MIN 64

struct step {
    uint16_t op, slot, a, b, c; /* a, b, c: slots; an input's number; a value's index */
    uint16_t reads;             /* how many of a, b, c are slots */
    uint16_t kept;              /* an input that is a result too: another result may overwrite it where it lies */
};
struct tn_cpu_program {
    uint32_t n, n_in, n_out, n_fixed, n_slot, block;
    uint32_t accumulate;
    uint32_t direct; /* the last step may write output 0 in place */
    uint32_t n_constant;
    uint16_t result[TN_MAX_OPERANDS]; /* slots */
    float constant[TN_CPU_INSTR];
    struct step step[TN_CPU_INSTR];
};

static int is_fixed(const struct step *s)
{
    return s->op == TN_E_CONST || s->op == TN_E_UNIFORM;
}

/* Powers with a small constant exponent are products. */
static void lower_power(const struct tn_program *e, const struct tn_instr *instr, struct step *s)
{
    const struct tn_instr *y = &instr[s->b];

    if (s->op != TN_E_POW || y->op != TN_E_CONST)
        return;
    if (e->constant[y->a] == 2)
        s->op = TN_E_MUL, s->b = s->a;
    else if (e->constant[y->a] == 3)
        s->op = TN_CPU_E_CUBE;
}

/* Registers to slots: a slot is free again after the last read of its register. Steps come in with registers
 * in a, b, c and leave with slots. */
static void assign_slots(struct tn_cpu_program *p, const uint16_t *result)
{
    uint16_t last[TN_CPU_INSTR] = {0}, slot_of[TN_CPU_INSTR], spare[TN_CPU_INSTR], n_spare = 0;

    for (uint16_t i = 0; i < p->n; i++)
        for (uint16_t k = 0; k < p->step[i].reads; k++)
            last[(&p->step[i].a)[k]] = i;
    for (uint32_t i = 0; i < p->n_out; i++)
        last[result[i]] = UINT16_MAX;
    for (uint16_t i = 0; i < p->n; i++) {
        struct step *s = &p->step[i];
        uint16_t *r = &s->a;

        for (uint16_t k = 0; k < s->reads; k++) {
            uint16_t reg = r[k];

            r[k] = slot_of[reg];
            if (last[reg] == i && !is_fixed(&p->step[reg])) {
                spare[n_spare++] = slot_of[reg];
                last[reg] = 0; /* given back once, though read twice here */
            }
        }
        s->slot = slot_of[i] = !is_fixed(s) && n_spare ? spare[--n_spare] : (uint16_t)p->n_slot++;
    }
    for (uint32_t i = 0; i < p->n_out; i++)
        p->result[i] = slot_of[result[i]];
}

/* Is it one that the arrays here can hold, and in order? */
static int is_sound(const struct tn_program *e, uint32_t n_in)
{
    if (e->n_instr > TN_CPU_INSTR || e->n_constant > TN_CPU_INSTR || n_in + e->n_result > TN_MAX_OPERANDS ||
        !e->n_instr)
        return 0;
    for (uint32_t i = 0; i < e->n_instr; i++) {
        const struct tn_instr *o = &e->instr[i];

        if (o->op > TN_E_SELECT || (o->op == TN_E_IN && o->a >= n_in))
            return 0;
        for (uint32_t k = 0; k < tn_cpu_operands(o->op); k++)
            if ((&o->a)[k] >= i)
                return 0;
    }
    return 1;
}

struct tn_cpu_program *tn_cpu_program_make(const struct tn_program *e, uint32_t n_in, uint32_t accumulate)
{
    struct tn_instr instr[TN_CPU_INSTR];
    uint16_t result[TN_MAX_OPERANDS];
    struct tn_cpu_program *p;
    int64_t block;

    if (!is_sound(e, n_in) || !(p = calloc(1, sizeof *p)))
        return NULL;
    p->n = tn_cpu_idioms(e, instr, result);
    p->n_in = n_in, p->n_out = e->n_result, p->n_constant = e->n_constant;
    p->accumulate = accumulate;
    for (uint32_t i = 0; i < e->n_constant; i++)
        p->constant[i] = (float)e->constant[i];
    for (uint32_t i = 0; i < p->n; i++) {
        p->step[i] = (struct step){.op = instr[i].op, .a = instr[i].a, .b = instr[i].b, .c = instr[i].c};
        lower_power(e, instr, &p->step[i]);
        p->step[i].reads = (uint16_t)tn_cpu_operands(p->step[i].op);
    }
    for (uint32_t i = 0; i < p->n_out && p->n_out > 1; i++)
        p->step[result[i]].kept = p->step[result[i]].op == TN_E_IN;
    p->direct = p->n_out == 1 && result[0] == p->n - 1u && p->step[p->n - 1].reads && !accumulate;
    assign_slots(p, result);
    block = POOL / p->n_slot / 16 * 16;
    p->block = (uint32_t)TN_MIN(block, BLOCK);
    if (p->block >= BLOCK_MIN)
        return p;
    free(p);
    return NULL;
}

/* Floats that do not overlap, or are the same. */
static void move(const float *x, int64_t n, float *y)
{
    int64_t i = 0;

    for (; i + TN_W <= n; i += TN_W)
        tn_store(y + i, tn_load(x + i));
    for (; i < n; i++)
        y[i] = x[i];
}

static void gather(const struct tn_cpu_view *v, int64_t rows, int64_t cols, float *y)
{
    if (tn_is_half(v->dtype)) {
        for (int64_t r = 0; r < rows; r++)
            tn_half_load(v->dtype, v->base + 2 * r * v->row, v->col, cols, y + r * cols);
        return;
    }
    for (int64_t r = 0; r < rows; r++, y += cols) {
        const int32_t *n = (const int32_t *)v->base + r * v->row;
        const float *x = (const float *)v->base + r * v->row;

        if (v->dtype == TN_I32)
            for (int64_t c = 0; c < cols; c++)
                y[c] = (float)n[c * v->col];
        else if (v->col == 1)
            move(x, cols, y);
        else if (v->col == 0)
            for (int64_t c = 0; c < cols; c++)
                y[c] = *x;
        else
            for (int64_t c = 0; c < cols; c++)
                y[c] = x[c * v->col];
    }
}

static void store_half(const struct tn_cpu_view *v, int add, int64_t rows, int64_t cols, const float *x)
{
    float sum[BLOCK];

    for (int64_t r = 0; r < rows; r++, x += cols) {
        char *y = v->base + 2 * r * v->row;

        if (add) {
            tn_half_load(v->dtype, y, v->col, cols, sum);
            for (int64_t c = 0; c < cols; c++)
                sum[c] += x[c];
        }
        tn_half_store(v->dtype, add ? sum : x, v->col, cols, y);
    }
}

static void store(const struct tn_cpu_view *v, int add, int64_t rows, int64_t cols, const float *x)
{
    if (tn_is_half(v->dtype)) {
        store_half(v, add, rows, cols, x);
        return;
    }
    for (int64_t r = 0; r < rows; r++, x += cols) {
        float *y = (float *)v->base + r * v->row;

        if (add)
            for (int64_t c = 0; c < cols; c++)
                y[c * v->col] += x[c];
        else if (v->col == 1)
            move(x, cols, y);
        else
            for (int64_t c = 0; c < cols; c++)
                y[c * v->col] = x[c];
    }
}

#define EACH(expression)                                                                                     \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                      \
    {                                                                                                        \
        const float x = a[i], z = b[i], w = c[i];                                                            \
        (void)x, (void)z, (void)w;                                                                           \
        y[i] = (expression);                                                                                 \
    }                                                                                                        \
    break
/* A function of one vector over n elements. */
static inline __attribute__((always_inline)) void each_vector(tn_vec (*f)(tn_vec), const float *a, float *y,
                                                              int64_t n)
{
    float rest[TN_W] = {0};
    int64_t i = 0;

    for (; i + TN_W <= n; i += TN_W)
        tn_store(y + i, f(tn_load(a + i)));
    if (i == n)
        return;
    memcpy(rest, a + i, (size_t)(n - i) * sizeof *a);
    tn_store(rest, f(tn_load(rest)));
    memcpy(y + i, rest, (size_t)(n - i) * sizeof *y);
}

static void run_step(uint16_t op, const float *a, const float *b, const float *c, float *y, int64_t n)
{
    switch (op) {
    case TN_E_NEG: EACH(-x);
    case TN_E_EXP: EACH(tn_exp(x));
    case TN_E_LOG: EACH(tn_log(x));
    case TN_E_SQRT: EACH(sqrtf(x));
    case TN_E_TANH: EACH(tn_tanh(x));
    case TN_E_ERF: EACH(tn_erf(x));
    case TN_E_ADD: EACH(x + z);
    case TN_E_SUB: EACH(x - z);
    case TN_E_MUL: EACH(x * z);
    case TN_E_DIV: EACH(x / z);
    case TN_E_MIN: EACH(x != x || x < z ? x : z);
    case TN_E_MAX: EACH(x != x || x > z ? x : z);
    case TN_E_POW: EACH(powf(x, z));
    case TN_E_GE: EACH(x >= z ? 1.0f : 0.0f);
    case TN_E_SELECT: EACH(x != 0.0f ? z : w);
    case TN_CPU_E_CUBE: EACH(x * x * x);
    case TN_CPU_E_GELU: each_vector(tn_gelu, a, y, n); break;
    case TN_CPU_E_DGELU: each_vector(tn_gelu_derivative, a, y, n); break;
    case TN_CPU_E_SIGMOID: each_vector(tn_sigmoid, a, y, n); break;
    default: break;
    }
}

/* Whether rows rows of cols columns of floats lie one behind the other. */
static int is_flat(const struct tn_cpu_view *v, int64_t rows, int64_t cols)
{
    return v->dtype == TN_F32 && v->col == 1 && (rows == 1 || v->row == cols);
}

/* The next n floats of all inputs that lie flat: the share of step i, so that they come while the block before is
 * worked on. */
static void fetch(const struct tn_cpu_program *p, const struct tn_cpu_view *v, uint32_t i, int64_t n)
{
    for (uint32_t k = 0; k < p->n_in; k++)
        for (int64_t f = n / 16 * i / p->n; f < n / 16 * (i + 1) / p->n && v[k].col == 1; f++)
            __builtin_prefetch((const float *)v[k].base + n + 16 * f);
}

/* One block: rows·cols <= block. value[slot] says where a register is. goes_on: the next one follows without a
 * gap. */
static void run_block(const struct tn_cpu_program *p, const struct tn_cpu_view *v, int64_t rows, int64_t cols,
                      int goes_on, float *pool, const float **value)
{
    int64_t n = rows * cols;
    int in_place = p->direct && is_flat(&v[p->n_in], rows, cols);

    for (uint32_t i = 0; i < p->n; i++) {
        const struct step *s = &p->step[i];
        float *y = pool + (int64_t)s->slot * p->block;

        if (goes_on)
            fetch(p, v, i, n);
        if (is_fixed(s))
            continue;
        if (s->op == TN_E_IN) {
            if (is_flat(&v[s->a], rows, cols) && !s->kept) {
                value[s->slot] = (const float *)v[s->a].base;
                continue;
            }
            gather(&v[s->a], rows, cols, y);
        } else {
            const float *a = value[s->a], *b = s->reads > 1 ? value[s->b] : a,
                        *c = s->reads > 2 ? value[s->c] : a;

            if (in_place && i == p->n - 1)
                y = (float *)v[p->n_in].base;
            run_step(s->op, a, b, c, y, n);
        }
        value[s->slot] = y;
    }
    for (uint32_t i = 0; i < p->n_out && !in_place; i++)
        store(&v[p->n_in + i], p->accumulate >> i & 1, rows, cols, value[p->result[i]]);
}

static void fill_fixed(const struct tn_cpu_program *p, const float *uniform, float *pool, const float **value)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const struct step *s = &p->step[i];
        float *y = pool + (int64_t)s->slot * p->block;

        if (!is_fixed(s))
            continue;
        for (uint32_t k = 0; k < p->block; k++)
            y[k] = s->op == TN_E_CONST ? p->constant[s->a] : uniform[s->a];
        value[s->slot] = y;
    }
}

void tn_cpu_program_run(const struct tn_cpu_program *p, const struct tn_cpu_view *views, int64_t rows,
                        int64_t cols, const float *uniform)
{
    _Alignas(64) float pool[POOL];
    const float *value[TN_CPU_INSTR];
    struct tn_cpu_view v[TN_MAX_OPERANDS];
    uint32_t n = p->n_in + p->n_out;
    int64_t high, wide;
    int one = 1;

    for (uint32_t i = 0; i < n; i++)
        one &= views[i].row == cols * views[i].col;
    if (one)
        cols *= rows, rows = 1;
    wide = TN_MIN(cols, p->block);
    high = p->block / wide;
    fill_fixed(p, uniform, pool, value);
    for (int64_t r = 0; r < rows; r += high)
        for (int64_t c = 0; c < cols; c += wide) {
            for (uint32_t i = 0; i < n; i++) {
                v[i] = views[i];
                v[i].base += (r * v[i].row + c * v[i].col) * tn_width(v[i].dtype);
            }
            run_block(p, v, TN_MIN(high, rows - r), TN_MIN(wide, cols - c), rows == 1 && c + 2 * wide <= cols, pool,
                      value);
        }
}
