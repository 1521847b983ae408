/* ask.c - what a plugin claims: which device it is or works on, which operations. Asked in a child, as a test is. */
#include <sys/mman.h>
#include <tenon/bootstrap.h>
#include <tenon/comm.h>
#include <tenon/optimizer.h>
#include <tenon/pass.h>
#include "base/plain.h"
#include "base/status.h"
#include "bench.h"
#include "suite.h"

static struct check_claims *answer;              /* shared with the child */

static void take_options(const struct tn_option *o)
{
    for (; o && o->key && answer->options < CHECK_OPTIONS; o++) {
        struct check_option *to = &answer->option[answer->options++];

        snprintf(to->key, sizeof to->key, "%s", o->key);
        snprintf(to->preset, sizeof to->preset, "%s", o->preset ? o->preset : "");
        to->low = o->low, to->high = o->high;
    }
}

/* They end where they should and can be shown. */
static void tidy(struct check_claims *c)
{
    c->claims = c->claims < CHECK_CLAIMS ? c->claims : CHECK_CLAIMS;
    c->options = c->options < CHECK_OPTIONS ? c->options : CHECK_OPTIONS;
    tn_plain_field(c->kind, sizeof c->kind);
    tn_plain_field(c->kernels_kind, sizeof c->kernels_kind);
    tn_plain_field(c->why, sizeof c->why);
    for (uint32_t i = 0; i < c->claims; i++)
        tn_plain_field(c->op[i], sizeof c->op[i]);
    for (uint32_t i = 0; i < c->options; i++) {
        tn_plain_field(c->option[i].key, sizeof c->option[i].key);
        tn_plain_field(c->option[i].preset, sizeof c->option[i].preset);
    }
}

static void ask(struct check_run *r)
{
    const struct tn_loaded *p = NULL;
    const struct tn_kernels *k;
    const struct tn_device_api *d;

    if (tn_plugin_open(r->subject->path, &p) < 0) {
        snprintf(answer->why, sizeof answer->why, "%s", tn_error_text());
        return;
    }
    d = tn_plugin_table(p, TN_DEVICE_ID), k = tn_plugin_table(p, TN_KERNELS_ID);
    if (d)
        snprintf(answer->kind, sizeof answer->kind, "%s", d->kind);
    if (k) {
        snprintf(answer->kernels_kind, sizeof answer->kernels_kind, "%s", k->device);
        for (const char *const *op = k->ops; *op && answer->claims < CHECK_CLAIMS; op++)
            snprintf(answer->op[answer->claims++], sizeof answer->op[0], "%s", *op);
        answer->records = d && !strcmp(d->kind, k->device) ? tn_plugin_table(p, TN_DEVICE_CAPTURE_ID) != NULL : strcmp(k->device, "cpu") != 0;
    }
    if (tn_plugin_table(p, TN_PASS_ID)) {
        answer->is_pass = 1;
        take_options(((const struct tn_pass *)tn_plugin_table(p, TN_PASS_ID))->options);
    }
    if (tn_plugin_table(p, TN_OPTIMIZER_ID)) {
        answer->is_optimizer = 1;
        take_options(((const struct tn_optimizer *)tn_plugin_table(p, TN_OPTIMIZER_ID))->options);
    }
    answer->is_bootstrap = tn_plugin_table(p, TN_BOOTSTRAP_ID) != NULL;
    if (tn_plugin_table(p, TN_COMM_ID))
        check_ranks(r, answer);
    answer->loads = 1;
}

tn_status check_ask(struct check_subject *s, double seconds)
{
    struct check_list l = {0};
    tn_status st;

    answer = mmap(NULL, sizeof *answer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (answer == MAP_FAILED)
        return tn_error(TN_ERR_MEMORY, "plugins check: no memory");
    check_add(&l, ask, "", "ask")->limit = seconds > 0 && seconds < 20 ? seconds : 20;
    st = check_run_all(s, &l, 1, NULL);
    s->claims = *answer;
    tidy(&s->claims);
    munmap(answer, sizeof *answer);
    free(l.test);
    return st;
}
