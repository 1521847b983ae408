/* bench_workload.c - the workloads that go by name, the same ones wherever speed is compared: GPT-2 of four
 * sizes without biases and dropout, trained by AdamW with clipping. */
#include "base/config.h"
#include "bench.h"

static const struct workload {
    const char *name;
    int layers, heads, width, seq, batch, vocab;
    uint32_t steps, warmup;
} workloads[] = {
    {"W1", 4, 4, 128, 64, 12, 65, 60, 10},     /* nanoGPT's example for a CPU */
    {"W2", 6, 6, 384, 256, 16, 65, 8, 2},      /* nanoGPT's shakespeare_char, a smaller batch */
    {"W3", 12, 12, 768, 64, 4, 50257, 8, 2},   /* GPT-2 124M, llm.c's example for a CPU */
    {"W4", 12, 12, 768, 1024, 1, 50257, 8, 2}, /* GPT-2 124M, its whole context */
};

static void set(struct tn_config *c, const char *key, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    tn_config_case(c, key, text);
}

void bench_workload(const char *name, struct tn_config *c, struct tn_measure_options *o)
{
    static const char *const same[][2] = {
        {"model.arch", "gpt2"},     {"model.bias", "no"},        {"model.dropout", "0"},
        {"model.gelu", "erf"},      {"train.grad_clip", "1"},    {"optimizer.name", "adamw"},
        {"optimizer.beta1", "0.9"}, {"optimizer.beta2", "0.95"}, {"optimizer.weight_decay", "0.1"},
        {"optimizer.lr", "1e-3"},
    };
    const struct workload *w = workloads;

    while (strcmp(w->name, name)) /* it is one of the option's choices */
        w++;
    set(c, "model.n_layer", w->layers);
    set(c, "model.n_head", w->heads);
    set(c, "model.n_embd", w->width);
    set(c, "model.block_size", w->seq);
    set(c, "model.vocab_size", w->vocab);
    set(c, "train.seq_len", w->seq);
    set(c, "train.global_batch", w->batch);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        tn_config_case(c, same[i][0], same[i][1]);
    o->steps = w->steps;
    o->warmup = w->warmup;
}
