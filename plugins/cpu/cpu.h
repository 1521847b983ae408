/* cpu.h - what the files of this plugin share.
 *
 * A file is a group of operations: prepare looks at the problem once and keeps a plan in kernel->state,
 * launch runs it. The pieces they build on: nests of loops (nest.c), element-wise programs over rectangles
 * (program.c), sums over nests (reduce.c), matrix products (gemm.c), items shared out to threads (below). A
 * prepare declines what it would do badly; low.c then tries it in fp32, else ref takes it. Sizes and strides
 * count elements everywhere. */
#ifndef TENON_CPU_H
#define TENON_CPU_H
#include <stdatomic.h>
#include <stdlib.h>
#include <tenon/kernels.h>
#include "level.h"

#define TN_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TN_MAX(a, b) ((a) > (b) ? (a) : (b))
#define TN_ROUND_UP(n, unit) (((n) + (unit) - 1) / (unit) * (unit))

/* The operations that this plugin may claim, each with its tn_cpu_prepare_<op>. */
#define TN_CPU_OPS(X)                                                                                        \
    X(einsum) X(sum) X(rowmax) X(sumsq) X(expr) X(copy) X(accum) X(expand) X(cast) X(dropout) X(embed)       \
    X(embed_bwd) X(layernorm) X(ln_dx) X(ln_dw) X(attention) X(attn_bwd) X(ce) X(ce_bwd) X(head) X(head_bwd)  \
    X(head_train) X(rmsnorm) X(rms_dx) X(rms_dw) X(rope) X(route) X(arrange) X(dispatch) X(combine)          \
    X(gate_bwd) X(grouped) X(grouped_dw) X(store)

typedef tn_status tn_cpu_prepare_fn(const struct tn_problem *p, struct tn_kernel *out);
#define TN_CPU_DECLARE(op) tn_cpu_prepare_fn tn_cpu_prepare_##op;
TN_CPU_OPS(TN_CPU_DECLARE)

/* What one CPU level offers, in the order of TN_CPU_OPS. */
struct tn_cpu_level {
    const char *name;
    tn_cpu_prepare_fn *const *prepare;
    /* The same problem through copies in fp32 of all its operands in bf16 and fp16 (low.c). */
    tn_status (*through_f32)(tn_cpu_prepare_fn *inner, const struct tn_problem *p, struct tn_kernel *out);
};
tn_status tn_cpu_through_f32(tn_cpu_prepare_fn *inner, const struct tn_problem *p, struct tn_kernel *out);

/* --- nests of loops (nest.c) */
#define TN_NEST_LOOPS 16
struct tn_nest {                                 /* stride[loop][operand], inputs first, then outputs */
    uint32_t n, n_op;
    int64_t size[TN_NEST_LOOPS];
    int64_t stride[TN_NEST_LOOPS][TN_MAX_OPERANDS];
};
/* The loops first..first+n of a problem as a nest; 0 if they are too many. */
int tn_nest_load(struct tn_nest *nest, const struct tn_problem *p, uint32_t first, uint32_t n);
/* Same elements, fewer loops: drops loops of one turn, puts the loop with the smallest stride of operand key
 * innermost, merges neighbours that are one loop in every operand. Only where the order does not matter. */
void tn_nest_simplify(struct tn_nest *nest, uint32_t key);
int64_t tn_nest_count(const struct tn_nest *nest);
/* Offset of turn number i (row-major) in operand op. */
int64_t tn_nest_offset(const struct tn_nest *nest, uint32_t op, int64_t i);
/* Do the leading dims of o make one loop, and its last tail dims a block without gaps? *stride is then that
 * of the loop. */
int tn_operand_rows(const struct tn_operand *o, uint32_t tail, int64_t *stride);

