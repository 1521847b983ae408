/* state.c - what a prepared kernel keeps: memory, offsets, global indices, views.
 *
 * Offsets are written out as tables, one entry for each row or column. That costs 8 bytes a row and makes any
 * stride, any number of dims and any cut the same to the kernels. */
#include <stdlib.h>
#include "ref.h"

struct tn_ref_block {
    struct tn_ref_block *next;
    double data[];                               /* double: aligned for whatever is kept */
};

void *tn_ref_state(size_t size)
{
    void *state = calloc(1, size);

    if (!state)
        tn_error(TN_ERR_MEMORY, "ref: no memory for a kernel of %zu bytes", size);
    return state;
}

/* Zeroed bytes that live as long as the state. */
void *tn_ref_keep(void *state, size_t bytes)
{
    struct tn_ref_base *base = state;
    struct tn_ref_block *b = calloc(1, sizeof *b + bytes);

    if (!b) {
        base->failed = 1;
        return NULL;
    }
    b->next = base->blocks, base->blocks = b;
    return b->data;
}

void tn_ref_release(void *state)
{
    struct tn_ref_base *base = state;

    for (struct tn_ref_block *b = base->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(state);
}

/* The end of every prepare. Takes the state. */
tn_status tn_ref_ready(struct tn_kernel *out, void *state,
                       tn_status (*launch)(void *, const struct tn_launch *), int64_t doubles)
{
    const struct tn_ref_base *base = state;

    if (base->failed) {
        tn_ref_release(state);
        return tn_error(TN_ERR_MEMORY, "ref: no memory for the tables of a kernel");
    }
    out->state = state, out->launch = launch, out->release = tn_ref_release;
    out->workspace = (uint64_t)doubles * sizeof(double);
    return TN_OK;
}

/* Offsets of all positions along dims from..to-1, row-major: in elements of the buffer, or, with strides of
 * the whole tensor, global indices. */
const int64_t *tn_ref_offsets(void *state, const struct tn_operand *o, uint32_t from, uint32_t to,
                              const int64_t *whole_stride)
{
    int64_t n = 1, *at;

    for (uint32_t d = from; d < to; d++)
        n *= o->size[d];
    if (!(at = tn_ref_keep(state, (size_t)n * sizeof *at)))
        return NULL;
    for (int64_t e = 0; e < n; e++) {
        int64_t rest = e;

        for (uint32_t d = to; d-- > from; rest /= o->size[d]) {
            int64_t i = rest % o->size[d];

            at[e] += whole_stride ? tn_global(o, d, i) * whole_stride[d] : i * o->stride[d];
        }
    }
    return at;
}

/* The global index of each local position along one dim. */
const int64_t *tn_ref_globals(void *state, const struct tn_operand *o, uint32_t dim)
{
    int64_t one[TN_MAX_RANK];

    for (uint32_t d = 0; d < TN_MAX_RANK; d++)
        one[d] = 1;
    return tn_ref_offsets(state, o, dim, dim + 1, one);
}

/* The local position whose global index is id, -1 if it is not here. */
int64_t tn_ref_find(const int64_t *global, int64_t n, int64_t id)
{
    if (n && id >= global[0] && id - global[0] < n && global[id - global[0]] == id)
        return id - global[0];                   /* contiguous up to there, as nearly always */
    for (int64_t i = 0; i < n; i++)
        if (global[i] == id)
            return i;
    return -1;
}

static void view(void *state, const struct tn_operand *o, uint32_t split, struct tn_ref_view *out)
{
    out->dtype = o->dtype;
    out->n_row = out->n_col = 1;
    for (uint32_t d = 0; d < o->rank; d++)
        *(d < split ? &out->n_row : &out->n_col) *= o->size[d];
    out->row = tn_ref_offsets(state, o, 0, split, NULL);
    out->col = tn_ref_offsets(state, o, split, o->rank, NULL);
}

void tn_ref_input(void *state, const struct tn_problem *p, uint32_t i, uint32_t split,
                  struct tn_ref_view *out)
{
    view(state, &p->in[i], split, out);
    out->slot = i;
}

void tn_ref_output(void *state, const struct tn_problem *p, uint32_t i, uint32_t split,
                   struct tn_ref_view *out)
{
    view(state, &p->out[i], split, out);
    out->slot = p->n_in + i;
    out->add = p->accumulate >> i & 1;
}
