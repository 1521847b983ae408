/* threads.c - parallel equals single, with threads as ranks.
 *
 * For each layout: one session on one rank, and one session for each rank in a thread of its own, connected by the
 * communicator `local`. Loss and pre-clip norm of every step, every gradient of the first and every parameter after the
 * last must agree; where several ranks hold the same elements they must hold the same bits. Data have targets that do not
 * count, more in some sequences than in others. With look=yes validation and the logits of a sequence are compared too. No
 * launcher, so this runs under every sanitizer.
 *
 * usage: threads [LAYOUT ...], a LAYOUT being words like "tp=2 sp=yes dp=2 zero=3 micro=1 opt=sgd drop=0.3 model=odd" */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <tenon/bootstrap.h>
#include "base/pool.h"
#include "base/status.h"
#include "train/session_own.h"

#define STEPS 3
#define MOST_RANKS 16

struct result {
    double loss[STEPS], gnorm[STEPS];
    uint32_t n;                                  /* parameters */
    const char **name;
    int64_t *count;
    float **grad, **after;                       /* whole */
    uint8_t **seen[2];                           /* which elements somebody held: gradients, parameters */
    double sum, valid;                           /* validation with the first weights */
    float *logits;                               /* [n_logits], or NULL */
    int64_t n_logits;
    uint64_t bytes;                              /* of the device's memory, on rank 0 */
};

struct rank {
    struct tn_config *config;
    struct tn_session *session;
    pthread_t thread;
    struct tn_session_result step[STEPS];
    float **grad;                                /* as held */
    double sum, valid;
    float *logits;
    int look;
    char error[600];
    double lr;
    const int32_t *tokens, *targets;             /* [STEPS, global_batch, seq] */
};

static int failures;
static double lr;                                /* of the layout in hand: small where rounding is made large */

__attribute__((format(printf, 2, 3))) static void complain(const char *layout, const char *fmt, ...)
{
    va_list ap;

    printf("  FAIL %s: ", layout);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    failures++;
}

static void *need(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);

    if (!p)
        exit(99);
    return p;
}

/* --- the words of a layout */

static const char *word(const char *layout, const char *key, const char *otherwise, char *out)
{
    size_t n = strlen(key);

    for (const char *at = layout; at && *at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (!strncmp(at, key, n) && at[n] == '=') {
            snprintf(out, 32, "%.*s", (int)strcspn(at + n + 1, " "), at + n + 1);
            return out;
        }
    }
    snprintf(out, 32, "%s", otherwise);
    return out;
}

static int number(const char *layout, const char *key, int otherwise)
{
    char text[32], preset[32];

    snprintf(preset, sizeof preset, "%d", otherwise);
    return atoi(word(layout, key, preset, text));
}

static int world_of(const char *layout)
{
    return number(layout, "dp", 1) * number(layout, "tp", 1) * number(layout, "cp", 1) * number(layout, "pp", 1);
}

static const struct model {
    const char *name;
    int vocab, seq;
    const char *setting[11];
} models[] = {
    {"even", 64, 16, {"model.n_head=4", "model.n_embd=32", "model.vocab_size=64", "model.block_size=16", "train.seq_len=16"}},
    {"odd", 65, 17, {"model.n_head=3", "model.n_embd=27", "model.vocab_size=65", "model.block_size=19", "train.seq_len=17"}},
    {"llama", 65, 17, {"model.arch=llama", "model.n_head=6", "model.n_kv_head=3", "model.n_embd=36", "model.n_inner=25",
                       "model.vocab_size=65", "model.block_size=19", "train.seq_len=17"}},
    {"mqa", 64, 16, {"model.arch=llama", "model.n_head=4", "model.n_kv_head=1", "model.n_embd=32", "model.n_inner=40",
                     "model.vocab_size=64", "model.block_size=16", "train.seq_len=16", "model.rope_scaling=llama3"}},
    {"moe", 65, 17, {"model.arch=mixtral", "model.n_head=6", "model.n_kv_head=3", "model.n_embd=36", "model.n_inner=25",
                     "model.vocab_size=65", "model.block_size=19", "train.seq_len=17", "model.n_expert=5", "model.top_k=2"}},
    /* more experts than anybody visits */
    {"sparse", 64, 16, {"model.arch=mixtral", "model.n_head=4", "model.n_embd=32", "model.n_inner=24", "model.vocab_size=64",
                        "model.block_size=16", "train.seq_len=16", "model.n_expert=50", "model.top_k=1"}},
};

