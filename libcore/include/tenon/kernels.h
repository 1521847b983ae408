/* kernels.h - computing the nodes of a graph on one kind of device.
 *
 * For every node the host describes the problem once, plugin by plugin in order of preference, until one
 * prepares a kernel; a step then only calls launch. Problems are described so that a naive kernel is short:
 * operations that work by dim name (einsum, sum, rowmax, expand, expr, copy, accum) come as a nest of loops
 * with strides, element-wise ones with a small program; nobody parses names. docs/ops.md lists every
 * operation with its operands, attributes and formula.
 *
 * Rules for every kernel:
 *  - outputs are overwritten; with the bit in problem->accumulate they are added to instead;
 *  - strides are the host's choice (views of larger tensors); what a plugin cannot walk it declines;
 *  - an output of expr, accum, dropout and cast may be the very buffer of an input of the same sizes and
 *    strides: read an element before writing it;
 *  - sums over more than a few elements are kept in more than the operands' precision or in fixed blocks,
 *    so that two runs, and any number of threads, give the same bits;
 *  - nothing is allocated, looked up or branched on by name in launch;
 *  - a negative status comes with a sentence (tn_error) and ends the run. */
#ifndef TENON_KERNELS_H
#define TENON_KERNELS_H
#include <tenon/abi.h>
struct tn_queue;

#define TN_MAX_RANK 8
#define TN_MAX_OPERANDS 12                       /* inputs and outputs together, in a nest of loops */

/* One input or output as this rank holds it. Array element: frozen. */
struct tn_operand {
    uint32_t dtype, rank;                        /* TN_F32, ...; how many dims, 0 to TN_MAX_RANK */
    const int64_t *size;                         /* local sizes */
    const int64_t *stride;                       /* elements */
    const int64_t *whole;                        /* global sizes */
    const int64_t *origin;                       /* global index of the first element along each dim */
    const int64_t *const *index;                 /* NULL: origin + i; else index[d], where not NULL, is the
                                                    global index of each local position along dim d */
    const char *const *dim;                      /* names, interned by the host */
};

/* One loop: size, and stride in elements in every operand, inputs first, 0 where it lacks the dim. Array element: frozen. */
struct tn_loop {
    int64_t size, stride[TN_MAX_OPERANDS];
};

/* Element-wise program in SSA: register k is the result of instruction k: op is one
 * of TN_E_*, a, b and c are registers before k or what the op says. Array element: frozen at 8 bytes. */
struct tn_instr {
    uint16_t op, a, b, c;
};
#define TN_E_IN 0      /* a: number of the input */
#define TN_E_CONST 1   /* a: index into constant */
#define TN_E_UNIFORM 2 /* a: index into launch->uniform */
#define TN_E_NEG 3
#define TN_E_EXP 4
#define TN_E_LOG 5
#define TN_E_SQRT 6
#define TN_E_TANH 7
#define TN_E_ERF 8
#define TN_E_ADD 9
#define TN_E_SUB 10
#define TN_E_MUL 11
#define TN_E_DIV 12
#define TN_E_MIN 13    /* NaN if either is */
#define TN_E_MAX 14    /* NaN if either is */
#define TN_E_POW 15
#define TN_E_GE 16     /* a >= b ? 1 : 0 */
#define TN_E_SELECT 17 /* a != 0 ? b : c */
struct tn_program {
    uint32_t struct_size;
    uint32_t n_instr, n_constant, n_uniform, n_result;       /* entries of the arrays, and of launch->uniform */
    uint32_t reserved0;
    const struct tn_instr *instr;                /* [n_instr] */
    const double *constant;                      /* [n_constant] */
    const uint16_t *result;                      /* register of each output */
    const char *text;                            /* canonical: infix; inputs a, b, ..., constants as numbers,
                                                    uniforms u0, u1, ...; what is used twice is "t0 = ...; "
                                                    before; several results: "r0 = ...; r1 = ..." */
};

/* Borrowed for the call of prepare, everything behind it too. */
struct tn_problem {
    uint32_t struct_size;
    uint32_t n_in, n_out, n_attr;                /* entries of in, out and attr */
    uint32_t n_loop, n_reduced;                  /* the last n_reduced loops are reduced over */
    uint32_t accumulate;                         /* bit i: output i is added to, not overwritten */
    uint32_t reserved0;
    const char *op;                              /* as docs/ops.md names it */
    const struct tn_operand *in, *out;           /* in the order of docs/ops.md */
    const struct tn_attr *attr;                  /* see tn_problem_attr */
    const struct tn_loop *loop;                  /* outer to inner, output's dims first; NULL where the op has
                                                    its own shape */
    const struct tn_program *program;            /* expr; einsum with an epilogue: input 0 of the program is
                                                    the contraction, the others are inputs 2, 3, ... */
};

