/* cut.h - which unit of the model is on which stage.
 *
 * Units (embed, block 0, ..., head) stay whole and in order. Either the user deals the blocks, or the stages are
 * cut so that the dearest is as cheap as can be, by the FLOPs that the graph says of each unit. */
#ifndef PP_CUT_H
#define PP_CUT_H
#include <tenon/pass.h>

struct pp_unit {
    const char *name;                            /* interned */
    double cost;                                 /* FLOPs of its forward */
    uint32_t stage;
};

struct pp_cut {
    uint32_t stages, units;
    struct pp_unit *unit;                        /* [units], in order; the caller's to free */
};

struct pp_cut pp_cut_units(struct tn_graph *g, const char *axis, uint32_t stages_per_rank);
struct pp_unit *pp_find(const struct pp_cut *c, const char *name);   /* NULL: no unit of the forward */
#endif
