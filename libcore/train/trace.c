/* trace.c - see trace.h. */
#include "train/trace.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include "base/file.h"
#include "base/status.h"
#include "graph/op.h"
#include "plan/report.h"
#include "run/collective.h"
#include "train/progress.h"

#define ROUNDS 8                                 /* tries to meet quickly */
#define EXECUTOR 1                               /* number of its row; rows of collectives follow */

/* --- the file */

struct writer {
    const struct tn_trace *t;
    json_t *events;
    json_int_t rank;
    double zero;
    double *row_end;                             /* of the last event in each row of collectives */
    uint32_t n_row;
    struct tn_arena *arena;
};

static const struct tn_node *node_of(const struct writer *w, const struct tn_span *s)
{
    return w->t->plan->row[s->row].node;
}

/* "einsum mlp_fc block0"; of collectives "all_reduce on dp". */
static const char *name_of(const struct writer *w, const struct tn_span *s)
{
    const struct tn_node *n = node_of(w, s);
    const struct tn_row *row = &w->t->plan->row[s->row];

    switch (s->kind) {
    case TN_SPAN_COMPUTE: return tn_text(w->arena, "%s%s%s%s%s", row->op, *n->role ? " " : "", n->role, *n->unit ? " " : "", n->unit);
    case TN_SPAN_START: return tn_text(w->arena, "start %s on %s", n->op->name, tn_node_text(n, "axis"));
    case TN_SPAN_WAIT: return tn_text(w->arena, "wait for %s on %s", n->op->name, tn_node_text(n, "axis"));
    default: return tn_text(w->arena, "%s on %s", n->op->name, tn_node_text(n, "axis"));
    }
}

static const char *task_name(const struct writer *w, const struct tn_task *k)
{
    const struct tn_plan *p = w->t->plan;
    const char *list = k->list == TN_LIST_UPDATE ? "optimizer" : tn_list_name(k->list);
    uint32_t part = p->part[k->part].part;

    if (k->list != TN_LIST_FORWARD && k->list != TN_LIST_BACKWARD)
        return list;
    return p->n_stage > 1 ? tn_text(w->arena, "%s %u, stage %u of this rank", list, k->micro,
                                    k->list == TN_LIST_BACKWARD ? p->n_stage - 1 - part : part)
                          : tn_text(w->arena, "%s %u", list, k->micro);
}

static json_t *arguments(const struct writer *w, const struct tn_span *s)
{
    const struct tn_plan *p = w->t->plan;
    const struct tn_row *row = &p->row[s->row];
    const struct tn_task *k = &p->task[s->task];
    json_t *a = json_pack("{s:s, s:i, s:s, s:s}", "list", tn_list_name(k->list), "micro_batch", (int)k->micro, "role", row->node->role, "unit",
                          row->node->unit);

    if (s->kind == TN_SPAN_COMPUTE) {
        json_object_set_new(a, "flops", json_real(row->flops));
        json_object_set_new(a, "bytes", json_real(row->bytes));
        json_object_set_new(a, "nodes", json_integer(row->merged));
        return a;
    }
    json_object_set_new(a, "bytes", json_real(tn_collective_bytes(row->node, &p->mesh, w->arena)));
    json_object_set_new(a, "ranks", json_integer(p->mesh.size[tn_axis_find(tn_node_text(row->node, "axis"))]));
    return a;
}

/* "X": begin and length. Events of a row follow one another or lie within one another. */
static json_t *event(struct writer *w, const char *name, const char *category, uint32_t row, double begin, double end)
{
    json_t *e = json_pack("{s:s, s:s, s:s, s:I, s:i, s:f, s:f}", "name", name, "cat", category, "ph", "X", "pid", w->rank, "tid", (int)row,
                          "ts", 1e6 * (begin - w->zero), "dur", 1e6 * (end - begin));

    json_array_append_new(w->events, e);
    return e;
}

