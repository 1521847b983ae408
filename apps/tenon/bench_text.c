/* bench_text.c - the report of tenon bench for people. The first line has the form that other programs'
 * reports are compared by: "... step 41.0 ms  18731 tok/s  92.1 GFLOP/s  peak RSS 40 MB". */
#include "bench.h"
#include "timeline.h"

static void print_first(const struct bench *b)
{
    const struct tn_measure *m = &b->steps;
    char ranks[32] = "";

    if (tn_session_shape(b->session)->world > 1)
        snprintf(ranks, sizeof ranks, " ranks %lld", (long long)tn_session_shape(b->session)->world);
    printf("%s tenon%s threads %u: step %.2f ms  %.0f tok/s  %.1f GFLOP/s  peak RSS %.0f MB\n", b->name,
           ranks, tn_session_threads(b->session), m->median * 1e3, m->tokens / m->median,
           m->flops / m->median / 1e9, (double)m->rss_peak / 1e6);
}

static void print_setting(const struct bench *b)
{
    const struct tn_model_config *c = tn_session_model(b->session);
    const struct tn_session_shape *h = tn_session_shape(b->session);

    printf("%-13s %s: %lld layers, %lld heads, width %lld, vocabulary %lld; %lld parameters\n", "model",
           c->arch, (long long)c->n_layer, (long long)c->n_head, (long long)c->n_embd,
           (long long)c->vocab_size, (long long)h->n_parameters);
    printf("%-13s %lld sequences of %lld tokens, %lld x %lld\n", "update", (long long)h->global_batch,
           (long long)h->seq_len, (long long)h->n_micro, (long long)h->micro_batch);
    printf("%-13s %s; kernels %s\n", "device", tn_session_device(b->session), tn_session_kernels(b->session));
}

static void print_steps(const struct bench *b)
{
    const struct tn_measure *m = &b->steps;

    int many = tn_session_shape(b->session)->world > 1;

    printf("%-13s median of %u: %.2f ms, from %.2f to %.2f%s\n", "step", m->steps, m->median * 1e3,
           m->low * 1e3, m->high * 1e3, many ? ", of the slowest rank" : "");
    printf("%-13s", "phases");
    for (int p = 0; p < TN_MEASURE_PHASES; p++)
        printf("%s %s %.2f", p ? "," : "", tn_measure_phase_name[p], m->phase[p] * 1e3);
    printf(" ms%s\n", many ? ", of rank 0" : "");
    printf("%-13s %.4g of an update, 6N + 6LCT for each token%s\n", "model FLOPs", m->flops,
           many ? ", of all ranks" : "");
}

/* Of a device that says so. */
static void print_peak(const struct bench *b)
{
    const struct tn_measure *m = &b->steps;

    if (m->peak > 0)
        printf("%-13s %.1f TFLOP/s by the device's own account; the step is %.3f of it (MFU)\n", "peak", m->peak / 1e12,
               bench_share(b));
    if (m->device_bytes)
        printf("%-13s %.1f MB taken since it was opened; the plan has %.1f MB\n", "device memory",
               (double)m->device_bytes / 1e6, (double)m->planned / 1e6);
}

static void print_rates(const struct bench *b)
{
    int64_t ranks = tn_session_shape(b->session)->world;
    double model = b->steps.flops / b->steps.median / (double)ranks,
           step = tn_measure_rate(b->product, b->n_product), square = tn_measure_rate(&b->square, 1),
           work = 0;

    if (!b->has_rates)
        return;
    for (uint32_t i = 0; i < b->n_product; i++)
        work += b->product[i].count * b->product[i].flops;
    printf("%-13s %.1f GFLOP/s, %u x %u x %u by %s; the step is %.3f of it\n", "products", square / 1e9,
           b->side, b->side, b->side, b->square.kernel, model / square);
    printf("%-13s %.1f GFLOP/s, the step's own %u shapes (%.4g FLOPs of an update); the step is %.3f of it\n",
           "", step / 1e9, b->n_product, work, step > 0 ? model / step : 0);
    printf("%-13s %.1f GB/s\n", "memory rate", b->memory_rate / 1e9);
    if (ranks > 1)
        printf("%-13s rates are those of rank 0 while all %lld measure; the step is %.1f GFLOP/s a rank\n",
               "", (long long)ranks, model / 1e9);
}

