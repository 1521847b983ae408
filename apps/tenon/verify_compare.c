/* verify_compare.c - the differences, against what rounding may do: see verify.h.
 *
 * Sums are added in another order in parallel, so numbers agree to rounding only. What is allowed:
 *
 *     loss, norm    tolerance x the number
 *     gradient      tolerance x (the tensor's largest + a tenth of the largest of all tensors)
 *     parameter     tolerance x the tensor's largest, and where the optimizer divides by the gradient's size,
 * in each step lr x min(1, tolerance x the largest gradient / this gradient): there an element whose gradient
 * is rounding and nothing else moves by as much as any other
 *
 * A reduction that is missing, done twice or over other ranks is wrong by thousands of tolerances. */
#include <math.h>
#include "verify.h"

static double largest(const float *x, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

/* Keeps the element that is furthest out; a number that is missing or not finite is out by all measures. */
static void take(struct verify_row *row, double alone, double parallel, double allowed, int64_t element)
{
    double difference = fabs(alone - parallel), times = difference / (allowed > 0 ? allowed : 1e-300);

    if (difference == 0)
        return;
    if (!isfinite(difference))
        difference = times = INFINITY;
    row->difference = fmax(row->difference, difference);
    if (times > row->times)
        row->times = times, row->alone = alone, row->parallel = parallel, row->element = element;
}

static void scalar(struct verify_row *row, const char *what, const char *name, double alone, double parallel,
                   double tolerance)
{
    *row = (struct verify_row){
        .what = what, .name = name, .alone = alone, .parallel = parallel, .most = fabs(alone), .element = -1};
    take(row, alone, parallel, tolerance * fabs(alone), -1);
}

static void gradient(struct verify_row *row, const struct verify_result *a, const struct verify_result *p,
                     uint32_t i, double most, double tolerance)
{
    *row =
        (struct verify_row){.what = "gradient", .name = a->name[i], .most = largest(a->grad[i], a->count[i])};
    for (int64_t k = 0; k < a->count[i]; k++)
        take(row, (double)a->grad[i][k], (double)p->grad[i][k], tolerance * (row->most + 0.1 * most), k);
}

static void parameter(struct verify_row *row, const struct verify_result *a, const struct verify_result *p,
                      uint32_t i, double most, double tolerance, double reach)
{
    *row = (struct verify_row){
        .what = "parameter", .name = a->name[i], .most = largest(a->after[i], a->count[i])};
    for (int64_t k = 0; k < a->count[i]; k++) {
        double g = fabs((double)a->grad[i][k]), moved = reach * fmin(1, tolerance * most / (g + 1e-300));

        take(row, (double)a->after[i][k], (double)p->after[i][k], tolerance * row->most + moved, k);
    }
}

struct verify_row *verify_compare(const struct verify_result *a, const struct verify_result *p, int64_t steps,
                                  double tolerance, int adaptive, uint32_t *n)
{
    struct verify_row *row = tn_alloc_array(a->arena, 2 * (size_t)steps + 2 * a->n, sizeof *row);
    double most = 0;

    *n = 0;
    for (uint32_t i = 0; i < a->n; i++)
        most = fmax(most, largest(a->grad[i], a->count[i]));
    for (int64_t i = 0; i < steps; i++) {
        const char *name = tn_text(a->arena, "step %lld", (long long)i + 1);

        scalar(&row[(*n)++], "loss", name, a->loss[i], p->loss[i], tolerance);
        scalar(&row[(*n)++], "norm", name, a->gnorm[i], p->gnorm[i], tolerance);
    }
    for (uint32_t i = 0; i < a->n; i++)
        gradient(&row[(*n)++], a, p, i, most, tolerance);
    for (uint32_t i = 0; i < a->n; i++)
        parameter(&row[(*n)++], a, p, i, most, tolerance, adaptive ? a->lr * (double)steps : 0);
    return row;
}
