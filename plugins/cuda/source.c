/* source.c - an element-wise program as CUDA C++; see compile.h.
 *
 * A thread takes a chunk of neighbours along the last loop: all inputs are read, then the program runs for each
 * element, then all outputs are written, so that an output may be the buffer of an input. The text depends on the
 * kind of problem alone, and its name is a hash of it. Constants are written by their bits. Beside a GPU's compiler
 * the host's takes it too (TN_CUDA_EMULATED), with cu.cuh in place of the first lines. */
#include <inttypes.h>
#include <stdio.h>
#include "compile.h"
#include "elementwise.h"

#define TEXT(...) #__VA_ARGS__ "\n"

const struct tn_cuda_compiler *tn_cuda_compiler;

/* What cu.cuh has; the numbers of dtypes are those of tenon/abi.h. */
static const char on_gpu[] =
    "#define TN_DEVICE static __device__ __forceinline__\n"
    "#define TN_PARAM(type) const __grid_constant__ type\n"
    "#define TN_F32 1\n#define TN_BF16 2\n#define TN_F16 3\n"
    TEXT(typedef unsigned short uint16_t;)
    TEXT(TN_DEVICE float tn_from_bf16(uint16_t h) { return __uint_as_float((unsigned)h << 16); })
    TEXT(TN_DEVICE float tn_from_f16(uint16_t h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; })
    TEXT(TN_DEVICE uint16_t tn_to_bf16(float f)
         { uint16_t h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; })
    TEXT(TN_DEVICE uint16_t tn_to_f16(float f)
         { uint16_t h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; })
    TEXT(TN_DEVICE float tn_max(float a, float b) { return a > b || a != a ? a : b; })
    TEXT(TN_DEVICE float tn_min(float a, float b) { return a < b || a != a ? a : b; })
    TEXT(TN_DEVICE void tn_check_aligned(const void *, unsigned) {});

/* D: dtype, E: elements of a chunk, n of which are there. */
static const char common[] =
    TEXT(struct tn_pass {
        char *buffer[12]; const float *uniform; long long step[12]; long long stride[8][12];
        unsigned size[8]; unsigned inner, chunks, total, wide;
    };)
    TEXT(struct alignas(16) tn_16 { unsigned w[4]; };)
    TEXT(template <int D> TN_DEVICE float tn_low(unsigned h)
         { return D == TN_BF16 ? tn_from_bf16((uint16_t)h) : tn_from_f16((uint16_t)h); })
    TEXT(template <int D> TN_DEVICE unsigned tn_low_bits(float f)
         { return D == TN_BF16 ? tn_to_bf16(f) : tn_to_f16(f); })
    TEXT(template <int D> TN_DEVICE float tn_read(const char *base, long long at)
         {
             if (D == TN_F32) return ((const float *)base)[at];
             if (D == TN_BF16 || D == TN_F16) return tn_low<D>(((const uint16_t *)base)[at]);
             return (float)((const int *)base)[at];
         })
    TEXT(template <int D> TN_DEVICE void tn_write(char *base, long long at, float f)
         {
             if (D == TN_F32) ((float *)base)[at] = f;
             else if (D == TN_BF16 || D == TN_F16) ((uint16_t *)base)[at] = (uint16_t)tn_low_bits<D>(f);
             else ((int *)base)[at] = (int)rintf(f);
         })
    TEXT(TN_DEVICE tn_16 tn_read_16(const void *at) { tn_check_aligned(at, 16); return *(const tn_16 *)at; })
    TEXT(TN_DEVICE void tn_write_16(void *at, tn_16 x) { tn_check_aligned(at, 16); *(tn_16 *)at = x; })
    TEXT(template <int D, int E>
         TN_DEVICE void tn_load(unsigned wide, const char *base, long long at, long long step, unsigned n, float *x)
         {
             if (wide && D == TN_F32) {
                 for (int i = 0; i < E; i += 4) {
                     const tn_16 v = tn_read_16((const float *)base + at + i);
                     for (int q = 0; q < 4; q++) x[i + q] = __uint_as_float(v.w[q]);
                 }
             } else if (wide) {
                 for (int i = 0; i < E; i += 8) {
                     const tn_16 v = tn_read_16((const uint16_t *)base + at + i);
                     for (int q = 0; q < 4; q++) {
                         x[i + 2 * q] = tn_low<D>(v.w[q] & 0xffffu);
                         x[i + 2 * q + 1] = tn_low<D>(v.w[q] >> 16);
                     }
                 }
             } else
                 for (unsigned e = 0; e < (unsigned)E; e++) x[e] = e < n ? tn_read<D>(base, at + e * step) : 0.0f;
         })
    TEXT(template <int D, int E>
         TN_DEVICE void tn_store(unsigned wide, char *base, long long at, long long step, unsigned n, const float *x)
         {
             if (wide && D == TN_F32) {
                 for (int i = 0; i < E; i += 4) {
                     tn_16 v;
                     for (int q = 0; q < 4; q++) v.w[q] = __float_as_uint(x[i + q]);
                     tn_write_16((float *)base + at + i, v);
                 }
             } else if (wide) {
                 for (int i = 0; i < E; i += 8) {
                     tn_16 v;
                     for (int q = 0; q < 4; q++)
                         v.w[q] = tn_low_bits<D>(x[i + 2 * q]) | tn_low_bits<D>(x[i + 2 * q + 1]) << 16;
                     tn_write_16((uint16_t *)base + at + i, v);
                 }
             } else
                 for (unsigned e = 0; e < (unsigned)E; e++)
                     if (e < n) tn_write<D>(base, at + e * step, x[e]);
         });

