/* test_checkpoint.c - tensors that come back to the bit, and checkpoints that belong to something else. */
#include "training.h"

#include "ckpt/rundir.h"
#include "ckpt/safetensors.h"
#include "train/checkpoint.h"

static struct tn_dataset data;
static struct tn_config *config[16];
static struct tn_session *session[16];
static int configs, sessions;

/* What a test makes of these lives until it ends. */
static struct tn_config *keep(struct tn_config *c)
{
    return config[configs++] = c;
}
#define KEPT(...) keep(CONFIG(__VA_ARGS__))

static void free_all(void)
{
    while (sessions)
        tn_session_close(session[--sessions]);
    while (configs)
        tn_config_free(config[--configs]);
    tn_dataset_close(&data);
}

static struct tn_session *session_of(struct tn_config *c, uint64_t seed)
{
    struct tn_session *s;
    const struct tn_session_options o = {.use = TN_SESSION_TRAIN};

    if (!tn_config_text(c, "model.vocab_size"))
        tn_config_settle(c, "model.vocab_size", "20");
    assert_ok(tn_session_configure(c, &s));
    assert_ok(tn_session_open(s, &o));
    assert_ok(tn_session_initialize(s, seed));
    return session[sessions++] = s;
}

static void some_updates(struct tn_session *s)
{
    int32_t tokens[32];
    struct tn_session_result r;

    for (int i = 0; i < 32; i++)
        tokens[i] = i % 20;
    for (uint64_t step = 0; step < 3; step++)
        assert_ok(tn_session_update(s, step, tokens, tokens, 0.1, &r));
}

/* step-00000003 of the run "run", from a session with this configuration. */
static char *saved(struct tn_config *c)
{
    struct tn_session *s = session_of(c, 1);

    assert_ok(tn_dataset_open(make_data("data", 1), 0, 8, &data));
    some_updates(s);
    assert_ok(tn_checkpoint_save(s, c, &data, in_scratch("run"), 3, 0));
    return in_scratch("run/step-00000003");
}

static char *in_step(const char *name)
{
    return tn_path_join(scratch_arena, in_scratch("run/step-00000003"), name);
}

static int same_tensors(struct tn_session *a, struct tn_session *b)
{
    int same = tn_session_tensors(a) == tn_session_tensors(b);

    for (uint32_t i = 0; i < tn_session_tensors(a) && same; i++) {
        char x[4096], y[4096];
        tn_session_get(a, i, x);
        tn_session_get(b, i, y);
        same = !memcmp(x, y, tn_session_tensor(a, i)->bytes);
    }
    return same;
}

START_TEST(everything_comes_back)
{
    struct tn_config *c = KEPT(NULL);
    const char *dir = saved(c);
    struct tn_session *a = session_of(c, 1), *b = session_of(c, 2);
    struct tn_checkpoint *k;

    some_updates(a);
    ck_assert(!same_tensors(a, b));
    assert_ok(tn_checkpoint_open(dir, &k));
    ck_assert_int_eq(tn_checkpoint_state(k)->step, 3);
    ck_assert_uint_eq(tn_checkpoint_state(k)->seed, 1337);
    assert_ok(tn_checkpoint_match_config(k, c));
    assert_ok(tn_checkpoint_match_data(k, &data));
    assert_ok(tn_checkpoint_match(k, b, 1));
    ck_assert(!same_tensors(a, b));
    assert_ok(tn_checkpoint_load(k, b, 1));
    ck_assert(same_tensors(a, b));
    tn_checkpoint_close(k);
    free_all();
}
END_TEST

START_TEST(files_are_as_others_read_them)
{
    const char *dir = saved(KEPT(NULL));
    struct tn_safetensors *f;
    json_t *index;

    assert_ok(tn_safetensors_open(in_step(MODEL_FILE), &f));
    ck_assert_uint_eq(tn_safetensors_count(f), 2);
    ck_assert_str_eq(tn_safetensors_meta(f, "format"), "pt");
    ck_assert_int_eq(tn_safetensors_find(f, "emb")->shape[0], 20);
    ck_assert_int_eq(tn_safetensors_find(f, "emb")->shape[1], 4);
    ck_assert_uint_eq(tn_safetensors_find(f, "bias")->rank, 1);
    tn_safetensors_close(f);
    assert_ok(tn_safetensors_open(in_step(OPTIMIZER_FILE), &f));
    ck_assert_uint_eq(tn_safetensors_count(f), 2);
    ck_assert_ptr_nonnull(tn_safetensors_find(f, "emb:m"));
    tn_safetensors_close(f);
    index = json_load_file(in_step("model.safetensors.index.json"), 0, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
                     84 * 4);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(index, "weight_map"), "bias")),
                     MODEL_FILE);
    ck_assert_uint_eq(json_object_size(json_object_get(index, "weight_map")), 2);
    json_decref(index);
    ck_assert(same_file(in_step("tokenizer.json"), in_scratch("data/tokenizer.json")));
    ck_assert_uint_eq(count_names(dir), 5);
    free_all();
}
END_TEST

static void refused(struct tn_checkpoint *k, struct tn_session *s, int slots, const char *words)
{
    unsigned set = fake.tensors_set;

    assert_fails(tn_checkpoint_match(k, s, slots), TN_ERR_INPUT, words);
    ck_assert_uint_eq(fake.tensors_set, set);
    tn_checkpoint_close(k);
}

static struct tn_checkpoint *opened(const char *dir)
{
    struct tn_checkpoint *k;

    assert_ok(tn_checkpoint_open(dir, &k));
    return k;
}

