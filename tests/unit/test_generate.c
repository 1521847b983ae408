/* test_generate.c - a token at a time with caches gives what the whole sequence gives at once: at every position, for
 * every way to read the prompt, for several texts side by side. */
#include "plan_kit.h"
#include "session_kit.h"

#define LENGTH 16
#define TEXTS 3

static int32_t token(int64_t text, int64_t at)
{
    return (int32_t)((text * 7 + at * at * 3 + at) % SESSION_VOCAB);
}

/* Of one text, [LENGTH, vocab]: from all of it at once. */
static void at_once(struct session_test *t, int64_t text, float *logits)
{
    int32_t ids[LENGTH];

    for (int64_t i = 0; i < LENGTH; i++)
        ids[i] = token(text, i);
    ck_assert_msg(!tn_session_logits(t->session, ids, logits), "%s", tn_error_text());
}

static void check_near(const float *a, const float *b, double most, int64_t text, int64_t at)
{
    for (int64_t v = 0; v < SESSION_VOCAB; v++)
        ck_assert_msg(fabs((double)a[v] - (double)b[v]) <= most, "text %d, position %d, logit %d: %g, should be %g", (int)text, (int)at,
                      (int)v, (double)a[v], (double)b[v]);
}

struct way {
    int64_t texts, chunk, prompt; /* prompt: read before the first token is asked for */
    const char *setting, *more;
    double most;
};

static const struct way ways[] = {
    {1, 16, 1, "backend.kernels=cpu", NULL, 1e-5},
    {1, 4, 7, "backend.kernels=cpu", NULL, 1e-5},
    {1, 16, 9, "backend.kernels=ref", NULL, 1e-5},
    {3, 5, 16, "backend.kernels=cpu", NULL, 1e-5},
    {3, 1, 4, "backend.kernels=ref", NULL, 1e-5},
    {2, 3, 12, "model.bias=no", NULL, 1e-5},
    {3, 3, 8, "model.tie_embeddings=no", NULL, 1e-5},
    {2, 4, 6, "backend.dtype=bf16", NULL, 0.02},
    {1, 4, 6, "backend.dtype=fp16", NULL, 0.005},
    {1, 16, 16, "model.block_size=20", NULL, 1e-5},
    {2, 5, 7, "model.arch=llama", "model.n_kv_head=1", 1e-5},
    {1, 3, 5, "model.arch=llama", "backend.kernels=ref", 1e-5},
    {1, 3, 5, "model.arch=llama", "model.block_size=20", 1e-5},
    {2, 5, 7, "model.arch=llama", "backend.dtype=bf16", 0.02},
    {2, 5, 7, "model.arch=mixtral", "model.n_expert=4", 1e-5},
    {1, 3, 5, "model.arch=mixtral", "backend.kernels=ref", 1e-5},
};

/* ids of the texts one after the other; where all of it but the last is to be read first, and then token by token. */
static void generate(struct session_test *t, const struct way *w, float (*whole)[LENGTH][SESSION_VOCAB])
{
    int32_t ids[TEXTS][LENGTH], last[TEXTS];
    float logits[TEXTS][SESSION_VOCAB];

    for (int64_t b = 0; b < w->texts; b++)
        for (int64_t i = 0; i < LENGTH; i++)
            ids[b][i] = token(b, i);
    ck_assert_msg(!tn_session_prefill(t->session, ids[0], LENGTH, w->prompt - 1, 0), "%s", tn_error_text());
    for (int64_t at = w->prompt - 1; at < LENGTH; at++) {
        for (int64_t b = 0; b < w->texts; b++)
            last[b] = ids[b][at];
        ck_assert_msg(!tn_session_decode(t->session, last, at, logits[0]), "%s", tn_error_text());
        for (int64_t b = 0; b < w->texts; b++)
            check_near(logits[b], whole[b][at], w->most, b, at);
    }
}

START_TEST(as_from_the_whole)
{
    static float whole[TEXTS][LENGTH][SESSION_VOCAB];
    const struct way *w = &ways[_i];
    struct session_test t;

    session_options.samples = w->texts;
    session_options.chunk = w->chunk;
    SESSION_BEGIN(&t, TN_SESSION_GENERATE | TN_SESSION_LOGITS, w->setting, w->more);
    for (int64_t b = 0; b < w->texts; b++)
        at_once(&t, b, whole[b][0]);
    for (int again = 0; again < 2; again++)      /* what the first text left in the caches does not matter */
        generate(&t, w, whole);
    session_end(&t);
}
END_TEST

