/* test_tokenizer.c - text to ids and back: sorted code points, strict UTF-8, unknown characters named, and a
 * decoder that never gives half a character. */
#include "files.h"

#include "data/tokenizer.h"
#include "data/utf8.h"

#include <time.h>

static tn_status train(const char *kind, const char *source, const char *text, uint64_t bytes,
                       struct tn_tokenizer **out)
{
    return tn_tokenizer_train(&(struct tn_tokenizer_choice){.kind = kind}, source, text, bytes, bytes, out);
}

static struct tn_tokenizer *trained(const char *kind, const char *text)
{
    struct tn_tokenizer *t;

    assert_ok(train(kind, "text", text, strlen(text), &t));
    return t;
}

static void assert_ids(const struct tn_tokenizer *t, const char *text, const char *expected)
{
    int32_t id[64];
    uint64_t n;
    char got[256] = "";

    assert_ok(tn_tokenizer_encode(t, "prompt", text, strlen(text), id, &n));
    for (uint64_t i = 0; i < n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", id[i]);
    ck_assert_str_eq(got, expected);
}

START_TEST(characters_are_sorted_by_code_point)
{
    /* \n b c é (U+E9) € (U+20AC) 😀 (U+1F600) */
    struct tn_tokenizer *t = trained("char", "c\xF0\x9F\x98\x80" "b\xE2\x82\xAC\xC3\xA9\n" "bc");
    uint64_t n;

    ck_assert_int_eq(tn_tokenizer_vocab_size(t), 6);
    ck_assert_str_eq(tn_tokenizer_kind(t), "char");
    assert_ids(t, "\xF0\x9F\x98\x80\xE2\x82\xAC\xC3\xA9" "cb\n", "5 4 3 2 1 0");
    assert_ids(t, "", "");
    ck_assert_mem_eq(tn_tokenizer_piece(t, 4, &n), "\xE2\x82\xAC", 3);
    ck_assert_uint_eq(n, 3);
    ck_assert_ptr_null(tn_tokenizer_piece(t, 6, &n));
    ck_assert_ptr_null(tn_tokenizer_piece(t, -1, &n));
    ck_assert_ptr_null(tn_tokenizer_piece(t, INT64_MIN, &n));
    tn_tokenizer_free(t);
}
END_TEST

START_TEST(bytes_are_their_own_ids)
{
    struct tn_tokenizer *t = trained("byte", "");
    int32_t id[256];
    unsigned char all[256];
    uint64_t n;

    ck_assert_int_eq(tn_tokenizer_vocab_size(t), 256);
    for (int i = 0; i < 256; i++)
        all[i] = (unsigned char)i;
    assert_ok(tn_tokenizer_encode(t, "prompt", all, 256, id, &n));
    ck_assert_uint_eq(n, 256);
    for (int i = 0; i < 256; i++) {
        ck_assert_int_eq(id[i], i);
        ck_assert_int_eq(*(const unsigned char *)tn_tokenizer_piece(t, i, &n), i);
        ck_assert_uint_eq(n, 1);
    }
    tn_tokenizer_free(t);
}
END_TEST

START_TEST(unknown_characters_are_named)
{
    struct tn_tokenizer *t = trained("char", "abc \xC3\xA9");
    int32_t id[64];
    uint64_t n;

    assert_fails(
        tn_tokenizer_encode(t, "prompt", "cab?", 4, id, &n), TN_ERR_INPUT,
        "prompt: character 4 is U+003F '?', which is not among the 5 characters of this char vocabulary");
    assert_fails(tn_tokenizer_encode(t, "prompt", "\xC3\xA9\xE2\x82\xAC", 5, id, &n), TN_ERR_INPUT,
                 "character 2 is U+20AC '\xE2\x82\xAC',");
    assert_fails(tn_tokenizer_encode(t, "prompt", "a\tb", 3, id, &n), TN_ERR_INPUT,
                 "character 2 is U+0009, which");
    assert_fails(tn_tokenizer_encode(t, "prompt", "a\0b", 3, id, &n), TN_ERR_INPUT,
                 "character 2 is U+0000, which");
    assert_fails(tn_tokenizer_encode(t, "prompt", "ab\xFF", 3, id, &n), TN_ERR_INPUT,
                 "prompt is not valid UTF-8 at byte 2");
    tn_tokenizer_free(t);
}
END_TEST

START_TEST(invalid_utf8_is_no_text_of_characters)
{
    static const struct { const char *text; const char *at; } bad[] = {
        {"ab\xFF" "c", "byte 2"},                /* starts nothing */
        {"\x80", "byte 0"},                      /* a continuation alone */
        {"a\xC0\x80", "byte 1"},                 /* overlong */
        {"\xE0\x9F\xBF", "byte 0"},
        {"\xF0\x8F\xBF\xBF", "byte 0"},
        {"ab\xED\xA0\x80", "byte 2"},            /* a surrogate */
        {"\xF4\x90\x80\x80", "byte 0"},          /* above U+10FFFF */
        {"abc\xE2\x82", "byte 3"},               /* cut short */
        {"\xE2\x28\xA1", "byte 0"},
    };
    struct tn_tokenizer *t;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_fails(train("char", "a.txt", bad[i].text, strlen(bad[i].text), &t), TN_ERR_INPUT,
                     bad[i].at);
        ck_assert_msg(strstr(tn_error_text(), "a.txt") && strstr(tn_error_text(), "--tokenizer byte"), "%s",
                      tn_error_text());
        assert_ok(train("byte", "a.txt", bad[i].text, strlen(bad[i].text), &t));
        tn_tokenizer_free(t);
    }
    assert_fails(train("word", "a.txt", "a", 1, &t), TN_ERR_CONFIG, "there are: char, byte");
}
END_TEST

