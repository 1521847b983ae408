/* vocabulary.c - see vocabulary.h. */
#include "vocabulary.h"
#include "base/arena.h"
#include "base/file.h"
#include "data/meta.h"

tn_status vocabulary_settle(struct tn_config *c)
{
    struct tn_arena *a;
    struct tn_meta meta;
    tn_status status;

    if (tn_config_text(c, "model.vocab_size") || !tn_config_text(c, "data.dir"))
        return TN_OK;
    a = tn_arena_new();
    status = tn_meta_load(tn_path_join(a, tn_config_text(c, "data.dir"), "meta.json"), &meta);
    if (status == TN_OK)
        tn_config_settle(c, "model.vocab_size", "%lld", (long long)meta.vocab_size);
    tn_arena_free(a);
    return status < 0 ? status : TN_OK;
}
