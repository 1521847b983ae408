/* test_prepare.c - from a text to a data directory: the split, what lies there, and what is never
 * overwritten. */
#include "files.h"

#include "data/dataset.h"
#include "data/prepare.h"
#include "data/tokenizer.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

/* n characters, `width` bytes each: a to z, or Greek letters. */
static char *put_text(const char *name, size_t n, size_t width, unsigned first)
{
    char *text = malloc(n * width + 1);

    for (size_t i = 0; i < n; i++) {
        unsigned k = (first + (unsigned)i * 7 + (unsigned)(i / 50)) % 24;
        if (width == 1)
            text[i] = (char)('a' + k);
        else
            text[2 * i] = (char)0xCE, text[2 * i + 1] = (char)(0x91 + k);
    }
    char *path = put_file(name, text, n * width);
    free(text);
    return path;
}

static tn_status prepare(const char *input, const char *out, const char *kind, double val, int force,
                         int *already)
{
    struct tn_prepare p = {
        .input = input, .out = out, .tokenizer = kind, .val_fraction = val, .force = force};
    struct tn_meta m;

    return tn_prepare(&p, &m, already);
}

START_TEST(a_text_becomes_a_directory)
{
    struct tn_dataset d;
    struct tn_tokenizer *t;
    struct tn_meta m;
    int already;
    int32_t id[1000];
    char text[1001], *out = in_scratch("data/x"), *whole;
    size_t n;
    const char *piece;
    uint64_t one;
    char *input = put_text("a.txt", 1000, 1, 0);
    struct tn_prepare p = {.input = input, .out = out, .tokenizer = "char", .val_fraction = 0.1};

    assert_ok(tn_prepare(&p, &m, &already));
    ck_assert_int_eq(already, 0);
    ck_assert_uint_eq(m.train_tokens, 900);
    ck_assert_uint_eq(m.val_tokens, 100);
    ck_assert_int_eq(m.vocab_size, 24);
    ck_assert_uint_eq(m.width, 2);
    ck_assert_uint_eq(count_names(out), 4);
    ck_assert_uint_eq(count_names(in_scratch("data")), 1);
    assert_ok(tn_dataset_open(out, 0, 64, &d));
    assert_ok(tn_tokenizer_load(tn_path_join(scratch_arena, out, "tokenizer.json"), &t));
    assert_ok(tn_tokens_read(&d.train, 0, 900, id));
    assert_ok(tn_tokens_read(&d.val, 0, 100, id + 900));
    assert_ok(tn_file_read(input, 2000, &whole, &n));
    for (int i = 0; i < 1000; i++) {
        piece = tn_tokenizer_piece(t, id[i], &one);
        ck_assert_uint_eq(one, 1);
        text[i] = *piece;
    }
    ck_assert_mem_eq(text, whole, 1000);
    free(whole);
    tn_tokenizer_free(t);
    tn_dataset_close(&d);
}
END_TEST

/* nanoGPT's: int(n · 0.9) characters, whatever they take in bytes. */
START_TEST(the_split_counts_characters)
{
    static const struct {
        size_t n;
        size_t train;
    } sizes[] = {{10, 9}, {11, 9}, {19, 17}, {20, 18}, {1115394, 1003854}};
    size_t n;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t width = 1; width <= 2; width++) {
            char *text, *path = put_text("a.txt", sizes[i].n, width, 0);
            assert_ok(tn_file_read(path, 1 << 22, &text, &n));
            ck_assert_uint_eq(tn_prepare_split((unsigned char *)text, n, 0.1), sizes[i].train * width);
            free(text);
        }
    ck_assert_uint_eq(tn_prepare_split((const unsigned char *)"\xCE\x91" "ab\xCE\x91", 6, 0.5), 3);
    ck_assert_uint_eq(tn_prepare_split((const unsigned char *)"\x80\x81\x82\x83", 4, 0.5),
                      2); /* no UTF-8: bytes */
}
END_TEST

