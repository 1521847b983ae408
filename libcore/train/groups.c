/* groups.c - see groups.h. Patterns are those of file names (fnmatch). */
#include "train/groups.h"
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>

static void scale(struct tn_param *p, double factor)
{
    p->lr_scale = factor;
}

static void spare(struct tn_param *p, double factor)
{
    (void)factor;
    p->decay = 0;
}

static int apply(struct tn_graph *g, const char *pattern, double factor, void (*f)(struct tn_param *p, double factor))
{
    int hits = 0;

    for (struct tn_value *v = g->params; v; v = v->next)
        if (!fnmatch(pattern, v->name, 0)) {
            f(v->param, factor);
            hits++;
        }
    return hits;
}

static tn_status apply_scale(struct tn_config *c, struct tn_graph *g, const char *word)
{
    const char *equals = strrchr(word, '='), *key = "optimizer.lr_scale";
    char *end = NULL;
    double factor = equals ? strtod(equals + 1, &end) : 0;
    const char *pattern = tn_text(g->arena, "%.*s", equals ? (int)(equals - word) : 0, word);

    if (!equals || end == equals + 1 || *end || !isfinite(factor) || factor < 0)
        return tn_config_fail(c, key, "\"%s\" is not NAME=FACTOR with a factor of at least 0, such as *wte*=0.1", word);
    if (!apply(g, pattern, factor, scale))
        return tn_config_fail(c, key, "no parameter is named like \"%s\"; one is named %s", pattern, g->params->name);
    return TN_OK;
}

tn_status tn_groups_apply(struct tn_config *c, struct tn_graph *g)
{
    const char *const *word;
    tn_status s = TN_OK;

    for (size_t i = 0, n = tn_config_list(c, "optimizer.lr_scale", &word); i < n && !s; i++)
        s = apply_scale(c, g, word[i]);
    for (size_t i = 0, n = tn_config_list(c, "optimizer.no_decay", &word); i < n && !s; i++)
        if (!apply(g, word[i], 0, spare))
            s = tn_config_fail(c, "optimizer.no_decay", "no parameter is named like \"%s\"; one is named %s", word[i], g->params->name);
    return s;
}
