/* whole.c - see whole.h. */
#include "train/whole.h"
#include <stdlib.h>
#include "base/arena.h"

/* Copies between the part and the whole, along the last dim in runs. */
static void transfer(const struct tn_value *v, uint64_t width, const struct tn_local *l, char *held, char *whole, int out)
{
    uint32_t last = v->rank - 1;
    int64_t row = v->rank && !l->index[last] ? l->size[last] : 1, first = l->flat ? l->flat_start : 0;

    for (int64_t i = 0, n; i < l->count; i += n) {
        int64_t at = 0, scale = 1, k = first + i;

        n = row - k % row < l->count - i ? row - k % row : l->count - i;
        for (uint32_t d = v->rank; d-- > 0;) {
            at += scale * (l->index[d] ? l->index[d][k % l->size[d]] : l->origin[d] + k % l->size[d]);
            scale *= v->size[d];
            k /= l->size[d];
        }
        if (out)
            memcpy(whole + (uint64_t)at * width, held + (uint64_t)i * width, (uint64_t)n * width);
        else
            memcpy(held + (uint64_t)i * width, whole + (uint64_t)at * width, (uint64_t)n * width);
    }
}

void tn_whole_place(const struct tn_value *v, uint64_t width, const struct tn_local *l, const void *held, void *whole)
{
    transfer(v, width, l, (char *)(uintptr_t)held, whole, 1);
}

void tn_whole_cut(const struct tn_world *w, const struct tn_value *v, const void *whole, void *held)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_local l;

    tn_value_local(v, &w->mesh, arena, &l);
    transfer(v, tn_dtype_bytes(v->dtype), &l, held, (char *)(uintptr_t)whole, 0);
    tn_arena_free(arena);
}

int tn_whole_owns(const struct tn_value *v, const struct tn_mesh *m)
{
    for (int a = 0; a < TN_AXES; a++) {
        const struct tn_layout_info *l = tn_layout_get(v->graph, v->layout[a]);

        if (m->size[a] == 1)
            continue;
        if (l->kind == TN_LAYOUT_STAGE ? m->coord[a] != l->rot % m->size[a] : l->kind == TN_R && m->coord[a] != 0)
            return 0;
    }
    return 1;
}

tn_status tn_whole_transact(struct tn_world *w, struct tn_comm *c, const struct tn_transfer *t,
                            const char *what, int64_t peer)
{
    struct tn_request *request;
    tn_status s;

    tn_world_waits(w, what, 0, peer);
    s = w->comm_api->start(c, t, 1, NULL, &request);
    if (!s)
        s = w->comm_api->wait(request, w->timeout);
    if (s)
        return tn_world_fail(w, NULL, what, 0, peer);
    tn_world_waits(w, NULL, 0, -1);
    return TN_OK;
}

static tn_status pass(struct tn_world *w, uint32_t op, int64_t peer, const struct tn_value *v, void *data, int64_t count)
{
    struct tn_transfer t = {.op = op, .dtype = v->dtype, .peer = (uint32_t)peer, .from = data, .to = data, .count = (uint64_t)count};

    return tn_whole_transact(w, w->comm, &t, "gathering tensors on rank 0", peer);
}

static tn_status receive(struct tn_world *w, const struct tn_value *v, int64_t rank, char *whole)
{
    struct tn_mesh there = tn_mesh_at(&w->mesh, rank);
    struct tn_arena *arena = tn_arena_new();
    struct tn_local l;
    char *part = NULL;
    tn_status s = TN_OK;

    tn_value_local(v, &there, arena, &l);
    if (tn_whole_owns(v, &there) && l.count) {
        part = malloc((size_t)l.count * tn_dtype_bytes(v->dtype));
        s = part ? pass(w, TN_RECV, rank, v, part, l.count) : tn_error(TN_ERR_MEMORY, "no memory for the part of %s that rank %lld holds", v->name, (long long)rank);
    }
    if (part && !s)
        tn_whole_place(v, tn_dtype_bytes(v->dtype), &l, part, whole);
    free(part);
    tn_arena_free(arena);
    return s;
}

tn_status tn_whole_gather(struct tn_world *w, const struct tn_value *v, const void *held, void *whole)
{
    struct tn_arena *arena = tn_arena_new();
    int64_t rank = tn_mesh_rank(&w->mesh), world = tn_mesh_world(&w->mesh);
    struct tn_local l;
    tn_status s = TN_OK;

    tn_value_local(v, &w->mesh, arena, &l);
    if (rank && tn_whole_owns(v, &w->mesh) && l.count)
        s = pass(w, TN_SEND, 0, v, (void *)(uintptr_t)held, l.count);
    if (!rank && tn_whole_owns(v, &w->mesh))
        tn_whole_place(v, tn_dtype_bytes(v->dtype), &l, held, whole);
    for (int64_t r = 1; r < world && !rank && !s; r++)
        s = receive(w, v, r, whole);
    tn_arena_free(arena);
    return s;
}

tn_status tn_whole_any(struct tn_world *w, int here, int *anywhere)
{
    int32_t flag = here != 0;
    struct tn_transfer t = {.op = TN_ALL_REDUCE, .dtype = TN_I32, .reduce = TN_MAX, .from = &flag, .to = &flag, .count = 1};
    tn_status s = w->size > 1 ? tn_whole_transact(w, w->comm, &t, "agreeing on whether to go on", -1) : TN_OK;

    *anywhere = flag;
    return s;
}

tn_status tn_whole_most(struct tn_world *w, double *x, uint32_t n)
{
    struct tn_transfer t = {
        .op = TN_ALL_REDUCE, .dtype = TN_F64, .reduce = TN_MAX, .from = x, .to = x, .count = n};

    return w->size > 1 ? tn_whole_transact(w, w->comm, &t, "comparing times of all ranks", -1) : TN_OK;
}
