/* files.h - the safetensors files of a folder, one or several with an index. */
#ifndef TN_HF_FILES_H
#define TN_HF_FILES_H
#include "base/arena.h"
#include "ckpt/safetensors.h"

struct hf_files {
    struct tn_arena *arena;
    uint32_t n;
    struct tn_safetensors **file;
    const char **path;
};
/* With an index: every file of it, and each tensor is where the index says, once. Close also what a failure left. */
tn_status hf_files_open(const char *dir, struct hf_files *out);
void hf_files_close(struct hf_files *f);
#endif
