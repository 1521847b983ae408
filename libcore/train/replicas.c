/* replicas.c - tensors of which several ranks hold the same must be the same to the bit: see session.h.
 *
 * Along an axis on which a tensor is replicated, all ranks compute the same update from the same gradient.
 * One that differs missed a reduction, read another learning rate, or has a broken memory; the loss shows it
 * late or never. A checksum of each tensor goes round each axis, no more. */
#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>
#include "base/status.h"
#include "train/session_own.h"
#include "train/whole.h"

static int is_here(const struct tn_value *v, const struct tn_mesh *m)
{
    for (int a = 0; a < TN_AXES; a++) {
        const struct tn_layout_info *l = tn_layout_get(v->graph, v->layout[a]);

        if (m->size[a] > 1 && l->kind == TN_LAYOUT_STAGE && m->coord[a] != l->rot % m->size[a])
            return 0;
    }
    return 1;
}

/* 0 for a tensor that this rank does not hold. */
static tn_status checksums(struct tn_session *s, uint64_t *sum)
{
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < s->n_tensor && !status; i++) {
        const struct tn_session_tensor *t = &s->tensor[i];
        void *held = is_here(t->value, &s->mesh) ? malloc(t->held + 1) : NULL;

        sum[i] = 0;
        if (!held)
            continue;
        status = tn_session_get_held(s, i, held);
        sum[i] = status ? 0 : XXH3_64bits(held, t->held);
        free(held);
    }
    return status;
}

/* Compares what came along the axis: all[r * n + i]. */
static tn_status compare(const struct tn_session *s, int axis, const uint64_t *all, const int64_t *ranks)
{
    uint32_t n = s->n_tensor, differ = 0, first = 0;
    int64_t whose = 0;

    for (uint32_t i = 0; i < n; i++)
        for (int64_t r = 1; r < s->mesh.size[axis]; r++) {
            if (s->tensor[i].value->layout[axis] != TN_R || all[r * n + i] == all[i])
                continue;
            if (!differ++)
                first = i, whose = r;
            break;
        }
    if (!differ)
        return TN_OK;
    return tn_error(TN_ERR,
                    "replicas differ: of %u tensors %u are not the same on all ranks of %s; the first is %s, "
                    "with checksum %016" PRIx64 " on rank %lld and %016" PRIx64 " on rank %lld",
                    n, differ, tn_axis_name[axis], s->tensor[first].name, all[first], (long long)ranks[0],
                    all[whose * n + first], (long long)ranks[whose]);
}

static tn_status along(struct tn_session *s, int axis, const uint64_t *sum)
{
    struct tn_arena *a = tn_arena_new();
    uint64_t *all = tn_alloc_array(a, (size_t)s->mesh.size[axis] * s->n_tensor, sizeof *all);
    int64_t *ranks = tn_alloc_array(a, (size_t)s->mesh.size[axis], sizeof *ranks);
    struct tn_transfer t = {
        .op = TN_ALL_GATHER, .dtype = TN_I64, .from = sum, .to = all, .count = s->n_tensor};
    tn_status status =
        tn_whole_transact(s->engine.world, s->engine.world->group[axis], &t, "comparing replicas", -1);

    tn_mesh_group(&s->mesh, axis, ranks);
    if (!status)
        status = compare(s, axis, all, ranks);
    tn_arena_free(a);
    return status;
}

tn_status tn_session_replicas(struct tn_session *s)
{
    uint64_t *sum;
    tn_status status;

    if (s->shape.world == 1)
        return TN_OK;
    sum = malloc((s->n_tensor + 1) * sizeof *sum);
    status = sum ? checksums(s, sum)
                 : tn_error(TN_ERR_MEMORY, "no memory for the checksums of %u tensors", s->n_tensor);
    for (int a = 0; a < TN_AXES && !status; a++)
        if (s->mesh.size[a] > 1)
            status = along(s, a, sum);
    free(sum);
    return status;
}
