/* timeline.h - memory launch by launch: of tenon plan and tenon bench. */
#ifndef TENON_TIMELINE_H
#define TENON_TIMELINE_H
#include "plan/report.h"

/* resident: what was measured after each row of the plan, or NULL. */
void timeline_print(const struct tn_plan *plan, const uint64_t *resident);
#endif
