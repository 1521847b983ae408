/* family.c - the table of families. A model whose weights are [out, in] in files on both sides, under the same names, is a
 * row of keys; what a row cannot say is a function beside it. */
#include "hf/family.h"

#include <stdlib.h>
#include <string.h>

/* --- gpt2 */

static const struct hf_key gpt2_keys[] = {
    {"vocab_size", "model.vocab_size", TN_KEY_INT, "50257"},
    {"n_positions", "model.block_size", TN_KEY_INT, "1024"},
    {"n_embd", "model.n_embd", TN_KEY_INT, "768"},
    {"n_layer", "model.n_layer", TN_KEY_INT, "12"},
    {"n_head", "model.n_head", TN_KEY_INT, "12"},
    {"n_inner", "model.n_inner", TN_KEY_INT, ""},
    {"layer_norm_epsilon", "model.norm_eps", TN_KEY_FLOAT, "1e-05"},
    {"initializer_range", "model.init_std", TN_KEY_FLOAT, "0.02"},
    {"tie_word_embeddings", "model.tie_embeddings", TN_KEY_FLAG, "true"},
    {0},
};
static const struct hf_fixed gpt2_fixed[] = {
    {"scale_attn_weights", "true", "scores without the root of the heads' width"},
    {"scale_attn_by_inverse_layer_idx", "false", "scores divided by the layer's number"},
    {"add_cross_attention", "false", "attention to a second sequence"},
    {"quantization_config", "null", "weights in a packed form"},
    {0},
};
static const char *const gpt2_turned[] = {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight", NULL};
static const char *const gpt2_buffers[] = {".attn.bias", ".attn.masked_bias", NULL};

static const struct {
    const char *there, *here;
} gelus[] = {{"gelu_new", "tanh"}, {"gelu_pytorch_tanh", "tanh"}, {"gelu_fast", "tanh"}, {"gelu", "erf"}, {"gelu_python", "erf"}};

static void read_gelu(struct hf_reader *r)
{
    const json_t *value = json_object_get(r->root, "activation_function");
    const char *name = value ? json_string_value(value) : "gelu_new";

    for (size_t i = 0; name && i < sizeof gelus / sizeof *gelus; i++)
        if (!strcmp(name, gelus[i].there)) {
            hf_set(r, "model.gelu", gelus[i].here);
            return;
        }
    hf_list_add(r->problems, "activation_function is %.60s; gelu_new, gelu_pytorch_tanh and gelu can be had", name ? name : "no text");
}

/* Three there, one here. It changes nothing but training. */
static void read_dropout(struct hf_reader *r)
{
    static const char *const name[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    double p[3] = {0.1, 0.1, 0.1};

    for (int i = 0; i < 3; i++) {
        const json_t *value = json_object_get(r->root, name[i]);

        if (value && !json_is_number(value))
            hf_list_add(r->problems, "%s is no number", name[i]);
        else if (value)
            p[i] = json_number_value(value);
    }
    if (p[0] != p[1] || p[0] != p[2])
        snprintf(r->note, r->note_room, "dropout is %g, %g and %g there (residual, embedding, attention): model.dropout = %g has to do for all", p[0],
                 p[1], p[2], p[0]);
    hf_set(r, "model.dropout", tn_text(r->arena, "%.17g", p[0]));
}

static void gpt2_read(struct hf_reader *r)
{
    hf_set(r, "model.arch", "gpt2");
    hf_set(r, "model.bias", "yes");
    read_gelu(r);
    read_dropout(r);
}

static void gpt2_write(const struct tn_config *c, json_t *root)
{
    double p = tn_config_float(c, "model.dropout");
    int tanh = tn_config_is(c, "model.gelu", "tanh");

    json_object_set_new(root, "activation_function", json_string(tanh ? "gelu_new" : "gelu"));
    json_object_set_new(root, "resid_pdrop", json_real(p));
    json_object_set_new(root, "embd_pdrop", json_real(p));
    json_object_set_new(root, "attn_pdrop", json_real(p));
}

/* --- all of them */

static const struct hf_family families[] = {
    {.arch = "gpt2", .type = "gpt2", .architecture = "GPT2LMHeadModel", .prefix = "transformer.", .embedding = "transformer.wte.weight",
     .head = "lm_head.weight", .keys = gpt2_keys, .fixed = gpt2_fixed, .turned = gpt2_turned, .buffers = gpt2_buffers, .biases = 1,
     .read = gpt2_read, .write = gpt2_write},
};
#define FAMILIES (sizeof families / sizeof *families)

const struct hf_family *hf_family_of(const json_t *root)
{
    const json_t *said = json_object_get(root, "model_type");
    const char *type = said && !json_is_string(said) ? "" : json_string_value(said);
    const char *class = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));

    for (size_t i = 0; i < FAMILIES; i++)
        if ((type && !strcmp(type, families[i].type)) || (!type && class && !strcmp(class, families[i].architecture)))
            return &families[i];
    return NULL;
}

const struct hf_family *hf_family_find(const char *arch)
{
    for (size_t i = 0; i < FAMILIES; i++)
        if (!strcmp(arch, families[i].arch))
            return &families[i];
    return NULL;
}

const char *hf_family_names(void)
{
    static char text[80];

    *text = 0;
    for (size_t i = 0; i < FAMILIES; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? ", " : "", families[i].type);
    return text;
}

int hf_ends_with(const char *name, const char *const *ends)
{
    size_t n = strlen(name);

    for (; ends && *ends; ends++)
        if (n >= strlen(*ends) && !strcmp(name + n - strlen(*ends), *ends))
            return 1;
    return 0;
}
