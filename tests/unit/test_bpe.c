/* test_bpe.c - byte pair encoding: how a text is split, what is learned from it, that every way to merge gives the
 * ids of the plainest one, that any bytes come back, and files that are damaged or of another kind. What is expected
 * of splits, merges and ids was made by Python's regex and by Hugging Face's tokenizers. */
#include "files.h"

#include "base/rng.h"
#include "data/prepare.h"
#include "data/splitter.h"
#include "data/tokenizer.h"
#include "data/tokens.h"
#include "data/utf8.h"

#include <jansson.h>
#include <time.h>

static uint64_t drawn;

static size_t below(size_t n)
{
    return (size_t)tn_random_below(77, 0, 0, drawn++, n);
}

/* --- pieces */

/* The pieces of a text, joined by |. */
static char *split(const char *text, size_t bytes)
{
    struct tn_splitter *splitter;
    char *out = tn_alloc(scratch_arena, 2 * bytes + 2);
    const unsigned char *piece;
    size_t n = 0;
    uint64_t k, at = 0;
    tn_status s;

    assert_ok(tn_splitter_new(&splitter));
    struct tn_pieces pieces = {.splitter = splitter, .text = (const unsigned char *)text, .bytes = bytes};
    for (; (s = tn_pieces_next(&pieces, &piece, &k)) == TN_OK; at += k) {
        if ((const char *)piece != text + at || k == 0)
            ck_abort_msg("a piece of %d bytes at %d", (int)k, (int)at);
        if (n > 0)
            out[n++] = '|';
        memcpy(out + n, piece, k);
        n += k;
    }
    ck_assert_int_eq(s, TN_DECLINED);
    ck_assert_uint_eq(at, bytes);
    tn_splitter_free(splitter);
    return out;
}

