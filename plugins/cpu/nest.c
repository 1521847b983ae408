/* nest.c - loops with strides: fewer of them, the inner one long.
 *
 * Operations that work by dim name arrive as one loop per dim. Most of their tensors are plain arrays, so
 * that several loops are one: [B,T,C] with strides TC, C, 1 in every operand is a single loop of B·T·C.
 * Compiled once, for any CPU. */
#include "cpu.h"

int tn_nest_load(struct tn_nest *nest, const struct tn_problem *p, uint32_t first, uint32_t n)
{
    if (n > TN_NEST_LOOPS || p->n_in + p->n_out > TN_MAX_OPERANDS)
        return 0;
    nest->n = n, nest->n_op = p->n_in + p->n_out;
    for (uint32_t i = 0; i < n; i++) {
        nest->size[i] = p->loop[first + i].size;
        memcpy(nest->stride[i], p->loop[first + i].stride, sizeof nest->stride[i]);
    }
    return 1;
}

static void swap_loops(struct tn_nest *nest, uint32_t i, uint32_t j)
{
    int64_t size = nest->size[i], stride[TN_MAX_OPERANDS];

    nest->size[i] = nest->size[j], nest->size[j] = size;
    memcpy(stride, nest->stride[i], sizeof stride);
    memcpy(nest->stride[i], nest->stride[j], sizeof stride);
    memcpy(nest->stride[j], stride, sizeof stride);
}

/* Is loop i, outside of loop j, its continuation in every operand? */
static int continues(const struct tn_nest *nest, uint32_t i, uint32_t j)
{
    for (uint32_t op = 0; op < nest->n_op; op++)
        if (nest->stride[i][op] != nest->stride[j][op] * nest->size[j])
            return 0;
    return 1;
}

void tn_nest_simplify(struct tn_nest *nest, uint32_t key)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < nest->n; i++)
        if (nest->size[i] != 1)
            swap_loops(nest, n++, i);
    nest->n = n;
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t j = i; j && nest->stride[j - 1][key] < nest->stride[j][key]; j--)
            swap_loops(nest, j - 1, j);
    n = nest->n ? 1 : 0;
    for (uint32_t i = 1; i < nest->n; i++) {
        if (continues(nest, n - 1, i)) {
            nest->size[i] *= nest->size[n - 1];
            n--;
        }
        swap_loops(nest, n++, i);
    }
    nest->n = n;
}

int64_t tn_nest_count(const struct tn_nest *nest)
{
    int64_t n = 1;

    for (uint32_t i = 0; i < nest->n; i++)
        n *= nest->size[i];
    return n;
}

int64_t tn_nest_offset(const struct tn_nest *nest, uint32_t op, int64_t i)
{
    int64_t offset = 0;

    for (uint32_t l = nest->n; l-- > 0; i /= nest->size[l])
        offset += i % nest->size[l] * nest->stride[l][op];
    return offset;
}

int tn_operand_rows(const struct tn_operand *o, uint32_t tail, int64_t *stride)
{
    int64_t block = 1, rows = 1, step = 0;

    if (o->rank < tail)
        return 0;
    for (uint32_t d = o->rank; d-- > 0;) {
        if (o->size[d] == 1)
            continue;
        if (d >= o->rank - tail) {
            if (o->stride[d] != block)
                return 0;
            block *= o->size[d];
        } else {
            if (rows == 1)
                step = o->stride[d];
            else if (o->stride[d] != step * rows)
                return 0;
            rows *= o->size[d];
        }
    }
    *stride = rows == 1 ? block : step;
    return 1;
}
