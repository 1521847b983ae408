/* hf.h - models as Hugging Face's library keeps them, both ways.
 *
 *   DIR/config.json                       family, sizes, what the layers do
 *   DIR/model.safetensors                 or several files with model.safetensors.index.json
 *   DIR/tokenizer.json                    if there is one
 *
 * Nothing in DIR is believed and nothing of it is run: a file that is not whole, a tensor that is missing, left over or of
 * another shape, a key that asks for what this program does not compute, each is a sentence, and all tensors that are wrong
 * are listed at once. Weights that are fp32 keep their bits both ways. */
#ifndef TN_HF_HF_H
#define TN_HF_HF_H
#include <tenon/abi.h>

struct tn_hf_report {
    const char *family;                          /* static: "gpt2" */
    int64_t parameters, tensors, ignored;        /* ignored: buffers that hold no weights */
    uint64_t bytes;                              /* of the weights that were written */
    uint32_t files;
    uint32_t tokenizer;                          /* 1: it came along */
    char note[400];                              /* sentences for the user; "" */
};

/* A run of one checkpoint, of step 0 and without an optimizer's state, and RUN/import.ini with the model's keys. RUN must
 * not have checkpoints yet. tokenizer: a tokenizer.json, NULL: DIR's. */
tn_status tn_hf_import(const char *dir, const char *run, const char *tokenizer, struct tn_hf_report *out);

struct tn_hf_export {
    const char *checkpoint;                      /* the directory of one */
    const char *dir;                             /* is made; must not be there */
    uint32_t dtype;                              /* TN_F32, TN_BF16 or TN_F16 */
    uint64_t shard;                              /* bytes of a file, about, at most */
};
tn_status tn_hf_export(const struct tn_hf_export *e, struct tn_hf_report *out);
#endif