START_TEST(texts_are_split_as_gpt2_does)
{
    static const char *const texts[][2] = {
        {"I'm sure you'll say they've won; it's John's, he'd've",
         "I|'m| sure| you|'ll| say| they|'ve| won|;| it|'s| John|'s|,| he|'d|'ve"},
        {"'sick 'S ''s 're're", "'s|ick| '|S| ''|s| '|re|'re"},
        {"1 12 123 1234 12345 x2y \xC2\xBD \xC2\xB2" "3", "1| 12| 123| 1234| 12345| x|2|y| \xC2\xBD| \xC2\xB2" "3"},
        {"a\xC2\xA0" "b \xC2\xA0\xC2\xA0" "c", "a|\xC2\xA0|b| \xC2\xA0|\xC2\xA0|c"},    /* no-break spaces */
        {"p\xE2\x80\xA9q\xE2\x80\xA8 r", "p|\xE2\x80\xA9|q|\xE2\x80\xA8| r"},            /* U+2029, U+2028 */
        {"one\r\ntwo\r\n\r\n three", "one|\r|\n|two|\r\n\r\n| three"},
        {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 ok \xF0\x9F\x8F\xB3\xEF\xB8\x8F\xE2\x80\x8D\xF0\x9F\x8C\x88",
         "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7| ok| \xF0\x9F\x8F\xB3\xEF\xB8\x8F\xE2\x80\x8D\xF0\x9F\x8C\x88"},
        {"e\xCC\x81" "a \xCC\x81" "b", "e|\xCC\x81|a| \xCC\x81|b"},                      /* a combining mark */
        {"tail   ", "tail|   "},
        {"  two  three   x\t\ty \n z\n\n", " | two| | three|  | x|\t|\t|y| \n| z|\n\n"},
        {"m \xE1\xA0\x8En", "m| \xE1\xA0\x8E|n"},                                        /* U+180E is no blank */
        {"na\xC3\xAFve caf\xC3\xA9 \xE2\x80\x93 \xE2\x80\x9Cq\xE2\x80\x9D\xE2\x80\xA6",
         "na\xC3\xAFve| caf\xC3\xA9| \xE2\x80\x93| \xE2\x80\x9C|q|\xE2\x80\x9D\xE2\x80\xA6"},
        {"\xE4\xB8\xAD\xE6\x96\x87 \xE5\xAD\x97", "\xE4\xB8\xAD\xE6\x96\x87| \xE5\xAD\x97"},
        {"a_b-c--d ...e", "a|_|b|-|c|--|d| ...|e"},
        {"\xE2\x80\x8Bx\xC2\x85y\x1Cz", "\xE2\x80\x8B|x|\xC2\x85|y|\x1C|z"},
        {"", ""},
        /* what is no UTF-8: a piece of its own, and nothing is seen through it */
        {"ab\xFF\xFE" "cd", "ab|\xFF\xFE|cd"},
        {"x  \xE2\x82", "x|  |\xE2\x82"},
        {" \xFF y", " |\xFF| y"},
        {"\x80", "\x80"},
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        ck_assert_str_eq(split(texts[i][0], strlen(texts[i][0])), texts[i][1]);
    ck_assert_mem_eq(split("a\0b", 3), "a|\0|b", 5);
}
END_TEST

/* Cut anywhere that is said to be a place: the pieces of both parts are those of the whole. */
START_TEST(a_cut_changes_no_piece)
{
    static const char *const parts[] = {"a",  "'", "s",        "ll",       " ",        "\n",       "\t", "12",
                                        "!",  ".", "\xC3\xA9", "\xC2\xA0", "\xE3\x80\x80", "\xFF", "x",  "\r\n",
                                        "\xE2\x82", "word", "\xE4\xB8\xAD"};
    size_t cuts = 0;

    for (int round = 0; round < 4000; round++) {
        char text[200] = "", *whole;
        for (size_t n = 1 + below(24); n > 0; n--)
            strcat(text, parts[below(sizeof parts / sizeof parts[0])]);
        size_t bytes = strlen(text), given = 1 + below(bytes);
        uint64_t at = tn_pieces_cut((unsigned char *)text, given);
        ck_assert_uint_lt(at, given);
        if (at == 0)
            continue;
        cuts++;
        whole = split(text, bytes);
        ck_assert_str_eq(whole, tn_text(scratch_arena, "%s|%s", split(text, at), split(text + at, bytes - at)));
    }
    ck_assert_uint_gt(cuts, 1000);
    ck_assert_uint_eq(tn_pieces_cut((const unsigned char *)"abc", 3), 0);
    ck_assert_uint_eq(tn_pieces_cut((const unsigned char *)"   ", 3), 0);
    ck_assert_uint_eq(tn_pieces_cut((const unsigned char *)"ab  c", 5), 2);
    ck_assert_uint_eq(tn_pieces_cut(NULL, 0), 0);
}
END_TEST

/* --- training */

static const char lesson[] =
    "low low low low low lower lower newest newest newest newest newest newest widest widest widest "
    "caf\xC3\xA9 caf\xC3\xA9 aaaa aaaa aaa";

static tn_status learn(const char *text, size_t bytes, int64_t tokens, int end_of_text, struct tn_tokenizer **out)
{
    const struct tn_tokenizer_choice choice = {.kind = "bpe", .vocab_size = tokens, .end_of_text = end_of_text};

    return tn_tokenizer_train(&choice, "text", text, bytes, bytes, out);
}

static struct tn_tokenizer *learned(const char *text, int64_t tokens)
{
    struct tn_tokenizer *t;

    assert_ok(learn(text, strlen(text), tokens, 0, &t));
    ck_assert_int_eq(tn_tokenizer_vocab_size(t), tokens);
    return t;
}

static const char *ids_of(const struct tn_tokenizer *t, const char *text, size_t bytes)
{
    int32_t *id = tn_alloc(scratch_arena, (bytes + 1) * sizeof *id);
    uint64_t n;
    char *out = "";

    assert_ok(tn_tokenizer_encode(t, "text", text, bytes, id, &n));
    for (uint64_t i = 0; i < n; i++)
        out = tn_text(scratch_arena, "%s%s%d", out, i ? " " : "", id[i]);
    return out;
}

START_TEST(frequent_pairs_become_tokens)
{
    static const char merges[] =
        "\"merges\": [\"e s\", \"es t\", \"a a\", \"l o\", \"lo w\", \"e w\", \"n ew\", \"\xC4\xA0 low\", "
        "\"\xC4\xA0 new\", \"\xC4\xA0new est\", \"d est\", \"i dest\", \"w idest\", \"\xC4\xA0 aa\", "
        "\"\xC4\xA0 widest\", \"a f\", \"c af\", \"e r\", \"\xC3\x83 \xC2\xA9\", \"\xC4\xA0 caf\", "
        "\"\xC4\xA0low er\", \"\xC4\xA0" "aa aa\", \"\xC4\xA0" "caf \xC3\x83\xC2\xA9\"]";
    struct tn_tokenizer *t = learned(lesson, 279);
    char *text = tn_tokenizer_text(t);

    ck_assert_str_eq(tn_tokenizer_kind(t), "bpe");
    ck_assert_msg(strstr(text, merges) != NULL, "%s", strstr(text, "\"merges\""));
    ck_assert_str_eq(ids_of(t, "lowest newer widest", 19), "260 257 264 273 270");
    ck_assert_str_eq(ids_of(t, "caf\xC3\xA9 aaaaa", 11), "272 274 277 64");
    ck_assert_int_eq(tn_tokenizer_end_of_text(t), -1);
    free(text);
    tn_tokenizer_free(t);
    assert_fails(learn(lesson, strlen(lesson), 280, 0, &t), TN_ERR_INPUT,
                 "text has no more pairs that are there twice once its BPE has 279 tokens; --vocab-size can be 279");
    ck_assert_ptr_null(t);
}
END_TEST

/* A plain trainer: counts everything again for each merge. Words are split by us, so that only merging is compared. */
static void plain_training(const char *text, int tokens, int32_t (*merge)[2])
{
    struct tn_tokenizer *bytes = learned("", 256);
    size_t n = strlen(text), words = 0, used = 0;
    char *pieces = split(text, n), *rest;
    int32_t **word = tn_alloc(scratch_arena, (n + 1) * sizeof *word), *room = tn_alloc(scratch_arena, 8 * n + 64);
    uint64_t k;

    for (char *p = strtok_r(pieces, "|", &rest); p; p = strtok_r(NULL, "|", &rest), words++) {
        word[words] = room + used;
        assert_ok(tn_tokenizer_encode(bytes, "x", p, strlen(p), room + used, &k));
        used += k;
        room[used++] = -1;
    }
    tn_tokenizer_free(bytes);
    for (int id = 256; id < tokens; id++) {
        int32_t a = 0, b = 0, best = 0;
        static int32_t count[512][512];
        memset(count, 0, sizeof count);
        for (size_t i = 0; i + 1 < used; i++)
            if (room[i] >= 0 && room[i + 1] >= 0)
                count[room[i]][room[i + 1]]++;
        for (int32_t x = 0; x < id; x++)
            for (int32_t y = 0; y < id; y++)
                if (count[x][y] > best)
                    best = count[x][y], a = x, b = y;
        merge[id - 256][0] = a, merge[id - 256][1] = b;
        size_t out = 0;
        for (size_t i = 0; i < used; i++)
            if (i + 1 < used && room[i] == a && room[i + 1] == b)
                room[out++] = id, i++;
            else
                room[out++] = room[i];
        used = out;
    }
}

START_TEST(training_is_that_of_a_plain_trainer)
{
    char text[4001];
    int32_t merge[64][2];

    for (int round = 0; round < 6; round++) {
        for (size_t i = 0; i < sizeof text - 1; i++)
            text[i] = "ab cdefgh"[below(round < 3 ? 4 : 9)];
        text[sizeof text - 1] = 0;
        plain_training(text, 256 + 24, merge);
        struct tn_tokenizer *t = learned(text, 256 + 24);
        for (int i = 0; i < 24; i++) {
            uint64_t n, a, b;
            const char *whole = tn_tokenizer_piece(t, 256 + i, &n), *left = tn_tokenizer_piece(t, merge[i][0], &a),
                       *right = tn_tokenizer_piece(t, merge[i][1], &b);
            ck_assert_uint_eq(n, a + b);
            ck_assert_mem_eq(whole, left, a);
            ck_assert_mem_eq(whole + a, right, b);
        }
        tn_tokenizer_free(t);
    }
}
END_TEST

START_TEST(training_ends_in_words_or_well)
{
    static const char many[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    struct tn_tokenizer *t;
    char *run = malloc(1 << 20);
    uint64_t n;

    assert_fails(learn("ab", 2, 255, 0, &t), TN_ERR_CONFIG, "--vocab-size N, from 256 (the bytes)");
    assert_fails(learn("ab", 2, 0, 0, &t), TN_ERR_CONFIG, "--bpe-dir DIR");
    assert_fails(learn("ab", 2, 256, 1, &t), TN_ERR_CONFIG, "from 257 (the bytes and <|endoftext|>)");
    assert_fails(learn("ab", 2, 1 << 21, 0, &t), TN_ERR_CONFIG, "to 1048576");
    assert_fails(learn("", 0, 257, 0, &t), TN_ERR_INPUT, "--vocab-size can be 256 at most");
    assert_fails(learn(many, 32, 300, 0, &t), TN_ERR_INPUT, "can be 260 at most");
    memset(run, 'a', 1 << 20);
    assert_ok(learn(run, 1 << 20, 264, 0, &t));  /* doubles up to 256 bytes */
    tn_tokenizer_piece(t, 263, &n);
    ck_assert_uint_eq(n, 256);
    tn_tokenizer_free(t);
    assert_fails(learn(run, 1 << 20, 265, 0, &t), TN_ERR_INPUT, "can be 264 at most");
    free(run);
}
END_TEST

/* --- merging */

/* The rule itself: look at all pairs, join the one of lowest rank, the leftmost of equals. */
static size_t plain_merges(const int32_t (*merge)[3], int merges, int32_t *id, size_t n)
{
    for (;;) {
        int best = merges;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (int r = 0; r < best; r++)
                if (merge[r][0] == id[i] && merge[r][1] == id[i + 1])
                    best = r, at = i;
        if (best == merges)
            return n;
        id[at] = merge[best][2];
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
        n--;
    }
}

/* Any merges in any order, so that a token may be made in two ways, or before what it is made of has a turn. */
static json_t *random_bpe(const char *letters, int32_t (*merge)[3], int *merges)
{
    struct tn_tokenizer *bytes = learned("", 256);
    char *text = tn_tokenizer_text(bytes), token[64][80];
    json_t *root = json_loads(text, 0, NULL), *model = json_object_get(root, "model");
    json_t *vocab = json_object_get(model, "vocab"), *list = json_object_get(model, "merges");
    int tokens = 0;

    for (const char *c = letters; *c; c++)
        sprintf(token[tokens++], "%c", *c);
    *merges = 0;
    for (int i = 0; i < 24; i++) {
        const char *a = token[below((size_t)tokens)], *b = token[below((size_t)tokens)];
        json_t *pair = json_pack("[s, s]", a, b);
        char whole[160];
        sprintf(whole, "%s%s", a, b);
        int again = strlen(whole) > 60;
        for (size_t k = 0; k < json_array_size(list); k++)
            again |= json_equal(json_array_get(list, k), pair);
        if (!again) {
            if (!json_object_get(vocab, whole)) {
                json_object_set_new(vocab, whole, json_integer((json_int_t)json_object_size(vocab)));
                strcpy(token[tokens++], whole);
            }
            json_array_insert(list, below(json_array_size(list) + 1), pair);
        }
        json_decref(pair);
    }
    for (size_t k = 0; k < json_array_size(list); k++, ++*merges) {
        const char *a = json_string_value(json_array_get(json_array_get(list, k), 0));
        const char *b = json_string_value(json_array_get(json_array_get(list, k), 1));
        char whole[160];
        sprintf(whole, "%s%s", a, b);
        merge[k][0] = (int32_t)json_integer_value(json_object_get(vocab, a));
        merge[k][1] = (int32_t)json_integer_value(json_object_get(vocab, b));
        merge[k][2] = (int32_t)json_integer_value(json_object_get(vocab, whole));
    }
    free(text);
    tn_tokenizer_free(bytes);
    return root;
}

static struct tn_tokenizer *loaded(const json_t *root)
{
    struct tn_tokenizer *t;
    char *text = json_dumps(root, 0);

    assert_ok(tn_tokenizer_load(put_file("t.json", text, strlen(text)), &t));
    free(text);
    return t;
}

START_TEST(every_way_to_merge_gives_the_same_ids)
{
    static const char *const letters[] = {"a", "ab", "abc", "abcdef"};
    static int32_t got[1000], expected[1000], bytes[256];
    int32_t merge[24][3];
    int merges;

    for (int round = 0; round < 120; round++) {
        const char *from = letters[round % 4];
        json_t *root = random_bpe(from, merge, &merges);
        struct tn_tokenizer *t = loaded(root), *plain = learned("", 256);
        for (int32_t i = 0; i < 256; i++) {
            uint64_t one;
            bytes[*(const unsigned char *)tn_tokenizer_piece(plain, i, &one)] = i;
        }
        for (int text = 0; text < 12; text++) {
            char word[1000];
            size_t n = 1 + below(text < 4 ? 39 : text < 8 ? 80 : 900);
            uint64_t k;
            for (size_t i = 0; i < n; i++)
                word[i] = text % 4 == 3 && i >= 3 ? word[i - 3] : from[below(strlen(from))];
            for (size_t i = 0; i < n; i++)
                expected[i] = bytes[(unsigned char)word[i]];
            size_t m = plain_merges(merge, merges, expected, n);
            assert_ok(tn_tokenizer_encode(t, "x", word, n, got, &k));
            ck_assert_uint_eq(k, m);
            ck_assert_mem_eq(got, expected, m * sizeof *got);
        }
        tn_tokenizer_free(t);
        tn_tokenizer_free(plain);
        json_decref(root);
    }
}
END_TEST

static void assert_back(const struct tn_tokenizer *t, const char *text, size_t bytes)
{
    int32_t *id = malloc((bytes + 1) * sizeof *id);
    uint64_t n, at = 0, k;

    assert_ok(tn_tokenizer_encode(t, "x", text, bytes, id, &n));
    for (uint64_t i = 0; i < n; i++, at += k) {    /* an assertion of Check is a system call: none for each id */
        const char *piece = tn_tokenizer_piece(t, id[i], &k);
        if (!piece || at + k > bytes || memcmp(text + at, piece, k))
            ck_abort_msg("id %d, number %d, is not what stands at byte %d", id[i], (int)i, (int)at);
    }
    ck_assert_uint_eq(at, bytes);
    free(id);
}

START_TEST(any_bytes_come_back)
{
    static char text[5000];
    struct tn_tokenizer *t = learned(lesson, 279);

    for (int round = 0; round < 300; round++) {
        size_t n = below(sizeof text);
        for (size_t i = 0; i < n; i++)
            text[i] = round % 3 == 0 ? (char)below(256) : lesson[below(sizeof lesson)];
        assert_back(t, text, n);
    }
    tn_tokenizer_free(t);
}
END_TEST

/* A million of each, and one line of 2 MB of Chinese: linear, and no stack. */
START_TEST(long_pieces_take_no_time)
{
    static const char *const runs[] = {"^", "a", " ", "\n", "7", "ab", "\xE4\xB8\xAD"};
    const size_t n = 1000000;
    struct tn_tokenizer *t;
    char *text = malloc(3 * n);
    clock_t begin = clock();

    memset(text, 'a', 4096);
    strcpy(text + 4096, "^^^^^^^^^^^^^^^^ ababababab \xE4\xB8\xAD\xE4\xB8\xAD\xE4\xB8\xAD    7777777777");
    assert_ok(learn(text, strlen(text), 270, 0, &t));
    for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
        size_t bytes = strlen(runs[r]);
        for (size_t i = 0; i < n; i++)
            memcpy(text + i * bytes, runs[r], bytes);
        assert_back(t, text, n * bytes);
    }
    free(text);
    tn_tokenizer_free(t);
    ck_assert_int_lt((clock() - begin) / CLOCKS_PER_SEC, 30);
}
END_TEST

START_TEST(characters_appear_whole)
{
    struct tn_tokenizer *t = learned("x", 256);
    struct tn_decoder *d;
    int32_t id[8];
    const char *part;
    uint64_t n, k;
    char got[64] = "";

    assert_ok(tn_tokenizer_encode(t, "x", "\xE4\xB8\xAD!", 4, id, &n));
    ck_assert_uint_eq(n, 4);
    assert_ok(tn_decoder_new(t, &d));
    for (uint64_t i = 0; i < n; i++) {
        assert_ok(tn_decoder_put(d, id[i], &part, &k));
        strcat(strcat(got, part), "|");
    }
    ck_assert_str_eq(got, "||\xE4\xB8\xAD|!|");
    tn_decoder_free(d);
    tn_tokenizer_free(t);
}
END_TEST

/* --- files */

START_TEST(what_is_written_is_read)
{
    struct tn_tokenizer *t, *again;

    assert_ok(learn(lesson, strlen(lesson), 270, 1, &t));
    char *text = tn_tokenizer_text(t), *second;
    assert_ok(tn_tokenizer_load(put_file("t.json", text, strlen(text)), &again));
    second = tn_tokenizer_text(again);
    ck_assert_str_eq(text, second);
    ck_assert_int_eq(tn_tokenizer_end_of_text(again), 269);
    ck_assert_str_eq(ids_of(t, lesson, strlen(lesson)), ids_of(again, lesson, strlen(lesson)));
    ck_assert_ptr_nonnull(strstr(text, "\"added_tokens\": [{\"id\": 269, \"content\": \"<|endoftext|>\""));
    free(text);
    free(second);
    tn_tokenizer_free(t);
    tn_tokenizer_free(again);
}
END_TEST

/* A change of the file at a path ("model.merges.0"), and words of the refusal, NULL where it is taken. */
static const struct { const char *path, *value, *words; } changes[] = {
    {"version", "\"2.0\"", NULL},
    {"post_processor", "{\"type\": \"ByteLevel\", \"trim_offsets\": false}", NULL},
    {"model.merges.0", "[\"e\", \"s\"]", NULL},
    {"model.type", "null", NULL},
    {"model.unk_token", "\"<|endoftext|>\"", NULL},
    {"model.continuing_subword_prefix", "\"\"", NULL},
    {"added_tokens", "[{\"id\": 262, \"content\": \"a b\", \"special\": true}]", NULL},
    {"model", "5", "\"model\" is no BPE"},
    {"model.type", "\"Unigram\"", "\"model\" is no BPE"},
    {"model.dropout", "0.1", "dropout"},
    {"model.end_of_word_suffix", "\"</w>\"", "suffix"},
    {"model.byte_fallback", "true", "byte_fallback"},
    {"model.ignore_merges", "true", "ignore_merges"},
    {"pre_tokenizer", "null", "\"pre_tokenizer\""},
    {"pre_tokenizer.add_prefix_space", "true", "\"pre_tokenizer\""},
    {"pre_tokenizer.use_regex", "false", "\"pre_tokenizer\""},
    {"pre_tokenizer.type", "\"Whitespace\"", "\"pre_tokenizer\""},
    {"decoder", "null", "\"decoder\""},
    {"normalizer", "{\"type\": \"NFC\"}", "\"normalizer\""},
    {"post_processor", "{\"type\": \"TemplateProcessing\"}", "\"post_processor\""},
    {"truncation", "{}", "\"truncation\""},
    {"added_tokens", "5", "\"added_tokens\" is no list"},
    {"added_tokens", "[{\"content\": \"x\"}]", "no id or no content"},
    {"added_tokens", "[{\"id\": 263, \"content\": \"new\"}]", "\"new\" has no id from 0 to 262"},
    {"added_tokens", "[{\"id\": 5, \"content\": \"new\"}]", "both have id 5"},
    {"added_tokens", "[{\"id\": 5, \"content\": \"a\"}]", "\"a\" has one id in \"vocab\" and another"},
    {"added_tokens", "[{\"id\": 89, \"content\": \"z\"}]", "no token for byte 122"},
    {"added_tokens", "[{\"id\": 257, \"content\": \"est\"}]", "has to do with an added token"},
    {"model.vocab", "[]", "no \"vocab\""},
    {"model.merges", "{}", "no list of \"merges\""},
    {"model.vocab.a", "\"x\"", "\"a\" has no id"},
    {"model.vocab.a", "-1", "\"a\" has no id"},
    {"model.vocab.a", "1e3", "\"a\" has no id"},
    {"model.vocab.a", "4294967360", "\"a\" has no id"},
    {"model.vocab.a", "65", "both have id 65"},
    {"model.vocab.hole", "263", "\"hole\" has no id from 0 to 262"},
    {"model.vocab.\xE4\xB8\xAD", "262", "is not spelled in the alphabet"},
    {"model.vocab.a b", "262", "is not spelled in the alphabet"},
    {"model.merges.0", "\"es\"", "merge 1 is not two tokens"},
    {"model.merges.0", "7", "merge 1 is not two tokens"},
    {"model.merges.0", "[\"e\", \"s\", \"t\"]", "merge 1 is not two tokens"},
    {"model.merges.0", "[\"e\", 5]", "merge 1 is not two tokens"},
    {"model.merges.1", "\"e s\"", "merge 2 is merge 1 again"},
    {"model.merges.1", "\"zz t\"", "merge 2, \"zz\" and \"t\": \"zz\" is not in the vocabulary"},
    {"model.merges.1", "\"t e\"", "\"te\" is not in the vocabulary"},
    {"model.merges.1", "\" t\"", "\"\" is not in the vocabulary"},
};

static void change(json_t *root, const char *path, const char *value)
{
    char *copy = tn_text(scratch_arena, "%s", path), *dot;
    json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);

    for (; (dot = strchr(copy, '.')); copy = dot + 1) {
        *dot = 0;
        root = json_object_get(root, copy);
        ck_assert_ptr_nonnull(root);
    }
    if (json_is_array(root))
        ck_assert_int_eq(json_array_set_new(root, (size_t)atoi(copy), v), 0);
    else
        ck_assert_int_eq(json_object_set_new(root, copy, v), 0);
}