/* The first row that is free when it begins. */
static uint32_t row_for(struct writer *w, double begin, double end)
{
    uint32_t r = 0;

    while (r < w->n_row && w->row_end[r] > begin)
        r++;
    if (r == w->n_row) {
        w->row_end = tn_alloc_grow(w->arena, w->row_end, w->n_row, sizeof *w->row_end);
        w->n_row++;
    }
    w->row_end[r] = end;
    return EXECUTOR + 1 + r;
}

static void add_span(struct writer *w, const struct tn_span *s)
{
    static const char *const category[] = {[TN_SPAN_TASK] = "task", [TN_SPAN_COMPUTE] = "compute", [TN_SPAN_START] = "start",
                                           [TN_SPAN_WAIT] = "idle", [TN_SPAN_FLIGHT] = "communication"};
    int lost = s->kind == TN_SPAN_FLIGHT && s->end <= 0;
    double end = lost ? w->t->end : s->end;
    uint32_t row = s->kind == TN_SPAN_FLIGHT ? row_for(w, s->begin, end) : EXECUTOR;
    const char *name = s->kind == TN_SPAN_TASK ? task_name(w, &w->t->plan->task[s->task]) : name_of(w, s);
    json_t *e = event(w, name, category[s->kind], row, s->begin, end);

    if (s->kind != TN_SPAN_TASK)
        json_object_set_new(e, "args", arguments(w, s));
    if (s->kind == TN_SPAN_WAIT)
        json_object_set_new(e, "cname", json_string("grey"));
    if (lost)
        json_object_set_new(json_object_get(e, "args"), "nobody_waited", json_true());
}

static void add_label(struct writer *w, const char *what, uint32_t row, const char *name)
{
    json_array_append_new(w->events, json_pack("{s:s, s:s, s:I, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", w->rank, "tid", (int)row, "args",
                                               "name", name));
}

/* "rank 3: dp 1, pp 0" */
static void add_labels(struct writer *w)
{
    const struct tn_mesh *m = &w->t->plan->mesh;
    const char *name = tn_text(w->arena, "rank %lld", (long long)w->rank), *mark = ": ";

    for (int a = 0; a < TN_AXES; a++)
        if (m->size[a] > 1) {
            name = tn_text(w->arena, "%s%s%s %lld", name, mark, tn_axis_name[a], (long long)m->coord[a]);
            mark = ", ";
        }
    add_label(w, "process_name", 0, name);
    json_array_append_new(w->events, json_pack("{s:s, s:s, s:I, s:i, s:{s:I}}", "name", "process_sort_index", "ph", "M", "pid", w->rank, "tid",
                                               0, "args", "sort_index", w->rank));
    add_label(w, "thread_name", EXECUTOR, "executor");
    for (uint32_t r = 0; r < w->n_row; r++)
        add_label(w, "thread_name", EXECUTOR + 1 + r, r ? tn_text(w->arena, "communication %u", r + 1) : "communication");
}

json_t *tn_trace_json(const struct tn_trace *t, uint64_t step, double zero, double precision)
{
    struct writer w = {.t = t, .events = json_array(), .rank = tn_mesh_rank(&t->plan->mesh), .zero = zero, .arena = tn_arena_new()};
    struct tn_trace_sums sums;
    json_t *root;

    tn_trace_sum(t, &sums);
    event(&w, tn_text(w.arena, "update %llu", (unsigned long long)step), "update", EXECUTOR, t->begin, t->end);
    for (uint32_t i = 0; i < t->n; i++)
        add_span(&w, &t->span[i]);
    add_labels(&w);
    root = json_pack("{s:s, s:{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}, s:o}", "displayTimeUnit", "ms", "otherData", "step", (json_int_t)step,
                     "rank", w.rank, "clock_precision_us", 1e6 * precision, "seconds", sums.whole, "compute_seconds", sums.compute,
                     "communication_seconds", sums.communication, "exposed_seconds", sums.exposed, "wait_seconds", sums.wait, "traceEvents",
                     w.events);
    tn_arena_free(w.arena);
    return root;
}

