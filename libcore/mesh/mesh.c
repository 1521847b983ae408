/* mesh.c - see mesh.h. Plain arithmetic. */
#include "mesh/mesh.h"

const char *const tn_axis_name[TN_AXES] = {"dp", "ep", "pp", "cp", "tp"};

int tn_axis_find(const char *name)
{
    for (int a = 0; a < TN_AXES; a++)
        if (!strcmp(tn_axis_name[a], name))
            return a;
    return -1;
}

struct tn_mesh tn_mesh_single(void)
{
    return (struct tn_mesh){.size = {1, 1, 1, 1, 1}};
}

int64_t tn_mesh_world(const struct tn_mesh *m)
{
    int64_t n = 1;

    for (int a = 0; a < TN_AXES; a++)
        n *= m->size[a];
    return n;
}

struct tn_mesh tn_mesh_at(const struct tn_mesh *m, int64_t rank)
{
    struct tn_mesh at = *m;

    for (int a = TN_AXES; a-- > 0;) {
        at.coord[a] = rank % m->size[a];
        rank /= m->size[a];
    }
    return at;
}

int64_t tn_mesh_rank(const struct tn_mesh *m)
{
    int64_t rank = 0;

    for (int a = 0; a < TN_AXES; a++)
        rank = rank * m->size[a] + m->coord[a];
    return rank;
}

void tn_mesh_group(const struct tn_mesh *m, int axis, int64_t *ranks)
{
    struct tn_mesh at = *m;

    for (int64_t i = 0; i < m->size[axis]; i++) {
        at.coord[axis] = i;
        ranks[i] = tn_mesh_rank(&at);
    }
}

struct tn_range tn_part(int64_t size, int64_t n, int64_t c)
{
    int64_t each = size / n, more = size % n;

    return (struct tn_range){c * each + (c < more ? c : more), each + (c < more)};
}
