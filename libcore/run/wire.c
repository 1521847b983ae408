/* wire.c - see wire.h. */
#include "run/wire.h"
#include "base/arena.h"
#include "graph/op.h"
#include "plan/report.h"
#include "run/collective.h"

static int64_t elements(const struct tn_node *n, const struct tn_mesh *m, struct tn_arena *arena)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < n->n_out; i++) {
        struct tn_local in, out;

        tn_value_local(n->in[i], m, arena, &in);
        tn_value_local(n->out[i], m, arena, &out);
        sum += (in.count > out.count) != !strcmp(n->op->name, "exchange") ? in.count : out.count;   /* there the rank's own rows */
    }
    return sum;
}

static int alike(const struct tn_wire *a, const struct tn_wire *b)
{
    return !strcmp(a->op, b->op) && !strcmp(a->axis, b->axis) && !strcmp(a->role, b->role) &&
           !strcmp(a->list, b->list) && a->dtype == b->dtype && a->elements == b->elements;
}

void tn_wire_list(const struct tn_plan *plan, struct tn_arena *arena, struct tn_wire **out, uint32_t *n)
{
    *out = NULL;
    *n = 0;
    for (uint32_t i = 0; i < plan->n_row; i++) {
        const struct tn_node *node = plan->row[i].node;
        struct tn_plan_launch l;
        struct tn_wire w;
        uint32_t k = 0;

        if (!(node->op->flags & TN_OP_COLLECTIVE) || strcmp(plan->row[i].op, node->op->name) ||
            plan->row[i].way == TN_ROW_WAIT || plan->row[i].way == TN_ROW_SENT ||
            (plan->row[i].kernel[0] < 0 && plan->row[i].kernel[1] < 0))
            continue;
        tn_plan_launch_at(plan, i, &l);
        w = (struct tn_wire){.op = node->op->name,
                             .axis = tn_text(arena, "%s", tn_node_text(node, "axis")),
                             .role = tn_text(arena, "%s", node->role),
                             .list = tn_list_name(l.list),
                             .dtype = node->in[0]->dtype,
                             .times = l.micro,
                             .elements = elements(node, &plan->mesh, arena),
                             .bytes = l.micro * tn_collective_bytes(node, &plan->mesh, arena)};
        w.ranks = plan->mesh.size[tn_axis_find(w.axis)];
        if (w.bytes == 0)
            continue;
        while (k < *n && !alike(&(*out)[k], &w))
            k++;
        if (k < *n) {
            (*out)[k].times += w.times, (*out)[k].bytes += w.bytes;
            continue;
        }
        *out = tn_alloc_grow(arena, *out, *n, sizeof **out);
        (*out)[(*n)++] = w;
    }
}

double tn_wire_bytes(const struct tn_wire *w, uint32_t n, const char *axis)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += !axis || !strcmp(w[i].axis, axis) ? w[i].bytes : 0;
    return sum;
}
