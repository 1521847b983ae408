/* prepare.c - see prepare.h.
 *
 * The text is mapped and encoded in pieces of 1 MiB, so that a text larger than memory works; a piece is larger only
 * where the tokenizer finds no place to cut in it, as in a million blanks. All four files
 * go to a staging directory first: OUT.tmp-PID, which becomes OUT, or OUT/.tmp-PID, whose files move into OUT
 * with meta.json last. So a directory with half of another text never passes for a whole one: hashes would
 * differ. */
#include "data/prepare.h"

#include "base/file.h"
#include "data/mapping.h"
#include "data/sink.h"
#include "data/splitter.h"
#include "data/tokenizer.h"
#include "data/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define PIECE (1u << 20)

static const char *const names[] = {"train.bin", "val.bin", "tokenizer.json", "meta.json"};
#define NAMES (sizeof names / sizeof names[0])

static uint64_t count_chars(const unsigned char *text, uint64_t bytes)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < bytes; i++)
        n += (text[i] & 0xC0) != 0x80;
    return n;
}

uint64_t tn_prepare_split(const unsigned char *text, uint64_t bytes, double val_fraction)
{
    if (tn_utf8_check(text, bytes) != bytes)
        return (uint64_t)((double)bytes * (1 - val_fraction));
    uint64_t want = (uint64_t)((double)count_chars(text, bytes) * (1 - val_fraction)), at = 0;
    for (uint64_t n = 0; at < bytes; at++) {
        n += (text[at] & 0xC0) != 0x80;
        if (n > want)                            /* at is where character want (from 0) begins */
            break;
    }
    return at;
}

struct writer {
    const struct tn_tokenizer *tokenizer;
    const char *source;
    struct tn_sink *sink;
    uint32_t width;                              /* bytes of an id in the file */
    int32_t *room;                               /* [ids], and their narrow copy behind */
    uint64_t ids;
    uint64_t tokens;                             /* written so far */
};

static tn_status make_room(struct writer *w, uint64_t ids)
{
    if (ids <= w->ids)
        return TN_OK;
    free(w->room);
    w->ids = ids;
    w->room = malloc(ids * (sizeof(int32_t) + sizeof(uint16_t)));
    if (!w->room)
        return tn_error(TN_ERR_MEMORY, "no memory to encode %" PRIu64 " bytes of %s", ids, w->source);
    return TN_OK;
}

static tn_status write_ids(struct writer *w, const int32_t *id, uint64_t n)
{
    w->tokens += n;
    if (w->width == 4)
        return tn_sink_write(w->sink, id, n * 4);
    uint16_t *narrow = (uint16_t *)(w->room + w->ids);
    for (uint64_t i = 0; i < n; i++)
        narrow[i] = (uint16_t)id[i];
    return tn_sink_write(w->sink, narrow, n * 2);
}

/* How much of the text goes next; all that is left if it can be cut nowhere. */
static uint64_t next_piece(const struct tn_tokenizer *t, const unsigned char *text, uint64_t bytes)
{
    for (uint64_t window = PIECE, n; window < bytes; window *= 2)
        if ((n = tn_tokenizer_cut(t, text, window)) > 0)
            return n;
    return bytes;
}

static tn_status encode_pieces(struct writer *w, const unsigned char *text, uint64_t bytes)
{
    tn_status status = TN_OK;

    for (uint64_t at = 0, n, count; at < bytes && status == TN_OK; at += n) {
        n = next_piece(w->tokenizer, text + at, bytes - at);
        status = make_room(w, n > PIECE ? n : PIECE);
        if (status == TN_OK)
            status = tn_tokenizer_encode(w->tokenizer, w->source, text + at, n, w->room, &count);
        if (status == TN_OK)
            status = write_ids(w, w->room, count);
    }
    return status;
}