START_TEST(another_shape_is_refused)
{
    const char *dir = saved(KEPT(NULL));

    refused(opened(dir), session_of(KEPT("model.n_embd=5"), 1), 1, "emb is [20, 4] there, [20, 5] here");
    refused(opened(dir), session_of(KEPT("model.n_embd=8", "model.vocab_size=10"), 1), 1,
            "emb is [20, 4] there, [10, 8] here");
    refused(opened(dir), session_of(KEPT("model.vocab_size=21"), 1), 1,
            "emb is [20, 4] there, [21, 4] here");
    free_all();
}
END_TEST

START_TEST(other_tensors_are_refused)
{
    const char *dir = saved(KEPT(NULL));
    struct tn_config *c = KEPT(NULL);

    fake.bias_name = "prejudice";
    refused(opened(dir), session_of(c, 1), 1, "has no tensor prejudice: it is a checkpoint of another model");
    fake.no_bias = 1;
    refused(opened(dir), session_of(c, 1), 1, "has a tensor bias that this configuration has no use for");
    free_all();
}
END_TEST

/* Takes a file away, from state.json too, so that the rest looks complete. */
static void forget(const char *name)
{
    char *path = in_step("state.json");
    json_t *root = json_load_file(path, 0, NULL);

    ck_assert_int_eq(json_object_del(json_object_get(root, "files"), name), 0);
    ck_assert_int_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
    unlink(in_step(name));
}

START_TEST(the_optimizers_state_is_needed_to_train)
{
    struct tn_config *c = KEPT(NULL);
    const char *dir = saved(c);
    struct tn_session *s = session_of(c, 1);
    struct tn_checkpoint *k;

    forget(OPTIMIZER_FILE);
    refused(opened(dir), s, 1, "has no optimizer state emb:m");
    k = opened(dir);
    assert_ok(tn_checkpoint_match(k, s, 0));
    tn_checkpoint_close(k);
    free_all();
}
END_TEST

START_TEST(damage_is_refused)
{
    struct tn_config *c = KEPT(NULL);
    const char *dir = saved(c);
    FILE *f = fopen(in_step(MODEL_FILE), "r+b");

    ck_assert_ptr_nonnull(f);
    fseek(f, -3, SEEK_END);
    fputc(0x55, f);
    fclose(f);
    refused(opened(dir), session_of(c, 1), 1, "is damaged");
    free_all();
}
END_TEST

START_TEST(keys_of_the_model_must_agree)
{
    const char *dir = saved(KEPT("model.n_layer=4", "model.norm_eps=1e-5", "model.bias=yes"));
    struct tn_checkpoint *k = opened(dir);

    assert_ok(tn_checkpoint_match_config(
        k, KEPT("model.n_layer=4", "model.norm_eps=0.00001", "model.bias=true", "model.dropout=0.5")));
    assert_fails(tn_checkpoint_match_config(k, KEPT("model.n_layer=6")), TN_ERR_INPUT,
                 "is a checkpoint of another model: model.n_layer is 4 there, 6 here");
    assert_fails(
        tn_checkpoint_match_config(k, KEPT("model.n_layer=4", "model.n_head=2", "model.gelu=tanh")),
        TN_ERR_INPUT, "model.n_head is 1 there, 2 here; model.gelu is erf there, tanh here");
    assert_fails(tn_checkpoint_match_config(k, KEPT("model.n_layer=4", "optimizer.name=sgd")), TN_ERR_INPUT,
                 "optimizer.name is adamw there, sgd here");
    tn_checkpoint_close(k);
    free_all();
}
END_TEST

START_TEST(changes_are_listed)
{
    struct tn_checkpoint *k = opened(saved(KEPT("optimizer.lr=1e-3")));
    char text[300];

    ck_assert_str_eq(
        tn_checkpoint_changes(
            k, KEPT("optimizer.lr=0.001", "train.steps=99", "checkpoint.keep=9", "data.dir=/x"), text, 300),
        "");
    ck_assert_str_eq(tn_checkpoint_changes(k, KEPT("optimizer.lr=2e-3", "train.seed=5"), text, 300),
                     "train.seed 1337 -> 5, optimizer.lr 1e-3 -> 2e-3");
    tn_checkpoint_changes(k, KEPT("optimizer.lr=2e-3", "train.seed=5"), text, 20);
    ck_assert_uint_eq(strlen(text), 19);
    tn_checkpoint_close(k);
    free_all();
}
END_TEST

START_TEST(other_data_are_refused)
{
    struct tn_checkpoint *k = opened(saved(KEPT(NULL)));
    struct tn_dataset other = data;

    assert_ok(tn_checkpoint_match_data(k, &other));
    other.tokenizer_hash++;
    assert_fails(tn_checkpoint_match_data(k, &other), TN_ERR_INPUT, "another tokenizer");
    tn_dataset_close(&data);
    tn_path_remove(in_scratch("data"));
    assert_ok(tn_dataset_open(make_data("data", 2), 0, 8, &data));
    ck_assert_uint_eq(data.tokenizer_hash, tn_checkpoint_state(k)->tokenizer);
    assert_fails(tn_checkpoint_match_data(k, &data), TN_ERR_INPUT, "other data");
    tn_checkpoint_close(k);
    free_all();
}
END_TEST

TEST_MAIN("checkpoint", everything_comes_back, files_are_as_others_read_them, another_shape_is_refused,
          other_tensors_are_refused, the_optimizers_state_is_needed_to_train, damage_is_refused,
          keys_of_the_model_must_agree, changes_are_listed, other_data_are_refused)
