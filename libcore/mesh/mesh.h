/* mesh.h - the ranks of a run as a grid with named axes.
 *
 * rank = (((d·EP + e)·PP + p)·CP + c)·TP + t: tp is innermost, so neighbours in tp are neighbours in the machine.
 * The mesh knows sizes and coordinates; what an axis means is the business of the pass that owns it. */
#ifndef TENON_MESH_H
#define TENON_MESH_H
#include <tenon/abi.h>

#define TN_AXES 5
extern const char *const tn_axis_name[TN_AXES];  /* dp ep pp cp tp, outer to inner */

struct tn_mesh {
    int64_t size[TN_AXES];
    int64_t coord[TN_AXES];                      /* of this rank */
};

/* Number of an axis, -1 if there is none of that name. */
int tn_axis_find(const char *name);
/* All sizes 1. */
struct tn_mesh tn_mesh_single(void);
int64_t tn_mesh_world(const struct tn_mesh *m);
/* The same sizes, seen by another rank. */
struct tn_mesh tn_mesh_at(const struct tn_mesh *m, int64_t rank);
int64_t tn_mesh_rank(const struct tn_mesh *m);
/* Ranks that differ from this one only along axis, in order; ranks has room for size[axis]. */
void tn_mesh_group(const struct tn_mesh *m, int axis, int64_t *ranks);

/* Part c of n, when size elements are cut as evenly as can be: the first size % n parts have one more. */
struct tn_range {
    int64_t start, count;
};
struct tn_range tn_part(int64_t size, int64_t n, int64_t c);
#endif