/* Texts between two ends of text, and the token for each of these. */
static tn_status encode_documents(struct writer *w, const unsigned char *text, uint64_t bytes)
{
    const int32_t id = (int32_t)tn_tokenizer_end_of_text(w->tokenizer);
    tn_status status = TN_OK;

    for (uint64_t at = 0, end; at < bytes && status == TN_OK; at = end + sizeof TN_END_OF_TEXT - 1) {
        end = tn_pieces_document(text, bytes, at);
        status = encode_pieces(w, text + at, end - at);
        if (status == TN_OK && end < bytes && (status = make_room(w, PIECE)) == TN_OK)
            status = write_ids(w, &id, 1);
    }
    return status;
}

static tn_status write_part(const struct tn_prepare *p, const struct tn_tokenizer *t, const unsigned char *text,
                            uint64_t bytes, uint32_t width, const char *path, uint64_t *tokens, uint64_t *hash)
{
    struct writer w = {.tokenizer = t, .source = p->input, .width = width};
    tn_status status = tn_sink_open(path, &w.sink);

    if (status < 0)
        return status;
    status = p->end_of_text ? encode_documents(&w, text, bytes) : encode_pieces(&w, text, bytes);
    free(w.room);
    *tokens = w.tokens;
    if (status == TN_OK)
        return tn_sink_commit(w.sink, NULL, hash);
    tn_sink_abort(w.sink);
    return status;
}

static tn_status write_text(const char *path, char *text, uint64_t *hash)
{
    if (!text)
        return TN_ERR_MEMORY;
    tn_status status = tn_file_write(path, text, strlen(text));
    *hash = XXH64(text, strlen(text), 0);
    free(text);
    return status;
}

static tn_status write_all(const struct tn_prepare *p, const struct tn_mapping *text, uint64_t split,
                           const struct tn_tokenizer *t, char *const path[NAMES], struct tn_meta *m)
{
    uint64_t unused;
    tn_status s;

    *m = (struct tn_meta){.vocab_size = tn_tokenizer_vocab_size(t)};
    m->width = m->vocab_size <= 65536 ? 2 : 4;
    snprintf(m->tokenizer, sizeof m->tokenizer, "%s", tn_tokenizer_kind(t));
    s = write_part(p, t, text->data, split, m->width, path[0], &m->train_tokens, &m->train_hash);
    if (s == TN_OK)
        s = write_part(p, t, text->data + split, text->bytes - split, m->width, path[1], &m->val_tokens,
                       &m->val_hash);
    if (s == TN_OK)
        s = write_text(path[2], tn_tokenizer_text(t), &m->tokenizer_hash);
    if (s == TN_OK)
        s = write_text(path[3], tn_meta_text(m), &unused);
    return s;
}

/* 1 if both can be read and are the same, byte for byte; -1 if there is no file b. */
static int compare(const char *a, const char *b)
{
    struct tn_mapping x, y;
    int same = 0;

    if (!tn_path_exists(b))
        return -1;
    if (tn_mapping_open(a, &x) < 0)
        return 0;
    if (tn_mapping_open(b, &y) == TN_OK) {
        same = x.bytes == y.bytes && (x.bytes == 0 || !memcmp(x.data, y.data, (size_t)x.bytes));
        tn_mapping_close(&y);
    }
    tn_mapping_close(&x);
    return same;
}

/* The staged files into a directory that was there before. */
static tn_status move_in(const struct tn_prepare *p, char *const staged[NAMES], char *const final[NAMES],
                         int *already)
{
    size_t same = 0;
    tn_status s;

    for (size_t i = 0; i < NAMES; i++) {
        int c = compare(staged[i], final[i]);
        if (c == 0 && !p->force)
            return tn_error(TN_ERR_INPUT,
                            "%s is there already and is not what %s gives; choose another --out, or "
                            "--force to replace it",
                            final[i], p->input);
        same += c == 1;
    }
    *already = same == NAMES;
    for (size_t i = 0; i < NAMES && !*already; i++)
        if ((s = tn_file_rename(staged[i], final[i])) < 0)
            return s;
    return *already ? TN_OK : tn_folder_sync(p->out);
}

static tn_status place(const struct tn_prepare *p, int fresh, const char *stage, char *const staged[NAMES],
                       char *const final[NAMES], int *already)
{
    if (!fresh)
        return move_in(p, staged, final, already);
    tn_status s = tn_folder_sync(stage);
    return s < 0 ? s : tn_file_rename(stage, p->out);
}

