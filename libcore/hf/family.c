/* family.c - the table of families. A model whose weights are [out, in] in files on both sides, under the same names, is a
 * row of keys; what a row cannot say is a function beside it. */
#include "hf/family.h"
#include "train/model_config.h"

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

/* --- llama */

static const struct hf_key llama_keys[] = {
    {"vocab_size", "model.vocab_size", TN_KEY_INT, "32000"},
    {"max_position_embeddings", "model.block_size", TN_KEY_INT, "2048"},
    {"hidden_size", "model.n_embd", TN_KEY_INT, "4096"},
    {"intermediate_size", "model.n_inner", TN_KEY_INT, "11008"},
    {"num_hidden_layers", "model.n_layer", TN_KEY_INT, "32"},
    {"num_attention_heads", "model.n_head", TN_KEY_INT, "32"},
    {"num_key_value_heads", "model.n_kv_head", TN_KEY_INT, ""},
    {"rms_norm_eps", "model.norm_eps", TN_KEY_FLOAT, "1e-06"},
    {"initializer_range", "model.init_std", TN_KEY_FLOAT, "0.02"},
    {"tie_word_embeddings", "model.tie_embeddings", TN_KEY_FLAG, "false"},
    {0},
};
static const struct hf_fixed llama_fixed[] = {
    {"hidden_act", "\"silu\"", "another activation"},
    {"attention_bias", "false", "biases in the attention"},
    {"mlp_bias", "false", "biases in the MLP"},
    {"quantization_config", "null", "weights in a packed form"},
    {0},
};
static const char *const llama_buffers[] = {".rotary_emb.inv_freq", NULL};

/* Numbers of rope_parameters (or rope_scaling) and where they go. */
static const struct {
    const char *there, *here;
} rope_numbers[] = {{"factor", "model.rope_factor"},
                    {"low_freq_factor", "model.rope_low_freq_factor"},
                    {"high_freq_factor", "model.rope_high_freq_factor"},
                    {"original_max_position_embeddings", "model.rope_original_context"}};

static void read_number(struct hf_reader *r, const json_t *object, const char *name, const char *key, const char *otherwise)
{
    const json_t *v = json_object_get(object, name);

    if (json_is_integer(v))
        hf_set(r, key, tn_text(r->arena, "%" JSON_INTEGER_FORMAT, json_integer_value(v)));
    else if (json_is_real(v))
        hf_set(r, key, tn_text(r->arena, "%.17g", json_real_value(v)));
    else if (otherwise && !v)
        hf_set(r, key, otherwise);
    else
        hf_list_add(r->problems, "%s %s", name, v ? "is no number" : "is missing");
}

/* Version 5 of the library has rope_parameters with everything in it; before, rope_theta stood apart. */
static void read_rope(struct hf_reader *r, const char *theta)
{
    const json_t *now = json_object_get(r->root, "rope_parameters"), *before = json_object_get(r->root, "rope_scaling");
    const json_t *o = json_is_object(now) ? now : before, *type = json_object_get(o, json_object_get(o, "rope_type") ? "rope_type" : "type");
    const char *name = !o || json_is_null(o) || (json_is_object(o) && !type) ? "default" : json_string_value(type);
    size_t n = !name || !strcmp(name, "default") ? 0 : !strcmp(name, "linear") ? 1 : !strcmp(name, "llama3") ? 4 : 9;

    read_number(r, json_object_get(o, "rope_theta") ? o : r->root, "rope_theta", "model.rope_theta", theta);
    if (!name || n == 9) {
        hf_list_add(r->problems, "rope_type is %.60s; default, linear and llama3 can be had", name ? name : "no text");
        return;
    }
    hf_set(r, "model.rope_scaling", n ? name : "none");
    for (size_t i = 0; i < n; i++)
        read_number(r, o, rope_numbers[i].there, rope_numbers[i].here, NULL);
}

static void read_head_dim(struct hf_reader *r)
{
    const json_t *v = json_object_get(r->root, "head_dim"), *said = json_object_get(r->root, "num_attention_heads");
    int64_t width = tn_config_int(r->config, "model.n_embd"), heads = said ? json_integer_value(said) : 32;

    if (heads >= 1 && v && !json_is_null(v) && (!json_is_integer(v) || json_integer_value(v) != width / heads))
        hf_list_add(r->problems, "head_dim is not hidden_size / num_attention_heads: heads of another width cannot be had");
}

