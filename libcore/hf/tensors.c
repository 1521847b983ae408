/* tensors.c - the tensors that a model has in files, taken from its graph: whatever a model is made of, its file of code
 * says it once. */
#include "hf/family.h"
#include "train/model_config.h"
#include "train/session.h"

static void add(struct hf_tensors *out, const struct tn_value *v)
{
    struct tn_session_tensor *t = &out->tensor[out->n++];

    *t = (struct tn_session_tensor){.name = v->name, .value = v, .here = v, .dtype = v->dtype, .rank = v->param->spec.file_rank,
                                    .bytes = (uint64_t)tn_value_count(v) * tn_dtype_bytes(v->dtype)};
    memcpy(t->shape, v->param->spec.file_shape, sizeof t->shape);
    out->parameters += tn_value_count(v);
}

/* A parameter, or each slice of it where files have several tensors. */
static void add_all(struct hf_tensors *out)
{
    struct tn_graph *g = out->graph;
    uint64_t n = 0;

    for (const struct tn_value *v = g->params; v; v = v->next)
        n += tn_value_slices(v) ? (uint64_t)tn_value_slices(v) : 1;
    out->tensor = tn_alloc_array(g->arena, n, sizeof *out->tensor);
    for (const struct tn_value *v = g->params; v; v = v->next) {
        for (int64_t i = 0; i < tn_value_slices(v); i++)
            add(out, tn_value_slice(v, i, g->arena));
        if (!tn_value_slices(v))
            add(out, v);
    }
}

tn_status hf_tensors_of(const struct tn_config *c, const struct hf_family *f, int full, struct hf_tensors *out)
{
    const struct tn_model_use use = {.batch = 1, .seq = 1, .micro = 1, .logits = 1};
    const struct tn_mesh alone = tn_mesh_single();
    struct tn_model_config model;
    tn_status status;

    *out = (struct hf_tensors){.graph = tn_graph_new(&alone)};
    tn_model_read(c, &model);
    model.bias |= full && f->biases;
    status = tn_model_build(out->graph, &model, &use);
    if (status < 0)
        return status;
    add_all(out);
    return TN_OK;
}

void hf_tensors_free(struct hf_tensors *t)
{
    tn_graph_free(t->graph);
    *t = (struct hf_tensors){0};
}

const struct tn_session_tensor *hf_tensors_find(const struct hf_tensors *t, const char *name)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (!strcmp(t->tensor[i].name, name))
            return &t->tensor[i];
    return NULL;
}
