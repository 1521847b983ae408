/* test_precision.c - training in bf16 and fp16: what is low and what is not, the scale of the loss, and that the
 * curve is that of fp32. */
#include "session_kit.h"

/* --- the curve */

#define STEPS 200

/* Mean loss of the last 20 updates. */
static double learned(const char *dtype, const char *kernels)
{
    struct session_test t;
    double sum = 0;

    SESSION_BEGIN(&t, TN_SESSION_TRAIN, dtype, kernels);
    for (uint64_t step = 0; step < STEPS; step++) {
        struct tn_session_result r = session_update(&t, step, 0.01 * (1 - (double)step / STEPS));

        ck_assert_msg(!r.skipped, "%s, step %d: loss %g, norm %g", dtype, (int)step, r.loss, r.gnorm);
        if (step >= STEPS - 20)
            sum += r.loss / 20;
    }
    session_end(&t);
    return sum;
}

START_TEST(low_dtypes_learn_what_fp32_learns)
{
    double full = learned("backend.dtype=fp32", "backend.kernels=cpu,ref");
    static const char *const low[] = {"backend.dtype=bf16", "backend.dtype=fp16"};

    ck_assert_msg(full < 1.0, "fp32 itself learned only to %g", full);
    for (int i = 0; i < 2; i++) {
        double loss = learned(low[i], "backend.kernels=cpu,ref");
        printf("%s %g %g\n", low[i], loss, full);

        ck_assert_msg(fabs(loss - full) < 0.02 * full, "%s: loss %g, in fp32 %g", low[i], loss, full);
    }
}
END_TEST

SESSION_MAIN("precision", 120, low_dtypes_learn_what_fp32_learns)
