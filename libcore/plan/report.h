/* report.h - what a plan costs one rank: for `tenon plan` and for the share of peak in `tenon train`. */
#ifndef TN_PLAN_REPORT_H
#define TN_PLAN_REPORT_H
#include "plan/plan.h"

struct tn_plan_report {
    uint64_t parameters, states, caches, inputs; /* bytes */
    uint64_t gradients; /* bytes of the arena in which gradients lie after the backward, until they are
                           reduced or used */
    uint64_t arena, workspace, uniforms;
    uint64_t live_peak;                          /* the arena can be no smaller */
    uint64_t total;                              /* all that is allocated on the device */
    double flops_forward, flops_backward, flops_update;              /* of one update: all micro-batches */
    double bytes_moved;                          /* of one update, by launches that read and write all operands once */
    uint64_t launches;                           /* of one update */
    uint32_t nodes, rows;
};

void tn_plan_sum(const struct tn_plan *plan, struct tn_plan_report *out);

/* One row for people: what, where, by whom. Text borrowed from the plan. */
struct tn_plan_launch {
    uint32_t node, list, merged;
    const char *op, *role, *unit, *kernel;       /* kernel: the plugin's name */
    uint32_t micro;                              /* launches in an update */
    double flops, bytes;                         /* of one launch */
    uint64_t workspace;
    uint32_t n_in, n_out;
    const struct tn_ref *buffer;                 /* inputs, then outputs: see plan->storage */
    const struct tn_value *const *value;
};

/* Bytes of the arena that are needed while each row runs, [n_row]; the most of them is live_peak. Parameters, states and
 * inputs are always there. */
void tn_plan_timeline(const struct tn_plan *plan, uint64_t *live);

void tn_plan_launch_at(const struct tn_plan *plan, uint32_t row, struct tn_plan_launch *out);
const char *tn_list_name(uint32_t list);
#endif
