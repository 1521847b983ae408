/* checkpoint_config.c - the configuration in a checkpoint against the one of this run; see checkpoint.h.
 *
 * Three kinds of key: those that make the model and its optimizer must be the same; those that say where
 * things are, or how long to go on, may always change; a change of any other (learning rate, batch, seed) is
 * allowed, but the run says so, since the curve is another one from there on. */
#include "train/checkpoint.h"

#include "base/value.h"

/* Keys of [model] that no tensor depends on and that only shape the training. */
static const char *const not_the_model[] = {"model.dropout", "model.init_std", NULL};

/* Keys and whole sections (with a dot at the end) whose change says nothing about the curve. */
static const char *const of_no_matter[] = {
    "train.steps",       "train.eval_interval", "train.eval_batches", "train.log_interval",
    "train.micro_batch", "train.nonfinite",     "data.dir",           "checkpoint.",
    "plugins.",          "parallel.",           "train.recompute",    "train.trace",
    "train.tensorboard", "backend.device",      "backend.kernels",    "backend.comm",
    "backend.bootstrap", "backend.threads",     "backend.timeout",    "backend.capture",
    "backend.debug",     NULL};

static int is_in(const char *const *list, const char *name)
{
    for (; *list; list++)
        if (!strncmp(*list, name, strlen(*list) + ((*list)[strlen(*list) - 1] != '.')))
            return 1;
    return 0;
}

/* As texts, as numbers or as flags: 1e-3 is 0.001, on is yes. */
static int same_value(const char *a, const char *b)
{
    double x, y;
    int f, g;

    if (!strcmp(a, b))
        return 1;
    if (tn_value_float(a, &x) && tn_value_float(b, &y))
        return x == y;
    return tn_value_flag(a, &f) && tn_value_flag(b, &g) && f == g;
}

/* What the checkpoint has for this key; NULL where it says nothing, or the same. */
static const char *other_value(const struct tn_checkpoint *k, const struct tn_config_entry *e)
{
    const char *there = json_string_value(json_object_get(tn_checkpoint_state(k)->config, e->name));

    return there && e->value && !same_value(there, e->value) ? there : NULL;
}

/* A key without a preset that only one of the two has set, such as a group of parameters: the text of both, or NULL. Keys with
 * a preset are always set, and one that an older version did not know is none that was changed. */
static const char *set_in_one(const struct tn_checkpoint *k, const struct tn_config_entry *e, const char **here)
{
    const char *there = json_string_value(json_object_get(tn_checkpoint_state(k)->config, e->name));

    if (e->key->preset || !strcmp(e->key->section, "model") || !there == !e->value)
        return NULL;
    *here = e->value ? e->value : "not set";
    return there ? there : "not set";
}

__attribute__((format(printf, 3, 4))) static void append(char *out, size_t bytes, const char *fmt, ...)
{
    size_t at = strlen(out);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(out + at, bytes - at, fmt, ap);
    va_end(ap);
}

tn_status tn_checkpoint_match_config(const struct tn_checkpoint *k, const struct tn_config *c)
{
    const char *dir = tn_checkpoint_state(k)->dir, *there;
    struct tn_config_entry e;
    char all[400] = "";

    for (size_t i = 0; tn_config_at(c, i, &e); i++)
        if (!strcmp(e.key->section, "model") && !is_in(not_the_model, e.name) && (there = other_value(k, &e)))
            append(all, sizeof all, "%s%s is %s there, %s here", *all ? "; " : "", e.name, there, e.value);
    if (*all)
        return tn_error(TN_ERR_INPUT, "%s is a checkpoint of another model: %s", dir, all);
    for (size_t i = 0; tn_config_at(c, i, &e); i++)
        if (!strcmp(e.name, "optimizer.name") && (there = other_value(k, &e)))
            return tn_error(TN_ERR_INPUT,
                            "%s has the state of another optimizer: optimizer.name is %s there, %s here", dir,
                            there, e.value);
    return TN_OK;
}

const char *tn_checkpoint_changes(const struct tn_checkpoint *k, const struct tn_config *c, char *out,
                                  size_t bytes)
{
    struct tn_config_entry e;
    const char *there, *here;

    *out = 0;
    for (size_t i = 0; tn_config_at(c, i, &e); i++) {
        here = e.value;
        if (!is_in(of_no_matter, e.name) && ((there = other_value(k, &e)) || (there = set_in_one(k, &e, &here))))
            append(out, bytes, "%s%s %s -> %s", *out ? ", " : "", e.name, there, here);
    }
    return out;
}
