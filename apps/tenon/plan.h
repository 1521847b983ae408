/* plan.h - what the files of tenon plan share.
 *
 *   cmd_plan.c     options, the graph between the passes, one rank
 *   plan_text.c    words and numbers
 *   plan_ranks.c   many ranks: what each holds, sends and computes; who is in which group
 *   plan_schedule.c  a pipeline: its stages, who does what when, the pauses
 *   plan_time.c    how long it takes at a peak that is known or given */
#ifndef TENON_PLAN_H
#define TENON_PLAN_H
#include <tenon/device.h>
#include "base/arena.h"
#include "options.h"
#include "plan/estimate.h"
#include "plan/report.h"
#include "train/session.h"

/* "12.3 MB"; sizes are powers of ten, as in the keys of memory of most tools. */
const char *plan_size(double bytes, char out[32]);
void plan_print_model(const struct tn_session *s);
void plan_print_memory(const struct tn_plan_report *r);
void plan_print_work(const struct tn_session *s, const struct tn_plan_report *r, double all_ranks);
void plan_print_launches(const struct tn_plan *plan, const struct tn_plan_report *r);
void plan_print_kernels(const struct tn_plan *plan);

/* "80G", "512 MB", "989.5T": powers of ten, as sizes are printed here. 0: no such amount. */
double plan_amount(const char *text);

/* What the device says of its peaks, unless the command line knows better; all 0 if nobody does. */
struct plan_rates {
    double flops, memory;                        /* FLOP/s in the type that is computed in, dense; byte/s */
    const char *flops_by, *memory_by;            /* who says so, for people */
    double mfu, tokens, parameters;              /* as given; 0: not given */
    double updates;                              /* of the whole training, by the configuration */
};
tn_status plan_rates_read(const struct options *o, const struct tn_device_info *here, uint32_t dtype, struct plan_rates *out);
/* slowest: the roofline's update of the rank that takes longest. Prints nothing where the peak is not known. */
void plan_print_time(const struct tn_session *s, const struct plan_rates *r, const struct tn_roofline *slowest);

/* What the ranks of a mesh come to. */
struct plan_total {
    double most, all;                            /* bytes of the rank that needs the most, and of all together */
    double state;                                /* of all: parameters, gradients and the optimizer's state */
    struct tn_roofline slowest;
};

/* The schedule of the session's pipeline; without one, of its only rank. */
tn_status plan_schedule(const struct tn_session *s);
/* All ranks of the session's mesh. The session is planned for another rank afterwards. */
tn_status plan_ranks(struct tn_session *s, const struct plan_rates *rates, struct plan_total *out);
#endif