static tn_status write_file(const char *folder, const struct tn_trace *t, uint64_t step, double zero, double precision)
{
    struct tn_arena *a = tn_arena_new();
    const char *path = tn_path_join(a, folder, tn_text(a, "trace-rank-%lld.json", (long long)tn_mesh_rank(&t->plan->mesh)));
    json_t *root = tn_trace_json(t, step, zero, precision);
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    tn_status s = text ? tn_folder_make(folder) : tn_error(TN_ERR_MEMORY, "no memory for %s", path);

    if (!s)
        s = tn_file_write(path, text, strlen(text));
    json_decref(root);
    free(text);
    tn_arena_free(a);
    return s;
}

/* --- all ranks */

static tn_status meet(struct tn_session *s, double *zero, double *precision)
{
    double left[ROUNDS], took[ROUNDS];
    tn_status status = TN_OK;
    int best = 0;

    for (int i = 0; i < ROUNDS && !status; i++) {
        double nothing = 0, came = tn_seconds();

        status = tn_session_most(s, &nothing, 1);
        left[i] = tn_seconds();
        took[i] = left[i] - came;
    }
    if (!status)
        status = tn_session_most(s, took, ROUNDS);
    for (int i = 1; i < ROUNDS && !status; i++)
        best = took[i] < took[best] ? i : best;
    *zero = left[best], *precision = took[best];
    return status;
}

/* The figures of the rank that computed longest; of several such the last one's. */
static tn_status tell(struct tn_session *s, const struct tn_trace_sums *mine, struct tn_trace_told *told)
{
    const double rank = (double)tn_session_shape(s)->rank;
    double most = mine->compute, who, figure[7];
    tn_status status = tn_session_most(s, &most, 1);

    who = mine->compute >= most ? rank : -1;
    if (!status)
        status = tn_session_most(s, &who, 1);
    if (who == rank)
        memcpy(figure, (const double[]){mine->whole, mine->compute, mine->communication, mine->exposed, mine->wait, mine->flights, mine->lost},
               sizeof figure);
    else
        memset(figure, 0, sizeof figure);
    if (!status)
        status = tn_session_most(s, figure, 7);
    told->rank = (int64_t)who;
    told->sums = (struct tn_trace_sums){figure[0], figure[1], figure[2], figure[3], figure[4], (uint32_t)figure[5], (uint32_t)figure[6]};
    return status;
}

tn_status tn_trace_update(struct tn_session *s, const char *folder, uint64_t step, const int32_t *tokens, const int32_t *targets,
                          double lr, struct tn_session_result *result, struct tn_trace_told *told)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_trace *t = tn_session_trace(s, arena);
    struct tn_trace_sums sums;
    double zero;
    tn_status status = meet(s, &zero, &told->precision);

    if (!status)
        status = tn_session_update_traced(s, step, tokens, targets, lr, t, result);
    if (!status && write_file(folder, t, step + 1, zero, told->precision))
        tn_log(TN_LOG_WARNING, "the trace of update %llu is lost: %s", (unsigned long long)step + 1, tn_error_text());
    tn_trace_sum(t, &sums);
    if (!status)
        status = tell(s, &sums, told);
    tn_arena_free(arena);
    return status;
}

const char *tn_trace_line(const struct tn_trace_told *told, uint64_t step, char *out, size_t bytes)
{
    const struct tn_trace_sums *x = &told->sums;
    int n = snprintf(out, bytes, "trace of update %llu, rank %lld computed longest: %.4g s, of them compute %.4g s", (unsigned long long)step + 1,
                     (long long)told->rank, x->whole, x->compute);

    if (x->flights && n > 0 && (size_t)n < bytes)
        snprintf(out + n, bytes - (size_t)n, ", communication %.4g s, exposed %.4g s (waits %.4g s); at most %.1f %% of communication is hidden",
                 x->communication, x->exposed, x->wait, 100 * (1 - x->exposed / x->communication));
    return out;
}
