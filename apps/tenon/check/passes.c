/* passes.c - a strategy: parallel against one process, by tenon verify, in processes of this host.
 *
 * The model is small and nothing in it divides: 3 heads, 27 wide, 65 tokens, 17 positions; for the axis ep 5 experts. The strategy is tried in its
 * axis on two and three ranks, with SGD (whose update shows the size of a gradient) and AdamW, with micro-batches, dropout
 * and recomputation, with each of its options in another position, and in pairs with the strategies that are shipped. Loss,
 * norm, every gradient and every parameter must be those of one process, and what several ranks hold must have the same
 * bits.
 *
 * The axis: --axis, or what the options say (zero: dp, sp: tp, schedule: pp), or the axis that the plugin is the usual
 * choice for, or dp, tp and cp in turn. */
#include <tenon/pass.h>
#include "suite.h"

#define LIMIT 60

struct layout {
    const char *label, *what, *words;            /* settings; AXIS stands for the axis */
    uint32_t ranks;
    const char *with;                            /* another axis, of two ranks: only where it is not the own one */
};

static const struct layout layouts[] = {
    {"2-ranks", "two ranks, SGD", "optimizer.name=sgd optimizer.lr=0.1 train.micro_batch=MICRO", 2, NULL},
    {"3-ranks", "three ranks, AdamW", "optimizer.name=adamw optimizer.lr=0.001 train.micro_batch=MICRO", 3, NULL},
    {"micro", "many micro-batches", "optimizer.name=sgd optimizer.lr=0.1 train.micro_batch=1", 2, NULL},
    {"clip", "a norm that is clipped", "optimizer.name=sgd optimizer.lr=0.1 train.grad_clip=0.01 train.micro_batch=2", 2, NULL},
    {"dropout", "dropout", "optimizer.name=sgd optimizer.lr=0.1 model.dropout=0.3 train.micro_batch=2", 2, NULL},
    {"recompute", "activations computed again", "optimizer.name=sgd optimizer.lr=0.1 train.recompute=yes train.micro_batch=2", 2, NULL},
    {"untied", "a head of its own", "optimizer.name=sgd optimizer.lr=0.1 model.tie_embeddings=no train.micro_batch=2", 2, NULL},
    {"no-bias", "no biases", "optimizer.name=sgd optimizer.lr=0.1 model.bias=no train.micro_batch=2", 2, NULL},
    {"llama", "rotary positions and grouped queries", "optimizer.name=sgd optimizer.lr=0.1 model.arch=llama model.n_head=6 "
     "model.n_embd=36 model.n_kv_head=3 model.n_inner=25 train.micro_batch=2", 2, NULL},
    {"with-dp", "with dp", "optimizer.name=sgd optimizer.lr=0.1 train.micro_batch=1", 2, "dp"},
    {"with-zero3", "with dp and zero = 3", "optimizer.name=adamw optimizer.lr=0.001 parallel.zero=3 train.micro_batch=1", 2, "dp"},
    {"with-tp", "with tp", "optimizer.name=sgd optimizer.lr=0.1 train.micro_batch=2", 2, "tp"},
    {"with-sp", "with tp and sp", "optimizer.name=sgd optimizer.lr=0.1 parallel.sp=yes train.micro_batch=2", 2, "tp"},
    {"with-cp", "with cp", "optimizer.name=sgd optimizer.lr=0.1 train.micro_batch=2", 2, "cp"},
    {"with-pp", "with pp", "optimizer.name=sgd optimizer.lr=0.1 train.micro_batch=2", 2, "pp"},
};
static const char usual[] = "model.n_layer=4 model.n_head=3 model.n_embd=27";
/* For the axis ep: five experts on two and three ranks. */
static const char mixture[] = "model.arch=mixtral model.n_layer=4 model.n_head=3 model.n_embd=30 model.n_inner=25 model.n_expert=5 model.top_k=2";
static const char always[] = "model.vocab_size=65 model.block_size=19 train.seq_len=17 train.global_batch=12 backend.kernels=ref "
                             "backend.comm=gloo backend.threads=1 backend.debug=yes backend.timeout=20";

/* --- one run */

static void add_words(struct check_words *w, const char *words, uint32_t micro)
{
    for (const char *s = words; *s; s += strspn(s, " ")) {
        const int n = (int)strcspn(s, " ");

        if (n > 6 && !strncmp(s + n - 5, "MICRO", 5))
            check_word(w, "%.*s%u", n - 5, s, micro);
        else
            check_word(w, "%.*s", n, s);
        s += n;
    }
}

/* The parts of a test's name: AXIS, and an option's KEY=VALUE. */
struct trial {
    struct trial *next;                          /* all that were ever thought of: the process ends with them */
    const struct layout *layout;
    char axis[8], option[80];
    uint32_t zero;                               /* the smallest that the strategy is for */
    uint32_t unsure;                             /* the axis is a guess */
};