/* --- the part that differs */

/* Offset of a chunk of operand op: of the loops that it has. */
static void put_offset(FILE *f, const struct tn_cuda_elementwise *k, uint32_t op)
{
    fprintf(f, "        const long long at%u = 0ll", op);
    if (k->step[op])
        fprintf(f, " + j * k.step[%u]", op);
    for (uint32_t l = 0; l < k->nest.n; l++)
        if (k->nest.stride[l][op])
            fprintf(f, " + c%u * k.stride[%u][%u]", l, l, op);
    fputs(";\n", f);
}

static void put_turn(FILE *f, const struct tn_cuda_elementwise *k)
{
    fputs("        unsigned turn = at / k.chunks;\n"
          "        const unsigned j = (at - turn * k.chunks) * E, n = k.inner - j < E ? k.inner - j : E;\n", f);
    for (uint32_t l = k->nest.n; l-- > 1;)
        fprintf(f, "        const unsigned c%u = turn %% k.size[%u]; turn /= k.size[%u];\n", l, l, l);
    if (k->nest.n)
        fputs("        const unsigned c0 = turn;\n", f);
}

/* x: name of the array. An operand without the last dim is read once. */
static void put_load(FILE *f, const struct tn_cuda_elementwise *k, uint32_t op, const char *x)
{
    if (k->step[op])
        fprintf(f, "        tn_load<%u, E>(k.wide >> %u & 1u, k.buffer[%u], at%u, k.step[%u], n, %s);\n",
                k->dtype[op], op, op, op, op, x);
    else
        fprintf(f, "        { const float v = tn_read<%u>(k.buffer[%u], at%u); for (int e = 0; e < E; e++) %s[e] = v; }\n",
                k->dtype[op], op, op, x);
}

static void put_instruction(FILE *f, const struct tn_cuda_program *p, const struct tn_cuda_instr *x)
{
    static const char *const one[] = {[TN_E_NEG] = "-",      [TN_E_EXP] = "expf",   [TN_E_LOG] = "logf",
                                      [TN_E_SQRT] = "sqrtf", [TN_E_TANH] = "tanhf", [TN_E_ERF] = "erff"};
    static const struct {
        const char *before, *between, *after;
    } two[] = {[TN_E_ADD] = {"", " + ", ""},        [TN_E_SUB] = {"", " - ", ""},
               [TN_E_MUL] = {"", " * ", ""},        [TN_E_DIV] = {"", " / ", ""},
               [TN_E_MIN] = {"tn_min(", ", ", ")"}, [TN_E_MAX] = {"tn_max(", ", ", ")"},
               [TN_E_POW] = {"powf(", ", ", ")"},   [TN_E_GE] = {"", " >= ", " ? 1.0f : 0.0f"}};
    uint32_t bits;

    fprintf(f, "            r%u = ", x->to);
    if (x->op == TN_E_IN)
        fprintf(f, "x%u[e];\n", x->a);
    else if (x->op == TN_E_CONST) {
        memcpy(&bits, &p->constant[x->a], sizeof bits);
        fprintf(f, "__uint_as_float(0x%08" PRIx32 "u);\n", bits);
    } else if (x->op == TN_E_UNIFORM)
        fprintf(f, "k.uniform[%u];\n", x->a);
    else if (x->op <= TN_E_ERF)
        fprintf(f, "%s(r%u);\n", one[x->op], x->a);
    else if (x->op < TN_E_SELECT)
        fprintf(f, "%sr%u%sr%u%s;\n", two[x->op].before, x->a, two[x->op].between, x->b, two[x->op].after);
    else
        fprintf(f, "r%u != 0.0f ? r%u : r%u;\n", x->a, x->b, x->c);
}

