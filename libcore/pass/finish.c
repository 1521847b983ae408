/* finish.c - what every update ends with: the gradient norm, clipping, the optimizer.
 *
 * It follows the final layouts: the update happens where the gradient is. A gradient that the strategies left as a
 * flat chunk makes a slice of the parameter, an update of the chunk, and a gather back, several parameters at once.
 *
 * The norm is that of all gradients together, every logical element once: the sums of squares are partial on the axes
 * that cut the gradient, so they are added per set of axes and closed with one scalar all_reduce each; copies of tied
 * parameters do not count. A scaled loss has scaled gradients: the norm and each update multiply by 1/loss_scale, a power
 * of two, so that the gradients need no pass of their own. Clipping (min(1, clip/(norm + 1e-6)), as in PyTorch) comes before the optimizer. */
#include "base/status.h"
#include "pass/pass.h"

/* v in the layouts of want, axis by axis. Flat chunks are gathered from the inner axes out and cut from the outer in. */
static struct tn_value *convert_all(struct tn_value *v, const tn_layout *want)
{
    struct tn_graph *g = v ? v->graph : NULL;

    for (int a = TN_AXES; v && a-- > 0;)
        if (g->mesh.size[a] > 1 && tn_layout_of(v, tn_axis_name[a]) == TN_F && want[a] != TN_F)
            v = tn_convert(v, tn_axis_name[a], want[a]);
    for (int a = 0; v && a < TN_AXES; a++)
        if (g->mesh.size[a] > 1)
            v = tn_convert(v, tn_axis_name[a], want[a]);
    return v;
}

static struct tn_value *whole(struct tn_value *v)
{
    static const tn_layout everywhere[TN_AXES] = {TN_R, TN_R, TN_R, TN_R, TN_R};

    return convert_all(v, everywhere);
}

/* a + b + c + …, of as many scalars a node as a nest of loops has operands. */
static struct tn_value *add_up(struct tn_graph *g, struct tn_value **v, uint32_t n)
{
    static const char text[] = "a + b + c + d + e + f + g + h + i + j + k";
    const uint32_t most = TN_MAX_OPERANDS - 1;

    while (n > 1 && !g->status) {
        uint32_t made = 0;

        for (uint32_t i = 0; i < n; i += most) {
            uint32_t k = n - i < most ? n - i : most;
            struct tn_attr f = TN_TEXT("f", tn_text(g->arena, "%.*s", (int)(4 * k - 3), text));

            v[made++] = k == 1 ? v[i] : tn_add(g, "expr", v + i, k, &f, 1);
        }
        n = made;
    }
    return g->status ? NULL : v[0];
}

/* Adds those of equal layout; returns how many are left. */
static uint32_t add_alike(struct tn_graph *g, struct tn_value **v, uint32_t n)
{
    struct tn_value **group = tn_alloc(g->arena, (n + 1) * sizeof *group);
    uint32_t left = 0;

    tn_graph_settle(g);
    for (uint32_t i = 0; i < n && !g->status; i++) {
        struct tn_value *first = v[i];
        uint32_t k = 0;

        for (uint32_t j = i; j < n && first; j++)
            if (v[j] && !memcmp(first->layout, v[j]->layout, sizeof first->layout)) {
                group[k++] = v[j];
                v[j] = NULL;
            }
        if (first)
            v[left++] = add_up(g, group, k);
    }
    return g->status ? 0 : left;
}

/* What one stage of a pipeline holds, as its part of a sum over the stages. */
static struct tn_value *as_part(struct tn_value *v)
{
    for (int a = 0; v && a < TN_AXES; a++)
        if (tn_layout_get(v->graph, tn_layout_of(v, tn_axis_name[a]))->kind == TN_LAYOUT_STAGE)
            v = tn_convert(v, tn_axis_name[a], TN_P);
    return v;
}

/* Sums of squares of equal layout are added before one of them is closed: on every stage, then over the stages. */
static struct tn_value *sum_of_squares(struct tn_graph *g)
{
    struct tn_value **part = tn_alloc(g->arena, (g->n_param + 1) * sizeof *part);
    uint32_t n = 0;

    for (struct tn_value *p = g->params; p; p = p->next)
        if (!p->param->twin)
            part[n++] = tn_add(g, "sumsq", TN_IN(p->param->grad), TN_NONE);
    n = add_alike(g, part, n);
    for (uint32_t i = 0; i < n; i++)
        part[i] = as_part(part[i]);
    n = add_alike(g, part, n);
    for (uint32_t i = 0; i < n; i++)
        part[i] = whole(part[i]);
    return n ? add_up(g, part, n) : NULL;
}

static struct tn_value *unscaled(struct tn_graph *g, struct tn_value *v)
{
    if (!tn_graph_has_symbol(g, TN_LOSS_SCALE))
        return v;
    return tn_add(g, "expr", TN_IN(v), TN_WITH(TN_TEXT("f", "a*(1/loss_scale)"), TN_NAMES("uniform", TN_LOSS_SCALE)));
}