static void read_like_llama(struct hf_reader *r, const char *arch, const char *theta)
{
    hf_set(r, "model.arch", arch);
    read_head_dim(r);
    read_rope(r, theta);
    if (json_number_value(json_object_get(r->root, "attention_dropout")) > 0)
        snprintf(r->note, r->note_room, "attention_dropout is not 0 there; this program's %s trains without dropout", arch);
}

static void llama_read(struct hf_reader *r)
{
    read_like_llama(r, "llama", "10000");
}

static void llama_write(const struct tn_config *c, json_t *root)
{
    struct tn_model_config m;
    int scaled = !tn_config_is(c, "model.rope_scaling", "none"), all = tn_config_is(c, "model.rope_scaling", "llama3");
    json_t *scaling = scaled ? json_object() : json_null();

    tn_model_read(c, &m);
    json_object_set_new(root, "intermediate_size", json_integer(m.n_inner));
    json_object_set_new(root, "num_key_value_heads", json_integer(m.n_kv_head));
    json_object_set_new(root, "head_dim", json_integer(m.n_embd / m.n_head));
    json_object_set_new(root, "hidden_act", json_string("silu"));
    json_object_set_new(root, "attention_bias", json_false());
    json_object_set_new(root, "mlp_bias", json_false());
    json_object_set_new(root, "rope_theta", json_real(m.rotary.theta));
    if (scaled)
        json_object_set_new(scaling, "rope_type", json_string(tn_config_text(c, "model.rope_scaling")));
    for (size_t i = 0; scaled && i < (all ? 4 : 1); i++)
        json_object_set_new(scaling, rope_numbers[i].there,
                            i == 3 ? json_integer(tn_config_int(c, rope_numbers[i].here)) : json_real(tn_config_float(c, rope_numbers[i].here)));
    json_object_set_new(root, "rope_scaling", scaling);
}

/* --- mixtral: llama but for the experts, which have names of their own */

static const struct hf_key mixtral_keys[] = {
    {"vocab_size", "model.vocab_size", TN_KEY_INT, "32000"},
    {"max_position_embeddings", "model.block_size", TN_KEY_INT, "131072"},
    {"hidden_size", "model.n_embd", TN_KEY_INT, "4096"},
    {"intermediate_size", "model.n_inner", TN_KEY_INT, "14336"},
    {"num_hidden_layers", "model.n_layer", TN_KEY_INT, "32"},
    {"num_attention_heads", "model.n_head", TN_KEY_INT, "32"},
    {"num_key_value_heads", "model.n_kv_head", TN_KEY_INT, "8"},
    {"num_local_experts", "model.n_expert", TN_KEY_INT, "8"},
    {"num_experts_per_tok", "model.top_k", TN_KEY_INT, "2"},
    {"rms_norm_eps", "model.norm_eps", TN_KEY_FLOAT, "1e-05"},
    {"initializer_range", "model.init_std", TN_KEY_FLOAT, "0.02"},
    {"tie_word_embeddings", "model.tie_embeddings", TN_KEY_FLAG, "false"},
    {0},
};
static const struct hf_fixed mixtral_fixed[] = {
    {"hidden_act", "\"silu\"", "another activation"},
    {"sliding_window", "null", "attention to the last tokens alone"},
    {"quantization_config", "null", "weights in a packed form"},
    {0},
};

static void mixtral_read(struct hf_reader *r)
{
    read_like_llama(r, "mixtral", "1000000");
}

/* --- all of them */

static const struct hf_family families[] = {
    {.arch = "gpt2", .type = "gpt2", .architecture = "GPT2LMHeadModel", .prefix = "transformer.", .embedding = "transformer.wte.weight",
     .head = "lm_head.weight", .keys = gpt2_keys, .fixed = gpt2_fixed, .turned = gpt2_turned, .buffers = gpt2_buffers, .biases = 1,
     .read = gpt2_read, .write = gpt2_write},
    {.arch = "llama", .type = "llama", .architecture = "LlamaForCausalLM", .prefix = "model.", .embedding = "model.embed_tokens.weight",
     .head = "lm_head.weight", .keys = llama_keys, .fixed = llama_fixed, .buffers = llama_buffers, .read = llama_read, .write = llama_write},
    {.arch = "mixtral", .type = "mixtral", .architecture = "MixtralForCausalLM", .prefix = "model.", .embedding = "model.embed_tokens.weight",
     .head = "lm_head.weight", .keys = mixtral_keys, .fixed = mixtral_fixed, .buffers = llama_buffers, .read = mixtral_read,
     .write = llama_write},
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
