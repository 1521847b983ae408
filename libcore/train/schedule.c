/* schedule.c - see schedule.h. */
#include "train/schedule.h"

#include <math.h>

static const char *const kinds[] = {
    [TN_SCHEDULE_CONSTANT] = "constant",
    [TN_SCHEDULE_COSINE] = "cosine",
    [TN_SCHEDULE_LINEAR] = "linear",
    [TN_SCHEDULE_WSD] = "wsd",
};

void tn_schedule_read(const struct tn_config *c, struct tn_schedule *out)
{
    *out = (struct tn_schedule){.lr = tn_config_float(c, "optimizer.lr"),
                                .min_lr = tn_config_float(c, "schedule.min_lr"),
                                .warmup = tn_config_int(c, "schedule.warmup")};
    for (uint32_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (tn_config_is(c, "schedule.name", kinds[k]))
            out->kind = k;
    out->steps = tn_config_int(c, tn_config_text(c, "schedule.steps") ? "schedule.steps" : "train.steps");
    out->decay = tn_config_text(c, "schedule.decay") ? tn_config_int(c, "schedule.decay") : out->steps / 5;
}

void tn_schedule_check(struct tn_config *c)
{
    struct tn_schedule s;

    tn_schedule_read(c, &s);
    if (s.kind != TN_SCHEDULE_CONSTANT && s.min_lr > s.lr)
        tn_config_problem(c, "schedule.min_lr", "more than optimizer.lr = %g, from which the rate is to fall",
                          s.lr);
    if (s.kind == TN_SCHEDULE_WSD && s.decay > s.steps)
        tn_config_problem(c, "schedule.decay", "longer than the whole schedule of %lld updates",
                          (long long)s.steps);
}

/* From lr down to min_lr; done from 0 to 1. */
static double fall(const struct tn_schedule *s, double done)
{
    double left = s->kind == TN_SCHEDULE_COSINE ? 0.5 * (1 + cos(M_PI * done)) : 1 - done;

    return s->min_lr + left * (s->lr - s->min_lr);
}

double tn_schedule_lr(const struct tn_schedule *s, int64_t i)
{
    int64_t start = s->warmup;

    if (i < s->warmup)
        return s->lr * (double)(i + 1) / (double)(s->warmup + 1);
    if (s->kind == TN_SCHEDULE_CONSTANT)
        return s->lr;
    if (i >= s->steps)
        return s->min_lr;
    if (s->kind == TN_SCHEDULE_WSD && start < s->steps - s->decay)
        start = s->steps - s->decay;
    return i < start ? s->lr : fall(s, (double)(i - start) / (double)(s->steps - start));
}
