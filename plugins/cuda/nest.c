/* nest.c - the host's part of nest.h. */
#include "nest.h"
#include <tenon/philox.h>

uint32_t tn_cuda_width(uint32_t dtype)
{
    return dtype == TN_BF16 || dtype == TN_F16 ? 2 : 4;
}

uint32_t tn_cuda_threshold(double p)
{
    return tn_dropout_threshold(p);
}

static int fits(int64_t size)
{
    return size >= 0 && size <= INT32_MAX;
}

int tn_cuda_nest_load(struct tn_cuda_nest *nest, const struct tn_problem *p, uint32_t first, uint32_t n)
{
    memset(nest, 0, sizeof *nest);
    if (p->n_in + p->n_out > TN_MAX_OPERANDS)
        return 0;
    nest->n_op = p->n_in + p->n_out;
    for (uint32_t i = first; i < first + n; i++) {
        const struct tn_loop *l = &p->loop[i];

        if (l->size == 1)
            continue;
        if (nest->n == TN_CUDA_LOOPS || !fits(l->size))
            return 0;
        nest->size[nest->n] = (uint32_t)l->size;
        memcpy(nest->stride[nest->n++], l->stride, nest->n_op * sizeof *l->stride);
    }
    return 1;
}

static void swap_loops(struct tn_cuda_nest *nest, uint32_t i, uint32_t j)
{
    const uint32_t size = nest->size[i];
    int64_t stride[TN_MAX_OPERANDS];

    nest->size[i] = nest->size[j], nest->size[j] = size;
    memcpy(stride, nest->stride[i], sizeof stride);
    memcpy(nest->stride[i], nest->stride[j], sizeof stride);
    memcpy(nest->stride[j], stride, sizeof stride);
}

/* Is loop i, outside of loop j, its continuation in every operand? */
static int continues(const struct tn_cuda_nest *nest, uint32_t i, uint32_t j)
{
    for (uint32_t op = 0; op < nest->n_op; op++)
        if (nest->stride[i][op] != nest->stride[j][op] * nest->size[j])
            return 0;
    return fits((int64_t)nest->size[i] * nest->size[j]);
}

void tn_cuda_nest_simplify(struct tn_cuda_nest *nest, uint32_t key)
{
    uint32_t n = nest->n ? 1 : 0;

    for (uint32_t i = 1; i < nest->n; i++)
        for (uint32_t j = i; j && nest->stride[j - 1][key] < nest->stride[j][key]; j--)
            swap_loops(nest, j - 1, j);
    for (uint32_t i = 1; i < nest->n; i++) {
        if (continues(nest, n - 1, i)) {
            nest->size[i] *= nest->size[n - 1];
            n--;
        }
        swap_loops(nest, n++, i);
    }
    nest->n = n;
}

int64_t tn_cuda_nest_count(const struct tn_cuda_nest *nest)
{
    int64_t n = 1;

    for (uint32_t i = 0; i < nest->n; i++)
        n *= nest->size[i];
    return n;
}

void tn_cuda_nest_pop(struct tn_cuda_nest *nest, uint32_t *size, int64_t *stride)
{
    *size = 1;
    memset(stride, 0, TN_MAX_OPERANDS * sizeof *stride);
    if (!nest->n)
        return;
    nest->n--;
    *size = nest->size[nest->n];
    memcpy(stride, nest->stride[nest->n], TN_MAX_OPERANDS * sizeof *stride);
}

int tn_cuda_axis_load(struct tn_cuda_axis *axis, const struct tn_operand *o, uint32_t from, uint32_t to)
{
    int64_t total = 1;

    memset(axis, 0, sizeof *axis);
    for (uint32_t d = from; d < to; d++) {
        const uint32_t last = axis->n - 1;

        if (!fits(o->size[d]) || !fits(total *= o->size[d]))
            return 0;
        if (o->size[d] == 1)
            continue;
        if (axis->n && axis->stride[last] == o->stride[d] * o->size[d]) {
            axis->size[last] *= (uint32_t)o->size[d], axis->stride[last] = o->stride[d];
            continue;
        }
        if (axis->n == TN_CUDA_LOOPS)
            return 0;
        axis->size[axis->n] = (uint32_t)o->size[d], axis->stride[axis->n++] = o->stride[d];
    }
    axis->total = (uint32_t)total;
    return 1;
}

int tn_cuda_view_load(struct tn_cuda_view *v, const struct tn_problem *p, uint32_t i, uint32_t split)
{
    const struct tn_operand *o = i < p->n_in ? &p->in[i] : &p->out[i - p->n_in];

    memset(v, 0, sizeof *v);
    v->dtype = o->dtype, v->slot = i;
    v->add = i >= p->n_in ? p->accumulate >> (i - p->n_in) & 1 : 0;
    return tn_cuda_axis_load(&v->row, o, 0, split) && tn_cuda_axis_load(&v->col, o, split, o->rank);
}

/* May all rows be taken n elements at once? */
static int goes_by(const struct tn_cuda_view *v, uint32_t n)
{
    const uint32_t bytes = n * tn_cuda_width(v->dtype);

    if (v->col.n != 1 || v->col.stride[0] != 1 || v->col.total % n || (uintptr_t)v->base % (bytes < 16 ? bytes : 16))
        return 0;
    for (uint32_t i = 0; i < v->row.n; i++)
        if (v->row.stride[i] % n)
            return 0;
    return v->dtype != TN_I32;
}

void tn_cuda_view_bind(struct tn_cuda_view *v, const struct tn_launch *l)
{
    v->base = (char *)l->buffer[v->slot];
    v->wide = goes_by(v, 8) ? 8 : goes_by(v, 4) ? 4 : 0;
}

int tn_cuda_map_load(struct tn_cuda_map *map, const struct tn_operand *o, uint32_t dim)
{
    memset(map, 0, sizeof *map);
    if (!fits(o->size[dim]))
        return 0;
    map->size = (uint32_t)o->size[dim];
    if (!o->index || !o->index[dim]) {
        map->n = 1, map->global[0] = o->origin[dim];
        return 1;
    }
    for (int64_t i = 0; i < o->size[dim]; i++) {
        const uint32_t last = map->n - 1;
        const int64_t id = o->index[dim][i];

        if (map->n && id == map->global[last] + i - map->start[last])
            continue;
        if (map->n == TN_CUDA_RUNS)
            return 0;
        map->start[map->n] = i, map->global[map->n++] = id;
    }
    return 1;
}
