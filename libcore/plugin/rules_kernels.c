/* rules_kernels.c - kernels: prepared on the main thread, launched on that of an update, released once. A kernel's state is
 * wrapped, so that a launch can be told from one that was released. */
#include <stdlib.h>
#include "plugin/rules_own.h"

#define LIVE 0x6c697665u

static struct {
    const char *path;
    struct tn_kernels real;
} kernels[TN_RULES_MOST];
static uint32_t n_kernels;

struct kernel {
    struct kernel *next;                         /* all that there ever were */
    uint32_t live, plugin;
    struct tn_kernel real;
    char op[24];
};
static struct kernel *ever;                      /* kept after their release, so that a later use is seen */

static tn_status watch_launch(void *state, const struct tn_launch *l)
{
    struct kernel *k = state;
    const char *path = kernels[k->plugin].path;
    tn_status s;

    if (k->live != LIVE)
        tn_rule_broken(NULL, "%s: a kernel is launched that was released", path);
    if (!tn_rule_may_compute())
        tn_rule_broken(NULL, "%s: %s is launched on a thread that is not the executor's", path, k->op);
    tn_error_clear();
    s = k->real.launch(k->real.state, l);
    tn_rule_says(path, k->op, s);
    if (s > 0)
        tn_rule_broken(NULL, "%s: launch of %s gives status %d; declining is for prepare", path, k->op, (int)s);
    return s;
}

static void watch_release(void *state)
{
    struct kernel *k = state;

    if (k->live != LIVE)
        tn_rule_broken(NULL, "%s: a kernel is released twice", kernels[k->plugin].path);
    if (k->real.release)
        k->real.release(k->real.state);
    k->live = 0;
}

static tn_status watch_prepare(uint32_t plugin, const struct tn_problem *p, struct tn_kernel *out)
{
    struct kernel *k = calloc(1, sizeof *k);
    const char *path = kernels[plugin].path;
    tn_status s;

    if (!k)
        return tn_error(TN_ERR_MEMORY, "no memory for backend.debug");
    tn_rule_before_steps(path, "prepare");
    k->real.struct_size = out->struct_size;
    tn_error_clear();
    s = kernels[plugin].real.prepare(p, &k->real);
    tn_rule_says(path, p->op, s);
    if (s == TN_OK && !k->real.launch)
        tn_rule_broken(NULL, "%s: prepare of %s succeeds without a launch", path, p->op);
    if (s != TN_OK) {
        free(k);
        return s;
    }
    k->live = LIVE, k->plugin = plugin, k->next = ever;
    ever = k;
    snprintf(k->op, sizeof k->op, "%s", p->op);
    out->state = k, out->launch = watch_launch, out->release = watch_release, out->workspace = k->real.workspace;
    return TN_OK;
}

#define PREPARE(I)                                                                                                   \
    static tn_status prepare_##I(const struct tn_problem *p, struct tn_kernel *out)                                  \
    {                                                                                                                \
        return watch_prepare(I, p, out);                                                                             \
    }
EACH(PREPARE)
#define NAME_PREPARE(I) prepare_##I,
static tn_status (*const prepares[])(const struct tn_problem *p, struct tn_kernel *out) = {EACH(NAME_PREPARE)};

void tn_rules_kernels(const char *path, struct tn_kernels *t)
{
    if (n_kernels == TN_RULES_MOST)
        return;
    kernels[n_kernels].path = path, kernels[n_kernels].real = *t;
    t->prepare = prepares[n_kernels++];
}
