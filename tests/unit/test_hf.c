/* test_hf.c - models of Hugging Face's library: the same logits after import, the same bits after export, and every file
 * that is not what it says refused with a sentence. The models in tests/hf were saved by that library, with what it computes of
 * them; reference.py made them. */
#include "files.h"
#include "session_kit.h"

#include <jansson.h>

#include "ckpt/safetensors.h"
#include "hf/hf.h"
#include "train/checkpoint.h"

#define LENGTH 16

static const char *const models[] = {"gpt2", "gpt2-wide", "gpt2-bare", "gpt2-half", "llama", "llama-tied", "llama-long", "mixtral"};
#define MODELS ((int)(sizeof models / sizeof *models))

static const char *folder_of(const char *model)
{
    const char *top = getenv("top_srcdir");

    return tn_text(scratch_arena, "%s/tests/hf/%s", top ? top : ".", model);
}

static tn_status import(const char *dir, const char *run)
{
    struct tn_hf_report r;

    return tn_hf_import(dir, in_scratch(run), NULL, &r);
}

static const char *weights_of(const char *run)
{
    return tn_text(scratch_arena, "%s/%s/step-00000000/model-00001-of-00001.safetensors", scratch, run);
}

static int same_bytes(const char *a, const char *b)
{
    char *x, *y;
    size_t n, m;
    int same;

    assert_ok(tn_file_read(a, 1 << 22, &x, &n));
    assert_ok(tn_file_read(b, 1 << 22, &y, &m));
    same = n == m && !memcmp(x, y, n);
    free(x);
    free(y);
    return same;
}

/* --- what it computes */

static void logits_of(const char *run, const int32_t *tokens, float *out)
{
    const char *setting[] = {"train.seq_len=16", "backend.comm=self", "backend.threads=2", "train.global_batch=1"};
    const struct tn_session_options use = {.use = TN_SESSION_LOGITS};
    struct tn_checkpoint *k;
    struct tn_config *c;
    struct tn_session *s;
    const char *key;
    json_t *value;

    assert_ok(tn_checkpoint_open(tn_text(scratch_arena, "%s/%s/step-00000000", scratch, run), &k));
    assert_ok(tn_config_open(NULL, 4, (char *const *)setting, &c));
    json_object_foreach((json_t *)tn_checkpoint_state(k)->config, key, value) tn_config_case(c, key, json_string_value(value));
    assert_ok(tn_session_configure(c, &s));
    assert_ok(tn_session_open(s, &use));
    assert_ok(tn_checkpoint_match(k, s, 0));
    assert_ok(tn_checkpoint_load(k, s, 0));
    assert_ok(tn_session_logits(s, tokens, out));
    tn_session_close(s);
    tn_config_free(c);
    tn_checkpoint_close(k);
}

START_TEST(the_same_logits)
{
    struct tn_safetensors *expected;
    const struct tn_tensor *tokens, *logits;
    const char *dir = folder_of(models[_i]);
    float got[LENGTH * 64], want;
    int32_t ids[LENGTH];
    int64_t vocab;

    session_plugins();
    assert_ok(tn_safetensors_open(tn_path_join(scratch_arena, dir, "expected.safetensors"), &expected));
    tokens = tn_safetensors_find(expected, "tokens");
    logits = tn_safetensors_find(expected, "logits");
    memcpy(ids, tokens->data, sizeof ids);
    vocab = logits->shape[1];
    assert_ok(import(dir, "run"));
    logits_of("run", ids, got);
    for (int64_t i = 0; i < LENGTH * vocab; i++) {
        memcpy(&want, (const char *)logits->data + i * (int64_t)sizeof want, sizeof want);
        ck_assert_msg(fabs((double)got[i] - (double)want) < 2e-5, "%s: position %d, token %d: %g, should be %g", models[_i], (int)(i / vocab),
                      (int)(i % vocab), (double)got[i], (double)want);
    }
    tn_safetensors_close(expected);
}
END_TEST

/* --- there and back */

static tn_status export(const char *run, const char *dir, uint32_t dtype, uint64_t shard, struct tn_hf_report *r)
{
    struct tn_hf_export e = {.checkpoint = tn_text(scratch_arena, "%s/%s/step-00000000", scratch, run), .dir = in_scratch(dir),
                             .dtype = dtype, .shard = shard};

    return tn_hf_export(&e, r);
}

