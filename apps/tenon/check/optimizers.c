/* optimizers.c - an optimizer: its words, evaluated in double by a second reader, against what training does with them.
 *
 * An update is text, so it is right on every device if the text is right and means the same everywhere. What the
 * algorithm shall be nobody here can know; what can be known: the options are what they say, the loss of a bowl goes down,
 * a NaN is not hidden, a small model trains by exactly these words, parameters in chunks over ranks are the whole ones,
 * and a run that was stopped goes on as if it had not been. Each is tried with the options as they are preset and with
 * all of them in another position. */
#include <math.h>
#include <sys/stat.h>
#include <tenon/kit_number.h>
#include <tenon/optimizer.h>
#include "base/config.h"
#include "base/status.h"
#include "formula.h"
#include "suite.h"
#include "train/session.h"

#define STEPS 3
#define LIMIT 90

/* --- the options in a position */

struct position {
    const char *label, *what;
    int moved;
};
static const struct position positions[] = {{"preset", "as preset", 0}, {"moved", "all options in another position", 1}};

static int is_text(const struct check_option *o)
{
    return o->low == 0 && o->high == 0;
}

static double number(const char *text)
{
    return !strcmp(text, "yes") ? 1 : !strcmp(text, "no") ? 0 : strtod(text, NULL);
}

/* Flags change, numbers go to the middle of their range, or near their preset where it has no end. */
static double value_of(const struct check_option *o, int moved)
{
    const double preset = number(o->preset);
    const int flag = !strcmp(o->preset, "yes") || !strcmp(o->preset, "no");

    if (!moved || is_text(o))
        return preset;
    if (flag)
        return !preset;
    return o->high - o->low <= 10 ? o->low + 0.5 * (o->high - o->low) : fmin(o->high, fmax(o->low, preset * 1.5));
}

struct meaning {
    const struct tn_slot *slots;
    const char *update;                          /* NULL: it builds nodes itself */
    double value[CHECK_OPTIONS];
};

static struct meaning meaning_of(struct check_run *r, int moved)
{
    const struct tn_optimizer *o = check_table(r, TN_OPTIMIZER_ID);
    struct meaning m = {o->slots, o->update, {0}};

    for (uint32_t i = 0; i < r->subject->claims.options; i++)
        m.value[i] = value_of(&r->subject->claims.option[i], moved);
    if (o->choose)
        o->choose(m.value, &m.slots, &m.update);
    if (!m.update && !o->build)
        check_fail(r, "no update for these options");
    return m;
}

static void needs_text(struct check_run *r, const struct meaning *m)
{
    if (!m->update)
        check_skip(r, "it builds its nodes itself, so there are no words to read");
}

/* One update of one element: names are there, w and slots are as before. */
static void step(struct check_run *r, const struct meaning *m, struct formula *f, double g, double lr, double t, int decays)
{
    formula_set(f, "g", g), formula_set(f, "lr", lr), formula_set(f, "t", t);
    for (uint32_t i = 0; i < r->subject->claims.options; i++) {
        const char *key = r->subject->claims.option[i].key;

        formula_set(f, key, !decays && !strcmp(key, "weight_decay") ? 0 : m->value[i]);
    }
    if (!formula_run(f, m->update))
        check_fail(r, "the update \"%s\": %s", m->update, f->error);
}

static void begin(const struct meaning *m, struct formula *f, double w)
{
    *f = (struct formula){.n = 0};
    formula_set(f, "w", w);
    for (const struct tn_slot *s = m->slots; s && s->name; s++)
        formula_set(f, s->name, 0);
}

/* --- what it says of itself */

static void options(struct check_run *r)
{
    const struct tn_optimizer *o = check_table(r, TN_OPTIMIZER_ID);
    static const char *const taken[] = {"w", "g", "lr", "t", "name", "lr_scale", "no_decay"};

    for (const struct tn_option *k = o->options; k && k->key; k++) {
        const double preset = number(k->preset ? k->preset : "");

        if (!k->help || !*k->help)
            check_fail(r, "the option %s has no help", k->key);
        if (!k->preset)
            check_fail(r, "the option %s has no preset", k->key);
        if ((k->low != 0 || k->high != 0) && (!(k->low < k->high) || preset < k->low || preset > k->high))
            check_fail(r, "the option %s: preset %s, range %g to %g", k->key, k->preset, k->low, k->high);
        for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
            if (!strcmp(k->key, taken[i]))
                check_fail(r, "the option %s has a name that is the host's", k->key);
        for (const struct tn_option *b = o->options; b < k; b++)
            if (!strcmp(k->key, b->key))
                check_fail(r, "two options are called %s", k->key);
    }
}