static const struct model *model_of(const char *layout)
{
    char value[32];
    size_t i = 0;

    word(layout, "model", "even", value);
    while (i + 1 < sizeof models / sizeof *models && strcmp(models[i].name, value))
        i++;
    return &models[i];
}

/* Overrides for a session; alone: without the layout. Returns how many. */
static int settings(const char *layout, int alone, char (*text)[64], char **list)
{
    static const char *const axes[] = {"dp", "tp", "cp", "pp", "ep", "zero", "sp", "zigzag", "schedule", "bucket", "sync_every", "prefetch", "ring",
                                       "shard_within", "virtual", "stages"};
    static const char *const usual[] = {"backend.comm=local", "backend.threads=1", "train.global_batch=12",
                                        "optimizer.lr=0.01", "train.grad_clip=1"};
    const struct model *model = model_of(layout);
    char value[32];
    int n = 0;

    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        snprintf(text[n++], 64, "%s", usual[i]);
    for (size_t i = 0; i < sizeof model->setting / sizeof *model->setting && model->setting[i]; i++)
        snprintf(text[n++], 64, "%s", model->setting[i]);
    snprintf(text[n++], 64, "model.n_layer=%s", word(layout, "layers", "2", value));
    snprintf(text[n++], 64, "model.tie_embeddings=%s", word(layout, "tied", "yes", value));
    snprintf(text[n++], 64, "train.recompute=%s", word(layout, "recompute", "no", value));
    snprintf(text[n++], 64, "optimizer.name=%s", word(layout, "opt", "adamw", value));
    snprintf(text[n++], 64, "model.dropout=%s", word(layout, "drop", "0", value));
    snprintf(text[n++], 64, "backend.kernels=%s", word(layout, "kernels", "ref", value));
    snprintf(text[n++], 64, "train.recompute=%s", word(layout, "recompute", "no", value));
    if (alone)
        snprintf(text[n++], 64, "train.micro_batch=12");
    else {
        snprintf(text[n++], 64, "train.micro_batch=%d", number(layout, "micro", 12 / number(layout, "dp", 1)));
        for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
            if (*word(layout, axes[i], "", value))
                snprintf(text[n++], 64, "parallel.%s=%s", axes[i], value);
    }
    for (int i = 0; i < n; i++)
        list[i] = text[i];
    return n;
}

/* --- running */

static void keep_gradients(struct rank *r)
{
    struct tn_session *s = r->session;

    r->grad = need(tn_session_tensors(s) * sizeof *r->grad);
    for (uint32_t i = 0; i < tn_session_tensors(s); i++) {
        const struct tn_session_tensor *t = tn_session_tensor(s, i);

        if (t->is_state || !t->here)
            continue;
        r->grad[i] = need(tn_plan_bytes(tn_session_plan(s, TN_SESSION_TRAIN), tn_session_gradient_value(s, i)));
        if (tn_session_gradient_held(s, i, r->grad[i]))
            snprintf(r->error, sizeof r->error, "gradient of %s: %s", t->name, tn_error_text());
    }
}

/* Validation on the first update's sequences, and the logits of the first one. */
static void look(struct rank *r)
{
    const struct tn_session_shape *h = tn_session_shape(r->session);

    r->logits = need((size_t)(h->seq_len * tn_session_model(r->session)->vocab_size) * sizeof *r->logits);
    for (int64_t i = 0; i < h->global_batch && !*r->error; i += h->eval_batch) {
        double sum, valid;

        if (tn_session_evaluate(r->session, r->tokens + i * h->seq_len, r->targets + i * h->seq_len, &sum, &valid))
            snprintf(r->error, sizeof r->error, "validation: %.500s", tn_error_text());
        r->sum += sum, r->valid += valid;
    }
    if (!*r->error && tn_session_logits(r->session, r->tokens, r->logits))
        snprintf(r->error, sizeof r->error, "logits: %.500s", tn_error_text());
}

