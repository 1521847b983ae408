/* dataset.c - see dataset.h. */
#include "data/dataset.h"

#include "base/file.h"
#include "base/status.h"
#include "data/mapping.h"
#include "data/meta.h"
#include "data/tokenizer.h"

#include <inttypes.h>
#include <xxhash.h>

static tn_status open_part(const char *path, uint32_t width, int64_t vocab, int64_t seq_len,
                           struct tn_tokens *out)
{
    tn_status status = tn_tokens_open(path, width, vocab, out);

    return status < 0 ? status : tn_tokens_fit(out, seq_len);
}

static tn_status as_described(const struct tn_tokens *t, uint64_t count, uint64_t hash)
{
    if (t->count != count)
        return tn_error(TN_ERR_INPUT, "%s has %" PRIu64 " tokens, meta.json beside it says %" PRIu64
                        "; run tenon prepare again", t->path, t->count, count);
    if (t->hash != hash)
        return tn_error(TN_ERR_INPUT,
                        "%s is not the file that meta.json beside it describes (checksum %016" PRIx64
                        ", expected %016" PRIx64 "); run tenon prepare again",
                        t->path, t->hash, hash);
    return TN_OK;
}

static tn_status check_tokenizer(const char *path, const struct tn_meta *m)
{
    struct tn_mapping file;
    struct tn_tokenizer *t = NULL;
    tn_status status = tn_mapping_open(path, &file);
    int same;

    if (status < 0)
        return status;
    same = XXH64(file.bytes ? (const void *)file.data : "", (size_t)file.bytes, 0) == m->tokenizer_hash;
    tn_mapping_close(&file);
    if (same && (status = tn_tokenizer_load(path, &t)) < 0)
        return status;
    if (!same || strcmp(tn_tokenizer_kind(t), m->tokenizer) || tn_tokenizer_vocab_size(t) != m->vocab_size)
        status = tn_error(TN_ERR_INPUT, "%s is not the tokenizer that meta.json beside it describes; "
                          "run tenon prepare again", path);
    tn_tokenizer_free(t);
    return status;
}

static tn_status check_meta(const char *tokenizer, const struct tn_meta *m, const struct tn_dataset *d)
{
    tn_status s = as_described(&d->train, m->train_tokens, m->train_hash);

    if (s < 0 || (s = as_described(&d->val, m->val_tokens, m->val_hash)) < 0)
        return s;
    return check_tokenizer(tokenizer, m);
}

static tn_status agree_vocab(const char *dir, const struct tn_meta *m, int known, int64_t vocab_size,
                             struct tn_dataset *d)
{
    d->vocab_size = known ? m->vocab_size : vocab_size;
    if (known && vocab_size > 0 && vocab_size < m->vocab_size)
        return tn_error(TN_ERR_INPUT,
                        "%s has a vocabulary of %lld (%s), model.vocab_size is %lld: set it to at "
                        "least %lld",
                        dir, (long long)m->vocab_size, m->tokenizer, (long long)vocab_size,
                        (long long)m->vocab_size);
    if (!known && vocab_size <= 0)
        return tn_error(TN_ERR_INPUT, "%s has no meta.json that says how large the vocabulary is: set "
                        "model.vocab_size, or run tenon prepare", dir);
    if (!known)
        tn_log(TN_LOG_INFO, "%s has no meta.json: its .bin files are taken as uint16, ids below %lld", dir,
               (long long)vocab_size);
    return TN_OK;
}

static tn_status open_all(struct tn_arena *a, const char *dir, int64_t vocab_size, int64_t seq_len,
                          struct tn_dataset *out)
{
    struct tn_meta meta;

    if (!tn_path_is_folder(dir))
        return tn_error(TN_ERR_INPUT, "data.dir = %s: there is no such folder; tenon prepare makes one", dir);
    tn_status s = tn_meta_load(tn_path_join(a, dir, "meta.json"), &meta);
    int known = s == TN_OK;
    uint32_t width = known ? meta.width : 2;

    if (s < 0)
        return s;
    out->tokenizer_hash = meta.tokenizer_hash;
    strcpy(out->tokenizer, meta.tokenizer);
    s = agree_vocab(dir, &meta, known, vocab_size, out);
    if (s == TN_OK)
        s = open_part(tn_path_join(a, dir, "train.bin"), width, out->vocab_size, seq_len, &out->train);
    if (s == TN_OK)
        s = open_part(tn_path_join(a, dir, "val.bin"), width, out->vocab_size, seq_len, &out->val);
    if (s == TN_OK && known)
        s = check_meta(tn_path_join(a, dir, "tokenizer.json"), &meta, out);
    snprintf(out->fingerprint, sizeof out->fingerprint, "train=%016" PRIx64 " val=%016" PRIx64,
             out->train.hash, out->val.hash);
    return s;
}

tn_status tn_dataset_open(const char *dir, int64_t vocab_size, int64_t seq_len, struct tn_dataset *out)
{
    struct tn_arena *a = tn_arena_new();

    *out = (struct tn_dataset){0};
    tn_status s = open_all(a, dir, vocab_size, seq_len, out);
    tn_arena_free(a);
    if (s < 0)
        tn_dataset_close(out);
    return s;
}

void tn_dataset_close(struct tn_dataset *d)
{
    tn_tokens_close(&d->train);
    tn_tokens_close(&d->val);
    *d = (struct tn_dataset){0};
}
