/* bench_json.c - the report of tenon bench for programs: one object. Seconds are milliseconds where the key
 * ends with _ms; rates are GFLOP/s and GB/s; what was not measured is not there. */
#include <jansson.h>

#include "bench.h"

static json_t *phases(const struct tn_measure *m)
{
    json_t *o = json_object();

    for (int p = 0; p < TN_MEASURE_PHASES; p++)
        json_object_set_new(o, tn_measure_phase_name[p], json_real(m->phase[p] * 1e3));
    return o;
}

static json_t *every_step(const struct tn_measure *m)
{
    json_t *a = json_array();

    for (uint32_t i = 0; i < m->steps; i++)
        json_array_append_new(a, json_real(m->seconds[i] * 1e3));
    return a;
}

static json_t *product(const struct tn_measure_product *p)
{
    return json_pack("{s:s s:s s:i s:f s:f s:f}", "shape", p->text, "kernel", p->kernel, "count",
                     (int)p->count, "flops", p->flops, "ms", p->seconds * 1e3, "gflops",
                     p->flops / p->seconds / 1e9);
}

static json_t *rates(const struct bench *b)
{
    double model = b->steps.flops / b->steps.median / (double)tn_session_shape(b->session)->world,
           step = tn_measure_rate(b->product, b->n_product), square = tn_measure_rate(&b->square, 1);
    json_t *all = json_array();

    for (uint32_t i = 0; i < b->n_product; i++)
        json_array_append_new(all, product(&b->product[i]));
    return json_pack("{s:i s:f s:f s:f s:f s:s s:o}", "square_side", (int)b->side, "square_gflops",
                     square / 1e9, "step_gflops", step / 1e9, "share_of_square", model / square,
                     "share_of_step", step > 0 ? model / step : 0.0, "square_kernel", b->square.kernel,
                     "shapes", all);
}

static json_t *memory(const struct tn_measure *m)
{
    return json_pack("{s:I s:I s:I s:I}", "planned_bytes", (json_int_t)m->planned, "arena_bytes",
                     (json_int_t)m->arena, "rss_bytes", (json_int_t)m->rss, "peak_rss_bytes",
                     (json_int_t)m->rss_peak);
}

static json_t *start(const struct bench *b)
{
    return json_pack("{s:f s:f s:f s:f s:f}", "total_ms", (b->initialized + b->steps.first) * 1e3,
                     "plugins_ms", b->configured * 1e3, "plan_ms", (b->opened - b->configured) * 1e3,
                     "weights_ms", (b->initialized - b->opened) * 1e3, "first_update_ms",
                     b->steps.first * 1e3);
}

static json_t *node(const struct bench *b, const struct tn_measure_node *n)
{
    double seconds = n->seconds > 0 ? n->seconds : 1e-12;

    return json_pack("{s:s s:s s:s s:s s:s s:s s:i s:i s:f s:f s:f s:f s:f s:f s:f}", "op", n->op, "role",
                     n->role, "unit", n->unit, "list", n->list, "kernel", n->kernel, "shape", n->shape,
                     "rows", (int)n->rows, "launches", (int)n->launches, "ms", n->seconds * 1e3, "share",
                     n->seconds / b->node_seconds, "lost_ms", bench_lost(b, n) * 1e3, "flops", n->flops,
                     "bytes", n->bytes, "gflops", n->flops / seconds / 1e9, "gbytes_per_second",
                     n->bytes / seconds / 1e9);
}

static json_t *nodes(const struct bench *b)
{
    json_t *a = json_array();

    for (uint32_t i = 0; i < b->n_node; i++)
        json_array_append_new(a, node(b, &b->node[i]));
    return a;
}

static json_t *trace(const struct tn_trace_told *t)
{
    return json_pack("{s:I s:f s:f s:f s:f s:f s:i}", "rank", (json_int_t)t->rank, "ms", t->sums.whole * 1e3, "compute_ms", t->sums.compute * 1e3,
                     "communication_ms", t->sums.communication * 1e3, "exposed_ms", t->sums.exposed * 1e3, "wait_ms", t->sums.wait * 1e3,
                     "collectives", (int)t->sums.flights);
}

static json_t *whole(const struct bench *b)
{
    const struct tn_measure *m = &b->steps;
    const struct tn_session_shape *h = tn_session_shape(b->session);
    json_t *o = json_pack(
        "{s:s s:i s:i s:s s:s s:I s:I s:f s:f s:f s:f s:f s:o s:o s:f s:f s:o s:o s:f s:f s:f s:f}",
        "workload", b->name, "ranks", (int)h->world, "threads", (int)tn_session_threads(b->session), "device",
        tn_session_device(b->session), "kernels", tn_session_kernels(b->session), "parameters",
        (json_int_t)h->n_parameters, "tokens", (json_int_t)m->tokens, "step_ms", m->median * 1e3,
        "step_min_ms", m->low * 1e3, "step_max_ms", m->high * 1e3, "tokens_per_second", m->tokens / m->median,
        "gflops", m->flops / m->median / 1e9, "phases_ms", phases(m), "steps_ms", every_step(m),
        "model_flops", m->flops, "peak_rss_mb", (double)m->rss_peak / 1e6, "memory", memory(m), "start",
        start(b), "minor_faults", m->minor_faults, "major_faults", m->major_faults, "first_loss",
        m->first_loss, "last_loss", m->last_loss);

    if (o && m->peak > 0) {
        json_object_set_new(o, "peak_gflops", json_real(m->peak / 1e9));
        json_object_set_new(o, "share_of_peak", json_real(bench_share(b)));
    }
    if (o && m->device_bytes)
        json_object_set_new(o, "device_bytes", json_integer((json_int_t)m->device_bytes));
    if (o && m->allocations >= 0)
        json_object_set_new(o, "allocations", json_real(m->allocations));
    if (o && b->has_rates) {
        json_object_set_new(o, "products", rates(b));
        json_object_set_new(o, "memory_gbytes_per_second", json_real(b->memory_rate / 1e9));
    }
    if (o && b->has_nodes) {
        json_object_set_new(o, "nodes_ms", json_real(b->node_seconds * 1e3));
        json_object_set_new(o, "nodes", nodes(b));
    }
    if (o && b->has_trace)
        json_object_set_new(o, "trace", trace(&b->trace));
    return o;
}

tn_status bench_json(const struct bench *b)
{
    json_t *o = whole(b);
    int failed = !o || json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));

    json_decref(o);
    if (failed)
        return tn_error(TN_ERR_IO, "bench: the report could not be written as JSON");
    putchar('\n');
    return TN_OK;
}