static void *train(void *arg)
{
    struct rank *r = arg;
    const struct tn_session_shape *h = tn_session_shape(r->session);

    if (r->look)
        look(r);
    for (int i = 0; i < STEPS && !*r->error; i++) {
        int64_t at = i * h->global_batch * h->seq_len;

        if (tn_session_update(r->session, (uint64_t)i, r->tokens + at, r->targets + at, r->lr, &r->step[i]))
            snprintf(r->error, sizeof r->error, "step %d: %.500s", i, tn_error_text());
        if (i == 0 && !*r->error)
            keep_gradients(r);
    }
    return NULL;
}

static int open_rank(struct rank *r, const char *layout, int world, int number_of)
{
    struct tn_session_options o = {.use = TN_SESSION_TRAIN | TN_SESSION_STEP};
    struct tn_place place = {.struct_size = sizeof place, .rank = (uint32_t)number_of, .size = (uint32_t)world, .nodes = 1,
                             .local_rank = (uint32_t)number_of, .local_size = (uint32_t)world};
    char text[48][64], *list[48], value[32];
    int n = settings(layout, world == 1, text, list);

    r->look = !strcmp(word(layout, "look", "no", value), "yes");
    o.use |= r->look ? TN_SESSION_EVAL | TN_SESSION_LOGITS : 0;
    tn_pool_stop();
    if (tn_config_open(NULL, n, list, &r->config) || tn_session_configure_at(r->config, &place, &r->session)
        || tn_session_open(r->session, &o) || tn_session_initialize(r->session, 5)) {
        complain(layout, "rank %d does not open: %s", number_of, tn_error_text());
        return 0;
    }
    return 1;
}

/* Element i of what the rank holds, in the whole tensor. */
static int64_t element(const struct tn_value *v, const struct tn_local *l, int64_t i)
{
    int64_t at = 0, scale = 1;

    i += l->flat ? l->flat_start : 0;
    for (uint32_t d = v->rank; d-- > 0;) {
        int64_t k = i % l->size[d];

        at += scale * (l->index[d] ? l->index[d][k] : l->origin[d] + k);
        scale *= v->size[d];
        i /= l->size[d];
    }
    return at;
}

static void put(const char *layout, struct result *out, int kind, uint32_t p, const struct tn_value *v, const struct tn_mesh *m,
                const float *held)
{
    float *whole = kind ? out->after[p] : out->grad[p];
    struct tn_arena *arena = tn_arena_new();
    struct tn_local l;
    int differ = 0;

    tn_value_local(v, m, arena, &l);
    for (int64_t i = 0; i < l.count; i++) {
        int64_t at = element(v, &l, i);

        differ += out->seen[kind][p][at] && memcmp(&whole[at], &held[i], sizeof *held);
        whole[at] = held[i];
        out->seen[kind][p][at] = 1;
    }
    if (differ)
        complain(layout, "%s %s: %d elements differ between ranks that hold the same", kind ? "parameter" : "gradient of", v->name, differ);
    tn_arena_free(arena);
}

static void make_room(struct result *out, struct tn_session *s)
{
    uint32_t n = tn_session_tensors(s);

    out->name = need(n * sizeof *out->name);
    out->count = need(n * sizeof *out->count);
    out->grad = need(n * sizeof *out->grad), out->after = need(n * sizeof *out->after);
    out->seen[0] = need(n * sizeof **out->seen), out->seen[1] = need(n * sizeof **out->seen);
    for (uint32_t i = 0; i < n && !tn_session_tensor(s, i)->is_state; i++, out->n++) {
        int64_t count = tn_value_count(tn_session_tensor(s, i)->value);

        out->name[i] = strdup(tn_session_tensor(s, i)->name);
        out->count[i] = count;
        out->grad[i] = need((size_t)count * sizeof(float)), out->after[i] = need((size_t)count * sizeof(float));
        out->seen[0][i] = need((size_t)count), out->seen[1][i] = need((size_t)count);
    }
}

static void collect(const char *layout, struct rank *r, struct result *out)
{
    const struct tn_mesh *m = &tn_session_plan(r->session, TN_SESSION_TRAIN)->mesh;

    for (uint32_t i = 0; i < out->n; i++) {
        const struct tn_session_tensor *t = tn_session_tensor(r->session, i);
        float *held = need(t->held);

        if (t->here)
            put(layout, out, 0, i, tn_session_gradient_value(r->session, i), m, r->grad[i]);
        if (tn_session_get_held(r->session, i, held))
            complain(layout, "%s: %s", t->name, tn_error_text());
        if (t->here)
            put(layout, out, 1, i, t->here, m, held);
        free(held);
    }
}

