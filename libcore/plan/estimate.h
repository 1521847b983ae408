/* estimate.h - how long training would take at a given rate, by two rules that everybody knows.
 *
 * Roofline: a launch takes as long as its FLOPs at the peak of products or its bytes at the rate of memory, whichever is
 * longer; the two meet at rate/memory FLOPs a byte. No launch is faster, so an update that takes twice that has something to
 * be found. 6ND: a parameter costs six FLOPs a token, two forward and four backward; what of the peak that is comes out as
 * MFU. Neither counts communication, or the pauses of a pipeline. Rates are the caller's: none is a constant here. */
#ifndef TN_PLAN_ESTIMATE_H
#define TN_PLAN_ESTIMATE_H
#include "plan/plan.h"

/* Seconds of one update of this rank, in launches bound by computing and in those bound by memory. */
struct tn_roofline {
    double compute, memory;
};

/* rate: FLOP/s; memory: byte/s, 0: without end. */
struct tn_roofline tn_plan_roofline(const struct tn_plan *plan, double rate, double memory);
/* Of one launch. */
struct tn_roofline tn_roofline(double flops, double bytes, double rate, double memory);
/* Seconds: 6·parameters·tokens at share mfu of rate, FLOP/s of all devices together. */
double tn_estimate_6nd(double parameters, double tokens, double rate, double mfu);
#endif