START_TEST(what_is_not_known_is_refused)
{
    struct tn_tokenizer *t = learned(lesson, 262), *got;
    char *text = tn_tokenizer_text(t);
    json_t *root = json_loads(text, 0, NULL);

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        json_t *copy = json_deep_copy(root);
        change(copy, changes[i].path, changes[i].value);
        char *changed = json_dumps(copy, 0);
        const char *path = put_file("t.json", changed, strlen(changed));
        if (changes[i].words) {
            assert_fails(tn_tokenizer_load(path, &got), TN_ERR_INPUT, changes[i].words);
            ck_assert_ptr_null(got);
        } else {
            assert_ok(tn_tokenizer_load(path, &got));
            ck_assert_str_eq(ids_of(got, lesson, strlen(lesson)), ids_of(t, lesson, strlen(lesson)));
        }
        tn_tokenizer_free(got);
        free(changed);
        json_decref(copy);
    }
    json_decref(root);
    free(text);
    tn_tokenizer_free(t);
    assert_fails(tn_tokenizer_load(put_file("t.json", "{\"kind\": \"bpe\", \"version\": 1}", 29), &got), TN_ERR_INPUT,
                 "\"model\" is no BPE");
}
END_TEST

/* Bytes changed, cut out and put in twice: refused in words, or a tokenizer that encodes and gives everything back. */
START_TEST(damaged_files_are_refused_or_work)
{
    struct tn_tokenizer *t;
    int refused = 0;

    assert_ok(learn(lesson, strlen(lesson), 270, 1, &t));
    char *text = tn_tokenizer_text(t), *damaged = malloc(3 * strlen(text));
    size_t bytes = strlen(text);
    tn_tokenizer_free(t);
    for (int round = 0; round < 2000; round++) {
        size_t n = bytes, times = 1 + below(4);
        memcpy(damaged, text, bytes);
        while (times-- > 0) {
            size_t at = below(n), k = below(n - at < 40 ? n - at : 40), to = below(n);
            switch (below(4)) {
            case 0: damaged[at] = (char)below(256); break;
            case 1: memmove(damaged + at, damaged + at + k, n - at - k), n -= k; break;
            case 2: memmove(damaged + at, damaged + to, k < n - to ? k : n - to); break;
            default: damaged[at] = "0123456789\"[]{},: "[below(18)]; break;
            }
        }
        if (below(8) == 0)
            n = below(n);
        tn_error_clear();
        tn_status s = tn_tokenizer_load(put_file("t.json", damaged, n), &t);
        ck_assert(s == TN_OK || (s == TN_ERR_INPUT && *tn_error_text()));
        if (s == TN_OK)
            assert_back(t, lesson, strlen(lesson));
        refused += s < 0;
        tn_tokenizer_free(t);
    }
    ck_assert_int_gt(refused, 500);
    ck_assert_int_lt(refused, 2000);
    free(text);
    free(damaged);
}
END_TEST