/* --- element-wise programs (program.c) */
#define TN_CPU_INSTR 256                         /* at most */
#define TN_CPU_E_CUBE (TN_E_SELECT + 1)          /* operations of our own, of one operand */
#define TN_CPU_E_GELU (TN_E_SELECT + 2)
#define TN_CPU_E_DGELU (TN_E_SELECT + 3)         /* its derivative */
#define TN_CPU_E_SIGMOID (TN_E_SELECT + 4)
static inline uint32_t tn_cpu_operands(uint32_t op)
{
    return op <= TN_E_UNIFORM ? 0 : op < TN_E_ADD || op > TN_E_SELECT ? 1 : op == TN_E_SELECT ? 3 : 2;
}
/* A program that does the same, in instr and result; how many instructions (idiom.c). Registers are read after
 * they were made, and there are no more than TN_CPU_INSTR. */
uint32_t tn_cpu_idioms(const struct tn_program *e, struct tn_instr *instr, uint16_t *result);
struct tn_cpu_view {                             /* a rectangle of one operand */
    char *base;
    int64_t row, col;                            /* strides */
    uint32_t dtype;                              /* fp32, bf16, fp16; int32 for inputs */
};
struct tn_cpu_program;
/* Bits of accumulate: outputs that are added to. Returns owned (free), or NULL if
 * the program is too large or memory is short. */
struct tn_cpu_program *tn_cpu_program_make(const struct tn_program *e, uint32_t n_in, uint32_t accumulate);
/* views: inputs, then outputs. */
void tn_cpu_program_run(const struct tn_cpu_program *e, const struct tn_cpu_view *views, int64_t rows,
                        int64_t cols, const float *uniform);
/* The nest of p (no loop of more than one turn reduced) under a program other than p's own. */
tn_status tn_cpu_elementwise_make(const struct tn_problem *p, const struct tn_program *e,
                                  struct tn_kernel *out);

/* A program that is known by its text, in a loop of its own (update.c). */
tn_status tn_cpu_update_make(const struct tn_problem *p, struct tn_kernel *out);

/* --- sums (reduce.c) */
#define TN_REDUCE_SUM 0                          /* of x, or of x·w where there are two inputs */
#define TN_REDUCE_SQUARES 1
#define TN_REDUCE_MAX 2
tn_status tn_cpu_reduce_make(const struct tn_problem *p, uint32_t kind, struct tn_kernel *out);

/* --- matrix products (gemm.c) */
struct tn_cpu_gemm { /* c [m,n] = a [m,k] · b [k,n], row-major; at, bt: stored transposed */
    int64_t m, n, k, lda, ldb, ldc;
    uint32_t at, bt;
};
/* Rows i0..i1 and columns j0..j1 of c, on the calling thread; beta 0 overwrites, 1 adds. */
void tn_cpu_gemm_rect(const struct tn_cpu_gemm *g, const float *a, const float *b, float *c, int64_t i0,
                      int64_t i1, int64_t j0, int64_t j1, float beta);
#define TN_CPU_THIN 7                            /* rows of a thin product, at most */
/* The same of a thin one: at 0, bt 1, not more rows than that (thin.c). */
void tn_cpu_thin_rect(const struct tn_cpu_gemm *g, const float *a, const float *b, float *c, int64_t i0, int64_t i1,
                      int64_t j0, int64_t j1, float beta);
/* Pieces of c for threads: slices of rows, about that many, or blocks of columns, which g alone decides. */
struct tn_cpu_cut {
    int64_t n, unit, units, length;
    uint32_t by_rows;
};
void tn_cpu_cut(const struct tn_cpu_gemm *g, int64_t slices, struct tn_cpu_cut *out);
void tn_cpu_cut_piece(const struct tn_cpu_cut *cut, int64_t i, int64_t *lo, int64_t *hi);
/* All of c, on all threads. */
void tn_cpu_gemm_run(const struct tn_cpu_gemm *g, const float *a, const float *b, float *c, float beta);