static void print_memory(const struct bench *b)
{
    const struct tn_measure *m = &b->steps;

    printf("%-13s %splanned %.1f MB, of it the arena %.1f MB; resident %.1f MB, at most %.1f MB\n", "memory",
           tn_session_shape(b->session)->world > 1 ? "of rank 0: " : "", (double)m->planned / 1e6,
           (double)m->arena / 1e6, (double)m->rss / 1e6, (double)m->rss_peak / 1e6);
    printf("%-13s of an update: page faults %.2f (%.2f from disk), allocations ", "", m->minor_faults,
           m->major_faults);
    if (m->allocations < 0)
        printf("not counted (configure --enable-debug)\n");
    else
        printf("%.2f\n", m->allocations);
    printf(
        "%-13s %.1f ms until the first update is done: plugins %.1f, plan %.1f, weights %.1f, update %.1f\n",
        "start", (b->initialized + m->first) * 1e3, b->configured * 1e3, (b->opened - b->configured) * 1e3,
        (b->initialized - b->opened) * 1e3, m->first * 1e3);
}

static void print_node(const struct bench *b, const struct tn_measure_node *n)
{
    double seconds = n->seconds > 0 ? n->seconds : 1e-12, square = tn_measure_rate(&b->square, 1);
    char unit[48];

    snprintf(unit, sizeof unit, n->rows > 1 ? "%.30s +%u" : "%.30s", n->unit, n->rows - 1);
    printf("%9.3f %6.2f %9.3f %8.2f %5.1f %8.2f %5.1f %6u  %-5s %-9s %-14s %-14s %s\n", n->seconds * 1e3,
           100 * n->seconds / b->node_seconds, bench_lost(b, n) * 1e3, n->flops / seconds / 1e9,
           square > 0 ? 100 * n->flops / seconds / square : 0, n->bytes / seconds / 1e9,
           b->memory_rate > 0 ? 100 * n->bytes / seconds / b->memory_rate : 0, n->launches, n->kernel,
           n->list, n->op, n->role, unit);
}

static void print_nodes(const struct bench *b)
{
    double lost = 0;

    if (!b->has_nodes)
        return;
    printf("\nlaunches, one by one: %.2f ms of an update; worst first: by time that neither the rate of "
           "products nor that "
           "of memory explains\n%9s %6s %9s %8s %5s %8s %5s %6s  %-5s %-9s %-14s %-14s %s\n",
           b->node_seconds * 1e3, "ms", "share", "lost ms", "GFLOP/s", "%", "GB/s", "%", "times", "by",
           "list", "operation", "role", "unit");
    for (uint32_t i = 0; i < b->n_node; i++) {
        print_node(b, &b->node[i]);
        lost += bench_lost(b, &b->node[i]);
    }
    printf("%9.3f %6.2f %9.3f\n", b->node_seconds * 1e3, 100.0, lost * 1e3);
}

static void print_products(const struct bench *b)
{
    if (!b->has_rates || !b->has_nodes)
        return;
    printf("\nproducts of the step, alone\n%9s %8s %6s  %-5s %s\n", "ms", "GFLOP/s", "times", "by", "shape");
    for (uint32_t i = 0; i < b->n_product; i++) {
        const struct tn_measure_product *p = &b->product[i];
        printf("%9.3f %8.2f %6u  %-5s %s\n", p->seconds * 1e3, p->flops / p->seconds / 1e9, p->count,
               p->kernel, p->text);
    }
}

static void print_trace(const struct bench *b)
{
    char line[400];

    if (b->has_trace)
        printf("%s\n", tn_trace_line(&b->trace, b->traced, line, sizeof line));
}

void bench_text(const struct bench *b)
{
    print_first(b);
    print_setting(b);
    print_steps(b);
    print_peak(b);
    print_rates(b);
    print_memory(b);
    if (options_given(b->options, "memory-timeline"))
        timeline_print(tn_session_plan(b->session, TN_SESSION_TRAIN), b->resident);
    print_nodes(b);
    print_products(b);
    print_trace(b);
}
