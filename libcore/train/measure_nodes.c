/* measure_nodes.c - the launches of a step with a clock: see measure.h.
 *
 * A session runs its updates with the device waited for after each launch. The blocks of a model are alike,
 * so rows that do the same to tensors of the same shapes become one node of the report. */
#include "plan/report.h"
#include "train/measure_own.h"

/* "batch 12 seq 64 embd 128, heads 4 -> ..." : the sizes that this rank holds. */
static const char *shape_text(const struct tn_plan *plan, const struct tn_plan_launch *l,
                              struct tn_arena *arena)
{
    char text[600];
    size_t at = 0;

    text[0] = 0;
    for (uint32_t i = 0; i < l->n_in + l->n_out; i++) {
        const struct tn_value *v = l->value[i];
        const struct tn_local *local = &plan->place[v->id].local;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s[", i == l->n_in ? " -> " : i ? " " : "");
        for (uint32_t d = 0; d < v->rank && at < sizeof text - 100; d++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %lld", d ? " " : "", v->dim[d],
                                   (long long)local->size[d]);
        at += (size_t)snprintf(text + at, sizeof text - at, "]");
        if (at > sizeof text - 160) {
            snprintf(text + at, sizeof text - at, " ...");
            break;
        }
    }
    return tn_text(arena, "%s", text);
}

static struct tn_measure_node node_of(const struct tn_plan *plan, uint32_t row, struct tn_arena *arena)
{
    struct tn_plan_launch l;
    int more = plan->row[row].expr && strcmp(plan->row[row].op, "expr");

    tn_plan_launch_at(plan, row, &l);
    return (struct tn_measure_node){.op = more ? tn_text(arena, "%s+expr", l.op) : l.op,
                                    .role = l.role,
                                    .unit = l.unit,
                                    .list = tn_list_name(l.list),
                                    .kernel = l.kernel,
                                    .shape = shape_text(plan, &l, arena),
                                    .rows = 1,
                                    .launches = l.micro,
                                    .merged = l.merged,
                                    .flops = l.flops * l.micro,
                                    .bytes = l.bytes * l.micro};
}

static int is_alike(const struct tn_measure_node *a, const struct tn_measure_node *b)
{
    return !strcmp(a->op, b->op) && !strcmp(a->role, b->role) && !strcmp(a->list, b->list) &&
           !strcmp(a->kernel, b->kernel) && !strcmp(a->shape, b->shape) && a->merged == b->merged;
}

/* seconds [steps, n_row] */
static double row_median(const double *seconds, uint32_t steps, uint32_t n_row, uint32_t row, double *room)
{
    for (uint32_t i = 0; i < steps; i++)
        room[i] = seconds[(size_t)i * n_row + row];
    return tn_measure_median(room, steps);
}

static void gather(const struct tn_plan *plan, const double *seconds, uint32_t steps, struct tn_arena *arena,
                   struct tn_measure_node *node, uint32_t *n)
{
    double *room = tn_alloc_array(arena, steps, sizeof *room);

    for (uint32_t r = 0; r < plan->n_row; r++) {
        struct tn_measure_node one;
        uint32_t k = 0;
        if (plan->row[r].kernel[0] < 0 && plan->row[r].kernel[1] < 0)
            continue;
        one = node_of(plan, r, arena);
        one.seconds = row_median(seconds, steps, plan->n_row, r, room);
        while (k < *n && !is_alike(&node[k], &one))
            k++;
        if (k == *n) {
            node[(*n)++] = one;
            continue;
        }
        node[k].rows++;
        node[k].launches += one.launches;
        node[k].seconds += one.seconds, node[k].flops += one.flops, node[k].bytes += one.bytes;
    }
}

tn_status tn_measure_nodes(struct tn_session *s, uint32_t steps, uint64_t seed, struct tn_arena *arena,
                           struct tn_measure_node **out, uint32_t *n, double *all)
{
    const struct tn_plan *plan = tn_session_plan(s, TN_SESSION_TRAIN);
    double *seconds = tn_alloc_array(arena, ((size_t)steps + 1) * plan->n_row, sizeof *seconds);
    tn_status status = TN_OK;
    struct tn_feed f;

    tn_feed_new(&f, s, seed, arena);
    for (uint32_t i = 0; i <= steps && !status; i++) { /* the first one warms up, into the last place */
        struct tn_session_times times = {.run.row = seconds + (size_t)(i ? i - 1 : steps) * plan->n_row};
        struct tn_session_result result;
        status = tn_feed_step(&f, &times, &result);
    }
    if (status)
        return status;
    *out = tn_alloc_array(arena, plan->n_row + 1u, sizeof **out);
    *n = 0;
    *all = 0;
    gather(plan, seconds, steps, arena, *out, n);
    for (uint32_t k = 0; k < *n; k++)
        *all += (*out)[k].seconds;
    return TN_OK;
}