/* What changes from launch to launch. The host owns it; buffers never move once prepared. */
struct tn_launch {
    uint32_t struct_size;
    uint32_t micro;                              /* number of the micro-batch within the update */
    void *const *buffer;                         /* inputs, then outputs */
    void *workspace;                             /* kernel->workspace bytes, aligned to 64 */
    const void *uniform;                         /* in device memory. expr: float[n_uniform]; dropout and
                                                    attention with dropout: uint32_t {seed low, seed high,
                                                    step low, step high} */
    struct tn_queue *queue;                      /* of the device whose kind tn_kernels names */
};

/* The host owns the struct, the plugin owns state. */
struct tn_kernel {
    uint32_t struct_size;
    uint32_t reserved0;
    void *state;
    /* Computes, or puts the work on l->queue and returns; what fails on the queue later, the device's sync says. The
     * executor's thread, any number of times, also with another state of this plugin. l is borrowed for the call. */
    tn_status (*launch)(void *state, const struct tn_launch *l);
    void (*release)(void *state);                /* may be NULL; main thread, once, when nothing is on a queue any more */
    uint64_t workspace;                          /* bytes that launch gets to itself; of any content each time */
};

#define TN_KERNELS_ID "tenon.kernels/1"
struct tn_kernels {
    uint32_t struct_size;
    uint32_t reserved0;
    const char *device;                          /* kind of device whose memory it works on */
    const char *const *ops;                      /* what it may claim; ends with NULL */
    /* How good on this machine: higher is tried first (ref 1, cpu 20; all others 2 or more); 0: unusable, and why says
     * it. Any thread, before everything, also in a process that does nothing else; no side effects. */
    tn_status (*probe)(uint32_t *score, char *why, uint64_t why_size);
    /* TN_DECLINED if this problem is not for it: the next plugin is asked. out is zeroed but for struct_size; on TN_OK
     * out->launch is set and out->state is the plugin's until release. Main thread, before step 0. */
    tn_status (*prepare)(const struct tn_problem *p, struct tn_kernel *out);
};

/* --- small helpers for authors */
/* The attribute of this key; NULL without one. Borrowed, like the problem. */
__attribute__((unused)) static inline const struct tn_attr *tn_problem_attr(const struct tn_problem *p, const char *key)
{
    for (uint32_t i = 0; i < p->n_attr; i++)
        if (!strcmp(p->attr[i].key, key))
            return &p->attr[i];
    return NULL;
}
/* Its number; `otherwise` where there is none of this key or it is no number. */
__attribute__((unused)) static inline double tn_problem_float(const struct tn_problem *p, const char *key, double otherwise)
{
    const struct tn_attr *a = tn_problem_attr(p, key);

    return !a ? otherwise : a->type == TN_ATTR_FLOAT ? a->as.f : a->type == TN_ATTR_INT ? (double)a->as.i : otherwise;
}
/* The same of whole numbers: a fraction is not one. */
__attribute__((unused)) static inline int64_t tn_problem_int(const struct tn_problem *p, const char *key, int64_t otherwise)
{
    const struct tn_attr *a = tn_problem_attr(p, key);

    return a && a->type == TN_ATTR_INT ? a->as.i : otherwise;
}
/* Row-major without gaps? */
__attribute__((unused)) static inline int tn_contiguous(const struct tn_operand *o)
{
    int64_t n = 1;

    for (uint32_t d = o->rank; d-- > 0;) {
        if (o->size[d] != 1 && o->stride[d] != n)
            return 0;
        n *= o->size[d];
    }
    return 1;
}
/* Elements that this rank holds: the product of the sizes, 1 without dims. */
__attribute__((unused)) static inline int64_t tn_count(const struct tn_operand *o)
{
    int64_t n = 1;

    for (uint32_t d = 0; d < o->rank; d++)
        n *= o->size[d];
    return n;
}
/* Global index of local position i along dim d. */
__attribute__((unused)) static inline int64_t tn_global(const struct tn_operand *o, uint32_t d, int64_t i)
{
    return o->index && o->index[d] ? o->index[d][i] : o->origin[d] + i;
}
#endif
