/* plan_ranks.c - many ranks: what each holds, sends and computes; who is in which group. See plan.h.
 *
 * Ranks whose local sizes are the same have the same plan. So ranks are put into classes by what they hold of
 * every value of the graph, and one of each class is planned: a mesh of hundreds of ranks costs little more
 * than one rank. */
#include <stdlib.h>
#include "graph/graph.h"
#include "plan.h"
#include "ranks.h"
#include "run/wire.h"

#define WIDE 240

struct class
{
    int64_t n, first, *rank; /* those alike */
    uint64_t signature;
    struct tn_plan_report report;
    struct tn_wire *wire;
    uint32_t n_wire;
    double sent; /* bytes of an update */
    struct tn_roofline time;
};

/* --- classes */

static uint64_t hash(uint64_t h, int64_t x)
{
    return (h ^ (uint64_t)x) * 1099511628211u;
}

static uint64_t signature(const struct tn_graph *g, const struct tn_mesh *m)
{
    struct tn_arena *arena = tn_arena_new();
    uint64_t h = hash(14695981039346656037u, m->coord[tn_axis_find("pp")]);

    for (const struct tn_value *v = g->all_values; v; v = v->next_value) {
        struct tn_local l;

        tn_value_local(v, m, arena, &l);
        h = hash(h, l.count);
        for (uint32_t d = 0; d < v->rank; d++)
            h = hash(h, l.size[d]);
    }
    tn_arena_free(arena);
    return h;
}

static struct class *find(struct class *all, uint32_t n, uint64_t s)
{
    for (uint32_t i = 0; i < n; i++)
        if (all[i].signature == s)
            return &all[i];
    return NULL;
}

static struct class *classes(const struct tn_session *s, struct tn_arena *a, uint32_t *n)
{
    const struct tn_graph *g = tn_session_graph(s, TN_SESSION_TRAIN);
    struct class *all = NULL, *c;

    *n = 0;
    for (int64_t r = 0; r < tn_session_shape(s)->world; r++) {
        struct tn_mesh m = tn_mesh_at(&tn_session_shape(s)->mesh, r);
        uint64_t sign = signature(g, &m);

        if (!(c = find(all, *n, sign))) {
            all = tn_alloc_grow(a, all, *n, sizeof *all);
            c = &all[(*n)++];
            *c = (struct class){.first = r,
                                .signature = sign,
                                .rank =
                                    tn_alloc_array(a, (size_t)tn_session_shape(s)->world, sizeof *c->rank)};
        }
        c->rank[c->n++] = r;
    }
    return all;
}

static tn_status plan_class(struct tn_session *s, struct tn_arena *a, const struct plan_rates *rates, struct class *c)
{
    tn_status status = c->first == tn_session_shape(s)->rank ? TN_OK : tn_session_look_as(s, c->first);

    if (status)
        return status;
    tn_plan_sum(tn_session_plan(s, TN_SESSION_TRAIN), &c->report);
    tn_wire_list(tn_session_plan(s, TN_SESSION_TRAIN), a, &c->wire, &c->n_wire);
    c->sent = tn_wire_bytes(c->wire, c->n_wire, NULL);
    if (rates->flops > 0)
        c->time = tn_plan_roofline(tn_session_plan(s, TN_SESSION_TRAIN), rates->flops, rates->memory);
    return TN_OK;
}

/* --- printing */

/* "0-3 8": runs of numbers. */
static const char *list_text(const int64_t *x, int64_t n, char *out, size_t room)
{
    size_t k = 0;

    *out = 0;
    for (int64_t i = 0, j; i < n && k + 120 < room; i = j + 1) {
        for (j = i; j + 1 < n && x[j + 1] == x[j] + 1; j++)
            ;
        k += (size_t)snprintf(out + k, room - k, "%s%lld", i ? " " : "", (long long)x[i]);
        if (j > i)
            k += (size_t)snprintf(out + k, room - k, "-%lld", (long long)x[j]);
        if (k + 120 >= room && j + 1 < n)
            snprintf(out + k, room - k, " ...");
    }
    return out;
}

static void print_groups(const struct tn_mesh *m)
{
    char text[WIDE];

    printf("%-18s %lld:", "ranks", (long long)tn_mesh_world(m));
    for (int a = 0; a < TN_AXES; a++)
        if (m->size[a] > 1)
            printf(" %s %lld", tn_axis_name[a], (long long)m->size[a]);
    printf("\n");
    for (int a = 0; a < TN_AXES; a++)
        if (m->size[a] > 1)
            printf("groups of %-8s %s\n", tn_axis_name[a], ranks_groups(m, a, text, sizeof text));
}