static void put_program(FILE *f, const struct tn_cuda_elementwise *k)
{
    const struct tn_cuda_program *p = &k->program;

    fputs("        for (int e = 0; e < E; e++) {\n            float r0", f);
    for (uint32_t r = 1; r < p->n_reg; r++)
        fprintf(f, ", r%u", r);
    fputs(";\n\n", f);
    for (uint32_t i = 0; i < p->n_instr; i++)
        put_instruction(f, p, &p->instr[i]);
    for (uint32_t o = 0; o < k->n_out; o++)
        fprintf(f, "            y%u[e] = r%u;\n", o, p->result[o]);
    fputs("        }\n", f);
}

static void put_store(FILE *f, const struct tn_cuda_elementwise *k, uint32_t o)
{
    const uint32_t op = k->n_in + o;
    char old[16];

    if (k->accumulate >> o & 1) {
        snprintf(old, sizeof old, "z%u", o);
        fprintf(f, "        float z%u[E];\n", o);
        put_load(f, k, op, old);
        fprintf(f, "        for (int e = 0; e < E; e++) y%u[e] += z%u[e];\n", o, o);
    }
    if (k->step[op])
        fprintf(f, "        tn_store<%u, E>(k.wide >> %u & 1u, k.buffer[%u], at%u, k.step[%u], n, y%u);\n", k->dtype[op],
                op, op, op, op, o);
    else
        fprintf(f, "        tn_write<%u>(k.buffer[%u], at%u, y%u[0]);\n", k->dtype[op], op, op, o);
}

static void put_body(FILE *f, const struct tn_cuda_elementwise *k)
{
    char x[16];

    fprintf(f, "{\n    enum { E = %u };\n\n"
               "    for (unsigned at = blockIdx.x * %uu + threadIdx.x; at < k.total; at += gridDim.x * %uu) {\n",
            tn_cuda_pass_unit(k), TN_CUDA_PASS_THREADS, TN_CUDA_PASS_THREADS);
    put_turn(f, k);
    for (uint32_t op = 0; op < k->n_in + k->n_out; op++) {
        fprintf(f, op < k->n_in ? "        float x%u[E];\n" : "        float y%u[E];\n", op < k->n_in ? op : op - k->n_in);
        put_offset(f, k, op);
    }
    for (uint32_t i = 0; i < k->n_in; i++) {
        snprintf(x, sizeof x, "x%u", i);
        put_load(f, k, i, x);
    }
    put_program(f, k);
    for (uint32_t o = 0; o < k->n_out; o++)
        put_store(f, k, o);
    fputs("    }\n}\n", f);
}

/* FNV-1a */
static uint64_t hash(const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * UINT64_C(1099511628211);
    return h;
}

/* Owned by the caller; NULL: no memory. */
static char *body_of(const struct tn_cuda_elementwise *k)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    put_body(f, k);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

static char *source_of(const char *name, const char *body)
{
    char *text = NULL;

    if (asprintf(&text,
                 "#ifdef TN_CUDA_EMULATED\n#include \"cu.cuh\"\n#else\n%s#endif\n%s"
                 "extern \"C\" __global__ void __launch_bounds__(%u) %s(TN_PARAM(tn_pass) k)\n%s",
                 on_gpu, common, TN_CUDA_PASS_THREADS, name, body) < 0)
        return NULL;
    return text;
}

uint32_t tn_cuda_pass_unit(const struct tn_cuda_elementwise *k)
{
    for (uint32_t i = 0; i < k->n_in + k->n_out; i++)
        if (tn_cuda_width(k->dtype[i]) == 2)
            return 8;
    return 4;
}

void *tn_cuda_pass_make(const struct tn_cuda_elementwise *k)
{
    char name[40], *body, *source;
    void *kernel = NULL;

    if (!tn_cuda_compiler || !(body = body_of(k)))
        return NULL;
    snprintf(name, sizeof name, "tn_program_%016" PRIx64, hash(body));
    if ((source = source_of(name, body)) && tn_cuda_compiler->make(source, name, &kernel))
        kernel = NULL;
    free(source), free(body);
    return kernel;
}