static void compare_ranks(const char *layout, const struct rank *r, int world, struct result *out)
{
    for (int k = 0; k < world; k++)
        for (int i = 0; i < STEPS; i++) {
            if (k && (r[k].step[i].loss != r[0].step[i].loss || r[k].step[i].gnorm != r[0].step[i].gnorm))
                complain(layout, "ranks 0 and %d see another loss or norm in step %d", k, i);
            out->loss[i] = r[0].step[i].loss;
            out->gnorm[i] = r[0].step[i].gnorm;
        }
}

static void compare_looks(const char *layout, const struct rank *r, int world, struct result *out)
{
    const struct tn_session_shape *h = tn_session_shape(r->session);

    out->bytes = tn_memory_bytes(r->session->memory);
    if (!r->look)
        return;
    out->n_logits = h->seq_len * tn_session_model(r->session)->vocab_size;
    out->logits = need((size_t)out->n_logits * sizeof *out->logits);
    memcpy(out->logits, r->logits, (size_t)out->n_logits * sizeof *out->logits);
    out->sum = r->sum, out->valid = r->valid;
    for (int k = 1; k < world; k++)
        if (r[k].sum != r->sum || r[k].valid != r->valid || memcmp(r[k].logits, r->logits, (size_t)out->n_logits * sizeof *out->logits))
            complain(layout, "ranks 0 and %d see another validation or other logits", k);
}

static void close_rank(struct rank *r)
{
    for (uint32_t i = 0; r->grad && i < tn_session_tensors(r->session); i++)
        free(r->grad[i]);
    free(r->grad);
    free(r->logits);
    tn_session_close(r->session);
    tn_config_free(r->config);
}

static int run(const char *layout, int world, const int32_t *tokens, const int32_t *targets, struct result *out)
{
    struct rank *r = need((size_t)world * sizeof *r);
    int opened = 0, ok = 1;

    while (opened < world && open_rank(&r[opened], layout, world, opened))
        opened++;
    ok = opened == world;
    for (int i = 0; i < world && ok; i++) {
        r[i].tokens = tokens, r[i].targets = targets, r[i].lr = lr;
        pthread_create(&r[i].thread, NULL, train, &r[i]);
    }
    for (int i = 0; i < world && ok; i++)
        pthread_join(r[i].thread, NULL);
    for (int i = 0; i < world; i++)
        if (*r[i].error) {
            complain(layout, "rank %d, %s", i, r[i].error);
            ok = 0;
        }
    if (ok) {
        make_room(out, r[0].session);
        for (int i = 0; i < world; i++)
            collect(layout, &r[i], out);
        compare_ranks(layout, r, world, out);
        compare_looks(layout, r, world, out);
    }
    for (int i = 0; i < opened; i++)
        close_rank(&r[i]);
    free(r);
    return ok;
}

/* --- comparing */

static float largest(const float *x, int64_t n)
{
    float m = 0;

    for (int64_t i = 0; i < n; i++)
        m = fabsf(x[i]) > m ? fabsf(x[i]) : m;
    return m;
}

static double worst;

/* allow: beside 1e-5 of the tensor's largest, for each element; NULL: nothing. */
static void tensor(const char *layout, const char *what, const char *name, const float *a, const float *b, int64_t n, double floor,
                   const float *grad, double most)
{
    double m = (double)largest(a, n);

    for (int64_t i = 0; i < n; i++) {
        double allow = 1e-5 * m + floor + (grad ? lr * STEPS * fmin(1, 1e-5 * most / (fabs((double)grad[i]) + 1e-30)) : 0);
        double error = fabs((double)a[i] - (double)b[i]) / allow;

        worst = error > worst ? error : worst;
        if (!(error <= 1)) {
            complain(layout, "%s %s[%lld]: %.9g alone, %.9g in parallel (%.3g times the tolerance)", what, name, (long long)i, (double)a[i],
                     (double)b[i], error);
            return;
        }
    }
}