START_TEST(the_same_bits)
{
    struct tn_hf_report r;

    assert_ok(import(folder_of(models[_i]), "run"));
    assert_ok(export("run", "one", TN_F32, UINT64_MAX, &r));
    ck_assert_uint_eq(r.files, 1);
    assert_ok(import(in_scratch("one"), "again"));
    ck_assert(same_bytes(weights_of("run"), weights_of("again")));
    assert_ok(export("run", "many", TN_F32, 4000, &r));
    ck_assert_uint_gt(r.files, 3);
    assert_ok(import(in_scratch("many"), "from-many"));
    ck_assert(same_bytes(weights_of("run"), weights_of("from-many")));
    assert_fails(export("run", "many", TN_F32, 4000, &r), TN_ERR_INPUT, "is there already");
}
END_TEST

/* Weights that came in a low dtype are the same after a way out in it; others are rounded once. */
START_TEST(low_dtypes)
{
    struct tn_hf_report r;

    assert_ok(import(folder_of("gpt2-bare"), "bf16"));
    assert_ok(export("bf16", "out-bf16", TN_BF16, 1 << 30, &r));
    assert_ok(import(in_scratch("out-bf16"), "bf16-again"));
    ck_assert(same_bytes(weights_of("bf16"), weights_of("bf16-again")));
    assert_ok(import(folder_of("gpt2-half"), "fp16"));
    assert_ok(export("fp16", "out-fp16", TN_F16, 1 << 30, &r));
    assert_ok(import(in_scratch("out-fp16"), "fp16-again"));
    ck_assert(same_bytes(weights_of("fp16"), weights_of("fp16-again")));
    assert_ok(export("fp16", "out-mixed", TN_BF16, 1 << 30, &r));
    assert_ok(import(in_scratch("out-mixed"), "mixed"));
    ck_assert(!same_bytes(weights_of("fp16"), weights_of("mixed")));
}
END_TEST

/* --- a folder of the library's with something changed */

static json_t *config_of(const char *model)
{
    json_t *root = json_load_file(tn_path_join(scratch_arena, folder_of(model), "config.json"), 0, NULL);

    ck_assert_ptr_nonnull(root);
    return root;
}

static const char *write_config(const char *name, json_t *root)
{
    assert_ok(tn_folder_make(in_scratch(name)));
    ck_assert_int_eq(json_dump_file(root, tn_text(scratch_arena, "%s/%s/config.json", scratch, name), 0), 0);
    json_decref(root);
    return in_scratch(name);
}

static void copy_file(const char *from, const char *to)
{
    char *data;
    size_t bytes;

    assert_ok(tn_file_read(from, 1 << 22, &data, &bytes));
    assert_ok(tn_file_write(to, data, bytes));
    free(data);
}

/* gpt2 with this value (JSON; NULL: without) for this key of its configuration. */
static const char *with_key(const char *name, const char *key, const char *value)
{
    json_t *root = config_of("gpt2");

    if (value)
        json_object_set_new(root, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(root, key);
    write_config(name, root);
    copy_file(tn_path_join(scratch_arena, folder_of("gpt2"), "model.safetensors"), tn_text(scratch_arena, "%s/%s/model.safetensors", scratch, name));
    return in_scratch(name);
}

START_TEST(what_the_configuration_asks_for)
{
    static const struct {
        const char *key, *value, *words;
    } bad[] = {
        {"model_type", "\"mamba\"", "model_type is mamba; these can be imported: gpt2, llama, mixtral"},
        {"model_type", "7", "model_type is not said"},
        {"n_layer", "\"two\"", "n_layer is no whole number"},
        {"n_layer", "2.5", "n_layer is no whole number"},
        {"n_layer", "-1", "model.n_layer"},
        {"n_layer", "0", "model.n_layer"},
        {"n_head", "5", "does not divide"},
        {"n_embd", "1000000000", "model.n_embd"},
        {"vocab_size", "44", "transformer.wte.weight is [43, 12], it must be [44, 12]"},
        {"layer_norm_epsilon", "\"small\"", "layer_norm_epsilon is no number"},
        {"tie_word_embeddings", "1", "tie_word_embeddings is neither true nor false"},
        {"tie_word_embeddings", "false", "lm_head.weight is missing"},
        {"activation_function", "\"relu\"", "activation_function is relu"},
        {"activation_function", "null", "activation_function is no text"},
        {"scale_attn_weights", "false", "scale_attn_weights is not true"},
        {"scale_attn_by_inverse_layer_idx", "true", "divided by the layer"},
        {"quantization_config", "{\"bits\": 4}", "packed form"},
        {"attn_pdrop", "[]", "attn_pdrop is no number"},
        {"n_layer", "3", "transformer.h.2.mlp.c_proj.bias is missing"},
        {"n_layer", "1", "transformer.h.1.ln_1.weight is not of this model"},
    };
    char name[20];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(name, sizeof name, "case%zu", i);
        assert_fails(import(with_key(name, bad[i].key, bad[i].value), "run"), i == 4 || i == 5 || i == 6 || i == 7 ? TN_ERR_CONFIG : TN_ERR_INPUT, bad[i].words);
        ck_assert(!tn_path_exists(in_scratch("run")));
    }
    assert_ok(import(with_key("short", "n_inner", NULL), "defaults"));
    assert_ok(import(with_key("older", "model_type", NULL), "by-class"));
}
END_TEST