/* --- matrix products of our own (mm.c), only at levels with TN_CPU_MM */
#if defined(__AVX2__) && defined(__FMA__)
#define TN_CPU_MM 1
#endif
#ifdef __AVX512F__
#define TN_CPU_MM_ROW 32
#else
#define TN_CPU_MM_ROW 16
#endif
struct tn_cpu_mm { /* c [m,n] = a [m,k] · b [k,n] at any strides, but columns of c lie side by side */
    int64_t m, n, k, a_m, a_k, b_k, b_n, c_m;
    int64_t m_blocks, n_blocks, k_blocks;        /* from here on: by tn_cpu_mm_plan */
    int64_t shared, own;                         /* floats */
    uint32_t direct;                             /* a is not packed */
};
struct tn_cpu_mm_job {
    const struct tn_cpu_mm *mm;
    const float *a, *b;
    float *c;
    const struct tn_nest *sum;                   /* loops that are summed over around k; NULL: none */
    uint32_t a_op, b_op;                         /* which operands a and b are in it */
    int add;                                     /* to c; not with finish */
    /* Takes the results, [rows][TN_CPU_MM_ROW], instead of c, which holds parts of sums before. NULL: they go to c. */
    void (*finish)(void *arg, const float *hot, int64_t i0, int64_t rows, int64_t j0, int64_t cols);
    /* Rows of a panel that will be finished soon: what finish needs may be fetched. */
    void (*soon)(void *arg, int64_t i0, int64_t rows, int64_t j0);
    void *arg;
};
/* Is it better than BLAS? Not for a few rows or columns, where panels are mostly empty. */
static inline int tn_cpu_mm_pays(int64_t m, int64_t n)
{
    return m >= 8 && n >= 8;
}
/* The workspace for so many threads is 2·shared + threads·own floats. */
void tn_cpu_mm_plan(struct tn_cpu_mm *mm, uint32_t threads);
/* What one thread of a team does; all call it, each with its own *turn, 0 at first. */
void tn_cpu_mm_part(const struct tn_cpu_mm_job *job, uint32_t thread, uint32_t threads, float *shared, float *own,
                    uint32_t *turn);
/* All of c on all threads, by what is best here; beta 0 overwrites, 1 adds. room: floats for a product that is
 * not larger in any of its sizes. */
void tn_cpu_product_run(const struct tn_cpu_gemm *g, const float *a, const float *b, float *c, float beta,
                        float *room);
int64_t tn_cpu_product_floats(int64_t m, int64_t n, int64_t k, uint32_t threads);

/* --- random bits (misc.c): those of elements first..first+n, as tn_philox_at gives them */
void tn_cpu_philox_run(const uint32_t *seed_and_step, uint32_t key, uint64_t first, int64_t n,
                       uint32_t *bits);

/* --- items on threads. Each item goes to whichever thread is free; slot names scratch that no other item
 * uses at the same time. An item's result must not depend on its slot. */
struct tn_cpu_share {
    void (*item)(void *arg, uint32_t slot, int64_t i);
    void *arg;
    int64_t n;
    uint32_t slots;
    _Atomic int64_t next;
};
__attribute__((unused)) static void tn_cpu_share_body(void *arg, uint32_t thread, uint32_t threads)
{
    struct tn_cpu_share *s = arg;

    (void)threads;
    if (thread >= s->slots)
        return;
    for (int64_t i; (i = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed)) < s->n;)
        s->item(s->arg, thread, i);
}
__attribute__((unused)) static void tn_cpu_share(int64_t n, uint32_t slots,
                                                 void (*item)(void *arg, uint32_t slot, int64_t i), void *arg)
{
    struct tn_cpu_share s = {.item = item, .arg = arg, .n = n, .slots = slots};

    if (n == 1)
        item(arg, 0, 0);
    else
        tn_host->team(tn_cpu_share_body, &s);
}

/* --- small helpers */
__attribute__((unused)) static int tn_all_f32(const struct tn_problem *p)
{
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        if ((i < p->n_in ? p->in[i] : p->out[i - p->n_in]).dtype != TN_F32)
            return 0;
    return 1;
}
/* Keeps a copy of the plan as the kernel's state. */
__attribute__((unused)) static tn_status tn_keep(struct tn_kernel *out, const void *plan, size_t size,
                                                 const char *op)
{
    if (!(out->state = malloc(size)))
        return tn_error(TN_ERR_MEMORY, "%s: no memory for its plan of %zu bytes", op, size);
    memcpy(out->state, plan, size);
    out->release = free;
    return TN_OK;
}
#endif