/* All code points there are, through write and read; what lies between two sequences is none. */
START_TEST(utf8_goes_both_ways)
{
    unsigned char text[4];
    uint32_t code;

    for (uint32_t c = 0; c < TN_CODEPOINTS; c++) {
        unsigned n = tn_utf8_write(c, text);
        if (c >= 0xD800 && c <= 0xDFFF) {
            ck_assert_uint_eq(tn_utf8_read(text, n, &code), 0);
            continue;
        }
        ck_assert_uint_eq(tn_utf8_read(text, n, &code), n);
        ck_assert_uint_eq(code, c);
        ck_assert_uint_eq(tn_utf8_read(text, n - 1, &code), 0);
        ck_assert_uint_eq(tn_utf8_whole(text, n), n);
        if (n > 1)
            ck_assert_uint_eq(tn_utf8_whole(text, n - 1), 0);
    }
}
END_TEST

START_TEST(a_saved_tokenizer_is_the_same)
{
    static const char *const kinds[] = {"char", "byte"};

    for (int k = 0; k < 2; k++) {
        struct tn_tokenizer *t = trained(kinds[k], "h\xC3\xA9llo \xF0\x9F\x98\x80\n"), *again;
        char *text = tn_tokenizer_text(t), *second;
        assert_ok(tn_tokenizer_load(put_file("tokenizer.json", text, strlen(text)), &again));
        second = tn_tokenizer_text(again);
        ck_assert_str_eq(text, second);
        ck_assert_str_eq(tn_tokenizer_kind(again), kinds[k]);
        ck_assert_int_eq(tn_tokenizer_vocab_size(again), tn_tokenizer_vocab_size(t));
        if (k == 0) {
            ck_assert_str_eq(
                text,
                "{\"kind\": \"char\", \"version\": 1, \"chars\": [10, 32, 104, 108, 111, 233, 128512]}\n");
            assert_ids(again, "\xC3\xA9\n", "5 0");
        }
        free(text);
        free(second);
        tn_tokenizer_free(t);
        tn_tokenizer_free(again);
    }
}
END_TEST

START_TEST(a_damaged_tokenizer_is_refused)
{
    static const char *const bad[][2] = {
        {"", "no valid JSON"},
        {"[]", "no \"kind\""},
        {"{\"kind\": \"bpe9\", \"version\": 1}", "this program knows: char, byte"},
        {"{\"kind\": \"char\", \"version\": 2}", "\"version\" is not 1"},
        {"{\"kind\": \"char\", \"version\": 1}", "\"chars\" is missing"},
        {"{\"kind\": \"char\", \"version\": 1, \"chars\": []}", "\"chars\" is missing"},
        {"{\"kind\": \"char\", \"version\": 1, \"chars\": [97, 97]}", "entry 1"},
        {"{\"kind\": \"char\", \"version\": 1, \"chars\": [97, 96]}", "entry 1"},
        {"{\"kind\": \"char\", \"version\": 1, \"chars\": [-1]}", "entry 0"},
        {"{\"kind\": \"char\", \"version\": 1, \"chars\": [55296]}", "entry 0"},
        {"{\"kind\": \"char\", \"version\": 1, \"chars\": [1114112]}", "entry 0"},
        {"{\"kind\": \"char\", \"version\": 1, \"chars\": [\"a\"]}", "entry 0"},
    };
    struct tn_tokenizer *t;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_fails(tn_tokenizer_load(put_file("t.json", bad[i][0], strlen(bad[i][0])), &t), TN_ERR_INPUT,
                     bad[i][1]);
        ck_assert_ptr_null(t);
    }
    assert_fails(tn_tokenizer_load(in_scratch("none"), &t), TN_ERR_INPUT, "No such file");
}
END_TEST