static void same_words(struct check_run *r, const struct meaning *a, const struct meaning *b)
{
    if (a->update != b->update && (!a->update || !b->update || strcmp(a->update, b->update)))
        check_fail(r, "asked again with the same options it gives \"%s\" in place of \"%s\"", b->update ? b->update : "nothing",
                   a->update ? a->update : "nothing");
    for (const struct tn_slot *x = a->slots, *y = b->slots; x && x->name; x++, y++) {
        if (!y || !y->name || strcmp(x->name, y->name) || x->dtype != y->dtype)
            check_fail(r, "asked again with the same options it gives other slots");
        if (x->dtype != TN_F32 && x->dtype != TN_BF16 && x->dtype != TN_F16)
            check_fail(r, "the slot %s is of dtype %u, which no slot may be; does the list of slots end with {0}?", x->name,
                       x->dtype);
    }
}

/* The same options give the same words, at once, after others, and so on every rank. */
static void choice(struct check_run *r)
{
    for (int moved = 0; moved < 2; moved++) {
        const struct meaning a = meaning_of(r, moved), b = meaning_of(r, moved);

        same_words(r, &a, &b);
        meaning_of(r, !moved);
        const struct meaning c = meaning_of(r, moved);

        same_words(r, &a, &c);
    }
}

/* --- the words alone */

/* A bowl of three widths: after some steps its bottom is nearer, and all numbers are finite. */
static void descends(struct check_run *r)
{
    static const double width[] = {1, 0.3, 3};
    const struct meaning m = meaning_of(r, 0);
    double first = 0, last = 0;

    needs_text(r, &m);
    for (int k = 0; k < 3; k++) {
        struct formula f;

        begin(&m, &f, 1);
        first += 0.5 * width[k];
        for (int t = 1; t <= 300; t++) {
            const double w = formula_get(&f, "w");

            if (!isfinite(w))
                check_fail(r, "after %d steps with lr 0.02 down a bowl w is %g", t - 1, w);
            last += t > 280 ? 0.5 * width[k] * w * w / 20 : 0;
            step(r, &m, &f, width[k] * w, 0.02, t, 1);
        }
    }
    if (!(last < 0.7 * first))
        check_fail(r, "300 steps with lr 0.02 down a bowl of height %g end at %g", first, last);
}

/* A gradient that is no number makes a weight that is none, so that it is seen. */
static void shows_nan(struct check_run *r)
{
    for (int moved = 0; moved < 2; moved++) {
        const struct meaning m = meaning_of(r, moved);
        struct formula f;

        needs_text(r, &m);
        begin(&m, &f, 0.5);
        step(r, &m, &f, 0.1, 0.01, 1, 1);
        step(r, &m, &f, NAN, 0.01, 2, 1);
        if (!isnan(formula_get(&f, "w")))
            check_fail(r, "a NaN in the gradient gives the weight %g, so nobody sees it; a comparison hides one: add 0*g",
                       formula_get(&f, "w"));
    }
}

/* What is kept changes: a slot that no step writes is memory for nothing, and one that is not kept is lost. */
static void slots(struct check_run *r)
{
    for (int moved = 0; moved < 2; moved++) {
        const struct meaning m = meaning_of(r, moved);
        struct formula f;

        needs_text(r, &m);
        begin(&m, &f, 0.5);
        for (int t = 1; t <= 3; t++)
            step(r, &m, &f, 0.1 * t, 0.01, t, 1);
        for (const struct tn_slot *s = m.slots; s && s->name; s++)
            if (formula_get(&f, s->name) == 0)
                check_fail(r, "after three steps the slot %s is still 0", s->name);
    }
}

/* --- training by these words */

static struct tn_config *configure(struct check_run *r, int moved, const char *kernels)
{
    static const char *const usual[] = {
        "model.n_layer=1",   "model.n_head=3",         "model.n_embd=15",    "model.vocab_size=33", "model.block_size=9",
        "train.seq_len=9",   "train.global_batch=4",   "train.micro_batch=2", "train.grad_clip=0",  "backend.comm=self",
        "backend.threads=1", "backend.device=cpu",
    };
    char text[CHECK_OPTIONS + 24][200], *list[CHECK_OPTIONS + 24], path[4200];
    struct tn_config *c = NULL;
    int n = 0;

    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        snprintf(text[n++], sizeof text[0], "%s", usual[i]);
    snprintf(text[n++], sizeof text[0], "backend.kernels=%s", kernels);
    snprintf(text[n++], sizeof text[0], "optimizer.name=%s", r->subject->card.note.name);
    for (uint32_t i = 0; i < r->subject->claims.options; i++)
        if (moved && !is_text(&r->subject->claims.option[i]))
            snprintf(text[n++], sizeof text[0], "optimizer.%s=%.17g", r->subject->claims.option[i].key,
                     value_of(&r->subject->claims.option[i], moved));
    for (int i = 0; i < n; i++)
        list[i] = text[i];
    snprintf(path, sizeof path, "plugins.path=%s", r->subject->real);
    list[n++] = path;
    if (tn_config_open(NULL, n, list, &c) < 0)
        check_fail(r, "%s", check_said());
    return c;
}

