/* ref.h - what the kernels of this plugin share.
 *
 * A problem is borrowed for prepare, so what launch needs of it is kept in a state of our own. Every state
 * begins with struct tn_ref_base, which owns the memory kept for it and remembers whether any was refused:
 * a prepare asks for everything it wants and leaves the one check to tn_ref_ready.
 *
 * Most operations with a shape of their own see an operand as rows and columns: the dims before a split and
 * those after it, whatever their strides. struct tn_ref_view is that, with the offsets written out, so that a
 * kernel reads like its formula. All arithmetic is in double; dtypes are met only in load and store. */
#ifndef REF_H
#define REF_H
#include <math.h>
#include <tenon/kernels.h>
#include <tenon/kit_number.h>

struct tn_ref_block;                             /* memory that lives as long as a state */
struct tn_ref_base {
    struct tn_ref_block *blocks;
    int failed;
};

/* Element (r, c) lies at row[r] + col[c] elements from the operand's buffer. */
struct tn_ref_view {
    uint32_t dtype, add;                         /* add: this output is added to */
    int64_t n_row, n_col;
    const int64_t *row, *col;
    uint32_t slot;                               /* in launch->buffer */
};

/* state.c */
void *tn_ref_state(size_t size);                 /* zeroed; NULL without memory, said */
void *tn_ref_keep(void *state, size_t bytes);
void tn_ref_release(void *state);
tn_status tn_ref_ready(struct tn_kernel *out, void *state,
                       tn_status (*launch)(void *, const struct tn_launch *), int64_t doubles);
const int64_t *tn_ref_offsets(void *state, const struct tn_operand *o, uint32_t from, uint32_t to,
                              const int64_t *whole_stride);
const int64_t *tn_ref_globals(void *state, const struct tn_operand *o, uint32_t dim);
int64_t tn_ref_find(const int64_t *global, int64_t n, int64_t id);
void tn_ref_input(void *state, const struct tn_problem *p, uint32_t i, uint32_t split,
                  struct tn_ref_view *out);
void tn_ref_output(void *state, const struct tn_problem *p, uint32_t i, uint32_t split,
                   struct tn_ref_view *out);

/* program.c: element-wise programs, over up to TN_REF_LANES elements at once */
#define TN_REF_LANES 64
struct tn_ref_program;
const struct tn_ref_program *tn_ref_program(void *state, const struct tn_program *p);
int tn_ref_program_known(const struct tn_program *p);
void tn_ref_program_run(const struct tn_ref_program *k, int64_t n, const double (*in)[TN_REF_LANES],
                        const float *uniform, double (*reg)[TN_REF_LANES]);
const double *tn_ref_program_result(const struct tn_ref_program *k, const double (*reg)[TN_REF_LANES],
                                    uint32_t i);

/* One prepare for each family of operations. */
tn_status tn_ref_nest(const struct tn_problem *p, struct tn_kernel *out);
tn_status tn_ref_dropout(const struct tn_problem *p, struct tn_kernel *out);
tn_status tn_ref_embed(const struct tn_problem *p, struct tn_kernel *out);
tn_status tn_ref_store_rows(const struct tn_problem *p, struct tn_kernel *out);
tn_status tn_ref_norm(const struct tn_problem *p, struct tn_kernel *out);
tn_status tn_ref_rope(const struct tn_problem *p, struct tn_kernel *out);
tn_status tn_ref_attention(const struct tn_problem *p, struct tn_kernel *out);
tn_status tn_ref_pick(const struct tn_problem *p, struct tn_kernel *out);
tn_status tn_ref_ce(const struct tn_problem *p, struct tn_kernel *out);
tn_status tn_ref_head(const struct tn_problem *p, struct tn_kernel *out);
tn_status tn_ref_experts(const struct tn_problem *p, struct tn_kernel *out);

struct tn_device_api;
extern const struct tn_device_api tn_ref_device;

static inline int tn_ref_knows(uint32_t dtype)
{
    return dtype == TN_F32 || dtype == TN_F64 || dtype == TN_I32 || dtype == TN_BF16 || dtype == TN_F16;
}

static inline double tn_ref_load(uint32_t dtype, const void *buffer, int64_t at)
{
    return dtype == TN_F32 ? (double)((const float *)buffer)[at] : tn_kit_load(dtype, buffer, at);
}

static inline void tn_ref_store(uint32_t dtype, void *buffer, int64_t at, double value, uint32_t add)
{
    if (add)
        value += tn_ref_load(dtype, buffer, at);
    if (dtype == TN_F32)
        ((float *)buffer)[at] = (float)value;
    else
        tn_kit_store(dtype, buffer, at, value);
}

static inline double tn_ref_get(const struct tn_launch *l, const struct tn_ref_view *v, int64_t r, int64_t c)
{
    return tn_ref_load(v->dtype, l->buffer[v->slot], v->row[r] + v->col[c]);
}

static inline void tn_ref_put(const struct tn_launch *l, const struct tn_ref_view *v, int64_t r, int64_t c,
                              double value)
{
    tn_ref_store(v->dtype, l->buffer[v->slot], v->row[r] + v->col[c], value, v->add);
}

/* out [n_col] = row r. */
static inline void tn_ref_get_row(const struct tn_launch *l, const struct tn_ref_view *v, int64_t r,
                                  double *out)
{
    for (int64_t c = 0; c < v->n_col; c++)
        out[c] = tn_ref_get(l, v, r, c);
}

static inline double tn_ref_dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* sum [n] += factor * x [n] */
static inline void tn_ref_add(double *sum, double factor, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += factor * x[i];
}

/* log sum exp(x[i]), with the maximum taken out. An infinite one is not: all -inf then gives -inf. A NaN is
 * not seen by the maximum, but by the sum. */
static inline double tn_ref_lse(const double *x, int64_t n)
{
    double max = -INFINITY, sum = 0;

    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    if (isinf(max))
        max = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}

/* uniform: seed low, seed high, step low, step high. */
static inline uint64_t tn_ref_seed(const uint32_t *uniform)
{
    return uniform[0] | (uint64_t)uniform[1] << 32;
}
#endif
