/* nest.c - an operation by dim name as a nest of loops.
 *
 * One loop for each name: the first output's dims in its order, then those that only inputs have, which are
 * reduced over. With merge, loops of one turn vanish and neighbours of one kind (both reduced or both not)
 * that every operand walks without a gap become one: kernels then see few and long loops. */
#include "plan/planner.h"

static uint32_t find(const char *const *name, uint32_t n, const char *dim)
{
    for (uint32_t i = 0; i < n; i++)
        if (name[i] == dim || !strcmp(name[i], dim))
            return i;
    return n;
}

static tn_status add_dims(const struct tn_operand *o, const char **name, struct tn_loop *loop, uint32_t room,
                          uint32_t *n)
{
    for (uint32_t d = 0; d < o->rank; d++) {
        if (find(name, *n, o->dim[d]) < *n)
            continue;
        if (*n == room)
            return tn_error(TN_ERR_SHAPE, "more than %u different dims in one operation", room);
        name[*n] = o->dim[d];
        loop[(*n)++] = (struct tn_loop){.size = o->size[d]};
    }
    return TN_OK;
}

static tn_status set_strides(const struct tn_operand *o, uint32_t k, const char *const *name,
                             struct tn_loop *loop, uint32_t n)
{
    for (uint32_t d = 0; d < o->rank; d++) {
        uint32_t l = find(name, n, o->dim[d]);
        if (o->size[d] != loop[l].size)
            return tn_error(TN_ERR_SHAPE, "dim %s has %lld local elements in one operand and %lld in another",
                            o->dim[d], (long long)loop[l].size, (long long)o->size[d]);
        loop[l].stride[k] = o->stride[d];
    }
    return TN_OK;
}

static int merges(const struct tn_loop *outer, const struct tn_loop *inner, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (outer->stride[k] != inner->stride[k] * inner->size)
            return 0;
    return 1;
}

/* Merges loops from .. to - 1; returns where they end now. */
static uint32_t merge_range(struct tn_loop *loop, uint32_t from, uint32_t to, uint32_t put, uint32_t operands)
{
    uint32_t begin = put;

    for (uint32_t i = from; i < to; i++) {
        if (loop[i].size == 1)
            continue;
        if (put > begin && merges(&loop[put - 1], &loop[i], operands)) {
            int64_t size = loop[put - 1].size * loop[i].size;
            loop[put - 1] = loop[i];
            loop[put - 1].size = size;
        } else
            loop[put++] = loop[i];
    }
    return put;
}

tn_status tn_nest(const struct tn_operand *in, uint32_t n_in, const struct tn_operand *out, uint32_t n_out,
                  int merge, struct tn_loop *loop, uint32_t room, uint32_t *n_loop, uint32_t *n_reduced)
{
    const char *name[4 * TN_MAX_RANK];
    uint32_t n = 0, kept;
    tn_status s = TN_OK;

    if (n_in + n_out > TN_MAX_OPERANDS)
        return tn_error(TN_ERR_SHAPE, "%u operands in one nest of loops, at most %d are possible",
                        n_in + n_out, TN_MAX_OPERANDS);
    if (room > 4 * TN_MAX_RANK)
        room = 4 * TN_MAX_RANK;
    s = add_dims(&out[0], name, loop, room, &n);
    kept = n;
    for (uint32_t i = 0; i < n_in && !s; i++)
        s = add_dims(&in[i], name, loop, room, &n);
    for (uint32_t k = 0; k < n_in + n_out && !s; k++)
        s = set_strides(k < n_in ? &in[k] : &out[k - n_in], k, name, loop, n);
    if (s)
        return s;
    if (merge) {
        uint32_t from = kept;
        kept = merge_range(loop, 0, from, 0, n_in + n_out);
        n = merge_range(loop, from, n, kept, n_in + n_out);
    }
    *n_loop = n;
    *n_reduced = n - kept;
    return TN_OK;
}