static void column(double bytes)
{
    char text[32];

    printf(" %11s", plan_size(bytes, text));
}

static void print_class(const struct class *c)
{
    const struct tn_plan_report *r = &c->report;
    char text[WIDE];

    printf("%6lld", (long long)c->n);
    column((double)r->parameters);
    column((double)r->states);
    column((double)r->gradients);
    column((double)(r->parameters + r->states + r->gradients));
    column((double)r->arena - (double)r->gradients);
    column((double)(r->workspace + r->inputs + r->uniforms));
    column((double)r->arena);
    column((double)r->total);
    column(c->sent);
    printf(" %11.4g   %s\n", r->flops_forward + r->flops_backward + r->flops_update,
           list_text(c->rank, c->n, text, sizeof text));
}

static void print_table(const struct class *c, uint32_t n)
{
    printf(
        "\nper rank; state is parameters, optimizer and gradients; the arena has gradients and activations\n"
        "%6s %11s %11s %11s %11s %11s %11s %11s %11s %11s %11s   which\n",
        "ranks", "parameters", "optimizer", "gradients", "state", "activations", "buffers", "arena", "total",
        "sent", "FLOPs");
    for (uint32_t i = 0; i < n; i++)
        print_class(&c[i]);
}

static const char *dtype_name(uint32_t dtype)
{
    static const char *const name[] = {
        [TN_F32] = "fp32", [TN_BF16] = "bf16", [TN_F16] = "fp16", [TN_I32] = "int32",
        [TN_F64] = "fp64", [TN_I64] = "int64", [TN_U8] = "uint8"};

    return dtype < sizeof name / sizeof *name && name[dtype] ? name[dtype] : "?";
}

static void print_wire(const struct class *c, const struct tn_mesh *m)
{
    printf(
        "\nsent by rank %lld in one update, as a ring would\n%-16s %-5s %6s %-14s %-10s %6s %12s %6s %14s\n",
        (long long)c->first, "collective", "axis", "ranks", "role", "list", "type", "elements", "times",
        "bytes");
    for (uint32_t i = 0; i < c->n_wire; i++) {
        const struct tn_wire *w = &c->wire[i];

        printf("%-16s %-5s %6lld %-14.14s %-10.10s %6s %12lld %6u %14.0f\n", w->op, w->axis,
               (long long)w->ranks, w->role, w->list, dtype_name(w->dtype), (long long)w->elements, w->times,
               w->bytes);
    }
    for (int a = 0; a < TN_AXES; a++)
        if (m->size[a] > 1)
            printf("all on %-9s %*s %14.0f\n", tn_axis_name[a], 66, "",
                   tn_wire_bytes(c->wire, c->n_wire, tn_axis_name[a]));
    printf("%-16s %*s %14.0f\n", "all", 66, "", c->sent);
}

static void add_class(struct plan_total *t, const struct class *c)
{
    const struct tn_plan_report *r = &c->report;
    double total = (double)r->total;

    t->most = total > t->most ? total : t->most;
    t->all += (double)c->n * total;
    t->state += (double)c->n * (double)(r->parameters + r->states + r->gradients);
    if (c->time.compute + c->time.memory > t->slowest.compute + t->slowest.memory)
        t->slowest = c->time;
}

tn_status plan_ranks(struct tn_session *s, const struct plan_rates *rates, struct plan_total *out)
{
    struct tn_arena *a = tn_arena_new();
    uint32_t n, busiest = 0;
    struct class *c = classes(s, a, &n);
    double flops = 0;
    tn_status status = TN_OK;

    *out = (struct plan_total){0};
    for (uint32_t i = 0; i < n && !status; i++) {
        const struct tn_plan_report *r = &c[i].report;

        status = plan_class(s, a, rates, &c[i]);
        busiest = c[i].sent > c[busiest].sent ? i : busiest;
        add_class(out, &c[i]);
        flops += (double)c[i].n * (r->flops_forward + r->flops_backward + r->flops_update);
    }
    if (!status) {
        print_groups(&tn_session_shape(s)->mesh);
        print_table(c, n);
        print_wire(&c[busiest], &tn_session_shape(s)->mesh);
        plan_print_work(s, &c[0].report, flops);
    }
    tn_arena_free(a);
    return status;
}
