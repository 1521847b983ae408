/* table.c - rows of a table and entries of a row by number: embed, pick, and their gradients.
 *
 * embed and pick are one thing: y[i, c] = t[number i, c], where pick's table is another one at each i and has no c. So
 * an operand is asked for the element of a place, an entry and a column, and the four operations are three loops. An
 * entry that is not here gives 0, since it is another rank's. */
#include <stdlib.h>
#include "isle.h"

/* Offset of element number n, row-major, of some dims. */
struct dims {
    uint32_t n;
    int64_t count, size[TN_MAX_RANK], stride[TN_MAX_RANK];
};

struct table {
    struct isle_kernel base;
    uint32_t add;
    int64_t entries, entry_stride;
    struct dims place[3], column[2];             /* place: of the numbers, the rows, the table; column: of the rows, the table */
    uint32_t numbers, rows, table;               /* which operands they are */
    int64_t global[];                            /* of each entry */
};

static struct dims dims_of(const struct tn_operand *o, uint32_t from, uint32_t to)
{
    struct dims d = {.n = to - from, .count = 1};

    for (uint32_t i = 0; i < d.n; i++) {
        d.size[i] = o->size[from + i], d.stride[i] = o->stride[from + i];
        d.count *= d.size[i];
    }
    return d;
}

static int64_t offset(const struct dims *d, int64_t n)
{
    int64_t at = 0;

    for (uint32_t i = d->n; i-- > 0; n /= d->size[i])
        at += n % d->size[i] * d->stride[i];
    return at;
}

static int64_t number(const struct table *k, const struct isle_call *c, int64_t i)
{
    return ((const int32_t *)c->buffer[k->numbers])[offset(&k->place[0], i)];
}

static float *row_at(const struct table *k, const struct isle_call *c, int64_t i, int64_t column)
{
    return (float *)c->buffer[k->rows] + offset(&k->place[1], i) + offset(&k->column[0], column);
}

static float *entry_at(const struct table *k, const struct isle_call *c, int64_t i, int64_t entry, int64_t column)
{
    return (float *)c->buffer[k->table] + offset(&k->place[2], i) + entry * k->entry_stride + offset(&k->column[1], column);
}

static void put(const struct table *k, float *y, double value)
{
    *y = (float)(k->add ? *y + value : value);
}

/* embed, pick */
static void run_take(const struct isle_kernel *base, const struct isle_call *c)
{
    const struct table *k = (const struct table *)base;

    for (int64_t i = 0; i < k->place[0].count; i++) {
        int64_t wanted = number(k, c, i), e = 0;

        while (e < k->entries && (wanted < 0 || k->global[e] != wanted))
            e++;
        for (int64_t j = 0; j < k->column[0].count; j++)
            put(k, row_at(k, c, i, j), e < k->entries ? (double)*entry_at(k, c, i, e, j) : 0);
    }
}

/* The sums of an entry are made in the workspace, one double a column. */
static void run_embed_bwd(const struct isle_kernel *base, const struct isle_call *c)
{
    const struct table *k = (const struct table *)base;
    double *sum = c->workspace;

    for (int64_t e = 0; e < k->entries; e++) {
        for (int64_t j = 0; j < k->column[0].count; j++)
            sum[j] = 0;
        for (int64_t i = 0; i < k->place[0].count; i++)
            for (int64_t j = 0; number(k, c, i) == k->global[e] && j < k->column[0].count; j++)
                sum[j] += (double)*row_at(k, c, i, j);
        for (int64_t j = 0; j < k->column[0].count; j++)
            put(k, entry_at(k, c, 0, e, j), sum[j]);
    }
}

static void run_pick_bwd(const struct isle_kernel *base, const struct isle_call *c)
{
    const struct table *k = (const struct table *)base;

    for (int64_t i = 0; i < k->place[0].count; i++)
        for (int64_t e = 0; e < k->entries; e++)
            put(k, entry_at(k, c, i, e, 0), number(k, c, i) == k->global[e] ? (double)*row_at(k, c, i, 0) : 0);
}

/* embed: t, i -> y   embed_bwd: dy, i, like t -> dt   pick and pick_bwd likewise */
tn_status isle_table(const struct tn_problem *p, struct isle_kernel **out, uint64_t *workspace)
{
    const int back = strstr(p->op, "_bwd") != NULL, pick = !strncmp(p->op, "pick", 4);
    const struct tn_operand *t = back ? &p->out[0] : &p->in[0], *y = back ? &p->in[0] : &p->out[0], *i = &p->in[1];
    const uint32_t at = pick ? i->rank : 0;      /* the dim of t that is chosen from */
    struct table *k = calloc(1, sizeof *k + (size_t)t->size[at] * sizeof(int64_t));

    if (!k)
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a kernel");
    k->base.run = !back ? run_take : pick ? run_pick_bwd : run_embed_bwd;
    k->add = p->accumulate & 1;
    k->numbers = 1, k->rows = back ? 0 : p->n_in, k->table = back ? p->n_in : 0;
    k->place[0] = dims_of(i, 0, i->rank), k->place[1] = dims_of(y, 0, i->rank), k->place[2] = dims_of(t, 0, at);
    k->column[0] = dims_of(y, i->rank, y->rank), k->column[1] = dims_of(t, at + 1, t->rank);
    k->entries = t->size[at], k->entry_stride = t->stride[at];
    for (int64_t e = 0; e < k->entries; e++)
        k->global[e] = tn_global(t, at, e);
    *workspace = back && !pick ? (uint64_t)k->column[0].count * sizeof(double) : 0;
    *out = &k->base;
    return TN_OK;
}