static void compare(const char *layout, const struct result *a, const struct result *b)
{
    char opt[32];
    int adaptive = strcmp(word(layout, "opt", "adamw", opt), "sgd");
    double most = 0;

    for (uint32_t i = 0; i < a->n; i++)
        most = fmax(most, (double)largest(a->grad[i], a->count[i]));
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(a->loss[i] - b->loss[i]) <= 2e-6 * fabs(a->loss[i])) || !(fabs(a->gnorm[i] - b->gnorm[i]) <= 4e-6 * a->gnorm[i]))
            complain(layout, "step %d: loss %.9g norm %.9g alone, %.9g and %.9g in parallel", i, a->loss[i], a->gnorm[i], b->loss[i], b->gnorm[i]);
    if (a->valid != b->valid || !(fabs(a->sum - b->sum) <= 2e-6 * fabs(a->sum)))
        complain(layout, "validation: %.9g of %g targets alone, %.9g of %g in parallel", a->sum, a->valid, b->sum, b->valid);
    if (a->logits)
        tensor(layout, "logits", "", a->logits, b->logits, a->n_logits, 0, NULL, 0);
    for (uint32_t i = 0; i < a->n; i++) {
        tensor(layout, "gradient of", a->name[i], a->grad[i], b->grad[i], a->count[i], 1e-6 * most, NULL, 0);
        tensor(layout, "parameter", a->name[i], a->after[i], b->after[i], a->count[i], 0, adaptive ? a->grad[i] : NULL, most);
        for (int kind = 0; kind < 2; kind++)
            if (memchr(b->seen[kind][i], 0, (size_t)b->count[i]))
                complain(layout, "%s: some elements are on no rank", b->name[i]);
    }
}

static void release(struct result *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        free((char *)r->name[i]);
        free(r->grad[i]), free(r->after[i]), free(r->seen[0][i]), free(r->seen[1][i]);
    }
    free(r->logits), free(r->name), free(r->count), free(r->grad), free(r->after), free(r->seen[0]), free(r->seen[1]);
}

/* Sequences of 12, of which number i has about i/12 of its targets; one has none. */
static void make_data(int64_t vocab, int64_t seq, int32_t *tokens, int32_t *targets)
{
    uint32_t x = 12345;

    for (int64_t i = 0; i < STEPS * 12 * seq; i++) {
        int64_t sequence = i / seq % 12;

        x = x * 1664525 + 1013904223;
        tokens[i] = (int32_t)((x >> 8) % (uint32_t)vocab);
        x = x * 1664525 + 1013904223;
        targets[i] = (x >> 8) % 12 < (uint32_t)sequence ? (int32_t)((x >> 12) % (uint32_t)vocab) : -1;
    }
}

static void check(const char *layout)
{
    static int32_t tokens[STEPS * 12 * 32], targets[STEPS * 12 * 32];
    struct result alone = {0}, parallel = {0};
    char opt[32];
    int before = failures;

    worst = 0;
    lr = strcmp(word(layout, "opt", "adamw", opt), "sgd") ? 0.001 : 0.1;
    make_data(model_of(layout)->vocab, model_of(layout)->seq, tokens, targets);
    if (run(layout, 1, tokens, targets, &alone) && run(layout, world_of(layout), tokens, targets, &parallel))
        compare(layout, &alone, &parallel);
    release(&alone);
    release(&parallel);
    if (failures == before)
        printf("ok   %s (worst %.2g of the tolerance)\n", layout, worst);
    fflush(stdout);
}