START_TEST(a_folder_is_read_in_its_three_forms)
{
    struct tn_tokenizer *t, *got;
    struct tn_tokenizer_choice choice = {.kind = "bpe", .folder = in_scratch("bpe")};

    assert_ok(learn(lesson, strlen(lesson), 270, 1, &t));
    assert_ok(tn_folder_make(choice.folder));
    assert_fails(tn_tokenizer_train(&choice, "x", "", 0, 0, &got), TN_ERR_INPUT, "no encoder.json with vocab.bpe");
    char *text = tn_tokenizer_text(t), *lines = "#version: 0.2\n";
    json_t *root = json_loads(text, 0, NULL), *model = json_object_get(root, "model");
    json_t *list = json_object_get(model, "merges");
    char *vocab = json_dumps(json_object_get(model, "vocab"), 0);
    for (size_t i = 0; i < json_array_size(list); i++)
        lines = tn_text(scratch_arena, "%s%s\n", lines, json_string_value(json_array_get(list, i)));
    static const char *const names[][2] = {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"},
                                           {"tokenizer.json", NULL}};
    for (int form = 0; form < 3; form++) {
        const char *first = form == 2 ? text : vocab;
        put_file(tn_text(scratch_arena, "bpe/%s", names[form][0]), first, strlen(first));
        if (form < 2)
            put_file(tn_text(scratch_arena, "bpe/%s", names[form][1]), lines, strlen(lines));
        assert_ok(tn_tokenizer_train(&choice, "x", "", 0, 0, &got));
        char *again = tn_tokenizer_text(got);
        ck_assert_str_eq(again, text);
        free(again);
        tn_tokenizer_free(got);
        choice.kind = "gpt2";
        assert_fails(tn_tokenizer_train(&choice, "x", "", 0, 0, &got), TN_ERR_INPUT, "is not GPT-2's");
        choice.kind = "bpe";
        for (int k = 0; k < 2 && names[form][k]; k++)
            unlink(in_scratch(tn_text(scratch_arena, "bpe/%s", names[form][k])));
    }
    put_file("bpe/vocab.json", vocab, strlen(vocab));
    put_file("bpe/merges.txt", "e s\nest\n", 8);
    assert_fails(tn_tokenizer_train(&choice, "x", "", 0, 0, &got), TN_ERR_INPUT, "line \"est\" is not two tokens");
    put_file("bpe/merges.txt", "e \xFFs\n", 6);
    assert_fails(tn_tokenizer_train(&choice, "x", "", 0, 0, &got), TN_ERR_INPUT, "is not two tokens in UTF-8");
    put_file("bpe/vocab.json", "{\"a\": 1,", 8);
    assert_fails(tn_tokenizer_train(&choice, "x", "", 0, 0, &got), TN_ERR_INPUT, "no valid JSON");
    json_decref(root);
    free(vocab);
    free(text);
    tn_tokenizer_free(t);
}
END_TEST