/* Tensors before an update and after it, and the gradient. Slots follow the parameters, "NAME:SLOT". */
struct state {
    void **tensor;
    float **grad;
    uint32_t n;
};

static struct state new_state(struct tn_session *s)
{
    struct state x = {.n = tn_session_tensors(s)};

    x.tensor = calloc(x.n, sizeof *x.tensor), x.grad = calloc(x.n, sizeof *x.grad);
    for (uint32_t i = 0; i < x.n; i++)
        x.tensor[i] = malloc(tn_session_tensor(s, i)->bytes + 1), x.grad[i] = malloc(tn_session_tensor(s, i)->bytes + 1);
    return x;
}

static void read_state(struct check_run *r, struct tn_session *s, struct state *x, int gradients)
{
    for (uint32_t i = 0; i < x->n; i++) {
        if (tn_session_get(s, i, x->tensor[i]) < 0)
            check_fail(r, "%s", check_said());
        if (gradients && !tn_session_tensor(s, i)->is_state && tn_session_gradient(s, i, x->grad[i]) < 0)
            check_fail(r, "%s", check_said());
    }
}

static uint32_t slot_tensor(const struct tn_session *s, uint32_t parameter, const char *slot)
{
    char name[300];

    snprintf(name, sizeof name, "%s:%s", tn_session_tensor(s, parameter)->name, slot);
    for (uint32_t i = 0; i < tn_session_tensors(s); i++)
        if (!strcmp(tn_session_tensor(s, i)->name, name))
            return i;
    return UINT32_MAX;
}

static int64_t elements(const struct tn_session_tensor *t)
{
    return (int64_t)(t->bytes / tn_kit_width(t->dtype));
}

static double largest(const struct tn_session_tensor *t, const void *x)
{
    double most = 0;

    for (int64_t i = 0; i < elements(t); i++)
        most = fmax(most, fabs(tn_kit_load(t->dtype, x, i)));
    return most;
}

/* Half of a unit in the last place of a slot of this dtype that holds v, in fp32 too little to count. */
static double rounding(uint32_t dtype, double v)
{
    return dtype == TN_BF16 ? fabs(v) * 0x1p-8 : dtype == TN_F16 ? fmax(fabs(v) * 0x1p-11, 0x1p-25) : 0;
}

/* moved: by this step. What is left of a difference is off by the size of what was subtracted, which is some of the
 * tensor's largest; rounded: by how much it was when it was stored. */
static void near(struct check_run *r, const char *name, int64_t e, double have, double want, double moved, double largest,
                 double rounded)
{
    const double most = 3e-7 * fabs(want) + 2e-5 * fabs(moved) + 1e-6 * largest + 1e-12 + rounded;
    const double off = fabs(have - want) / most;

    if (!(off <= 1))
        check_fail(r, "%s[%lld] became %.9g, by its words %.9g", name, (long long)e, have, want);
    r->result->worst = fmax(r->result->worst, off);
}

#define MOST_SLOTS 16

/* A parameter among the tensors, its slots, and the largest that each of those has become. */
struct parameter {
    uint32_t at, slots, slot[MOST_SLOTS];
    double largest[MOST_SLOTS];
};

static struct parameter find_parameter(struct check_run *r, const struct meaning *m, struct tn_session *s, const struct state *b, uint32_t at)
{
    struct parameter p = {.at = at};

    for (const struct tn_slot *k = m->slots; k && k->name; k++, p.slots++) {
        const uint32_t slot = p.slots < MOST_SLOTS ? slot_tensor(s, at, k->name) : UINT32_MAX;

        if (slot == UINT32_MAX)
            check_fail(r, "the slot %s of %s is not among what is saved", k->name, tn_session_tensor(s, at)->name);
        p.slot[p.slots] = slot;
        p.largest[p.slots] = largest(tn_session_tensor(s, slot), b->tensor[slot]);
    }
    return p;
}

static double number_in(const struct tn_session *s, const struct state *x, uint32_t tensor, int64_t e)
{
    return tn_kit_load(tn_session_tensor(s, tensor)->dtype, x->tensor[tensor], e);
}