static tn_status stage_and_place(struct tn_arena *a, const struct tn_prepare *p,
                                 const struct tn_mapping *text, uint64_t split, const struct tn_tokenizer *t,
                                 struct tn_meta *meta, int *already)
{
    int fresh = !tn_path_exists(p->out);
    const char *stage = tn_text(a, fresh ? "%s.tmp-%ld" : "%s/.tmp-%ld", p->out, (long)getpid());
    char *staged[NAMES], *final[NAMES];

    if (tn_folder_make(stage) < 0)
        return TN_ERR_INPUT;                     /* the sentence is said; the path is the user's */
    for (size_t i = 0; i < NAMES; i++) {
        staged[i] = tn_path_join(a, stage, names[i]);
        final[i] = tn_path_join(a, p->out, names[i]);
    }
    tn_status s = write_all(p, text, split, t, staged, meta);

    if (s == TN_OK)
        s = place(p, fresh, stage, staged, final, already);
    tn_path_remove(stage);                       /* gone already where it was renamed */
    return s;
}

static tn_status check_length(const struct tn_prepare *p, const struct tn_mapping *text, uint64_t split)
{
    uint64_t train = count_chars(text->data, split),
             val = count_chars(text->data + split, text->bytes - split);

    if (train >= 2 && val >= 2)
        return TN_OK;
    return tn_error(TN_ERR_INPUT, "%s is too short: %" PRIu64 " characters for training and %" PRIu64
                    " for validation (--val-fraction %g); each part needs at least 2", p->input, train, val,
                    p->val_fraction);
}

static tn_status prepare_text(struct tn_arena *a, const struct tn_prepare *p, const struct tn_mapping *text,
                              struct tn_meta *meta, int *already)
{
    uint64_t split = tn_prepare_split(text->data, text->bytes, p->val_fraction);
    const struct tn_tokenizer_choice choice = {.kind = p->tokenizer,
                                               .vocab_size = p->vocab_size,
                                               .folder = p->bpe_dir,
                                               .end_of_text = p->end_of_text};
    struct tn_tokenizer *t;
    tn_status s = tn_tokenizer_train(&choice, p->input, text->data, text->bytes, split, &t);

    if (s == TN_OK)
        s = check_length(p, text, split);
    if (s == TN_OK)
        s = stage_and_place(a, p, text, split, t, meta, already);
    tn_tokenizer_free(t);
    return s;
}

/* "data/" -> "data": the staging name goes behind it. */
static char *without_slash(struct tn_arena *a, const char *path)
{
    char *out = tn_text(a, "%s", path);

    for (size_t n = strlen(out); n > 1 && out[n - 1] == '/';)
        out[--n] = 0;
    return out;
}

static tn_status check_words(const struct tn_prepare *p)
{
    if (!(p->val_fraction > 0 && p->val_fraction < 1))
        return tn_error(TN_ERR_CONFIG, "--val-fraction is %g, it must lie between 0 and 1", p->val_fraction);
    if (!*p->out)
        return tn_error(TN_ERR_CONFIG, "--out is empty");
    if (tn_path_exists(p->out) && !tn_path_is_folder(p->out))
        return tn_error(TN_ERR_INPUT, "%s is there and is no directory", p->out);
    return TN_OK;
}

tn_status tn_prepare(const struct tn_prepare *p, struct tn_meta *meta, int *already)
{
    struct tn_arena *a = tn_arena_new();
    struct tn_prepare plain = *p;
    struct tn_mapping text = {0};
    tn_status s = check_words(p);

    *already = 0;
    plain.out = without_slash(a, p->out);
    if (s == TN_OK)
        s = tn_mapping_open(p->input, &text);
    if (s == TN_OK && text.bytes == 0)
        s = tn_error(TN_ERR_INPUT, "%s is empty", p->input);
    if (s == TN_OK)
        s = prepare_text(a, &plain, &text, meta, already);
    tn_mapping_close(&text);
    tn_arena_free(a);
    return s;
}