START_TEST(choices_that_mean_nothing_are_refused)
{
    static const struct { struct tn_tokenizer_choice choice; const char *words; } bad[] = {
        {{.kind = "gpt2"}, "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"},
        {{.kind = "gpt2", .vocab_size = 300}, "--vocab-size is for --tokenizer bpe"},
        {{.kind = "char", .vocab_size = 300}, "--vocab-size is for --tokenizer bpe"},
        {{.kind = "char", .folder = "x"}, "--bpe-dir is for"},
        {{.kind = "byte", .end_of_text = 1}, "--end-of-text is for"},
        {{.kind = "bpe", .vocab_size = 300, .folder = "x"}, "give one of them"},
    };
    struct tn_tokenizer *t;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(tn_tokenizer_train(&bad[i].choice, "x", "ab", 2, 2, &t), TN_ERR_CONFIG, bad[i].words);
}
END_TEST

/* --- from a text to a data directory */

static void prepared(const struct tn_prepare *p, uint64_t tokens[2], int32_t *train)
{
    struct tn_meta m;
    struct tn_tokens file;
    int already;

    assert_ok(tn_prepare(p, &m, &already));
    tokens[0] = m.train_tokens;
    tokens[1] = m.val_tokens;
    assert_ok(tn_tokens_open(tn_path_join(scratch_arena, p->out, "train.bin"), m.width, m.vocab_size, &file));
    assert_ok(tn_tokens_read(&file, 0, file.count, train));
    tn_tokens_close(&file);
}