START_TEST(what_llama_asks_for)
{
    static const struct {
        const char *key, *value, *words;
    } bad[] = {
        {"rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 2}", "rope_type is yarn; default, linear and llama3"},
        {"rope_parameters", "{\"rope_type\": 3}", "rope_type is no text"},
        {"rope_parameters", "{\"rope_type\": \"llama3\", \"factor\": 2}", "low_freq_factor is missing"},
        {"rope_parameters", "{\"rope_theta\": \"big\"}", "rope_theta is no number"},
        {"head_dim", "5", "head_dim is not hidden_size / num_attention_heads"},
        {"attention_bias", "true", "attention_bias is not false"},
        {"hidden_act", "\"gelu\"", "hidden_act is not \"silu\""},
        {"num_attention_heads", "0", "model.n_head"},
        {"num_key_value_heads", "3", "does not divide"},
        {"intermediate_size", "25", "model.layers.0.mlp.gate_proj.weight is [24, 16], it must be [25, 16]"},
    };
    char name[20];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *root = config_of("llama");

        json_object_set_new(root, bad[i].key, json_loads(bad[i].value, JSON_DECODE_ANY, NULL));
        snprintf(name, sizeof name, "llama%zu", i);
        write_config(name, root);
        copy_file(tn_path_join(scratch_arena, folder_of("llama"), "model.safetensors"), tn_text(scratch_arena, "%s/%s/model.safetensors", scratch, name));
        assert_fails(import(in_scratch(name), "run"), i == 7 || i == 8 ? TN_ERR_CONFIG : TN_ERR_INPUT, bad[i].words);
    }
}
END_TEST

/* --- tensors */

struct change {
    const char *drop, *rename, *to;              /* tensors of gpt2's file: left out, called otherwise */
    const char *add;                             /* another one, of 3 numbers */
    const char *head;                            /* a tied head: "same" or "other" */
    uint32_t dtype;                              /* of what was renamed, without a look at the data; 0: as it is */
    int64_t first;                               /* its first dim; 0: as it is */
};

static void declare_all(struct tn_safetensors_writer *w, const struct tn_safetensors *f, const struct change *c, int write)
{
    static const float three[3] = {1, 2, 3};
    const struct tn_tensor *e = tn_safetensors_find(f, "transformer.wte.weight");

    for (uint64_t i = 0; i < tn_safetensors_count(f); i++) {
        const struct tn_tensor *t = tn_safetensors_at(f, i);
        int changed = c->rename && !strcmp(t->name, c->rename);
        int64_t shape[TN_FILE_RANK];

        if (c->drop && !strcmp(t->name, c->drop))
            continue;
        memcpy(shape, t->shape, sizeof shape);
        if (changed && c->first)
            shape[1] = shape[0] * shape[1] / c->first, shape[0] = c->first;
        if (write)
            assert_ok(tn_safetensors_write(w, t->data, t->bytes));
        else
            assert_ok(tn_safetensors_declare(w, changed ? c->to : t->name, changed && c->dtype ? c->dtype : t->dtype, t->rank, shape));
    }
    if (c->add && write)
        assert_ok(tn_safetensors_write(w, three, sizeof three));
    else if (c->add)
        assert_ok(tn_safetensors_declare(w, c->add, TN_F32, 1, (const int64_t[]){3}));
    if (c->head && write) {
        char *data = memcpy(malloc(e->bytes), e->data, e->bytes);
        data[0] ^= !strcmp(c->head, "other");
        assert_ok(tn_safetensors_write(w, data, e->bytes));
        free(data);
    } else if (c->head)
        assert_ok(tn_safetensors_declare(w, "lm_head.weight", e->dtype, e->rank, e->shape));
}

static const char *with_change(const char *name, const struct change *c)
{
    struct tn_safetensors *f;
    struct tn_safetensors_writer *w;

    write_config(name, config_of("gpt2"));
    assert_ok(tn_safetensors_open(tn_path_join(scratch_arena, folder_of("gpt2"), "model.safetensors"), &f));
    assert_ok(tn_safetensors_create(tn_text(scratch_arena, "%s/%s/model.safetensors", scratch, name), &w));
    declare_all(w, f, c, 0);
    assert_ok(tn_safetensors_begin(w));
    declare_all(w, f, c, 1);
    assert_ok(tn_safetensors_commit(w, NULL, NULL));
    tn_safetensors_close(f);
    return in_scratch(name);
}