/* The attributes and the text of a parameter's update. */
static uint32_t update_attributes(struct tn_graph *g, const struct tn_param *p, const struct tn_finish *f, uint32_t n_slot, int clipped,
                                  struct tn_attr *attr)
{
    const char **in = tn_alloc(g->arena, (n_slot + 4) * sizeof *in), **results = tn_alloc(g->arena, (n_slot + 1) * sizeof *results);
    static const char *const uniform[] = {"lr", "t", TN_LOSS_SCALE};
    uint32_t scaled = (uint32_t)tn_graph_has_symbol(g, TN_LOSS_SCALE);
    const char *text = tn_text(g->arena, "%s%s%s", scaled ? "g = g*(1/loss_scale); " : "",
                               clipped ? "g = g*clip_factor; " : "", f->update);
    uint32_t k = 0;

    if (p->lr_scale != 1)
        text = tn_text(g->arena, "lr = lr*lr_scale; %s", text);
    in[0] = "w", in[1] = "g", results[0] = "w";
    for (uint32_t s = 0; s < n_slot; s++)
        in[2 + s] = results[1 + s] = f->slots[s].name;
    in[2 + n_slot] = "clip_factor";
    attr[k++] = (struct tn_attr)TN_TEXT("f", text);
    attr[k++] = (struct tn_attr){"in", TN_ATTR_NAMES, 2 + n_slot + (clipped != 0), {.names = in}};
    attr[k++] = (struct tn_attr){"results", TN_ATTR_NAMES, 1 + n_slot, {.names = results}};
    attr[k++] = (struct tn_attr){"uniform", TN_ATTR_NAMES, 2 + scaled, {.names = uniform}};
    if (p->lr_scale != 1)
        attr[k++] = (struct tn_attr){"lr_scale", TN_ATTR_FLOAT, 1, {.f = p->lr_scale}};
    for (uint32_t i = 0; i < f->n_option; i++) {
        double value = !p->decay && !strcmp(f->option[i].key, "weight_decay") ? 0 : f->value[i];

        if (f->option[i].low || f->option[i].high)
            attr[k++] = (struct tn_attr){f->option[i].key, TN_ATTR_FLOAT, 1, {.f = value}};
    }
    return k;
}

static void assign(struct tn_graph *g, struct tn_value *storage, struct tn_value *now)
{
    tn_add(g, "assign", TN_IN(storage, now), TN_NONE);
}

/* Updated parameters that are yet to be gathered. */
struct updated {
    struct tn_value *param[TN_MAX_OUT], *now[TN_MAX_OUT];
    uint32_t n;
    int64_t bytes;
};
#define TOGETHER 26214400                        /* bytes that are gathered at once */

/* Chunks become whole, from the inner axes out, together where it can be; then they are stored. */
static void store(struct tn_graph *g, struct updated *u)
{
    struct tn_value *from[TN_MAX_OUT], *to[TN_MAX_OUT];

    for (int a = TN_AXES; a-- > 0;) {
        uint32_t n = 0, k = 0;

        for (uint32_t i = 0; i < u->n; i++)
            if (tn_layout_of(u->now[i], tn_axis_name[a]) == TN_F && u->param[i]->layout[a] == TN_R)
                from[n++] = u->now[i];
        tn_convert_all(from, n, tn_axis_name[a], TN_R, to);
        for (uint32_t i = 0; i < u->n; i++)
            if (k < n && u->now[i] == from[k])
                u->now[i] = to[k++];
    }
    for (uint32_t i = 0; i < u->n && !g->status; i++)
        assign(g, u->param[i], convert_all(u->now[i], u->param[i]->layout));
    *u = (struct updated){.n = 0};
}

static void store_later(struct tn_graph *g, struct updated *u, struct tn_value *param, struct tn_value *now)
{
    int64_t bytes = tn_bytes(param);

    if (u->n && (u->n == TN_MAX_OUT || u->bytes + bytes > TOGETHER))
        store(g, u);
    u->param[u->n] = param, u->now[u->n++] = now;
    u->bytes += bytes;
}

/* --- an optimizer that makes its nodes itself */

struct building {
    struct tn_graph *g;
    const struct tn_param *param;
    const struct tn_finish *f;
    uint32_t asked;                              /* for the group's factor */
};

static double build_option(void *ctx, const char *key)
{
    struct building *b = ctx;

    if (!strcmp(key, "lr_scale")) {
        b->asked = 1;
        return b->param->lr_scale;
    }
    for (uint32_t i = 0; i < b->f->n_option; i++)
        if (!strcmp(b->f->option[i].key, key))
            return !b->param->decay && !strcmp(key, "weight_decay") ? 0 : b->f->value[i];
    tn_graph_fail(b->g, TN_ERR, "the optimizer asks for an option %s, which is none of its own", key);
    return 0;
}

