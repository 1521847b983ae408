/* estimate.c - see estimate.h. */
#include "plan/estimate.h"
#include "plan/report.h"

struct tn_roofline tn_roofline(double flops, double bytes, double rate, double memory)
{
    double compute = flops / rate, moved = memory > 0 ? bytes / memory : 0;

    return compute >= moved ? (struct tn_roofline){.compute = compute} : (struct tn_roofline){.memory = moved};
}

struct tn_roofline tn_plan_roofline(const struct tn_plan *plan, double rate, double memory)
{
    struct tn_roofline sum = {0};
    struct tn_plan_launch l;

    for (uint32_t i = 0; i < plan->n_row; i++) {
        if (plan->row[i].kernel[0] < 0 && plan->row[i].kernel[1] < 0)
            continue;
        tn_plan_launch_at(plan, i, &l);
        struct tn_roofline one = tn_roofline(l.flops, l.bytes, rate, memory);
        sum.compute += l.micro * one.compute;
        sum.memory += l.micro * one.memory;
    }
    return sum;
}

double tn_estimate_6nd(double parameters, double tokens, double rate, double mfu)
{
    return 6 * parameters * tokens / (rate * mfu);
}
