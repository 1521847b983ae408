/* test_safetensors.c - what is written comes back; what lies is refused, each lie with a sentence of its own;
 * and nothing that a file may hold brings the process down. */
#include "files.h"

#include "ckpt/safetensors.h"

#include <signal.h>
#include <sys/resource.h>
#include <xxhash.h>

/* A file of this header (length n, or what `says` says if it is not 0), and so many bytes of data. */
static char *put_weights(const char *header, size_t n, uint64_t says, size_t data)
{
    unsigned char *file = calloc(1, 8 + n + data + 1);
    uint64_t length = says ? says : n;

    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < data; i++)
        file[8 + n + i] = (unsigned char)i;
    char *path = put_file("w.safetensors", file, 8 + n + data);
    free(file);
    return path;
}

#define ENTRY(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void assert_refused(const char *header, size_t data, const char *words)
{
    struct tn_safetensors *f;

    assert_fails(tn_safetensors_open(put_weights(header, strlen(header), 0, data), &f), TN_ERR_INPUT, words);
    ck_assert_msg(strstr(tn_error_text(), "w.safetensors") != NULL, "no path in: %s", tn_error_text());
    ck_assert_ptr_null(f);
}

static void write_two(const char *path, uint64_t piece)
{
    struct tn_safetensors_writer *w;
    const float a[6] = {1, 2, 3, 4, 5, 6};
    const int64_t b = -7;

    assert_ok(tn_safetensors_create(path, &w));
    assert_ok(tn_safetensors_add_meta(w, "format", "pt"));
    assert_ok(tn_safetensors_declare(w, "wte.weight", TN_F32, 2, (const int64_t[]){2, 3}));
    assert_ok(tn_safetensors_declare(w, "step", TN_I64, 0, NULL));
    assert_ok(tn_safetensors_declare(w, "nothing", TN_BF16, 3, (const int64_t[]){4, 0, 9}));
    assert_ok(tn_safetensors_begin(w));
    for (uint64_t at = 0; at < sizeof a; at += piece)
        assert_ok(
            tn_safetensors_write(w, (const char *)a + at, sizeof a - at < piece ? sizeof a - at : piece));
    assert_ok(tn_safetensors_write(w, &b, sizeof b));
    assert_ok(tn_safetensors_commit(w, NULL, NULL));
}

START_TEST(what_is_written_comes_back)
{
    struct tn_safetensors *f;
    char *path = in_scratch("a.safetensors");

    for (uint64_t piece = 1; piece <= 24; piece += 23) {
        write_two(path, piece);
        assert_ok(tn_safetensors_open(path, &f));
        ck_assert_uint_eq(tn_safetensors_count(f), 3);
        const struct tn_tensor *t = tn_safetensors_find(f, "wte.weight");
        ck_assert_ptr_eq(t, tn_safetensors_at(f, 0));
        ck_assert_uint_eq(t->dtype, TN_F32);
        ck_assert_uint_eq(t->rank, 2);
        ck_assert_int_eq(t->shape[0], 2);
        ck_assert_int_eq(t->shape[1], 3);
        ck_assert_uint_eq(t->bytes, 24);
        ck_assert_uint_eq((uintptr_t)t->data % 8, 0);
        ck_assert_mem_eq(t->data, ((const float[]){1, 2, 3, 4, 5, 6}), 24);
        t = tn_safetensors_find(f, "step");
        ck_assert_uint_eq(t->rank, 0);
        ck_assert_mem_eq(t->data, (&(const int64_t){-7}), 8);
        t = tn_safetensors_find(f, "nothing");
        ck_assert_uint_eq(t->bytes, 0);
        ck_assert_ptr_nonnull(t->data);
        ck_assert_ptr_null(tn_safetensors_find(f, "wte"));
        ck_assert_ptr_null(tn_safetensors_at(f, 3));
        ck_assert_str_eq(tn_safetensors_meta(f, "format"), "pt");
        ck_assert_ptr_null(tn_safetensors_meta(f, "ini"));
        tn_safetensors_close(f);
    }
    ck_assert_uint_eq(count_names(scratch), 1);
}
END_TEST

