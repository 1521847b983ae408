/* plan.h - what the files of tenon plan share.
 *
 *   cmd_plan.c     options, the graph between the passes, one rank
 *   plan_text.c    words and numbers
 *   plan_ranks.c   many ranks: what each holds, sends and computes; who is in which group
 *   plan_schedule.c  a pipeline: its stages, who does what when, the pauses */
#ifndef TENON_PLAN_H
#define TENON_PLAN_H
#include "base/arena.h"
#include "options.h"
#include "plan/report.h"
#include "train/session.h"

/* "12.3 MB"; sizes are powers of ten, as in the keys of memory of most tools. */
const char *plan_size(double bytes, char out[32]);
void plan_print_model(const struct tn_session *s);
void plan_print_memory(const struct tn_plan_report *r);
void plan_print_work(const struct tn_session *s, const struct tn_plan_report *r, double all_ranks);
void plan_print_launches(const struct tn_plan *plan, const struct tn_plan_report *r);
void plan_print_kernels(const struct tn_plan *plan);

/* The schedule of the session's pipeline; without one, of its only rank. */
tn_status plan_schedule(const struct tn_session *s);
/* All ranks of the session's mesh. The session is planned for another rank afterwards. most: bytes of the
 * rank that needs the most; all: of all of them. */
tn_status plan_ranks(struct tn_session *s, double *most, double *all);
#endif