/* More than one piece of 1 MiB, with characters of two bytes at an odd place. */
START_TEST(long_texts_are_cut_between_characters)
{
    struct tn_dataset d;
    int already;
    size_t n = 1300000;
    char *text = malloc(2 * n + 1), *out = in_scratch("x");

    text[0] = '!';
    for (size_t i = 0; i < n; i++)
        text[1 + 2 * i] = (char)0xCE, text[2 + 2 * i] = (char)(0x91 + i % 17);
    char *path = put_file("a.txt", text, 2 * n + 1);
    free(text);
    assert_ok(prepare(path, out, "char", 0.1, 0, &already));
    assert_ok(tn_dataset_open(out, 0, 64, &d));
    ck_assert_uint_eq(d.train.count, 1170000);
    ck_assert_uint_eq(d.val.count, 130001);
    for (uint64_t i = 0; i < 1300001; i++) {
        int32_t id;
        assert_ok(tn_tokens_read(i < 1170000 ? &d.train : &d.val, i < 1170000 ? i : i - 1170000, 1, &id));
        ck_assert_int_eq(id, i == 0 ? 0 : (int32_t)(1 + (i - 1) % 17));
    }
    tn_dataset_close(&d);
}
END_TEST

START_TEST(any_file_can_be_bytes)
{
    struct tn_dataset d;
    int already;
    unsigned char all[2560];
    char *out = in_scratch("x");

    for (int i = 0; i < 2560; i++)
        all[i] = (unsigned char)i;
    char *path = put_file("a.bin", all, sizeof all);
    assert_fails(prepare(path, out, "char", 0.1, 0, &already), TN_ERR_INPUT,
                 "a.bin is not valid UTF-8 at byte 128");
    ck_assert_int_eq(tn_path_exists(out), 0);
    assert_ok(prepare(path, out, "byte", 0.25, 0, &already));
    assert_ok(tn_dataset_open(out, 0, 64, &d));
    ck_assert_int_eq(d.vocab_size, 256);
    ck_assert_uint_eq(d.train.count, 1920);
    ck_assert_uint_eq(d.val.count, 640);
    tn_dataset_close(&d);
}
END_TEST

/* 70 000 different characters do not fit 16 bits. */
START_TEST(a_large_vocabulary_takes_32_bits)
{
    struct tn_dataset d;
    int already;
    char *text = malloc(4 * 70000), *out = in_scratch("x");
    int32_t last;

    for (uint32_t i = 0; i < 70000; i++) {
        uint32_t c = 0x10000 + i;
        text[4 * i] = (char)(0xF0 | c >> 18);
        text[4 * i + 1] = (char)(0x80 | (c >> 12 & 63));
        text[4 * i + 2] = (char)(0x80 | (c >> 6 & 63));
        text[4 * i + 3] = (char)(0x80 | (c & 63));
    }
    char *path = put_file("a.txt", text, 4 * 70000);
    free(text);
    assert_ok(prepare(path, out, "char", 0.1, 0, &already));
    assert_ok(tn_dataset_open(out, 0, 64, &d));
    ck_assert_uint_eq(d.val.width, 4);
    assert_ok(tn_tokens_read(&d.val, 6999, 1, &last));
    ck_assert_int_eq(last, 69999);
    tn_dataset_close(&d);
}
END_TEST

START_TEST(twice_is_once)
{
    struct tn_dataset d;
    int already;
    char *a = put_text("a.txt", 1000, 1, 0), *b = put_text("b.txt", 1000, 1, 3), *out = in_scratch("x");
    char first[48];

    assert_ok(prepare(a, out, "char", 0.1, 0, &already));
    ck_assert_int_eq(already, 0);
    assert_ok(prepare(a, out, "char", 0.1, 0, &already));
    ck_assert_int_eq(already, 1);
    assert_ok(tn_dataset_open(out, 0, 64, &d));
    strcpy(first, d.fingerprint);
    tn_dataset_close(&d);

    assert_fails(prepare(b, out, "char", 0.1, 0, &already), TN_ERR_INPUT, "train.bin is there already");
    assert_fails(prepare(a, out, "char", 0.2, 0, &already), TN_ERR_INPUT, "--force to replace it");
    assert_fails(prepare(a, out, "byte", 0.1, 0, &already), TN_ERR_INPUT, "--force");
    ck_assert_uint_eq(count_names(out), 4);
    assert_ok(tn_dataset_open(out, 0, 64, &d));
    ck_assert_str_eq(d.fingerprint, first);
    tn_dataset_close(&d);

    put_file("x/notes.txt", "mine", 4);
    assert_ok(prepare(b, tn_text(scratch_arena, "%s//", out), "char", 0.1, 1, &already));
    ck_assert_int_eq(already, 0);
    ck_assert_uint_eq(count_names(out), 5);
    assert_ok(tn_dataset_open(out, 0, 64, &d));
    ck_assert_str_ne(d.fingerprint, first);
    tn_dataset_close(&d);
}
END_TEST