/* What was assigned to w, and the node goes where w is only a part or a chunk of the parameter: that is stored as any other. */
static struct tn_value *take_assigned(struct tn_graph *g, struct tn_value *w, const struct tn_param *p)
{
    for (uint32_t i = 0; i < w->n_user; i++) {
        struct tn_node *n = w->user[i];
        struct tn_value *now = n->n_in > 1 ? n->in[1] : NULL;

        if (!tn_is(tn_op(n), "assign") || n->in[0] != w)
            continue;
        if (w != p->value)
            tn_remove(n);
        return now;
    }
    tn_graph_fail(g, TN_ERR, "the optimizer assigns nothing to %s", p->value->name);
    return NULL;
}

static void build(struct tn_graph *g, struct tn_param *p, const struct tn_finish *f, struct tn_value *clip, struct tn_value *const *in,
                  struct updated *u)
{
    struct building b = {g, p, f, 0};
    struct tn_value *grad = unscaled(g, p->grad), *now;

    if (clip)
        grad = tn_expr(g, "a*b", TN_IN(grad, clip));
    g->option = build_option, g->option_ctx = &b, g->updated = in[0];
    f->build(g, in[0], grad, in + 2);
    g->option = NULL, g->option_ctx = NULL, g->updated = NULL;
    if (!g->status && !b.asked && p->lr_scale != 1)
        tn_graph_fail(g, TN_ERR_CONFIG, "optimizer.lr_scale has a factor for %s, and this optimizer does not ask for one", p->value->name);
    if (g->status || !(now = take_assigned(g, in[0], p)) || in[0] == p->value)
        return;
    tn_graph_settle(g);
    if (memcmp(now->layout, p->value->layout, sizeof now->layout))
        store_later(g, u, p->value, now);
    else
        assign(g, p->value, now);
}

static void update(struct tn_graph *g, struct tn_param *p, const struct tn_finish *f, struct tn_value *clip, struct updated *u)
{
    struct tn_value *in[12] = {NULL, p->grad}, *first;
    struct tn_attr attr[4 + 1 + TN_FINISH_OPTIONS];
    uint32_t n_slot = 0, n_attr;
    struct tn_node *n;

    tn_graph_settle(g);
    in[0] = convert_all(p->value, p->grad->layout);
    for (; f->slots && f->slots[n_slot].name && n_slot < 8; n_slot++)
        in[2 + n_slot] = tn_graph_state(g, p, f->slots[n_slot].name, f->slots[n_slot].dtype, p->grad);
    if (f->build) {
        build(g, p, f, clip, in, u);
        return;
    }
    in[2 + n_slot] = clip;
    n_attr = update_attributes(g, p, f, n_slot, clip != NULL, attr);
    first = tn_add(g, "expr", in, 2 + n_slot + (clip != NULL), attr, n_attr);
    if (!first)
        return;
    n = first->producer;
    for (uint32_t s = 0; s < n_slot; s++)
        assign(g, in[2 + s], n->out[1 + s]);
    tn_graph_settle(g);
    if (memcmp(first->layout, p->value->layout, sizeof first->layout))
        store_later(g, u, p->value, first);
    else
        assign(g, p->value, first);
}

tn_status tn_graph_close_outputs(struct tn_graph *g)
{
    tn_at_end(g, TN_AFTER, "outputs");
    for (uint32_t i = 0; i < g->n_output; i++) {
        const char *name = g->output[i].name;

        tn_set_role(g, name);
        tn_graph_output(g, name, whole(g->output[i].value));
        tn_graph_output_whole(g, name);
    }
    return tn_graph_status(g);
}

tn_status tn_graph_finish(struct tn_graph *g, const struct tn_finish *f)
{
    struct tn_value *norm, *clip = NULL;
    struct updated u = {.n = 0};

    tn_at_end(g, TN_AFTER, "optimizer");
    tn_set_role(g, "norm");
    norm = sum_of_squares(g);
    norm = norm ? unscaled(g, tn_expr(g, "sqrt(a)", TN_IN(norm))) : NULL;
    tn_graph_output(g, "gnorm", norm);
    tn_graph_output_whole(g, "gnorm");
    if (f->clip > 0)
        clip = tn_add(g, "expr", TN_IN(norm), TN_WITH(TN_TEXT("f", "min(1, clip/(a + 1e-6))"), {"clip", TN_ATTR_FLOAT, 1, {.f = f->clip}}));
    tn_set_role(g, "loss");
    tn_graph_output(g, "loss", whole(tn_graph_find_output(g, "loss")));
    tn_graph_output_whole(g, "loss");
    tn_set_role(g, "update");
    for (struct tn_value *p = g->params; p && !g->status; p = p->next)
        update(g, p->param, f, clip, &u);
    store(g, &u);
    return tn_graph_status(g);
}
