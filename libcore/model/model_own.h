/* model_own.h - what the files of models share (kit.c), and llama's blocks, of which others change a part. */
#ifndef TENON_MODEL_MODEL_OWN_H
#define TENON_MODEL_MODEL_OWN_H
#include "model/model.h"

#define DIMS(...) (const char *const[]){__VA_ARGS__}
#define SIZES(...) (const int64_t[]){__VA_ARGS__}

/* --- parameters. Names are copied. */
/* One dim in files, the product of all. */
struct tn_value *model_vector(struct tn_graph *g, const char *name, uint32_t rank, const char *const *dim, const int64_t *size, uint32_t init);
/* Two dims in files: the product of the first `rows` dims, that of the rest. */
struct tn_value *model_matrix(struct tn_graph *g, const char *name, uint32_t rank, const char *const *dim, const int64_t *size,
                              uint32_t rows, double std);

/* y = x·wᵀ: the dims batch and seq of x, then the first n_out of w, with that role. */
struct tn_value *model_product(struct tn_graph *g, const char *role, struct tn_value *x, struct tn_value *w, uint32_t n_out);
struct tn_value *model_tokens(struct tn_graph *g, const struct tn_model_use *use);
/* From the last hidden state x [batch, seq, embed] and the head's weight w [vocab, embed] to the outputs. */
void model_head(struct tn_graph *g, struct tn_value *x, struct tn_value *w, const struct tn_model_use *use);
/* cache.c. The positions of the tokens [seq], as many as positions can be, and attention with its attributes. */
struct tn_value *model_positions(struct tn_graph *g, const struct tn_model_use *use);
int64_t model_reach(const struct tn_model_use *use);
struct tn_value *model_attention(struct tn_graph *g, const struct tn_model_use *use, struct tn_value *q, struct tn_value *k, struct tn_value *v,
                                 struct tn_value *positions, const struct tn_attr *attr, size_t n_attr);
/* Deviation of what writes into the residual stream: init_std/√(2·layers). */
double model_narrow(const struct tn_model_config *c);

/* --- llama.c. Another model of this family sets mlp and leaves the rest to llama_build. */
struct llama {
    struct tn_graph *g;
    const struct tn_model_config *c;
    const struct tn_model_use *use;
    /* The second half of a block, inside its residual: from y [batch, seq, embed], which is normed, to what is added to the
     * stream, of the same dims. name: "model.layers.3". The unit is set, the role is not. */
    struct tn_value *(*mlp)(struct llama *m, struct tn_value *y, const char *name);
    struct tn_value *positions, *rotary;         /* by llama_build */
    struct tn_value *extra;                      /* a scalar that training adds to the sum of losses, from block to block; NULL: none */
};
void llama_build(struct llama *m);
/* The dense one: down(silu(gate(y))·up(y)). */
struct tn_value *llama_mlp(struct llama *m, struct tn_value *y, const char *name);

/* --- the models */
void model_gpt2(struct tn_graph *g, const struct tn_model_config *c, const struct tn_model_use *use);
void model_llama(struct tn_graph *g, const struct tn_model_config *c, const struct tn_model_use *use);
void model_mixtral(struct tn_graph *g, const struct tn_model_config *c, const struct tn_model_use *use);
#endif
