/* elementwise.cu - element-wise programs: by a kernel of their own where there is a compiler (compile.h), else by an
 * interpreter that any program runs on, four elements at a time.
 *
 * Of the interpreter a thread takes chunks of four neighbours along the last loop and runs the whole program on them, so decoding
 * is paid once for four. Registers lie in shared memory, one column for each thread: they are addressed by
 * number, which registers of the GPU cannot be. All inputs of an element are read by its own thread before any
 * of its outputs is written, so an output may be the buffer of an input. */
#include "cu.cuh"
#include "compile.h"
#include "elementwise.h"

TN_DEVICE float apply(uint32_t op, float a, float b, float c)
{
    switch (op) {
    case TN_E_NEG: return -a;
    case TN_E_EXP: return expf(a);
    case TN_E_LOG: return logf(a);
    case TN_E_SQRT: return sqrtf(a);
    case TN_E_TANH: return tanhf(a);
    case TN_E_ERF: return erff(a);
    case TN_E_ADD: return a + b;
    case TN_E_SUB: return a - b;
    case TN_E_MUL: return a * b;
    case TN_E_DIV: return a / b;
    case TN_E_MIN: return tn_min(a, b);
    case TN_E_MAX: return tn_max(a, b);
    case TN_E_POW: return powf(a, b);
    case TN_E_GE: return a >= b ? 1.0f : 0.0f;
    default: return a != 0 ? b : c;
    }
}

/* Elements j..j+n-1 of the last loop; 0 behind them. */
TN_DEVICE tn_f4 load(const tn_cuda_elementwise &k, uint32_t op, const tn_turn &turn, uint32_t j, uint32_t n)
{
    const int64_t at = tn_nest_at(k.nest, turn, op) + j * k.step[op];
    tn_f4 f;

    if (k.wide[op])
        return tn_get4(k.dtype[op], k.buffer[op], at);
    for (uint32_t i = 0; i < 4; i++)
        f.v[i] = i < n ? tn_get(k.dtype[op], k.buffer[op], at + i * k.step[op]) : 0.0f;
    return f;
}

