/* model.h - models as graphs for one device. A model knows nothing of parallelism, kernels or files.
 *
 * What a model gives: inputs "tokens" and, when it trains or evaluates, "targets" [batch, seq], int32, -1 for
 * positions that do not count; outputs "loss" (sum over valid tokens) and "count" (how many), and "logits" on request.
 * When it trains, the count is that of the whole update, from the input "targets_all" [accum, batch, seq]. With caches it has
 * the input "positions" [seq]. */
#ifndef TENON_MODEL_MODEL_H
#define TENON_MODEL_MODEL_H
#include "graph/graph.h"

struct tn_model_config {
    const char *arch;                            /* gpt2, llama, mixtral */
    int64_t n_layer, n_head, n_embd, vocab_size, block_size, n_inner;
    double dropout, norm_eps, init_std;
    int bias, tie_embeddings;
    const char *gelu;                            /* gpt2: erf or tanh */
    int64_t n_kv_head;                           /* llama */
    struct tn_rotary rotary;                     /* llama */
    int64_t n_expert, top_k;                     /* mixtral, else 0 */
    double aux_loss;                             /* mixtral */
};

/* What is wanted of the graph. */
struct tn_model_use {
    int64_t batch, seq;                          /* of one micro-batch, over all data-parallel ranks */
    int64_t micro;                               /* micro-batches per update */
    int train;                                   /* with dropout, counting the whole update's targets */
    int loss, logits;
    int64_t cache;                               /* positions of caches of keys and values; 0: none (cache.c) */
};

int tn_model_known(const char *arch);
const char *tn_model_names(void);                /* "gpt2, llama and mixtral" */
/* Checks what the keys mean together; error names the key as "model.n_head". */
tn_status tn_model_check(const struct tn_model_config *c);
/* The width of the MLP where none is said. */
int64_t tn_model_inner(const char *arch, int64_t n_embd);
tn_status tn_model_build(struct tn_graph *g, const struct tn_model_config *c, const struct tn_model_use *use);

/* Random streams (philox.h): one for each use, so that none ever overlaps. Those of the data have names (sampler.h) and
 * numbers from 2^31 up. */
#define TN_STREAM_INIT 0x01000000u               /* + number of the parameter */
#define TN_STREAM_DROPOUT 0x02000000u            /* + number of the dropout in the model */
#define TN_STREAM_SAMPLE 0x05000000u
#endif
