/* kit.c - what models are written with: parameters and their views in files, products, the tokens. */
#include <math.h>
#include "model/model_own.h"

struct tn_value *model_vector(struct tn_graph *g, const char *name, uint32_t rank, const char *const *dim, const int64_t *size, uint32_t init)
{
    struct tn_param_spec spec = {.dim = dim, .size = size, .rank = rank, .file_rank = 1, .file_shape = {1}, .init = init};

    for (uint32_t d = 0; d < rank; d++)
        spec.file_shape[0] *= size[d];
    return tn_graph_param(g, name, &spec);
}

struct tn_value *model_matrix(struct tn_graph *g, const char *name, uint32_t rank, const char *const *dim, const int64_t *size,
                              uint32_t rows, double std)
{
    struct tn_param_spec spec = {.dim = dim, .size = size, .rank = rank, .file_rank = 2, .file_shape = {1, 1},
                                 .init = TN_INIT_NORMAL, .std = std};

    for (uint32_t d = 0; d < rank; d++)
        spec.file_shape[d >= rows] *= size[d];
    return tn_graph_param(g, name, &spec);
}

struct tn_value *model_product(struct tn_graph *g, const char *role, struct tn_value *x, struct tn_value *w, uint32_t n_out)
{
    const char *out[2 + TN_MAX_RANK] = {"batch", "seq"};
    struct tn_attr attr = {"out", TN_ATTR_NAMES, 2 + n_out, {.names = out}};

    if (!w)
        return NULL;
    for (uint32_t d = 0; d < n_out; d++)
        out[2 + d] = w->dim[d];
    tn_set_role(g, role);
    return tn_add(g, "einsum", TN_IN(x, w), &attr, 1);
}

struct tn_value *model_tokens(struct tn_graph *g, const struct tn_model_use *use)
{
    return tn_graph_input(g, "tokens", TN_I32, 2, DIMS("batch", "seq"), SIZES(use->batch, use->seq), 1);
}

double model_narrow(const struct tn_model_config *c)
{
    return c->init_std / sqrt(2.0 * (double)c->n_layer);
}