/* Size and hash are those of the file; the header ends on a multiple of 8. */
START_TEST(commit_says_what_it_wrote)
{
    struct tn_safetensors_writer *w;
    char *path = in_scratch("a.safetensors"), *text;
    uint64_t bytes, hash;
    size_t n;

    assert_ok(tn_safetensors_create(path, &w));
    assert_ok(tn_safetensors_declare(w, "x", TN_U8, 1, (const int64_t[]){3}));
    assert_ok(tn_safetensors_begin(w));
    assert_ok(tn_safetensors_write(w, "abc", 3));
    assert_ok(tn_safetensors_commit(w, &bytes, &hash));
    assert_ok(tn_file_read(path, 1000, &text, &n));
    ck_assert_uint_eq(n, bytes);
    ck_assert_uint_eq((unsigned char)text[0] % 8, 0);
    ck_assert_uint_eq(n, 8u + (unsigned char)text[0] + 3);
    ck_assert_ptr_null(strstr(text + 8, "__metadata__"));
    ck_assert(XXH64(text, n, 0) == hash);
    free(text);
}
END_TEST

START_TEST(a_file_may_be_replaced_while_it_is_mapped)
{
    struct tn_safetensors *f;
    struct tn_safetensors_writer *w;
    char *path = in_scratch("a.safetensors");

    write_two(path, 24);
    assert_ok(tn_safetensors_open(path, &f));
    const struct tn_tensor *t = tn_safetensors_find(f, "wte.weight");
    assert_ok(tn_safetensors_create(path, &w));
    assert_ok(tn_safetensors_declare(w, "wte.weight", t->dtype, t->rank, t->shape));
    assert_ok(tn_safetensors_begin(w));
    assert_ok(tn_safetensors_write(w, t->data, t->bytes));
    assert_ok(tn_safetensors_commit(w, NULL, NULL));
    ck_assert_mem_eq(t->data, ((const float[]){1, 2, 3, 4, 5, 6}), 24);
    tn_safetensors_close(f);
    assert_ok(tn_safetensors_open(path, &f));
    ck_assert_mem_eq(tn_safetensors_at(f, 0)->data, ((const float[]){1, 2, 3, 4, 5, 6}), 24);
    tn_safetensors_close(f);
}
END_TEST

START_TEST(a_writer_keeps_its_word)
{
    struct tn_safetensors_writer *w;
    char *path = in_scratch("a.safetensors");

    assert_ok(tn_safetensors_create(path, &w));
    assert_ok(tn_safetensors_declare(w, "x", TN_F32, 1, (const int64_t[]){2}));
    assert_fails(tn_safetensors_declare(w, "x", TN_F32, 1, (const int64_t[]){2}), TN_ERR,
                 "'x' was declared twice");
    assert_fails(tn_safetensors_declare(w, "__metadata__", TN_F32, 1, (const int64_t[]){2}), TN_ERR,
                 "declared twice");
    assert_fails(tn_safetensors_declare(w, "y", TN_F32, 2, (const int64_t[]){INT64_MAX / 2, 8}), TN_ERR,
                 "too large");
    assert_fails(tn_safetensors_declare(w, "y", 99, 1, (const int64_t[]){2}), TN_ERR, "dtype 99");
    assert_ok(tn_safetensors_begin(w));
    assert_fails(tn_safetensors_declare(w, "z", TN_F32, 0, NULL), TN_ERR, "'z' was declared too late");
    assert_ok(tn_safetensors_write(w, "abcd", 4));
    assert_fails(tn_safetensors_write(w, "abcdefgh", 5), TN_ERR, "more data than was declared");
    assert_fails(tn_safetensors_commit(w, NULL, NULL), TN_ERR, "4 of 8 bytes");
    ck_assert_uint_eq(count_names(scratch), 0);
}
END_TEST

