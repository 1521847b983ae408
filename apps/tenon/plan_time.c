/* plan_time.c - how long an update and a training take, at a peak that is known or given. See plan.h, plan/estimate.h.
 *
 * A device says its peaks itself, dense, for each type (a GPU does; of a CPU they are measured: tenon bench); the command line
 * may say them for a device that is not here. Without a peak there is nothing to print. */
#include <stdlib.h>
#include "base/status.h"
#include "plan.h"

double plan_amount(const char *text)
{
    static const char unit[] = "kMGTP";
    char *end;
    double x = strtod(text, &end);
    const char *u;

    end += strspn(end, " ");
    if (*end && (u = strchr(unit, *end == 'K' ? 'k' : *end)) != NULL) {
        for (; u >= unit; u--)
            x *= 1000;
        end++;
    }
    end += *end == 'B';
    return *end || !(x > 0) || x > 1e30 ? 0 : x;
}

/* What the command line says, if it says anything. */
static tn_status read_amount(const struct options *o, const char *name, const char *such_as, double *out)
{
    if (!options_given(o, name))
        return TN_OK;
    *out = plan_amount(options_text(o, name));
    return *out > 0 ? TN_OK
                    : tn_error(TN_ERR_CONFIG, "plan: --%s %.60s: expected an amount such as %s", name,
                               options_text(o, name), such_as);
}

tn_status plan_rates_read(const struct options *o, const struct tn_device_info *here, uint32_t dtype, struct plan_rates *out)
{
    static const char device[] = "the device that is here says";
    tn_status s;

    *out = (struct plan_rates){.flops = dtype == TN_F32 ? here->peak_fp32 : here->peak_low,
                               .memory = here->peak_memory,
                               .flops_by = options_given(o, "peak") ? "--peak says" : device,
                               .memory_by = options_given(o, "bandwidth") ? "--bandwidth says" : device,
                               .mfu = options_float(o, "mfu")};
    s = read_amount(o, "peak", "989.5T", &out->flops);
    if (s == TN_OK)
        s = read_amount(o, "bandwidth", "3.35T", &out->memory);
    if (s == TN_OK)
        s = read_amount(o, "tokens", "15T", &out->tokens);
    if (s == TN_OK)
        s = read_amount(o, "parameters", "70G", &out->parameters);
    if (s == TN_OK && out->flops == 0 &&
        (out->mfu > 0 || out->tokens > 0 || out->parameters > 0 || options_given(o, "bandwidth")))
        s = tn_error(TN_ERR_CONFIG, "plan: the device that is here does not say its peak, so there is no time to tell: give --peak, "
                                    "or let tenon bench measure");
    return s;
}

static const char *seconds_text(double s, char out[32])
{
    if (s < 1)
        snprintf(out, 32, "%.3g ms", s * 1e3);
    else if (s < 7200)
        snprintf(out, 32, "%.3g s", s);
    else if (s < 2 * 86400)
        snprintf(out, 32, "%.3g hours", s / 3600);
    else
        snprintf(out, 32, "%.1f days", s / 86400);
    return out;
}

static void print_training(const char *name, double seconds, double mfu)
{
    char text[32];

    printf("%-18s %12s   %.4g s at MFU %.4g", name, seconds_text(seconds, text), seconds, mfu);
}

void plan_print_time(const struct tn_session *s, const struct plan_rates *r, const struct tn_roofline *slowest)
{
    static const char *const dtype[] = {[TN_F32] = "fp32", [TN_BF16] = "bf16", [TN_F16] = "fp16"};
    const struct tn_session_shape *h = tn_session_shape(s);
    double all = r->flops * (double)h->world, n = r->parameters > 0 ? r->parameters : (double)h->n_parameters_no_position;
    double tokens = r->tokens > 0 ? r->tokens
                                  : r->updates * (double)(h->global_batch * h->seq_len);
    char text[32], a[32], b[32];

    if (r->flops == 0)
        return;
    printf("\ntime, without communication and the pauses of a pipeline\n%-18s %12.5g   TFLOP/s of each rank, %s, dense, as %s\n", "peak", r->flops / 1e12,
           h->dtype < sizeof dtype / sizeof *dtype && dtype[h->dtype] ? dtype[h->dtype] : "?", r->flops_by);
    if (r->memory > 0)
        printf("%-18s %12.4g   FLOP/B: a launch with less is bound by memory, %.4g TB/s as %s\n", "ridge", r->flops / r->memory,
               r->memory / 1e12, r->memory_by);
    printf("%-18s %12s   at least, by the roofline: %s bound by computing, %s by memory%s\n", "update",
           seconds_text(slowest->compute + slowest->memory, text), seconds_text(slowest->compute, a),
           seconds_text(slowest->memory, b), h->world > 1 ? "; the slowest rank" : "");
    print_training("training", tn_estimate_6nd(n, tokens, all, 1), 1);
    printf(": 6ND, %.4g parameters, %.4g tokens, %.4g TFLOP/s\n", n, tokens, all / 1e12);
    if (r->mfu > 0) {
        print_training("", tn_estimate_6nd(n, tokens, all, r->mfu), r->mfu);
        printf("\n");
    }
}