TN_DEVICE void store(const tn_cuda_elementwise &k, uint32_t op, uint32_t add, const tn_turn &turn, uint32_t j,
                     uint32_t n, tn_f4 f)
{
    const int64_t at = tn_nest_at(k.nest, turn, op) + j * k.step[op];

    if (add) {
        const tn_f4 old = load(k, op, turn, j, n);

        for (int i = 0; i < 4; i++)
            f.v[i] += old.v[i];
    }
    if (k.wide[op]) {
        tn_put4(k.dtype[op], k.buffer[op], at, f);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        tn_put(k.dtype[op], k.buffer[op], at + i * k.step[op], f.v[i]);
}

TN_DEVICE tn_f4 same(float v)
{
    return tn_f4{{v, v, v, v}};
}

template <int THREADS, int REGISTERS>
TN_KERNEL(THREADS, REGISTERS <= 8 ? 8 : 1) run_program(TN_PARAM(tn_cuda_elementwise) k)
{
    TN_SHARED(tn_f4, reg, THREADS * REGISTERS);
    const uint32_t t = threadIdx.x;

    for (uint32_t at = blockIdx.x * THREADS + t; at < k.total; at += gridDim.x * THREADS) {
        const tn_turn turn = tn_nest_turn(k.nest, at / k.chunks);
        const uint32_t j = at % k.chunks * 4, n = k.inner - j < 4 ? k.inner - j : 4;

        for (uint32_t i = 0; i < k.program.n_instr; i++) {
            const tn_cuda_instr x = k.program.instr[i];
            tn_f4 y;

            if (x.op == TN_E_IN)
                y = load(k, x.a, turn, j, n);
            else if (x.op == TN_E_CONST)
                y = same(k.program.constant[x.a]);
            else if (x.op == TN_E_UNIFORM)
                y = same(k.uniform[x.a]);
            else {
                const tn_f4 a = reg[x.a * THREADS + t];
                const tn_f4 b = x.op >= TN_E_ADD ? (tn_f4)reg[x.b * THREADS + t] : a;
                const tn_f4 c = x.op == TN_E_SELECT ? (tn_f4)reg[x.c * THREADS + t] : a;

                for (int e = 0; e < 4; e++)
                    y.v[e] = apply(x.op, a.v[e], b.v[e], c.v[e]);
            }
            reg[x.to * THREADS + t] = y;
        }
        for (uint32_t o = 0; o < k.n_out; o++)
            store(k, k.n_in + o, k.accumulate >> o & 1, turn, j, n, reg[k.program.result[o] * THREADS + t]);
    }
}

/* y = x: the program that nearly every cast and copy is. */
TN_KERNEL(256) run_copy(TN_PARAM(tn_cuda_elementwise) k)
{
    for (uint32_t at = blockIdx.x * 256 + threadIdx.x; at < k.total; at += gridDim.x * 256) {
        const tn_turn turn = tn_nest_turn(k.nest, at / k.chunks);
        const uint32_t j = at % k.chunks * 4, n = k.inner - j < 4 ? k.inner - j : 4;

        store(k, k.n_in, k.accumulate & 1, turn, j, n, load(k, 0, turn, j, n));
    }
}

/* --- host */
static int is_copy(const struct tn_cuda_program *p)
{
    return p->n_instr == 1 && p->instr[0].op == TN_E_IN && p->instr[0].a == 0 && p->n_result == 1;
}

int tn_cuda_elementwise_load(struct tn_cuda_elementwise *k, const struct tn_problem *p,
                             const struct tn_program *program)
{
    struct tn_cuda_nest nest;
    int64_t total;

    memset(k, 0, sizeof *k);
    if (!tn_cuda_nest_load(&nest, p, 0, p->n_loop))
        return 0;
    tn_cuda_nest_simplify(&nest, p->n_in);
    tn_cuda_nest_pop(&nest, &k->inner, k->step);
    k->nest = nest;
    total = tn_cuda_nest_count(&nest) * TN_CUDA_PARTS(k->inner, 4);
    if (total > INT32_MAX || !tn_cuda_program_load(&k->program, program, p->n_in, p->n_out))
        return 0;
    k->n_in = p->n_in, k->n_out = p->n_out, k->accumulate = p->accumulate;
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        k->dtype[i] = (i < p->n_in ? p->in[i] : p->out[i - p->n_in]).dtype;
    if (total && !is_copy(&k->program))
        k->compiled = tn_cuda_pass_make(k);
    k->unit = k->compiled ? tn_cuda_pass_unit(k) : 4;
    k->chunks = TN_CUDA_PARTS(k->inner, k->unit);
    k->total = (uint32_t)(tn_cuda_nest_count(&nest) * k->chunks);
    return 1;
}

/* May whole chunks of the operand be moved at once? Then they are aligned, to 16 bytes or what a chunk has. */
static uint32_t is_wide(const struct tn_cuda_elementwise *k, uint32_t op, const char *buffer)
{
    const uint32_t width = tn_cuda_width(k->dtype[op]), bytes = TN_CUDA_MIN(16, k->unit * width);

    if (k->dtype[op] == TN_I32 || k->step[op] != 1 || k->inner % k->unit || (uintptr_t)buffer % bytes)
        return 0;
    for (uint32_t l = 0; l < k->nest.n; l++)
        if (k->nest.stride[l][op] * width % bytes)
            return 0;
    return 1;
}

static tn_status run_compiled(const struct tn_cuda_elementwise *k, char *const *buffer, const void *uniform,
                              struct tn_queue *q)
{
    struct tn_cuda_pass pass = {};

    pass.uniform = (const float *)uniform;
    pass.inner = k->inner, pass.chunks = k->chunks, pass.total = k->total;
    for (uint32_t l = 0; l < k->nest.n; l++)
        pass.size[l] = k->nest.size[l];
    for (uint32_t i = 0; i < k->n_in + k->n_out; i++) {
        pass.buffer[i] = buffer[i], pass.step[i] = k->step[i];
        pass.wide |= is_wide(k, i, buffer[i]) << i;
        for (uint32_t l = 0; l < k->nest.n; l++)
            pass.stride[l][i] = k->nest.stride[l][i];
    }
    return tn_cuda_compiler->launch(k->compiled, tn_grid(TN_CUDA_PARTS(k->total, TN_CUDA_PASS_THREADS)), &pass, q);
}

tn_status tn_cuda_elementwise_run(const struct tn_cuda_elementwise *plan, char *const *buffer,
                                  const void *uniform, struct tn_queue *q)
{
    struct tn_cuda_elementwise k;

    if (!plan->total)
        return TN_OK;
    if (plan->compiled)
        return run_compiled(plan, buffer, uniform, q);
    k = *plan;
    k.uniform = (const float *)uniform;
    for (uint32_t i = 0; i < k.n_in + k.n_out; i++)
        k.buffer[i] = buffer[i], k.wide[i] = is_wide(&k, i, buffer[i]);
    if (is_copy(&k.program))
        return TN_LAUNCH(run_copy, tn_grid(TN_CUDA_PARTS(k.total, 256)), 256, q, k);
    if (k.program.n_reg <= 8)
        return TN_LAUNCH((run_program<128, 8>), tn_grid(TN_CUDA_PARTS(k.total, 128)), 128, q, k);
    if (k.program.n_reg <= 24)
        return TN_LAUNCH((run_program<128, 24>), tn_grid(TN_CUDA_PARTS(k.total, 128)), 128, q, k);
    return TN_LAUNCH((run_program<32, TN_CUDA_REGISTERS>), tn_grid(TN_CUDA_PARTS(k.total, 32)), 32, q, k);
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    return tn_cuda_elementwise_run((const struct tn_cuda_elementwise *)state, (char *const *)l->buffer,
                                   l->uniform, l->queue);
}

static tn_status prepare(const struct tn_problem *p, const struct tn_program *program, struct tn_kernel *out)
{
    struct tn_cuda_elementwise k;

    if (!p->n_in || !p->n_out || !tn_cuda_elementwise_load(&k, p, program))
        return TN_DECLINED;
    return tn_cuda_keep(out, &k, sizeof k, launch);
}

extern "C" tn_status tn_cuda_prepare_expr(const struct tn_problem *p, struct tn_kernel *out)
{
    return p->program ? prepare(p, p->program, out) : TN_DECLINED;
}

static const struct tn_instr first[] = {{TN_E_IN, 0, 0, 0}};
static const uint16_t first_result[] = {0};
static const struct tn_program identity = {sizeof identity, 1, 0, 0, 1, 0, first, NULL, first_result, "a"};

extern "C" tn_status tn_cuda_prepare_accum(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare(p, &identity, out);
}

extern "C" tn_status tn_cuda_prepare_expand(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare(p, &identity, out);
}

extern "C" tn_status tn_cuda_prepare_cast(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare(p, &identity, out);
}