static const char *const usual[] = {
    "micro=4", "micro=1 opt=sgd", "dp=2", "dp=2 micro=2 opt=sgd", "dp=3 micro=2 model=odd", "dp=4 micro=1 drop=0.3",
    "dp=2 zero=1", "dp=2 zero=2 micro=2", "dp=2 zero=3 micro=3", "dp=3 zero=1 model=odd opt=sgd", "dp=3 zero=2 micro=2 model=odd",
    "dp=3 zero=3 micro=4 model=odd", "dp=4 zero=3 micro=1 drop=0.3 opt=sgd",
    "tp=2", "tp=4 opt=sgd", "tp=3 model=odd", "tp=2 sp=yes", "tp=2 sp=yes micro=3 model=odd opt=sgd", "tp=4 sp=yes drop=0.3",
    "cp=2 zigzag=no", "cp=2 zigzag=yes opt=sgd", "cp=4 zigzag=yes", "cp=3 zigzag=yes model=odd", "cp=2 zigzag=no model=odd micro=2", "cp=2 drop=0.3",
    "dp=2 tp=2", "dp=2 tp=2 sp=yes zero=1 micro=3", "dp=2 tp=2 zero=2 opt=sgd", "dp=2 tp=2 sp=yes zero=3 micro=2", "dp=2 cp=2 zero=1",
    "dp=2 cp=2 zero=3 micro=2 opt=sgd", "cp=2 tp=2 sp=yes", "cp=2 tp=2 zigzag=no drop=0.3", "dp=2 tp=2 cp=2 zero=3 sp=yes micro=2",
    "dp=2 tp=2 cp=2 zero=2 sp=yes micro=1 drop=0.3 opt=sgd", "dp=3 tp=2 sp=yes zero=3 micro=4 model=odd",
    "dp=2 micro=2 bucket=0.01", "dp=3 micro=1 bucket=0 model=odd", "dp=2 micro=2 bucket=0.01 sync_every=yes", "dp=2 zero=1 micro=2 bucket=0.01 sync_every=yes opt=sgd",
    "dp=2 cp=2 micro=2 bucket=0.01", "dp=2 cp=2 micro=2 bucket=0.01 sync_every=yes", "dp=2 zero=2 micro=2 bucket=0.01", "dp=3 zero=3 micro=2 prefetch=0 model=odd",
    "dp=2 zero=3 micro=2 prefetch=0.02 drop=0.3", "cp=2 ring=no", "cp=3 ring=no zigzag=no model=odd drop=0.3", "dp=2 cp=2 tp=2 ring=no sp=yes micro=2 zero=1 opt=sgd",
    "dp=4 shard_within=2 zero=1 micro=1", "dp=4 shard_within=2 zero=2 micro=1 bucket=0.01", "dp=4 shard_within=2 zero=3 micro=1 opt=sgd",
    "dp=6 shard_within=3 zero=3 micro=1 model=odd drop=0.3", "dp=4 shard_within=2 zero=3 tp=2 sp=yes micro=1",
    "dp=2 zero=3 micro=2 drop=0.3 recompute=yes", "dp=2 tp=2 zero=3 sp=yes prefetch=0 recompute=yes", "cp=2 ring=no recompute=yes",
    "pp=2", "pp=2 micro=6 schedule=afab opt=sgd", "pp=2 micro=3", "pp=2 micro=3 tied=no opt=sgd", "pp=2 micro=6 layers=4 schedule=interleaved",
    "pp=2 micro=1 layers=6 schedule=interleaved virtual=3", "pp=2 micro=3 layers=4 stages=1,3 drop=0.3 recompute=yes",
    "pp=2 micro=3 layers=5 model=odd schedule=afab", "pp=3 micro=4 layers=5 model=odd opt=sgd", "pp=4 micro=12", "pp=4 micro=6 layers=4 schedule=afab",
    "pp=4 micro=3 layers=4 drop=0.3", "pp=4 micro=3 layers=7 schedule=interleaved tied=no",
    "pp=2 dp=2 micro=3", "pp=2 dp=2 micro=1", "pp=2 dp=2 micro=1 layers=4 schedule=interleaved opt=sgd", "pp=2 dp=2 zero=1 micro=3 drop=0.3", "pp=2 dp=2 zero=2 micro=3 opt=sgd", "pp=2 dp=2 zero=3 micro=3 layers=4 schedule=interleaved recompute=yes",
    "pp=2 tp=2 micro=3 schedule=afab", "pp=2 tp=2 sp=yes micro=6 opt=sgd", "pp=2 tp=3 sp=yes micro=3 layers=5 model=odd", "pp=2 cp=2 micro=3",
    "pp=2 cp=2 zigzag=no micro=6 layers=4 schedule=interleaved drop=0.3", "dp=2 tp=2 pp=2 micro=3", "dp=2 tp=2 pp=2 sp=yes zero=3 micro=2 drop=0.3 opt=sgd",
    "dp=2 pp=2 cp=2 zero=2 micro=2", "pp=2 micro=3 look=yes", "pp=2 micro=6 layers=4 schedule=interleaved look=yes", "pp=4 tp=2 sp=yes micro=3 look=yes kernels=cpu,ref",
    "micro=4 model=llama", "dp=3 zero=3 micro=2 model=llama", "dp=2 zero=1 micro=3 model=llama opt=sgd", "dp=2 zero=2 micro=2 model=mqa tied=no",
    "tp=2 model=llama", "tp=3 sp=yes model=llama opt=sgd", "tp=4 model=mqa", "tp=3 sp=yes model=mqa tied=no opt=sgd", "tp=5 model=llama kernels=cpu,ref",
    "cp=2 model=llama", "cp=3 zigzag=no model=llama opt=sgd", "cp=3 ring=no model=llama", "cp=2 tp=4 sp=yes model=mqa opt=sgd",
    "pp=3 micro=4 layers=5 model=llama", "pp=2 micro=3 layers=5 model=llama schedule=afab tied=no", "pp=2 micro=6 layers=4 model=mqa schedule=interleaved opt=sgd",
    "dp=2 zero=3 micro=2 model=llama recompute=yes", "cp=2 model=llama recompute=yes kernels=cpu,ref", "pp=2 tp=3 sp=yes micro=3 layers=5 model=llama look=yes kernels=cpu,ref",
    "dp=2 tp=2 pp=2 cp=2 sp=yes zero=1 micro=3 layers=4 schedule=interleaved model=llama", "dp=2 cp=2 tp=2 zero=3 sp=yes micro=2 model=mqa look=yes",
    "pp=2 cp=2 tp=2 micro=4 look=yes", "dp=2 tp=2 pp=2 cp=2 sp=yes zero=1 micro=3 layers=4 schedule=interleaved",
    "micro=4 model=moe", "dp=2 model=moe kernels=cpu,ref", "dp=3 zero=3 micro=2 model=moe", "tp=3 sp=yes model=moe", "cp=3 ring=no zigzag=no model=moe",
    "pp=2 micro=3 layers=4 schedule=interleaved model=moe tied=no", "dp=2 ep=2 model=moe look=yes", "dp=3 ep=3 micro=2 model=moe opt=sgd",
    "dp=4 ep=2 micro=1 model=moe kernels=cpu,ref", "dp=3 ep=3 micro=1 model=sparse look=yes", "dp=4 ep=4 micro=1 model=sparse",
    "dp=2 ep=2 tp=2 sp=yes model=moe micro=3 opt=sgd", "dp=2 ep=2 cp=2 model=moe micro=3", "dp=2 ep=2 pp=2 model=moe micro=3",
    "dp=2 ep=2 zero=1 model=moe", "dp=4 ep=2 zero=2 micro=1 model=moe opt=sgd", "dp=4 ep=2 zero=3 micro=1 model=moe", "dp=4 ep=2 zero=3 micro=1 model=moe recompute=yes",
    "dp=2 ep=2 zero=3 tp=2 sp=yes cp=2 micro=3 model=moe recompute=yes",
};