/* A strategy that shards is only asked for with zero of at least 1. */
static void compose(struct check_words *w, const struct check_subject *s, const struct trial *t)
{
    const struct layout *l = t->layout;
    const int experts = !strcmp(t->axis, "ep");              /* the axis is a part of dp */
    const uint32_t own = experts || !strcmp(t->axis, "dp") ? l->ranks : 1, dp = own * (l->with && !strcmp(l->with, "dp") ? 2 : 1);

    check_word(w, "tenon"), check_word(w, "verify"), check_word(w, "--worst=1");
    check_word(w, "--ranks=%u", l->ranks * (l->with ? 2 : 1));
    add_words(w, experts ? mixture : usual, 0);
    add_words(w, always, 0);
    add_words(w, l->words, 12 / dp);
    check_word(w, "parallel.%s=%u", t->axis, l->ranks);
    if (l->with)
        check_word(w, "parallel.%s=%u", l->with, strcmp(l->with, "dp") ? 2 : dp);
    if (t->zero)
        check_word(w, "parallel.zero=%u", t->zero);
    if (*t->option)
        check_word(w, "parallel.%s", t->option);
    check_word(w, "plugins.%s=%s", t->axis, s->card.note.name);
    check_word(w, "plugins.path=%s", s->real);
}

static void verify(struct check_run *r)
{
    const struct trial *t = r->test->with;
    struct check_words w = {.n = 0};
    char said[900];
    int code;

    compose(&w, r->subject, t);
    code = check_tenon(r, &w, said, sizeof said);
    r->result->variants = 1;
    if (!code)
        return;
    /* What a strategy says that it cannot do, or an axis that it is not for. */
    if (code == 2 && !strcmp(t->layout->label, "2-ranks") && !*t->option && !t->unsure)
        check_fail(r, "refused: %s", said);
    if (code == 2)
        check_skip(r, "refused: %s", said);
    check_fail(r, "%s", said);
}

/* --- the list */

static const struct check_option *option_of(const struct check_subject *s, const char *key)
{
    for (uint32_t i = 0; i < s->claims.options; i++)
        if (!strcmp(s->claims.option[i].key, key))
            return &s->claims.option[i];
    return NULL;
}

static uint32_t unsure;
static struct trial *trials;

static void add_trial(struct check_list *l, const struct check_subject *s, const struct layout *layout, const char *axis,
                      const char *option, uint32_t zero, const char *label)
{
    struct trial *t = calloc(1, sizeof *t);
    char what[300];

    if (!t)
        abort();
    t->next = trials, trials = t;
    t->layout = layout, t->zero = zero, t->unsure = unsure;
    snprintf(t->axis, sizeof t->axis, "%s", axis);
    snprintf(t->option, sizeof t->option, "%s", option);
    snprintf(what, sizeof what, "%s = %u by %s: %s%s%s, equal to one process", axis, layout->ranks, s->card.note.name,
             layout->what, *option ? ", " : "", option);
    struct check_test *test = check_add(l, verify, what, "pass/%s/%s", axis, label);
    test->with = t, test->limit = LIMIT, test->alone = 1;
}

/* Numbers of 0 to 1 in the other position, larger ones at their least. */
static void add_options(struct check_list *l, const struct check_subject *s, const char *axis, uint32_t zero)
{
    for (uint32_t i = 0; i < s->claims.options; i++) {
        const struct check_option *o = &s->claims.option[i];
        const int flag = o->low == 0 && o->high == 1, on = !strcmp(o->preset, "yes") || !strcmp(o->preset, "1");
        char option[80], label[80];

        if (!strcmp(o->key, "zero") || (o->low == 0 && o->high == 0))
            continue;
        if (flag)
            snprintf(option, sizeof option, "%s=%s", o->key, on ? "no" : "yes");
        else
            snprintf(option, sizeof option, "%s=%g", o->key, o->low);
        snprintf(label, sizeof label, "%s", option);
        label[strcspn(label, "=")] = '-';
        add_trial(l, s, &layouts[2], axis, option, zero, label);
    }
}

static void add_axis(struct check_list *l, const struct check_subject *s, const char *axis)
{
    const struct check_option *zero = !strcmp(axis, "dp") ? option_of(s, "zero") : NULL;
    const uint32_t least = zero ? 1 : 0;

    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const struct layout *a = &layouts[i];

        if (a->with && (!strcmp(a->with, axis) || (zero && !strcmp(a->with, "dp"))))
            continue;
        add_trial(l, s, a, axis, "", least, a->label);
    }
    for (uint32_t z = 2; zero && z <= 3 && z <= zero->high; z++)
        for (uint32_t k = 0; k < 3; k++) {
            char label[40];

            snprintf(label, sizeof label, "zero%u-%s", z, layouts[k].label);
            add_trial(l, s, &layouts[k], axis, "", z, label);
        }
    if (option_of(s, "schedule")) {
        add_trial(l, s, &layouts[2], axis, "schedule=afab", least, "schedule-afab");
        add_trial(l, s, &layouts[2], axis, "schedule=interleaved", least, "schedule-interleaved");
    }
    add_options(l, s, axis, least);
}

void check_list_passes(struct check_list *l, const struct check_subject *s)
{
    static const char *const own[] = {"dp", "tp", "cp", "pp", "ep"};
    static const struct {
        const char *option, *axis;
    } hint[] = {{"zero", "dp"}, {"sp", "tp"}, {"schedule", "pp"}};
    const char *axis = *s->axis ? s->axis : NULL;

    if (!s->claims.is_pass)
        return;
    for (size_t i = 0; i < sizeof hint / sizeof *hint && !axis; i++)
        axis = option_of(s, hint[i].option) ? hint[i].axis : NULL;
    for (size_t i = 0; i < sizeof own / sizeof *own && !axis; i++)
        axis = !strcmp(s->card.note.name, own[i]) ? own[i] : NULL;
    if (!axis && !strcmp(s->card.note.name, "ddp"))
        axis = "dp";
    unsure = !axis;
    for (size_t i = 0; i < 3; i++)
        if (!axis || i == 0)
            add_axis(l, s, axis ? axis : own[i]);
}
