/* pipeline.c - see pass.h. The verifier runs after every step, so an error names the pass that made it.
 *
 * Forward passes may come in any order. Train passes may not: what clones forward nodes comes first, then the
 * largest axis reduces its gradients, and copies of tied parameters are summed last. What shards inside a part of dp
 * comes before dp, which then reduces chunks. */
#include "base/status.h"
#include "pass/pass.h"

static tn_status done(const struct tn_pipeline *p, struct tn_graph *g, const char *step)
{
    tn_status s = tn_graph_verify(g);

    if (s) {
        char *text = tn_text(g->arena, "after %s: %s", step, tn_error_text());

        return tn_error_long(s, text);
    }
    if (p->after)
        p->after(p->after_ctx, step, g);
    return TN_OK;
}

/* What is wrong there is nearly always the optimizer's. */
static tn_status finish(const struct tn_pipeline *p, struct tn_graph *g)
{
    tn_status s = tn_graph_finish(g, p->finish);

    if (!s)
        return done(p, g, "finish");
    return p->finish->name ? tn_error_long(s, tn_text(g->arena, "optimizer %s: %s", p->finish->name, tn_error_text())) : s;
}

static tn_status run_one(const struct tn_pipeline *p, struct tn_graph *g, const struct tn_pass_entry *e, const char *part,
                         void (*f)(struct tn_graph *g, const char *axis))
{
    if (!f)
        return TN_OK;
    g->option = e->option;
    g->option_text = e->option_text;
    g->option_ctx = e->option_ctx;
    g->cursor = NULL;
    f(g, e->axis);
    g->option = NULL;
    g->option_text = NULL;
    return done(p, g, tn_text(g->arena, "%s:%s", part, e->name));
}

static int train_rank(const struct tn_pass_entry *e)
{
    static const char *const order[] = {"", "dp", "ep", "cp", "tp", "pp"};

    for (int i = 0; i < 6 && !e->early; i++)
        if (!strcmp(e->axis, order[i]))
            return i;
    return e->early ? 0 : 6;
}

/* The strategies' lower, and, in a graph that has gradients, train. */
static tn_status train_passes(const struct tn_pipeline *p, struct tn_graph *g, int gradients)
{
    tn_status s = TN_OK;

    for (int rank = 0; rank <= 6 && !s; rank++)
        for (uint32_t i = 0; i < p->n_pass && !s; i++)
            if (train_rank(&p->pass[i]) == rank) {
                s = run_one(p, g, &p->pass[i], "lower", p->pass[i].pass->lower);
                if (!s && gradients)
                    s = run_one(p, g, &p->pass[i], "train", p->pass[i].pass->train);
            }
    return s;
}

tn_status tn_pipeline_run(const struct tn_pipeline *p, struct tn_graph *g)
{
    tn_status s = done(p, g, "model");

    if (!s && p->dtype && p->dtype != TN_F32 && !(s = tn_graph_precision(g, p->dtype)))
        s = done(p, g, "precision");
    for (uint32_t i = 0; i < p->n_pass && !s; i++)
        s = run_one(p, g, &p->pass[i], "forward", p->pass[i].pass->forward);
    if (!s && p->claims && !(s = tn_graph_lower(g, p->claims, p->claims_ctx)))
        s = done(p, g, "lower");
    if (!s && !p->finish)
        s = train_passes(p, g, 0);
    if (!s && !p->finish && !(s = tn_graph_close_outputs(g))) {
        tn_graph_sweep(g);
        s = done(p, g, "outputs");
    }
    if (s || !p->finish)
        return s;
    s = tn_graph_autodiff(g);
    if (!s)
        s = done(p, g, "autodiff");
    if (!s && p->recompute && !(s = tn_graph_recompute(g)))
        s = done(p, g, "recompute");
    if (!s)
        s = train_passes(p, g, 1);
    if (!s)
        s = finish(p, g);
    for (uint32_t i = 0; i < p->n_pass && !s; i++)
        s = run_one(p, g, &p->pass[i], "schedule", p->pass[i].pass->schedule);
    return s;
}