START_TEST(a_gap_is_filled_again)
{
    struct tn_dataset d;
    int already;
    char *a = put_text("a.txt", 1000, 1, 0), *out = in_scratch("x");

    assert_ok(tn_folder_make(out));              /* an empty directory is as good as none */
    assert_ok(prepare(a, out, "char", 0.1, 0, &already));
    ck_assert_int_eq(already, 0);
    unlink(in_scratch("x/val.bin"));
    assert_ok(prepare(a, out, "char", 0.1, 0, &already));
    ck_assert_int_eq(already, 0);
    assert_ok(tn_dataset_open(out, 0, 64, &d));
    tn_dataset_close(&d);
    assert_ok(prepare(a, in_scratch("y/"), "char", 0.1, 0, &already));
    ck_assert_uint_eq(count_names(in_scratch("y")), 4);
    ck_assert_int_eq(truncate(in_scratch("x/train.bin"), 100), 0);
    assert_fails(prepare(a, out, "char", 0.1, 0, &already), TN_ERR_INPUT, "train.bin is there already");
}
END_TEST

START_TEST(bad_input_writes_nothing)
{
    int already;
    char *out = in_scratch("x"), *a = put_text("a.txt", 1000, 1, 0);

    assert_fails(prepare(in_scratch("none"), out, "char", 0.1, 0, &already), TN_ERR_INPUT,
                 "none: No such file");
    assert_fails(prepare(scratch, out, "char", 0.1, 0, &already), TN_ERR_INPUT, "is a directory");
    assert_fails(prepare(put_file("e", "", 0), out, "char", 0.1, 0, &already), TN_ERR_INPUT, "is empty");
    assert_fails(prepare(put_file("e", "abcdefghij", 10), out, "char", 0.1, 0, &already), TN_ERR_INPUT,
                 "is too short: 9 characters for training and 1 for validation");
    assert_fails(prepare(a, out, "bpe7", 0.1, 0, &already), TN_ERR_CONFIG, "there are: char, byte");
    assert_fails(prepare(a, out, "char", 0, 0, &already), TN_ERR_CONFIG, "--val-fraction is 0");
    assert_fails(prepare(a, out, "char", 1, 0, &already), TN_ERR_CONFIG, "--val-fraction is 1");
    assert_fails(prepare(a, out, "char", (double)NAN, 0, &already), TN_ERR_CONFIG, "--val-fraction");
    assert_fails(prepare(a, "", "char", 0.1, 0, &already), TN_ERR_CONFIG, "--out is empty");
    assert_fails(prepare(a, a, "char", 0.1, 0, &already), TN_ERR_INPUT, "is no directory");
    ck_assert_uint_eq(count_names(scratch), 2);
}
END_TEST

/* A full disk, as a limit on the size of files. */
START_TEST(a_full_disk_leaves_nothing)
{
    int already;
    char *a = put_text("a.txt", 100000, 1, 0), *out = in_scratch("x"), *y = in_scratch("y");
    struct rlimit limit = {100000, 100000};

    assert_ok(tn_folder_make(y));
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_fails(prepare(a, out, "char", 0.1, 0, &already), TN_ERR_IO, "File too large");
    assert_fails(prepare(a, y, "char", 0.1, 0, &already), TN_ERR_IO, "File too large");
    ck_assert_uint_eq(count_names(scratch), 2);
    ck_assert_uint_eq(count_names(y), 0);
}
END_TEST

TEST_MAIN("prepare", a_text_becomes_a_directory, the_split_counts_characters,
          long_texts_are_cut_between_characters, any_file_can_be_bytes, a_large_vocabulary_takes_32_bits,
          twice_is_once, a_gap_is_filled_again, bad_input_writes_nothing, a_full_disk_leaves_nothing)