/* A full disk, as a limit on the size of files: an error, the old file as it was, nothing beside it. */
START_TEST(a_write_that_fails_leaves_the_old_file)
{
    struct tn_safetensors *f;
    struct tn_safetensors_writer *w;
    char *path = in_scratch("a.safetensors");
    static const char zeros[1 << 16];
    struct rlimit limit = {1 << 20, 1 << 20};

    write_two(path, 24);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_ok(tn_safetensors_create(path, &w));
    assert_ok(tn_safetensors_declare(w, "x", TN_U8, 1, (const int64_t[]){2 << 20}));
    assert_ok(tn_safetensors_begin(w));
    for (int i = 0; i < 32; i++)
        tn_safetensors_write(w, zeros, sizeof zeros);
    ck_assert_msg(strstr(tn_error_text(), "File too large") != NULL, "%s", tn_error_text());
    ck_assert_int_eq(tn_safetensors_commit(w, NULL, NULL), TN_ERR_IO);
    ck_assert_uint_eq(count_names(scratch), 1);
    assert_ok(tn_safetensors_open(path, &f));
    ck_assert_uint_eq(tn_safetensors_count(f), 3);
    tn_safetensors_close(f);
}
END_TEST

START_TEST(every_lie_has_its_sentence)
{
    struct tn_safetensors *f;
    static const char lfs[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 548105171\n";
    static const char one[] = "{\"a\":" ENTRY("F32", "[1]", 0, 4) "}";
    static const struct { const char *header; size_t data; const char *words;
    } lies[] = {
        {" {\"a\":" ENTRY("F32", "[1]", 0, 4) "}", 4, "does not begin with '{'"},
        {"[]", 0, "does not begin with '{'"},
        {"{\"a\":" ENTRY("F32", "[1]", 0, 4), 4, "no valid JSON"},
        {"{\"a\":" ENTRY("F32", "[1]", 0, 4) "} x", 4, "no valid JSON"},
        {"{\"\xff\":" ENTRY("F32", "[1]", 0, 4) "}", 4, "not UTF-8"},
        {"{\"a\":" ENTRY("F32", "[1]", 0, 4) ",\"a\":" ENTRY("F32", "[1]", 4, 8) "}", 8, "twice"},
        {"{\"a\":" ENTRY("F32", "[1]", 0, 4) ",\"b\":" ENTRY("F32", "[1]", 8, 12) "}", 12,
         "hole of 4 bytes before tensor 'b'"},
        {"{\"a\":" ENTRY("F32", "[2]", 0, 8) ",\"b\":" ENTRY("F32", "[1]", 4, 8) "}", 8,
         "'a' and 'b' overlap"},
        {"{\"a\":" ENTRY("F32", "[1]", 0, 4) "}", 7, "3 bytes behind its last tensor"},
        {"{\"a\":" ENTRY("F32", "[1]", 0, 4) "}", 3, "cut short: tensor 'a'"},
        {"{\"a\":" ENTRY("F32", "[1]", -4, 0) "}", 4, "negative offset"},
        {"{\"a\":" ENTRY("F32", "[1]", 4, 0) "}", 4, "ends before it begins"},
        {"{\"a\":" ENTRY("F32", "[1]", 0.0, 4) "}", 4, "no pair of whole numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "no pair of whole numbers"},
        {"{\"a\":" ENTRY("F32", "[1099511627776,1099511627776]", 0, 4) "}", 4,
         "shape of tensor 'a' overflows"},
        {"{\"a\":" ENTRY("F32", "[0,1099511627776,1099511627776]", 0, 0) "}", 0,
         "shape of tensor 'a' overflows"},
        {"{\"a\":" ENTRY("F64", "[2305843009213693952]", 0, 4) "}", 4, "size of tensor 'a' overflows"},
        {"{\"a\":" ENTRY("F32", "[2]", 0, 4) "}", 4, "has 4 bytes, but F32 of its shape need 8"},
        {"{\"a\":" ENTRY("F32", "[-1]", 0, 4) "}", 4, "dimension 0 of tensor 'a'"},
        {"{\"a\":" ENTRY("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "has 9 dimensions"},
        {"{\"a\":" ENTRY("F32", "4", 0, 4) "}", 4, "'a' has no shape"},
        {"{\"a\":" ENTRY("F33", "[1]", 0, 4) "}", 4, "dtype of tensor 'a' is not known"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype of tensor 'a' is missing"},
        {"{\"a\":7}", 4, "entry of tensor 'a' is no object"},
        {"{\"__metadata__\":{\"n\":5}}", 0, "__metadata__ \"n\" is no text"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is no object"},
    };

    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++)
        assert_refused(lies[i].header, lies[i].data, lies[i].words);
    assert_fails(tn_safetensors_open(put_file("e", "", 0), &f), TN_ERR_INPUT, "is empty");
    assert_fails(tn_safetensors_open(put_file("e", "abc", 3), &f), TN_ERR_INPUT, "too few for a safetensors");
    assert_fails(tn_safetensors_open(put_file("e", lfs, sizeof lfs - 1), &f), TN_ERR_INPUT,
                 "git-lfs pointer");
    assert_fails(tn_safetensors_open(put_file("e", "\0\0\0\0\0\0\0\0{}", 10), &f), TN_ERR_INPUT, "0 bytes");
    assert_fails(tn_safetensors_open(put_weights(one, strlen(one), 1ull << 63, 4), &f), TN_ERR_INPUT,
                 "is no safetensors file");
    assert_fails(tn_safetensors_open(put_weights(one, strlen(one), 100000001, 4), &f), TN_ERR_INPUT,
                 "more than the 100000000");
    assert_fails(tn_safetensors_open(put_weights(one, strlen(one), 1000, 4), &f), TN_ERR_INPUT,
                 "it is cut short");
    assert_fails(tn_safetensors_open(in_scratch("none"), &f), TN_ERR_INPUT, "none: No such file");
}
END_TEST

START_TEST(odd_but_valid_files_are_read)
{
    struct tn_safetensors *f;
    static const char padded[] =
        "{\"b\":" ENTRY("F32", "[1]", 2, 6) ",\"a\":" ENTRY("U16", "[1]", 0, 2) "}       ";
    static const char *const dtypes[] = {"I8", "U8", "BOOL", "I16", "U16", "F16", "BF16", "I32", "U32", "F32",
                                         "I64", "U64", "F64"};
    static const char empty[] = "{\"b\":" ENTRY("U8", "[4]", 4, 8) ",\"none\":" ENTRY(
        "F32", "[0]", 4, 4) ",\"a\":" ENTRY("U8", "[4]", 0, 4) "}";
    char header[128];

    assert_ok(tn_safetensors_open(put_weights(padded, strlen(padded), 0, 6), &f));
    ck_assert_str_eq(tn_safetensors_at(f, 0)->name, "a");
    ck_assert_mem_eq(tn_safetensors_find(f, "b")->data, "\2\3\4\5", 4);
    tn_safetensors_close(f);
    assert_ok(tn_safetensors_open(put_weights("{}", 2, 0, 0), &f));
    ck_assert_uint_eq(tn_safetensors_count(f), 0);
    ck_assert_ptr_null(tn_safetensors_find(f, "a"));
    tn_safetensors_close(f);
    assert_ok(tn_safetensors_open(put_weights(empty, strlen(empty), 0, 8), &f));
    ck_assert_uint_eq(tn_safetensors_find(f, "none")->bytes, 0);
    ck_assert_mem_eq(tn_safetensors_find(f, "b")->data, "\4\5\6\7", 4);
    tn_safetensors_close(f);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        size_t bytes = i < 3 ? 1 : i < 7 ? 2 : i < 10 ? 4 : 8;
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}",
                 dtypes[i], 3 * bytes);
        assert_ok(tn_safetensors_open(put_weights(header, strlen(header), 0, 3 * bytes), &f));
        ck_assert_str_eq(tn_file_dtype_name(tn_safetensors_at(f, 0)->dtype), dtypes[i]);
        tn_safetensors_close(f);
    }
}
END_TEST

/* Deeper than any stack: 10 MB of brackets. */
START_TEST(deep_nesting_is_an_error)
{
    struct tn_safetensors *f;
    size_t n = 10u << 20;
    char *header = malloc(n);

    memset(header, '[', n);
    memcpy(header, "{\"a\":", 5);
    char *path = put_weights(header, n, 0, 0);
    assert_fails(tn_safetensors_open(path, &f), TN_ERR_INPUT, "nested too deep");
    for (size_t i = 5; i + 5 <= n; i += 5)
        memcpy(header + i, "{\"a\":", 5);
    path = put_weights(header, n, 0, 0);
    assert_fails(tn_safetensors_open(path, &f), TN_ERR_INPUT, "nested too deep");
    free(header);
}
END_TEST

/* --- mutations */

static uint64_t state = 20240607;

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((state >> 33) % n);
}

/* One to four changes: a bit, a byte, a number, a piece copied or cut out, the end cut off. */
static size_t mutate(unsigned char *p, size_t n)
{
    static const char *const words[] = {"-1",
                                        "9223372036854775807",
                                        "18446744073709551616",
                                        "1e99",
                                        "[",
                                        "}",
                                        "\"",
                                        "null",
                                        "\\u0000",
                                        "\xc3\x28",
                                        "0",
                                        "[0,0]",
                                        "{}"};
    const char *word;

    for (uint32_t k = draw(4) + 1; k > 0; k--) {
        size_t at = draw((uint32_t)n), from = draw((uint32_t)n), m;
        switch (draw(6)) {
        case 0: p[at] ^= (unsigned char)(1u << draw(8)); break;
        case 1: p[at] = (unsigned char)draw(256); break;
        case 2:
            word = words[draw(sizeof words / sizeof words[0])];
            m = strlen(word);
            if (at + m <= n)
                memcpy(p + at, word, m);
            break;
        case 3:
            m = draw(24);
            if (at + m <= n && from + m <= n)
                memmove(p + at, p + from, m);
            break;
        case 4: p[8 + draw((uint32_t)n - 8)] = "0123456789[]{}:,\""[draw(17)]; break;
        default: n = n > 40 ? n - draw(20) : n; break;
        }
    }
    return n;
}

/* Whatever is in there: an error, or a file whose every byte can be read. */
START_TEST(no_mutation_is_a_signal)
{
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},\"h.0.attn.weight\":" ENTRY(
        "F32", "[2,3]", 0, 24) ",\"h.0.attn.bias\":" ENTRY("F32", "[3]", 24,
                                                           36) ",\"x\":" ENTRY("I64", "[]", 36, 44) "}  ";
    size_t full = 8 + sizeof header - 1 + 44, opened = 0, refused = 0;
    unsigned char *original, *file = malloc(full);
    char *path = put_weights(header, sizeof header - 1, 0, 44);

    assert_ok(tn_file_read(path, 4096, (char **)&original, &full));
    for (int i = 0; i < 20000; i++) {
        struct tn_safetensors *f;
        unsigned sum = 0;
        memcpy(file, original, full);
        put_file("w.safetensors", file, mutate(file, full));
        tn_error_clear();
        tn_status s = tn_safetensors_open(path, &f);
        ck_assert(s == TN_OK || s == TN_ERR_INPUT);
        ck_assert_int_eq(s == TN_OK, f != NULL);
        if (s < 0) {
            ck_assert_str_ne(tn_error_text(), "");
            refused++;
            continue;
        }
        opened++;
        for (uint64_t t = 0; t < tn_safetensors_count(f); t++)
            for (uint64_t b = 0; b < tn_safetensors_at(f, t)->bytes; b++)
                sum += ((const unsigned char *)tn_safetensors_at(f, t)->data)[b];
        ck_assert_uint_lt(sum, 255u * 64);
        tn_safetensors_close(f);
    }
    ck_assert_msg(opened > 500 && refused > 5000, "opened %zu, refused %zu", opened, refused);
    free(original);
    free(file);
}
END_TEST

TEST_MAIN("safetensors", what_is_written_comes_back, commit_says_what_it_wrote,
          a_file_may_be_replaced_while_it_is_mapped, a_writer_keeps_its_word,
          a_write_that_fails_leaves_the_old_file, every_lie_has_its_sentence, odd_but_valid_files_are_read,
          deep_nesting_is_an_error, no_mutation_is_a_signal)