START_TEST(ends_of_text_are_tokens_when_asked_for)
{
    static const char text[] = "one two<|endoftext|>one two <|endoftext|><|endoftext|>three<|endoftex one two one two "
                               "one|endoftext|>one two<|endoftext|>";
    static int32_t id[200], plain[200];
    uint64_t n[2], m[2];
    struct tn_tokenizer *t;
    struct tn_prepare p = {.input = put_file("text", text, sizeof text - 1), .out = in_scratch("a"), .tokenizer = "bpe",
                           .vocab_size = 257, .end_of_text = 1, .val_fraction = 0.2};

    prepared(&p, n, id);
    ck_assert_uint_eq(n[1], 13);                 /* "ext|>one two<|endoftext|>": the last 13 are one */
    int ends = 0;
    for (uint64_t i = 0; i < n[0]; i++)
        ends += id[i] == 256;
    ck_assert_int_eq(ends, 3);
    ck_assert_int_eq(id[7], 256);
    p.out = in_scratch("b");
    p.end_of_text = 0;
    p.vocab_size = 256;
    prepared(&p, m, plain);
    ck_assert_uint_eq(m[0], n[0] + 3 * 12);
    ck_assert_mem_eq(id, plain, 7 * sizeof *id);
    /* a vocabulary that is ready has it or has not */
    p.bpe_dir = p.out;
    p.out = in_scratch("c");
    p.vocab_size = 0;
    p.end_of_text = 1;
    struct tn_meta meta;
    int already;
    assert_fails(tn_prepare(&p, &meta, &already), TN_ERR_INPUT, "has no token <|endoftext|>");
    p.bpe_dir = in_scratch("a");
    prepared(&p, m, plain);
    ck_assert_uint_eq(m[0], n[0]);
    ck_assert_mem_eq(id, plain, n[0] * sizeof *id);
    /* nobody who gives a prompt can end a text by it */
    assert_ok(tn_tokenizer_load(in_scratch("a/tokenizer.json"), &t));
    ck_assert_int_eq(tn_tokenizer_end_of_text(t), 256);
    assert_ok(tn_tokenizer_encode(t, "x", TN_END_OF_TEXT, 13, id, n));
    ck_assert_uint_eq(n[0], 13);
    ck_assert_mem_eq(tn_tokenizer_piece(t, 256, n), TN_END_OF_TEXT, 13);
    tn_tokenizer_free(t);
}
END_TEST

