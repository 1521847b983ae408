/* boxes.c - see boxes.h. */
#include "base/status.h"
#include "run/boxes.h"
#include <stdlib.h>
#include "base/arena.h"

struct box {
    struct tn_kernel kernel;
    uint32_t from, to;                           /* buffers */
    uint64_t from_offset, to_offset;             /* bytes */
};

struct tn_boxes {
    struct tn_arena *arena;
    const struct tn_plan_kernels *kernels;
    uint32_t n_kernels, n;
    struct box *box;
};

struct tn_boxes *tn_boxes_new(const struct tn_plan_kernels *kernels, uint32_t n_kernels)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_boxes *b = tn_alloc(arena, sizeof *b);

    *b = (struct tn_boxes){.arena = arena, .kernels = kernels, .n_kernels = n_kernels};
    return b;
}

void tn_boxes_free(struct tn_boxes *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < b->n; i++)
        if (b->box[i].kernel.release)
            b->box[i].kernel.release(b->box[i].kernel.state);
    tn_arena_free(b->arena);
}

/* Strides of the tensor, and the offset of the box in it, in elements. */
static uint64_t place(const struct tn_box_side *side, uint32_t rank, int64_t *stride)
{
    uint64_t at = side->offset;
    int64_t step = 1;

    for (uint32_t d = rank; d-- > 0;) {
        stride[d] = step;
        at += (uint64_t)(side->start[d] * step);
        step *= side->size[d];
    }
    return at;
}

/* Loops of more than one turn; neighbours that both sides walk without a gap are one. */
static uint32_t make_loops(uint32_t rank, const int64_t *box, const int64_t *from, const int64_t *to, struct tn_loop *loop)
{
    uint32_t n = 0;

    for (uint32_t d = 0; d < rank; d++) {
        struct tn_loop l = {.size = box[d], .stride = {from[d], to[d]}}, *outer = n ? &loop[n - 1] : NULL;

        if (box[d] == 1)
            continue;
        if (outer && outer->stride[0] == l.stride[0] * l.size && outer->stride[1] == l.stride[1] * l.size) {
            l.size *= outer->size;
            *outer = l;
        } else
            loop[n++] = l;
    }
    return n;
}

static tn_status ask(const struct tn_boxes *b, const struct tn_problem *p, struct tn_kernel *out)
{
    for (uint32_t i = 0; i < b->n_kernels; i++)
        for (const char *const *op = b->kernels[i].table->ops; *op; op++)
            if (!strcmp(*op, "copy")) {
                tn_status s;

                *out = (struct tn_kernel){.struct_size = sizeof *out};
                s = b->kernels[i].table->prepare(p, out);
                if (s != TN_DECLINED)
                    return tn_status_of(b->kernels[i].name, "prepare of copy", s);
            }
    return tn_error(TN_ERR, "no kernel plugin copies a box of %u dims for a collective", p->in->rank);
}

tn_status tn_boxes_add(struct tn_boxes *b, uint32_t dtype, uint32_t rank, const int64_t *box, const struct tn_box_side *from,
                       const struct tn_box_side *to)
{
    static const int64_t zero[TN_MAX_RANK];
    static const char *const name[TN_MAX_RANK] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"};
    int64_t stride[2][TN_MAX_RANK];
    struct tn_loop loop[TN_MAX_RANK];
    struct tn_operand o[2];
    struct tn_problem p = {.struct_size = sizeof p, .n_in = 1, .n_out = 1, .op = "copy", .in = &o[0], .out = &o[1], .loop = loop};
    struct box *x;
    tn_status s;

    for (uint32_t d = 0; d < rank; d++)
        if (!box[d])
            return TN_OK;
    b->box = tn_alloc_grow(b->arena, b->box, b->n, sizeof *b->box);
    x = &b->box[b->n];
    *x = (struct box){.from = from->buffer, .to = to->buffer};
    x->from_offset = place(from, rank, stride[0]) * tn_dtype_bytes(dtype);
    x->to_offset = place(to, rank, stride[1]) * tn_dtype_bytes(dtype);
    for (int i = 0; i < 2; i++)
        o[i] = (struct tn_operand){.dtype = dtype, .rank = rank, .size = box, .stride = stride[i], .whole = box, .origin = zero, .dim = name};
    p.n_loop = make_loops(rank, box, stride[0], stride[1], loop);
    s = ask(b, &p, &x->kernel);
    b->n += !s;
    return s;
}

static void *address(const struct tn_launch *l, uint32_t buffer, uint64_t offset)
{
    return (char *)(buffer == TN_BOX_WORK ? l->workspace : l->buffer[buffer]) + offset;
}

uint64_t tn_boxes_workspace(const struct tn_boxes *b)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < b->n; i++)
        most = b->box[i].kernel.workspace > most ? b->box[i].kernel.workspace : most;
    return most;
}

tn_status tn_boxes_copy(const struct tn_boxes *b, const struct tn_launch *l, uint64_t scratch)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const struct box *x = &b->box[i];
        void *buffer[2] = {address(l, x->from, x->from_offset), address(l, x->to, x->to_offset)};
        struct tn_launch copy = {.struct_size = sizeof copy, .buffer = buffer, .workspace = (char *)l->workspace + scratch, .queue = l->queue};
        tn_status s = x->kernel.launch(x->kernel.state, &copy);

        if (s)
            return s;
    }
    return TN_OK;
}