static void compare_element(struct check_run *r, const struct meaning *m, struct tn_session *s, const struct state *a, const struct state *b,
                            const struct parameter *p, int64_t e, double lr, int t)
{
    const struct tn_session_tensor *w = tn_session_tensor(s, p->at);
    const double before = number_in(s, a, p->at, e);
    struct formula f;

    begin(m, &f, before);
    for (uint32_t k = 0; k < p->slots; k++)
        formula_set(&f, m->slots[k].name, number_in(s, a, p->slot[k], e));
    step(r, m, &f, (double)b->grad[p->at][e], lr, t, w->rank >= 2);
    near(r, w->name, e, number_in(s, b, p->at, e), formula_get(&f, "w"), formula_get(&f, "w") - before, 0, 0);
    for (uint32_t k = 0; k < p->slots; k++) {
        const struct tn_session_tensor *slot = tn_session_tensor(s, p->slot[k]);
        const double want = formula_get(&f, m->slots[k].name);

        near(r, slot->name, e, number_in(s, b, p->slot[k], e), want, want, p->largest[k], rounding(slot->dtype, want));
    }
}

static void compare(struct check_run *r, const struct meaning *m, struct tn_session *s, const struct state *a, const struct state *b,
                    double lr, int t)
{
    for (uint32_t i = 0; i < a->n && !tn_session_tensor(s, i)->is_state; i++) {
        const struct parameter p = find_parameter(r, m, s, b, i);

        for (int64_t e = 0; e < elements(tn_session_tensor(s, i)); e++)
            compare_element(r, m, s, a, b, &p, e, lr, t);
    }
}

static void trains(struct check_run *r)
{
    const struct position *p = r->test->with;
    const struct meaning m = meaning_of(r, p->moved);
    const char *kernels = r->test->number ? "cpu,ref" : "ref";
    struct tn_config *c = configure(r, p->moved, kernels);
    const struct tn_session_options use = {.use = TN_SESSION_TRAIN | TN_SESSION_STEP};
    struct tn_session *s = NULL;
    int32_t tokens[4 * 9], targets[4 * 9];
    struct state a, b;

    needs_text(r, &m);
    if (tn_session_configure(c, &s) < 0 || tn_session_open(s, &use) < 0 || tn_session_initialize(s, 5) < 0)
        check_fail(r, "%s", check_said());
    a = new_state(s), b = new_state(s);
    for (int t = 1; t <= STEPS; t++) {
        struct tn_session_result out;

        for (int i = 0; i < 4 * 9; i++)
            tokens[i] = (i * 7 + t * 5) % 33, targets[i] = (i * 11 + t) % 33;
        read_state(r, s, &a, 0);
        if (tn_session_update(s, (uint64_t)t - 1, tokens, targets, 0.01, &out) < 0)
            check_fail(r, "%s", check_said());
        read_state(r, s, &b, 1);
        compare(r, &m, s, &a, &b, 0.01, t);
    }
    r->result->variants = STEPS;
}

/* --- by the program */

static void add_usual(struct check_words *w, const struct check_subject *s, int moved)
{
    static const char *const usual[] = {"model.n_layer=2", "model.n_head=3", "model.n_embd=15", "model.block_size=9",
                                        "train.seq_len=9", "train.global_batch=12", "backend.threads=1", "backend.device=cpu",
                                        "optimizer.lr=0.01"};

    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        check_word(w, "%s", usual[i]);
    check_word(w, "optimizer.name=%s", s->card.note.name);
    check_word(w, "plugins.path=%s", s->real);
    for (uint32_t i = 0; i < s->claims.options; i++)
        if (moved && !is_text(&s->claims.option[i]))
            check_word(w, "optimizer.%s=%.17g", s->claims.option[i].key, value_of(&s->claims.option[i], moved));
}

static void must_run(struct check_run *r, struct check_words *w)
{
    char said[800];

    if (check_tenon(r, w, said, sizeof said))
        check_fail(r, "tenon %s: %s", w->argv[1], said);
}

static void sharded(struct check_run *r)
{
    static const struct {
        int zero, ranks;
    } layout[] = {{1, 2}, {2, 3}, {3, 2}};

    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        struct check_words w = {.n = 0};

        check_word(&w, "tenon"), check_word(&w, "verify"), check_word(&w, "--worst=1");
        check_word(&w, "--ranks=%d", layout[i].ranks), check_word(&w, "parallel.dp=%d", layout[i].ranks);
        check_word(&w, "parallel.zero=%d", layout[i].zero);
        check_word(&w, "model.vocab_size=65"), check_word(&w, "backend.comm=gloo"), check_word(&w, "backend.kernels=ref");
        add_usual(&w, r->subject, ((const struct position *)r->test->with)->moved);
        must_run(r, &w);
        r->result->variants++;
    }
}