#define FC "transformer.h.1.mlp.c_fc.weight"

START_TEST(which_tensors)
{
    assert_fails(import(with_change("a", &(struct change){.drop = FC}), "run"), TN_ERR_INPUT, FC " is missing");
    assert_fails(import(with_change("b", &(struct change){.add = "transformer.h.0.extra"}), "run"), TN_ERR_INPUT,
                 "transformer.h.0.extra is not of this model");
    assert_fails(import(with_change("c", &(struct change){.rename = FC, .to = FC, .first = 48}), "run"), TN_ERR_INPUT,
                 FC " is [48, 12], it must be [12, 48]");
    assert_fails(import(with_change("d", &(struct change){.rename = FC, .to = FC, .dtype = TN_I32}), "run"), TN_ERR_INPUT,
                 FC " is I32; F32, BF16 and F16 are read");
    assert_fails(import(with_change("e", &(struct change){.rename = FC, .to = "elsewhere", .add = "more"}), "run"), TN_ERR_INPUT,
                 "elsewhere is not of this model\n  more is not of this model\n  " FC " is missing");
    assert_fails(import(with_change("f", &(struct change){.add = "h.1.ln_1.bias"}), "run"), TN_ERR_INPUT, "h.1.ln_1.bias is there twice");
    assert_fails(import(with_change("g", &(struct change){.head = "other"}), "run"), TN_ERR_INPUT,
                 "lm_head.weight differs from transformer.wte.weight");
    ck_assert(!tn_path_exists(in_scratch("run")));
    assert_ok(import(with_change("h", &(struct change){.head = "same"}), "tied"));
    assert_ok(import(with_change("i", &(struct change){.add = "h.0.attn.masked_bias"}), "buffers"));
    assert_ok(import(with_change("j", &(struct change){.add = "transformer.h.0.attn.bias"}), "more-buffers"));
    ck_assert(same_bytes(weights_of("tied"), weights_of("buffers")));
    ck_assert(same_bytes(weights_of("tied"), weights_of("more-buffers")));
}
END_TEST

/* --- several files */

static const char *with_index(const char *name, const char *index)
{
    const char *dir = folder_of("gpt2-wide");
    static const char *const part[] = {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"};

    write_config(name, config_of("gpt2-wide"));
    for (int i = 0; i < 3; i++)
        copy_file(tn_path_join(scratch_arena, dir, part[i]), tn_text(scratch_arena, "%s/%s/%s", scratch, name, part[i]));
    assert_ok(tn_file_write(tn_text(scratch_arena, "%s/%s/model.safetensors.index.json", scratch, name), index, strlen(index)));
    return in_scratch(name);
}

/* The library's own index with the place of this tensor said otherwise; NULL: not at all. */
static const char *index_with(const char *tensor, const char *place)
{
    json_t *root = json_load_file(tn_path_join(scratch_arena, folder_of("gpt2-wide"), "model.safetensors.index.json"), 0, NULL);
    json_t *map = json_object_get(root, "weight_map");
    char *text;
    const char *kept;

    if (place)
        json_object_set_new(map, tensor, json_string(place));
    else
        json_object_del(map, tensor);
    text = json_dumps(root, 0);
    kept = tn_text(scratch_arena, "%s", text);
    free(text);
    json_decref(root);
    return kept;
}

START_TEST(an_index)
{
    static const char *const places[] = {"../secret.safetensors", "/etc/passwd", "/tmp/x.safetensors", ".hidden.safetensors", "a/b.safetensors",
                                         "a\\b.safetensors", "", "model.bin", ".."};
    char name[20];

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(name, sizeof name, "place%zu", i);
        assert_fails(import(with_index(name, index_with("lm_head.weight", places[i])), "run"), TN_ERR_INPUT, "no name of a safetensors file");
    }
    assert_fails(import(with_index("nul", "{\"weight_map\": {\"x\": \"a.safetensors\\u0000/..\"}}"), "run"), TN_ERR_INPUT, "nul/model.safetensors.index.json");
    assert_fails(import(with_index("list", "{\"weight_map\": [1]}"), "run"), TN_ERR_INPUT, "has no \"weight_map\"");
    assert_fails(import(with_index("number", "{\"weight_map\": {\"x\": 1}}"), "run"), TN_ERR_INPUT, "no name of a safetensors file");
    assert_fails(import(with_index("none", "{\"weight_map\": {}}"), "run"), TN_ERR_INPUT, "names no file");
    assert_fails(import(with_index("torn", "{\"weight_map\": "), "run"), TN_ERR_INPUT, "index.json:1:");
    assert_fails(import(with_index("gone", index_with("lm_head.weight", "model-00009-of-00003.safetensors")), "run"), TN_ERR_INPUT,
                 "model-00009-of-00003.safetensors");
    assert_fails(import(with_index("moved", index_with("lm_head.weight", "model-00001-of-00003.safetensors")), "run"), TN_ERR_INPUT,
                 "lm_head.weight is not in model-00001-of-00003.safetensors\n  lm_head.weight is in model-00003-of");
    assert_fails(import(with_index("silent", index_with("lm_head.weight", NULL)), "run"), TN_ERR_INPUT, "which the index does not say");
    ck_assert(!tn_path_exists(in_scratch("run")));
    assert_ok(import(with_index("well", index_with("lm_head.weight", "model-00003-of-00003.safetensors")), "run"));
}
END_TEST

