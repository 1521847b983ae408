/* replicas.c - tensors of which several ranks hold the same must be the same to the bit: see session.h.
 *
 * Along an axis on which a tensor is replicated, all ranks compute the same update from the same gradient.
 * One that differs missed a reduction, read another learning rate, or has a broken memory; the loss shows it
 * late or never. So do the stages of a pipeline that have copies of a tied parameter. A checksum of each tensor
 * goes round each axis, no more. */
#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>
#include "base/status.h"
#include "train/session_own.h"
#include "train/whole.h"

/* 0 for a tensor that this rank does not hold. */
static tn_status checksums(struct tn_session *s, uint64_t *sum)
{
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < s->n_tensor && !status; i++) {
        const struct tn_session_tensor *t = &s->tensor[i];
        void *held = t->here ? malloc(t->held + 1) : NULL;

        sum[i] = 0;
        if (!held)
            continue;
        status = tn_session_get_held(s, i, held);
        sum[i] = status ? 0 : XXH3_64bits(held, t->held);
        free(held);
    }
    return status;
}

/* Who holds tensor i of what came along the axis, from rank r on; -1: nobody. */
static int64_t holder(const uint64_t *all, uint32_t n, uint32_t i, int64_t r, int64_t ranks)
{
    while (r < ranks && !all[r * n + i])
        r++;
    return r < ranks ? r : -1;
}

/* Are those that hold it on this axis to hold the same? All, or the stages that have a copy of it. */
static int is_replica(const struct tn_session *s, uint32_t i, int axis)
{
    tn_layout l = s->tensor[i].value->layout[axis];

    return l == TN_R || tn_layout_get(s->tensor[i].value->graph, l)->kind == TN_LAYOUT_STAGE;
}

/* Compares what came along the axis: all[r * n + i]. */
static tn_status compare(const struct tn_session *s, int axis, const uint64_t *all, const int64_t *ranks)
{
    uint32_t n = s->n_tensor, differ = 0, first = 0;
    int64_t whose = 0, other = 0, size = s->mesh.size[axis];

    for (uint32_t i = 0; i < n; i++) {
        int64_t one = is_replica(s, i, axis) ? holder(all, n, i, 0, size) : -1, r = one;

        while (r >= 0 && (r = holder(all, n, i, r + 1, size)) >= 0 && all[r * n + i] == all[one * n + i])
            ;
        if (r >= 0 && !differ++)
            first = i, whose = one, other = r;
    }
    if (!differ)
        return TN_OK;
    return tn_error(TN_ERR,
                    "replicas differ: of %u tensors %u are not the same on all ranks of %s; the first is %s, "
                    "with checksum %016" PRIx64 " on rank %lld and %016" PRIx64 " on rank %lld",
                    n, differ, tn_axis_name[axis], s->tensor[first].name, all[whose * n + first],
                    (long long)ranks[whose], all[other * n + first], (long long)ranks[other]);
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