static void prepare_data(struct check_run *r, const char *name)
{
    char path[200];
    struct check_words w = {.n = 0};
    FILE *f;

    snprintf(path, sizeof path, "%s/%s.txt", r->subject->folder, name);
    f = fopen(path, "w");
    for (int i = 0; f && i < 300; i++)
        fprintf(f, "line %d: no words are left for the %dth time\n", i, i * 7 % 31);
    if (!f || fclose(f))
        check_fail(r, "%s cannot be written", path);
    check_word(&w, "tenon"), check_word(&w, "prepare"), check_word(&w, "--tokenizer=char");
    check_word(&w, "--input=%s.txt", name), check_word(&w, "--out=%s.data", name);
    must_run(r, &w);
}

static void train(struct check_run *r, const char *name, const char *run, int steps)
{
    struct check_words w = {.n = 0};

    check_word(&w, "tenon"), check_word(&w, "train"), check_word(&w, "data.dir=%s.data", name);
    check_word(&w, "checkpoint.dir=%s.%s", name, run);
    check_word(&w, "train.steps=%d", steps), check_word(&w, "train.eval_interval=0"), check_word(&w, "checkpoint.interval=0");
    check_word(&w, "backend.kernels=ref"), check_word(&w, "backend.comm=self"), check_word(&w, "train.micro_batch=6");
    add_usual(&w, r->subject, ((const struct position *)r->test->with)->moved);
    must_run(r, &w);
}

static char *contents(struct check_run *r, const char *name, const char *run, const char *file, size_t *bytes)
{
    char path[300], *p = malloc(4 << 20);
    FILE *f;

    snprintf(path, sizeof path, "%s/%s.%s/step-00000006/%s-00001-of-00001.safetensors", r->subject->folder, name, run, file);
    f = fopen(path, "rb");
    if (!f || !p)
        check_fail(r, "the run left no %s", path);
    *bytes = fread(p, 1, 4 << 20, f);
    fclose(f);
    return p;
}

/* Six updates, and three and three in two processes: the same bits. */
static void resumes(struct check_run *r)
{
    const char *name = ((const struct position *)r->test->with)->label;
    static const char *const files[] = {"model", "optimizer"};

    prepare_data(r, name);
    train(r, name, "whole", 6);
    train(r, name, "parts", 3);
    train(r, name, "parts", 6);
    for (int i = 0; i < 2; i++) {
        size_t n[2];
        char *a, *b;

        if (i && !meaning_of(r, ((const struct position *)r->test->with)->moved).slots)
            break;
        a = contents(r, name, "whole", files[i], &n[0]), b = contents(r, name, "parts", files[i], &n[1]);
        if (n[0] != n[1] || memcmp(a, b, n[0]))
            check_fail(r, "a run that was stopped after 3 of 6 updates and went on has another %s than one that was not", files[i]);
    }
    r->result->variants = 1;
}

void check_list_optimizers(struct check_list *l, const struct check_subject *s)
{
    struct check_test *t;
    char what[200];

    if (!s->claims.is_optimizer)
        return;
    check_add(l, options, "the options: presets, ranges, help, names", "optimizer/options");
    check_add(l, choice, "the same options give the same words", "optimizer/choice");
    check_add(l, descends, "down a bowl", "optimizer/descends");
    check_add(l, shows_nan, "a NaN is not hidden", "optimizer/nan");
    check_add(l, slots, "every slot is written", "optimizer/slots");
    for (size_t i = 0; i < 2; i++) {
        const struct position *p = &positions[i];

        for (uint32_t cpu = 0; cpu < 2; cpu++) {
            snprintf(what, sizeof what, "a model trains by the words of the update, %s, kernels %s", p->what, cpu ? "cpu,ref" : "ref");
            t = check_add(l, trains, what, "optimizer/trains/%s-%s", p->label, cpu ? "cpu" : "ref");
            t->with = p, t->number = cpu;
        }
        snprintf(what, sizeof what, "stopped and gone on, %s", p->what);
        t = check_add(l, resumes, what, "optimizer/resumes/%s", p->label);
        t->with = p, t->limit = LIMIT;
        snprintf(what, sizeof what, "in chunks over two and three ranks, %s", p->what);
        t = check_add(l, sharded, what, "optimizer/sharded/%s", p->label);
        t->with = p, t->limit = LIMIT, t->alone = 1;
    }
}