/* Words, then two million blanks, letters and words again: cut in pieces or not, the ids are the same. */
START_TEST(large_texts_are_encoded_in_pieces)
{
    const size_t n = 7000000;
    char *text = malloc(n);
    int32_t *whole = malloc(n * sizeof *whole), *parts = malloc(n * sizeof *parts);
    uint64_t counts[2], k;
    struct tn_tokenizer *t;

    for (size_t i = 0; i < n; i++)
        text[i] = i / 1000000 == 2 || i / 1000000 == 3 ? ' ' : i / 1000000 == 5 ? 'a' : lesson[below(sizeof lesson - 1)];
    struct tn_prepare p = {.input = put_file("text", text, n), .out = in_scratch("a"), .tokenizer = "bpe",
                           .vocab_size = 700, .val_fraction = 0.01};
    prepared(&p, counts, parts);
    assert_ok(tn_tokenizer_load(in_scratch("a/tokenizer.json"), &t));
    assert_ok(tn_tokenizer_encode(t, "x", text, tn_prepare_split((unsigned char *)text, n, 0.01), whole, &k));
    ck_assert_uint_eq(k, counts[0]);
    ck_assert_mem_eq(whole, parts, k * sizeof *whole);
    tn_tokenizer_free(t);
    free(text);
    free(whole);
    free(parts);
}
END_TEST

