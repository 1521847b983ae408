/* training.h - for tests that train with a fake session: data and a configuration in the scratch folder. */
#ifndef TESTS_UNIT_TRAINING_H
#define TESTS_UNIT_TRAINING_H
#include "files.h"
#include "fake_session.h"

#include "data/prepare.h"

/* A folder of tokens in the scratch folder, of 4000 characters that never repeat for long. */
__attribute__((unused)) static const char *make_data(const char *name, unsigned seed)
{
    char text[4000];
    struct tn_meta meta;
    int already;

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + (seed = seed * 1103515245u + 12345u) / 65536u % 20);
    struct tn_prepare p = {.input = put_file("text", text, sizeof text),
                           .out = in_scratch(name),
                           .tokenizer = "char",
                           .val_fraction = 0.2};
    assert_ok(tn_prepare(&p, &meta, &already));
    return p.out;
}

/* more ends with NULL; later settings win. */
__attribute__((unused)) static struct tn_config *make_config(const char *const *more)
{
    const char *setting[32] = {"model.block_size=8",   "model.n_embd=4",          "model.n_head=1",
                               "train.seq_len=8",      "train.global_batch=4",    "train.micro_batch=2",
                               "train.steps=10",       "train.log_interval=1000", "train.eval_interval=0",
                               "checkpoint.interval=0"};
    struct tn_config *c;
    int n = 10;

    setting[n++] = tn_text(scratch_arena, "data.dir=%s", in_scratch("data"));
    setting[n++] = tn_text(scratch_arena, "checkpoint.dir=%s", in_scratch("run"));
    for (; more && *more; more++)
        setting[n++] = *more;
    assert_ok(tn_config_open(NULL, n, (char *const *)setting, &c));
    return c;
}
#define CONFIG(...) make_config((const char *const[]){__VA_ARGS__, NULL})

/* Same bytes in two files. */
__attribute__((unused)) static int same_file(const char *a, const char *b)
{
    char *x, *y;
    size_t n, m;

    assert_ok(tn_file_read(a, 1 << 20, &x, &n));
    assert_ok(tn_file_read(b, 1 << 20, &y, &m));
    int same = n == m && !memcmp(x, y, n);
    free(x);
    free(y);
    return same;
}

#define MODEL_FILE "model-00001-of-00001.safetensors"
#define OPTIMIZER_FILE "optimizer-00001-of-00001.safetensors"
#endif
