/* measure_feed.c - updates on random tokens, and the clock that measures them.
 *
 * Tokens are drawn anew for each update, so that nothing profits from seeing the same ones again. */
#include <stdlib.h>
#include <time.h>
#include "base/rng.h"
#include "base/status.h"
#include "train/measure_own.h"
#include "train/trace.h"

#define STREAM 0x6d656173u /* of the generator: no parameter's */

double tn_measure_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

double tn_measure_median(const double *x, uint32_t n)
{
    struct tn_arena *arena = tn_arena_new();
    double *sorted = tn_alloc_array(arena, n + 1u, sizeof *sorted), median;

    if (n)
        memcpy(sorted, x, n * sizeof *x);
    qsort(sorted, n, sizeof *sorted, compare);
    median = !n ? 0 : n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    tn_arena_free(arena);
    return median;
}

void tn_feed_new(struct tn_feed *f, struct tn_session *s, uint64_t seed, struct tn_arena *arena)
{
    const struct tn_session_shape *h = tn_session_shape(s);

    *f = (struct tn_feed){.session = s,
                          .count = h->global_batch * h->seq_len,
                          .vocab = tn_session_model(s)->vocab_size,
                          .seed = seed};
    f->tokens = tn_alloc_array(arena, (size_t)f->count, sizeof *f->tokens);
    f->targets = tn_alloc_array(arena, (size_t)f->count, sizeof *f->targets);
}

static void draw(struct tn_feed *f)
{
    for (int64_t i = 0; i < f->count; i++) {
        uint32_t step = (uint32_t)f->step;
        f->tokens[i] = (int32_t)tn_random_below(f->seed, STREAM, step, (uint64_t)i, (uint64_t)f->vocab);
        f->targets[i] = (int32_t)tn_random_below(f->seed, STREAM + 1, step, (uint64_t)i, (uint64_t)f->vocab);
    }
}

tn_status tn_feed_step(struct tn_feed *f, struct tn_session_times *times, struct tn_session_result *result)
{
    double start = tn_measure_now();
    tn_status s;

    draw(f);
    times->feed += tn_measure_now() - start;
    s = tn_session_update_timed(f->session, f->step, f->tokens, f->targets, 1e-4, times, result);
    if (!s && result->skipped)
        return tn_error(
            TN_ERR_NUMBER,
            "update %llu: loss %g, gradient norm %g: not finite, so its time says nothing; first %s",
            (unsigned long long)f->step, result->loss, result->gnorm, tn_session_nonfinite(f->session));
    f->step++;
    return s;
}

tn_status tn_measure_trace(struct tn_session *s, const char *folder, uint64_t step, uint64_t seed, struct tn_arena *arena,
                           struct tn_trace_told *told)
{
    struct tn_session_result result;
    struct tn_feed f;

    tn_feed_new(&f, s, seed, arena);
    f.step = step;
    draw(&f);
    return tn_trace_update(s, folder, step, f.tokens, f.targets, 1e-4, &result, told);
}