/* Byte by byte: the parts, joined by |, and the flush at the end. */
static void assert_stream(const char *text, const char *expected)
{
    struct tn_tokenizer *t = trained("byte", "");
    struct tn_decoder *d;
    char got[256] = "";
    const char *part;
    uint64_t n, all = 0;

    assert_ok(tn_decoder_new(t, &d));
    for (const char *p = text; *p; p++, all += n) {
        assert_ok(tn_decoder_put(d, (unsigned char)*p, &part, &n));
        ck_assert_uint_eq(strlen(part), n);
        strcat(strcat(got, part), n ? "|" : "");
    }
    tn_decoder_flush(d, &part, &n);
    ck_assert_str_eq(strcat(got, part), expected);
    ck_assert_uint_eq(all + n, strlen(text));
    tn_decoder_free(d);
    tn_tokenizer_free(t);
}

START_TEST(characters_are_decoded_whole)
{
    assert_stream("ab", "a|b|");
    assert_stream("\xC3\xA9!", "\xC3\xA9|!|");
    assert_stream("\xE4\xB8\xAD\xE6\x96\x87", "\xE4\xB8\xAD|\xE6\x96\x87|");
    assert_stream("\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80|");
    assert_stream("a\xF0\x9F\x98", "a|\xF0\x9F\x98");    /* the end comes first */
    assert_stream("\xFF" "a", "\xFF|a|");
    assert_stream("\xE2\x82" "a", "\xE2\x82" "a|");      /* no character any more: given out as it is */
    assert_stream("\xE2\xE2\x82\xAC", "\xE2|\xE2\x82\xAC|");
    assert_stream("\xC0\x80", "\xC0|\x80|");
}
END_TEST

START_TEST(ids_outside_the_vocabulary_are_refused)
{
    struct tn_tokenizer *t = trained("char", "ab");
    struct tn_decoder *d;
    const char *part;
    uint64_t n;

    assert_ok(tn_decoder_new(t, &d));
    assert_ok(tn_decoder_put(d, 1, &part, &n));
    ck_assert_str_eq(part, "b");
    assert_fails(tn_decoder_put(d, 2, &part, &n), TN_ERR_INPUT, "id 2 is outside the char vocabulary of 2");
    assert_fails(tn_decoder_put(d, INT64_MIN, &part, &n), TN_ERR_INPUT, "id -9223372036854775808");
    tn_decoder_free(d);
    tn_tokenizer_free(t);
}
END_TEST

/* Random code points of 1 to 4 bytes, cut anywhere for the encoder. */
START_TEST(pieces_join_to_the_whole)
{
    static char text[4 * 3000];
    static int32_t id[4 * 3000], part[4 * 3000];
    static const uint32_t base[] = {0x20, 0xC0, 0x4E00, 0x1F600};
    uint64_t n = 0, count, all = 0;
    struct tn_tokenizer *t;

    for (uint32_t i = 0; i < 3000; i++)
        n += tn_utf8_write(base[i * 7 % 4] + i * i % 61, (unsigned char *)text + n);
    assert_ok(train("char", "text", text, n, &t));
    assert_ok(tn_tokenizer_encode(t, "text", text, n, id, &count));
    ck_assert_uint_eq(count, 3000);
    for (uint64_t at = 0, step = 4; at < n; step = step % 97 + 4) {
        uint64_t bytes = n - at < step ? n - at : tn_tokenizer_cut(t, text + at, step), k;
        ck_assert_uint_gt(bytes, 0);
        assert_ok(tn_tokenizer_encode(t, "text", text + at, bytes, part + all, &k));
        all += k;
        at += bytes;
    }
    ck_assert_uint_eq(all, 3000);
    ck_assert_mem_eq(id, part, sizeof *id * 3000);
    tn_tokenizer_free(t);
}
END_TEST

/* A million of the same, and one line of 2 MB of Chinese: linear. */
START_TEST(long_runs_are_no_trouble)
{
    static const char *const units[] = {"^", "a", " ", "\n", "\xE4\xB8\xAD"};
    static char text[3000000];
    static int32_t id[3000000];
    struct tn_tokenizer *t;
    uint64_t n;
    clock_t before = clock();

    for (size_t u = 0; u < 5; u++) {
        size_t bytes = strlen(units[u]);
        for (size_t i = 0; i < 1000000; i++)
            memcpy(text + i * bytes, units[u], bytes);
        assert_ok(train("char", "text", text, 1000000 * bytes, &t));
        assert_ok(tn_tokenizer_encode(t, "text", text, 1000000 * bytes, id, &n));
        ck_assert_uint_eq(n, 1000000);
        ck_assert_int_eq(id[999999], 0);
        tn_tokenizer_free(t);
    }
    ck_assert_int_lt((clock() - before) / CLOCKS_PER_SEC, 5);
}
END_TEST

TEST_MAIN("tokenizer", characters_are_sorted_by_code_point, bytes_are_their_own_ids,
          unknown_characters_are_named, invalid_utf8_is_no_text_of_characters, utf8_goes_both_ways,
          a_saved_tokenizer_is_the_same, a_damaged_tokenizer_is_refused, characters_are_decoded_whole,
          ids_outside_the_vocabulary_are_refused, pieces_join_to_the_whole, long_runs_are_no_trouble)
