/* model_config.c - see model_config.h. A key of another architecture may stand at its default, since a checkpoint's
 * configuration has all of them. */
#include "train/model_config.h"
#include "base/value.h"

static const struct {
    const char *key, *archs;
} own[] = {
    {"model.bias", "gpt2"},
    {"model.gelu", "gpt2"},
    {"model.dropout", "gpt2"},
    {"model.rope_theta", "llama mixtral"},
    {"model.rope_scaling", "llama mixtral"},
    {"model.rope_factor", "llama mixtral"},
    {"model.rope_low_freq_factor", "llama mixtral"},
    {"model.rope_high_freq_factor", "llama mixtral"},
    {"model.rope_original_context", "llama mixtral"},
    {"model.n_expert", "mixtral"},
    {"model.top_k", "mixtral"},
    {"model.aux_loss", "mixtral"},
};

static int is_gpt2(const struct tn_config *c)
{
    return tn_config_is(c, "model.arch", "gpt2");
}

/* Is it worth a word? Not at its default, nor where it says no. */
static int asks_for_something(const struct tn_config_entry *e)
{
    double x, preset;
    int flag;

    if (!e->value)
        return 0;
    if (!e->key->preset)
        return !tn_value_flag(e->value, &flag) || flag;
    if (tn_value_float(e->value, &x) && tn_value_float(e->key->preset, &preset))
        return x != preset;
    return strcmp(e->value, e->key->preset) != 0;
}

static void check_own_keys(struct tn_config *c, const char *arch)
{
    struct tn_config_entry e;

    for (size_t i = 0; tn_config_at(c, i, &e); i++)
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            if (!strcmp(e.name, own[k].key) && !strstr(own[k].archs, arch) && asks_for_something(&e))
                tn_config_problem(c, e.name, "it is a key of other architectures and of no use to %s; leave it out", arch);
}

/* Numbers that the chosen scaling has no use for. */
static int is_idle(const struct tn_config *c, const char *name)
{
    return !strncmp(name, "model.rope_", 11) && strcmp(name, "model.rope_theta") && strcmp(name, "model.rope_scaling") &&
           !tn_config_is(c, "model.rope_scaling", "llama3") &&
           (strcmp(name, "model.rope_factor") || tn_config_is(c, "model.rope_scaling", "none"));
}

static void check_scaling(struct tn_config *c)
{
    struct tn_config_entry e;

    for (size_t i = 0; tn_config_at(c, i, &e); i++)
        if (is_idle(c, e.name) && asks_for_something(&e))
            tn_config_problem(c, e.name, "model.rope_scaling = %s has no use for it", tn_config_text(c, "model.rope_scaling"));
    if (tn_config_is(c, "model.rope_scaling", "llama3") &&
        tn_config_float(c, "model.rope_high_freq_factor") <= tn_config_float(c, "model.rope_low_freq_factor"))
        tn_config_problem(c, "model.rope_high_freq_factor", "it must be more than model.rope_low_freq_factor = %g: between the two, "
                          "angles go from stretched to left as they are", tn_config_float(c, "model.rope_low_freq_factor"));
}

void tn_model_reach(struct tn_config *c)
{
    const char *arch = tn_config_text(c, "model.arch");
    int64_t kv = tn_config_int(c, "model.n_kv_head");

    if (!tn_model_known(arch)) {
        tn_config_problem(c, "model.arch", "%s is not supported by this version; %s are", arch, tn_model_names());
        return;
    }
    if (is_gpt2(c) && kv && kv != tn_config_int(c, "model.n_head"))
        tn_config_problem(c, "model.n_kv_head", "gpt2 has as many of them as model.n_head; leave it out");
    check_own_keys(c, arch);
    if (!is_gpt2(c))
        check_scaling(c);
    if (!tn_config_text(c, "model.bias"))        /* a checkpoint says it: whether there are biases is seen in its tensors */
        tn_config_settle(c, "model.bias", is_gpt2(c) ? "yes" : "no");
}

static struct tn_rotary read_rotary(const struct tn_config *c)
{
    return (struct tn_rotary){
        .scaling = tn_config_is(c, "model.rope_scaling", "linear")   ? TN_ROTARY_LINEAR
                   : tn_config_is(c, "model.rope_scaling", "llama3") ? TN_ROTARY_LLAMA3
                                                                     : TN_ROTARY_NONE,
        .theta = tn_config_float(c, "model.rope_theta"),
        .factor = tn_config_float(c, "model.rope_factor"),
        .low = tn_config_float(c, "model.rope_low_freq_factor"),
        .high = tn_config_float(c, "model.rope_high_freq_factor"),
        .original = tn_config_float(c, "model.rope_original_context"),
    };
}

void tn_model_read(const struct tn_config *c, struct tn_model_config *out)
{
    int64_t inner = tn_config_int(c, "model.n_inner"), width = tn_config_int(c, "model.n_embd");
    int64_t heads = tn_config_int(c, "model.n_head"), kv = tn_config_int(c, "model.n_kv_head");
    const char *arch = tn_config_text(c, "model.arch");

    *out = (struct tn_model_config){
        .arch = arch,
        .n_layer = tn_config_int(c, "model.n_layer"),
        .n_head = heads,
        .n_kv_head = kv ? kv : heads,
        .n_embd = width,
        .vocab_size = tn_config_int(c, "model.vocab_size"),
        .block_size = tn_config_int(c, "model.block_size"),
        .n_inner = inner ? inner : tn_model_inner(arch, width),
        .dropout = tn_config_float(c, "model.dropout"),
        .norm_eps = tn_config_float(c, "model.norm_eps"),
        .init_std = tn_config_float(c, "model.init_std"),
        .bias = tn_config_flag(c, "model.bias"),
        .tie_embeddings = tn_config_text(c, "model.tie_embeddings") ? tn_config_flag(c, "model.tie_embeddings") : is_gpt2(c),
        .gelu = tn_config_text(c, "model.gelu"),
        .rotary = read_rotary(c),
        .aux_loss = tn_config_float(c, "model.aux_loss"),
        .n_expert = strcmp(arch, "mixtral") ? 0 : tn_config_int(c, "model.n_expert"),
        .top_k = strcmp(arch, "mixtral") ? 0 : tn_config_int(c, "model.top_k"),
    };
}