/* Of twelve micro-batches the first of four stages keeps four under 1f1b: memory that is not there cannot be used. */
static void check_memory(void)
{
    static const char *const words[] = {"pp=4 micro=1 layers=4 schedule=1f1b", "pp=4 micro=1 layers=4 schedule=afab"};
    static int32_t tokens[STEPS * 12 * 32], targets[STEPS * 12 * 32];
    struct result r[2] = {0};

    make_data(64, 16, tokens, targets);
    for (int i = 0; i < 2; i++)
        run(words[i], 4, tokens, targets, &r[i]);
    if (!r[0].bytes || r[1].bytes < 3 * r[0].bytes / 2)
        complain(words[0], "%llu bytes on rank 0, and %llu under afab", (unsigned long long)r[0].bytes, (unsigned long long)r[1].bytes);
    else
        printf("ok   1f1b takes %.0f kB on rank 0 of four, afab %.0f\n", (double)r[0].bytes / 1e3, (double)r[1].bytes / 1e3);
    release(&r[0]), release(&r[1]);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++)
        check(argv[i]);
    for (size_t i = 0; argc == 1 && i < sizeof usual / sizeof *usual; i++)
        check(usual[i]);
    if (argc == 1)
        check_memory();
    printf("%d layouts failed\n", failures);
    return failures != 0;
}
