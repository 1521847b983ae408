/* checkpoint_parts.c - every rank writes what it owns; see checkpoint.h and part.h.
 *
 * Of those that hold the same part of a tensor the first one owns it. Who owns what follows from layouts and
 * mesh, so every rank knows the numbers of all files without asking. Nothing is sent but names, sizes and
 * checksums. */
#include "train/checkpoint_own.h"

#include "base/file.h"
#include "ckpt/safetensors.h"
#include "train/part.h"
#include "train/whole.h"

#include <inttypes.h>
#include <stdlib.h>

void saving_name(int slots, uint32_t number, uint32_t of, char *out)
{
    snprintf(out, SAVING_NAME, "%s-%05u-of-%05u.safetensors", slots ? "optimizer" : "model", number, of);
}

/* --- who has what */

static int owned(struct saving *x, uint32_t i, uint32_t rank, struct tn_local *out)
{
    const struct tn_value *v = tn_session_tensor(x->session, i)->value;
    struct tn_mesh there = tn_mesh_at(&tn_session_shape(x->session)->mesh, rank);

    tn_value_local(v, &there, x->arena, out);
    return tn_whole_owns(v, &there) && out->count > 0;
}

static int has_any(struct saving *x, int slots, uint32_t rank)
{
    struct tn_local l;

    for (uint32_t i = 0; i < tn_session_tensors(x->session); i++)
        if (!tn_session_tensor(x->session, i)->is_state == !slots && owned(x, i, rank, &l))
            return 1;
    return rank == 0; /* a file of nothing, rather than none */
}

/* Numbers of the ranks' files, from 1; 0: a rank that has none. */
static const uint32_t *file_numbers(struct saving *x, int slots)
{
    uint32_t world = (uint32_t)tn_session_shape(x->session)->world;

    if (x->number[slots])
        return x->number[slots];
    x->number[slots] = tn_alloc_array(x->arena, world, sizeof *x->number[slots]);
    for (uint32_t r = 0; r < world; r++)
        if (has_any(x, slots, r))
            x->number[slots][r] = ++x->files[slots];
    return x->number[slots];
}

/* The name of a rank's file; 0: it has none. */
static int name_of(struct saving *x, int slots, uint32_t rank, char *out)
{
    uint32_t number = file_numbers(x, slots)[rank];

    saving_name(slots, number, x->files[slots], out);
    return number != 0;
}

int saving_home(struct saving *x, uint32_t i, char *out)
{
    const struct tn_session_tensor *t = tn_session_tensor(x->session, i);
    struct tn_local l;
    uint32_t rank = 0;

    while (rank + 1 < tn_session_shape(x->session)->world && !owned(x, i, rank, &l))
        rank++;
    name_of(x, t->is_state != 0, rank, out);
    return owned(x, i, rank, &l) && tn_part_is_whole(t->value, &l);
}

/* --- writing */

static tn_status declare_one(struct saving *x, uint32_t i, const struct tn_local *l,
                             struct tn_safetensors_writer *w)
{
    const struct tn_session_tensor *t = tn_session_tensor(x->session, i);
    char *text;
    tn_status status;

    if (tn_part_is_whole(t->value, l))
        return tn_safetensors_declare(w, t->name, t->dtype, t->rank, t->shape);
    if (!(text = tn_part_text(t->value, l, t->rank, t->shape)))
        return TN_ERR_MEMORY;
    status = tn_safetensors_add_meta(w, tn_text(x->arena, TN_CHECKPOINT_PART "%s", t->name), text);
    free(text);
    return status < 0 ? status : tn_safetensors_declare(w, t->name, t->dtype, 1, &l->count);
}

static tn_status write_all(struct saving *x, int slots, uint32_t rank, struct tn_safetensors_writer *w)
{
    tn_status status = tn_safetensors_add_meta(w, "format", "pt");
    struct tn_local l;

    for (uint32_t i = 0; i < tn_session_tensors(x->session) && status == TN_OK; i++)
        if (!tn_session_tensor(x->session, i)->is_state == !slots && owned(x, i, rank, &l))
            status = declare_one(x, i, &l, w);
    if (status == TN_OK)
        status = tn_safetensors_begin(w);
    for (uint32_t i = 0; i < tn_session_tensors(x->session) && status == TN_OK; i++) {
        const struct tn_session_tensor *t = tn_session_tensor(x->session, i);
        if (!t->is_state != !slots || !owned(x, i, rank, &l))
            continue;
        status = tn_session_get_held(x->session, i, x->buffer);
        if (status == TN_OK)
            status = tn_safetensors_write(w, x->buffer, t->held);
    }
    return status;
}

/* *report gets a line "name bytes hash". */
static tn_status write_file(struct saving *x, int slots, const char *folder, const char **report)
{
    uint32_t rank = (uint32_t)tn_session_shape(x->session)->rank;
    struct tn_safetensors_writer *w;
    char name[SAVING_NAME];
    uint64_t bytes, hash;
    tn_status status;

    if (!name_of(x, slots, rank, name))
        return TN_OK;
    if ((status = tn_safetensors_create(tn_path_join(x->arena, folder, name), &w)) < 0)
        return status;
    if ((status = write_all(x, slots, rank, w)) < 0) {
        tn_safetensors_abort(w);
        return status;
    }
    status = tn_safetensors_commit(w, &bytes, &hash);
    *report = tn_text(x->arena, "%s%s %" PRIu64 " %016" PRIx64 "\n", *report, name, bytes, hash);
    return status;
}

/* Rank 0 believes what the others say of their files; that they are there is seen at once. */
static tn_status take_report(struct saving *x, uint32_t rank, const char *report)
{
    char name[SAVING_NAME];
    uint64_t bytes, hash;
    int n;

    for (; sscanf(report, "%63s %" SCNu64 " %" SCNx64 "\n%n", name, &bytes, &hash, &n) == 3; report += n) {
        if (!tn_path_exists(tn_save_path(x->save, name)))
            return tn_error(
                TN_ERR_IO,
                "%s, which rank %u wrote, is not where rank 0 looks: checkpoint.dir is not the same "
                "folder on both; set checkpoint.gather = yes",
                tn_save_path(x->save, name), rank);
        tn_save_add(x->save, name, bytes, hash);
    }
    return TN_OK;
}

tn_status saving_parts(struct saving *x)
{
    struct tn_world *w = tn_session_world(x->session);
    const char *report = "", **reports, *folder;
    tn_status status = tn_world_spread(
        w, "the checkpoint's folder", x->save ? tn_path_name(tn_save_folder(x->save)) : "", x->arena, &folder);

    if (status == TN_OK) {
        folder = tn_path_join(x->arena, x->run, folder);
        status = write_file(x, 0, folder, &report);
    }
    if (status == TN_OK)
        status = write_file(x, 1, folder, &report);
    if ((status = tn_world_settle(w, status)) < 0)
        return status;
    status = tn_world_collect(w, "its files", report, x->arena, &reports);
    for (uint32_t r = 0; x->save && r < tn_session_shape(x->session)->world && status == TN_OK; r++)
        status = take_report(x, r, reports[r]);
    return status;
}
