/* session_kit.h - for tests of whole updates: a session over the plugins that were just built, and a text to
 * learn.
 *
 * The text is a Markov chain over 23 symbols: each is followed by one of three, one of them mostly. A model
 * that has learned it is at about 0.8 per token, one that has not at log 23 = 3.1. */
#ifndef SESSION_KIT_H
#define SESSION_KIT_H
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pool.h"
#include "base/status.h"
#include "graph/op.h"
#include "plan/report.h"
#include "train/session.h"

#define SESSION __attribute__((unused)) static
#define SESSION_VOCAB 23

struct session_test {
    struct tn_config *config;
    struct tn_session *session;
    int32_t *tokens, *targets;
    uint64_t state; /* of the chain */
    int32_t last;
};

SESSION struct tn_session_options session_options; /* but for use */

SESSION void session_plugins(void)
{
    static const char *const name[] = {"ref", "cpu", "self", "env", "sgd", "adamw"};
    const char *top = getenv("top_builddir");
    char path[8192] = "";

    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        snprintf(path + strlen(path), sizeof path - strlen(path), "%s%s/plugins/%s/.libs", i ? ":" : "",
                 top ? top : ".", name[i]);
    setenv("TENON_PLUGIN_PATH", path, 1);
}

/* One at a time. more: settings, ends with NULL; later ones win. */
SESSION void session_begin(struct session_test *t, uint32_t use, const char *const *more)
{
    const char *setting[48] = {"model.n_layer=2",      "model.n_head=2",      "model.n_embd=32",
                               "model.vocab_size=23",  "model.block_size=16", "train.seq_len=16",
                               "train.global_batch=8", "train.micro_batch=4", "backend.threads=2",
                               "backend.comm=self",    "optimizer.lr=0.003"};
    struct tn_session_options o = session_options;
    const struct tn_session_shape *shape;
    int n = 11;

    o.use = use;
    session_plugins();
    tn_log_level(TN_LOG_ERROR);
    for (; more && *more; more++)
        setting[n++] = *more;
    *t = (struct session_test){.state = 1};
    ck_assert_msg(!tn_config_open(NULL, n, (char *const *)setting, &t->config), "%s", tn_error_text());
    ck_assert_msg(!tn_session_configure(t->config, &t->session), "%s", tn_error_text());
    ck_assert_msg(!tn_session_open(t->session, &o), "%s", tn_error_text());
    ck_assert_msg(!tn_session_initialize(t->session, 1), "%s", tn_error_text());
    shape = tn_session_shape(t->session);
    t->tokens = calloc((size_t)(shape->global_batch * shape->seq_len), sizeof *t->tokens);
    t->targets = calloc((size_t)(shape->global_batch * shape->seq_len), sizeof *t->targets);
}
#define SESSION_BEGIN(t, use, ...) session_begin(t, use, (const char *const[]){__VA_ARGS__, NULL})

SESSION void session_end(struct session_test *t)
{
    tn_session_close(t->session);
    tn_config_free(t->config);
    free(t->tokens);
    free(t->targets);
    tn_pool_stop(); /* so that another one may choose its plugins */
}

/* The next rows of the text. */
SESSION void session_batch(struct session_test *t)
{
    static const int32_t follows[10] = {5, 5, 5, 5, 5, 5, 5, 11, 11, 2};
    const struct tn_session_shape *shape = tn_session_shape(t->session);

    for (int64_t i = 0; i < shape->global_batch * shape->seq_len; i++) {
        t->state = t->state * 6364136223846793005u + 1442695040888963407u;
        t->tokens[i] = t->last;
        t->last = (3 * t->last + follows[(t->state >> 40) % 10]) % SESSION_VOCAB;
        t->targets[i] = t->last;
    }
}

SESSION struct tn_session_result session_update(struct session_test *t, uint64_t step, double lr)
{
    struct tn_session_result r;

    session_batch(t);
    ck_assert_msg(!tn_session_update(t->session, step, t->tokens, t->targets, lr, &r), "%s", tn_error_text());
    return r;
}

/* Every tensor, then every gradient of a session opened for STEP, one after the other; owned. */
struct session_state {
    float *x;
    uint64_t bytes;
};
SESSION void session_add(struct session_state *s, struct session_test *t, uint32_t i, int gradient)
{
    uint64_t bytes = tn_session_tensor(t->session, i)->bytes;
    char *to;

    s->x = realloc(s->x, s->bytes + bytes);
    to = (char *)s->x + s->bytes;
    if (gradient ? tn_session_gradient(t->session, i, to) : tn_session_get(t->session, i, to))
        ck_abort_msg("%s", tn_error_text());
    s->bytes += bytes;
}
SESSION struct session_state session_state(struct session_test *t, int gradients)
{
    struct session_state s = {0};
    uint32_t n = tn_session_tensors(t->session);

    for (uint32_t i = 0; i < n; i++)
        session_add(&s, t, i, 0);
    for (uint32_t i = 0; i < n && gradients; i++)
        if (!tn_session_tensor(t->session, i)->is_state)
            session_add(&s, t, i, 1);
    return s;
}

#define SESSION_MAIN(NAME, SECONDS, ...)                                                                     \
    int main(void)                                                                                           \
    {                                                                                                        \
        const TTest *const test[] = {__VA_ARGS__};                                                           \
        Suite *s = suite_create(NAME);                                                                       \
        TCase *c = tcase_create(NAME);                                                                       \
        SRunner *r;                                                                                          \
        int failed;                                                                                          \
        for (size_t i = 0; i < sizeof test / sizeof *test; i++)                                              \
            tcase_add_test(c, test[i]);                                                                      \
        tcase_set_timeout(c, SECONDS);                                                                       \
        suite_add_tcase(s, c);                                                                               \
        r = srunner_create(s);                                                                               \
        srunner_run_all(r, CK_NORMAL);                                                                       \
        failed = srunner_ntests_failed(r);                                                                   \
        srunner_free(r);                                                                                     \
        return failed != 0;                                                                                  \
    }
#endif