START_TEST(the_validation_part_teaches_nothing)
{
    static const char text[] = "ab ab ab ab xyxyxyxyxyxy";
    struct tn_prepare p = {.input = put_file("text", text, sizeof text - 1), .out = in_scratch("a"), .tokenizer = "bpe",
                           .vocab_size = 258, .val_fraction = 0.5};
    uint64_t n[2];
    int32_t id[64];

    prepared(&p, n, id);
    ck_assert_uint_eq(n[0], 5);                  /* "ab", three times " ab", and the last blank */
    ck_assert_uint_eq(n[1], 12);
}
END_TEST

TEST_MAIN("bpe", texts_are_split_as_gpt2_does, a_cut_changes_no_piece, frequent_pairs_become_tokens,
          training_is_that_of_a_plain_trainer, training_ends_in_words_or_well, every_way_to_merge_gives_the_same_ids,
          any_bytes_come_back, long_pieces_take_no_time, characters_appear_whole, what_is_written_is_read,
          what_is_not_known_is_refused, damaged_files_are_refused_or_work, a_folder_is_read_in_its_three_forms,
          choices_that_mean_nothing_are_refused, ends_of_text_are_tokens_when_asked_for,
          large_texts_are_encoded_in_pieces, the_validation_part_teaches_nothing)