START_TEST(other_folders)
{
    const char *dir = write_config("empty", config_of("gpt2"));

    assert_fails(import(in_scratch("nowhere"), "run"), TN_ERR_INPUT, "there is no directory");
    assert_fails(import(scratch, "run"), TN_ERR_INPUT, "config.json");
    assert_fails(import(dir, "run"), TN_ERR_INPUT, "has neither model.safetensors nor");
    assert_ok(tn_file_write(tn_path_join(scratch_arena, dir, "pytorch_model.bin"), "\x80\x02", 2));
    assert_fails(import(dir, "run"), TN_ERR_INPUT, "a pickle, which is code and never run here");
    assert_ok(tn_file_write(tn_path_join(scratch_arena, dir, "model.safetensors"), "version https://git-lfs.github.com/spec/v1\n", 43));
    assert_fails(import(dir, "run"), TN_ERR_INPUT, "git-lfs pointer");
    ck_assert(!tn_path_exists(in_scratch("run")));
    assert_ok(import(folder_of("gpt2"), "run"));
    assert_fails(import(folder_of("gpt2"), "run"), TN_ERR_INPUT, "has checkpoints already");
}
END_TEST

/* --- bytes changed at random, in each of the files: a sentence or a model, never more */

#define TURNS 900

static uint64_t state = 99;

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

/* Some bytes of the first `most`, others, doubled or gone. */
static size_t spoil(char *data, size_t bytes, size_t most)
{
    static const char odd[] = "{}[]\",:0-9eE.\\u\x01\x7f\xff tn";

    for (uint32_t k = 1 + draw(4); k; k--) {
        size_t at = draw((uint32_t)(bytes < most ? bytes : most));

        if (draw(8))
            data[at] = draw(2) ? odd[draw(sizeof odd - 1)] : (char)draw(256);
        else
            bytes = at + 1;
    }
    return bytes;
}

START_TEST(spoiled_files)
{
    static const char *const files[] = {"config.json", "model.safetensors.index.json", "model-00001-of-00003.safetensors"};
    const char *dir = with_index("spoiled", index_with("lm_head.weight", "model-00003-of-00003.safetensors"));
    uint32_t refused = 0;

    for (int turn = 0; turn < TURNS; turn++) {
        const char *path = tn_path_join(scratch_arena, dir, files[turn % 3]);
        char *whole, *data;
        size_t bytes, left;

        assert_ok(tn_file_read(path, 1 << 22, &whole, &bytes));
        data = memcpy(malloc(bytes), whole, bytes);
        left = spoil(data, bytes, 2500);
        assert_ok(tn_file_write(path, data, left));
        tn_error_clear();
        if (import(dir, "run") < 0) {
            refused++;
            ck_assert(*tn_error_text());
        }
        assert_ok(tn_path_remove(in_scratch("run")));
        assert_ok(tn_file_write(path, whole, bytes));
        free(whole);
        free(data);
    }
    ck_assert_uint_gt(refused, TURNS / 2);
    assert_ok(import(dir, "run"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hf");
    TCase *c = tcase_create("hf");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
    tcase_add_loop_test(c, the_same_logits, 0, MODELS);
    tcase_add_loop_test(c, the_same_bits, 0, MODELS);
    tcase_add_test(c, low_dtypes);
    tcase_add_test(c, what_the_configuration_asks_for);
    tcase_add_test(c, what_llama_asks_for);
    tcase_add_test(c, which_tensors);
    tcase_add_test(c, an_index);
    tcase_add_test(c, other_folders);
    tcase_add_test(c, spoiled_files);
    tcase_set_timeout(c, 120);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