/* The plan knows the caches: two of each block, for all positions, beside the parameters and shared by both plans. */
START_TEST(caches_are_planned)
{
    struct session_test t;
    struct tn_plan_report r;

    session_options.samples = 3;
    session_options.chunk = 4;
    session_begin(&t, TN_SESSION_GENERATE, NULL);
    tn_plan_sum(tn_session_plan(t.session, TN_SESSION_GENERATE), &r);
    ck_assert_uint_eq(r.caches, 2 * 2 * 3 * LENGTH * 32 * sizeof(float));
    ck_assert_uint_eq(r.parameters, tn_session_shape(t.session)->n_parameters * sizeof(float));
    for (uint32_t i = 0; i < tn_session_tensors(t.session); i++)     /* files never see them */
        ck_assert(!strchr(tn_session_tensor(t.session, i)->name, ':'));
    session_end(&t);
}
END_TEST

/* What a prefill makes is keys and values: no logits, and of the last block nothing behind them. */
START_TEST(a_prefill_stops_early)
{
    struct session_test t;
    const struct tn_graph *g;
    uint32_t attentions = 0, stores = 0;

    session_options = (struct tn_session_options){.chunk = 4};
    session_begin(&t, TN_SESSION_GENERATE, NULL);
    g = tn_session_graph(t.session, TN_SESSION_PREFILL);
    for (const struct tn_node *n = tn_graph_first(g); n; n = tn_node_next(n)) {
        attentions += !strcmp(n->op->name, "attention");
        stores += !strcmp(n->op->name, "store");
        ck_assert_str_ne(n->role, "lm_head");
    }
    ck_assert_uint_eq(attentions, 1);
    ck_assert_uint_eq(stores, 4);
    session_end(&t);
}
END_TEST

/* --- the operation, by itself */

static const char stored[] = "mesh dp=1 ep=1 pp=1 cp=1 tp=1\n"
                             "input %0 x f32[batch=2 seq=3 embed=4]\n"
                             "input %1 at i32[seq=3]\n"
                             "cache %2 \"block0:keys\" f32[batch=2 keys=9 embed=4]\n"
                             "forward block0:\n"
                             "  %3 f32[batch=2 keys=9 embed=4] = store(%2, %0, %1) role=cache\n";

START_TEST(there_and_back)
{
    struct tn_graph *g = tn_graph_read(stored);

    ck_assert_msg(g != NULL, "%s", tn_error_text());
    ck_assert_str_eq(tn_graph_dump(g, g->arena, NULL), stored);
    tn_graph_sweep(g);                           /* nobody reads the result, and yet it is no dead node */
    ck_assert_str_eq(tn_graph_dump(g, g->arena, NULL), stored);
    tn_graph_free(g);
}
END_TEST

/* The text with one thing changed is refused, by the operation's own words or by the line's type. */
static void check_refused(const char *from, const char *to)
{
    char text[sizeof stored + 64];
    const char *at = strstr(stored, from);

    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - stored), stored, to, at + strlen(from));
    ck_assert_msg(!tn_graph_read(text), "%s instead of %s was taken", to, from);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "store"));
}

START_TEST(shapes_must_fit)
{
    check_refused("seq=3 embed=4", "seq=3 embed=5");
    check_refused("batch=2 seq=3", "batch=1 seq=3");
    check_refused("at i32[seq=3]", "at i32[seq=4]");
    check_refused("at i32", "at f32");
    check_refused("\"block0:keys\" f32", "\"block0:keys\" bf16");
    check_refused("store(%2", "store(%0");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("generate");
    TCase *c = tcase_create("generate");
    SRunner *r;
    int failed;

    tcase_add_loop_test(c, as_from_the_whole, 0, sizeof ways / sizeof *ways);
    tcase_add_test(c, caches_are_planned);
    tcase_add_test(c, a_prefill_stops_early);
    tcase_add_test(c, there_and_back);
    tcase_add_test(c, shapes_must_fit);
    tcase_set_timeout(c, 60);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
