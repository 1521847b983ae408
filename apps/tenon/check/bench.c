/* bench.c - a problem on the bench: its numbers, and fewer loops. */
#include <stdlib.h>
#include "bench_inside.h"

/* Where element e of operand o lies. */
char *tn_bench_place(const struct tn_bench *b, uint32_t o, int64_t e)
{
    const struct tn_operand *t = &b->d.operand[o];
    const struct operand *x = &b->x[b->x[o].alias < 0 ? (int)o : b->x[o].alias];
    int64_t at = 0;

    for (uint32_t d = t->rank; d-- > 0; e /= t->size[d])
        at += e % t->size[d] * t->stride[d];
    return x->memory.data + x->skip + (size_t)at * tn_number_width(t->dtype);
}

void tn_bench_free(struct tn_bench *b)
{
    for (uint32_t o = 0; o < b->n; o++) {
        tn_guarded_free(&b->x[o].memory);
        free(b->x[o].value), free(b->x[o].result), free(b->x[o].before);
    }
    free(b);
}

/* Loop i and the one inside it are one loop for every operand. */
static int mergeable(const struct tn_bench *b, const struct tn_loop *outer, const struct tn_loop *inner)
{
    for (uint32_t o = 0; o < b->n; o++)
        if (outer->stride[o] != inner->stride[o] * inner->size)
            return 0;
    return 1;
}

int tn_bench_merge(struct tn_bench *b)
{
    uint32_t n = 0, outer = b->p.n_loop - b->p.n_reduced, reduced = 0;
    const uint32_t before = b->p.n_loop;

    for (uint32_t i = 0; i < before; i++) {
        struct tn_loop l = b->d.loop[i];
        const int same = n && (i >= outer) == (reduced > 0);

        if (l.size == 1)
            continue;
        if (same && mergeable(b, &b->d.loop[n - 1], &l)) {
            l.size *= b->d.loop[n - 1].size;
            b->d.loop[n - 1] = l;
            continue;
        }
        b->d.loop[n++] = l;
        reduced += i >= outer;
    }
    b->p.n_loop = n, b->p.n_reduced = reduced;
    return n != before;
}

void tn_bench_on(struct tn_bench *b, const struct tn_bench_device *d)
{
    b->device = d;
}

void tn_bench_front(struct tn_bench *b)
{
    b->front = 1;
    for (uint32_t o = 0; o < b->n; o++)
        tn_guarded_front(&b->x[o].memory);
}

void tn_bench_once(struct tn_bench *b)
{
    b->once = 1;
}

int tn_bench_extreme(const struct tn_bench *b)
{
    int any = 0;

    for (uint32_t o = 0; o < b->n; o++)
        any |= b->x[o].extreme;
    return any;
}

uint32_t tn_bench_dtypes(const struct tn_bench *b)
{
    uint32_t all = 0;

    for (uint32_t o = 0; o < b->n; o++)
        all |= 1u << b->d.operand[o].dtype;
    return all;
}

int64_t tn_bench_count(const struct tn_bench *b, uint32_t operand)
{
    return b->x[operand].count;
}

uint32_t tn_bench_operands(const struct tn_bench *b, uint32_t *n_in)
{
    *n_in = b->p.n_in;
    return b->n;
}

double tn_bench_get(const struct tn_bench *b, uint32_t operand, int64_t element)
{
    return b->x[operand].value[element];
}

/* As the dtype has it. */
void tn_bench_set(struct tn_bench *b, uint32_t operand, int64_t element, double value)
{
    char number[8];

    tn_number_write(b->d.operand[operand].dtype, number, value);
    b->x[operand].value[element] = tn_number_read(b->d.operand[operand].dtype, number);
}

void tn_bench_set_dtype(struct tn_bench *b, uint32_t operand, uint32_t dtype)
{
    b->d.operand[operand].dtype = dtype;
}

void tn_bench_set_micro(struct tn_bench *b, uint32_t micro)
{
    b->micro = micro;
}

void tn_bench_set_uniform(struct tn_bench *b, uint32_t i, double value)
{
    b->uniform[i] = (float)value;
}

void tn_bench_set_key(struct tn_bench *b, uint64_t seed, uint32_t step)
{
    b->key[0] = (uint32_t)seed, b->key[1] = (uint32_t)(seed >> 32), b->key[2] = step, b->key[3] = 0;
}

double tn_bench_result(const struct tn_bench *b, uint32_t output, int64_t element)
{
    return b->x[b->p.n_in + output].result[element];
}

const char *tn_bench_error(const struct tn_bench *b)
{
    return b->error;
}
