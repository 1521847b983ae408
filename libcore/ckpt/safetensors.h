/* safetensors.h - named tensors in one file, as Hugging Face and everyone else reads them.
 *
 * The file: 8 bytes of little-endian header length N, N bytes of JSON {"name": {"dtype", "shape",
 * "data_offsets"}, …, "__metadata__": {text: text}} padded with blanks, then the data, row-major, without
 * holes. A reader believes nothing: whatever the bytes are, open gives a file that is whole and consistent,
 * or one sentence. */
#ifndef TN_CKPT_SAFETENSORS_H
#define TN_CKPT_SAFETENSORS_H
#include "ckpt/dtype.h"

#define TN_FILE_RANK 8u

struct tn_tensor {
    const char *name;                            /* borrowed from the file, as data is */
    uint32_t dtype, rank;                        /* TN_F32 …, TN_FILE_U16 …; rank 0: one element */
    int64_t shape[TN_FILE_RANK];                  /* the product fits in int64 */
    const void *data;                            /* of foreign files perhaps not aligned; never NULL */
    uint64_t bytes;
};

/* --- reading: the file is mapped; any number of threads */
struct tn_safetensors;
tn_status tn_safetensors_open(const char *path, struct tn_safetensors **out);
void tn_safetensors_close(struct tn_safetensors *f);     /* NULL is fine */

/* In the order of the data. */
uint64_t tn_safetensors_count(const struct tn_safetensors *f);
const struct tn_tensor *tn_safetensors_at(const struct tn_safetensors *f, uint64_t i);
/* NULL if there is none. */
const struct tn_tensor *tn_safetensors_find(const struct tn_safetensors *f, const char *name);
const char *tn_safetensors_meta(const struct tn_safetensors *f, const char *key);

/* --- writing: declare all, begin, write the data in the order of the declarations in any pieces, commit.
 * The file appears with commit, or not at all. */
struct tn_safetensors_writer;
tn_status tn_safetensors_create(const char *path, struct tn_safetensors_writer **out);
tn_status tn_safetensors_add_meta(struct tn_safetensors_writer *w, const char *key, const char *value);
tn_status tn_safetensors_declare(struct tn_safetensors_writer *w, const char *name, uint32_t dtype,
                                 uint32_t rank, const int64_t *shape);
tn_status tn_safetensors_begin(struct tn_safetensors_writer *w);
tn_status tn_safetensors_write(struct tn_safetensors_writer *w, const void *data, uint64_t bytes);
/* Takes w, also on failure. Size and XXH64 of the file; both may be NULL. */
tn_status tn_safetensors_commit(struct tn_safetensors_writer *w, uint64_t *bytes, uint64_t *hash);
/* Takes w; NULL is fine. */
void tn_safetensors_abort(struct tn_safetensors_writer *w);
#endif
