/* test_tokens.c - token files: what is refused at open, what a read gives, and how much stays in memory. */
#include "files.h"

#include "data/dataset.h"
#include "data/meta.h"
#include "data/tokens.h"

#include <fcntl.h>
#include <inttypes.h>
#include <xxhash.h>

/* n tokens of 2 bytes: 0, 1, …, modulo m. */
static char *put_ids(const char *name, uint64_t n, uint32_t m)
{
    uint16_t *id = calloc(n + 1, sizeof *id);

    for (uint64_t i = 0; i < n; i++)
        id[i] = (uint16_t)(i % m);
    char *path = put_file(name, id, n * sizeof *id);
    free(id);
    return path;
}

START_TEST(reads_what_is_there)
{
    struct tn_tokens t;
    int32_t got[5];
    const uint32_t wide[] = {7, 70000, 3};

    assert_ok(tn_tokens_open(put_ids("a.bin", 100, 65), 2, 65, &t));
    ck_assert_uint_eq(t.count, 100);
    ck_assert_uint_eq(t.max_id, 64);
    assert_ok(tn_tokens_read(&t, 63, 5, got));
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(got[i], (63 + i) % 65);
    uint16_t id[100];
    for (int i = 0; i < 100; i++)
        id[i] = (uint16_t)(i % 65);
    ck_assert(t.hash == XXH64(id, sizeof id, 0));
    tn_tokens_close(&t);

    assert_ok(tn_tokens_open(put_file("b.bin", wide, sizeof wide), 4, 70001, &t));
    ck_assert_uint_eq(t.count, 3);
    assert_ok(tn_tokens_read(&t, 1, 2, got));
    ck_assert_int_eq(got[0], 70000);
    ck_assert_int_eq(got[1], 3);
    tn_tokens_close(&t);
}
END_TEST

START_TEST(refuses_ids_outside_the_vocabulary)
{
    struct tn_tokens t;
    uint16_t id[300] = {0};
    uint32_t wide[2] = {1, 0x80000000u};

    id[217] = 300;
    char *path = put_file("a.bin", id, sizeof id);
    assert_fails(tn_tokens_open(path, 2, 256, &t), TN_ERR_INPUT,
                 "id 300 of token 217 is outside the vocabulary of 256");
    assert_fails(tn_tokens_open(path, 2, 300, &t), TN_ERR_INPUT, "id 300");
    assert_ok(tn_tokens_open(path, 2, 301, &t));
    tn_tokens_close(&t);
    assert_fails(tn_tokens_open(put_file("b.bin", wide, sizeof wide), 4, 0, &t), TN_ERR_INPUT,
                 "id 2147483648 of token 1");
}
END_TEST

/* The bad id in the last, incomplete block. */
START_TEST(scans_to_the_end)
{
    struct tn_tokens t;
    uint64_t n = 300007;
    uint16_t *id = calloc(n, sizeof *id);

    id[n - 1] = 65;
    char *path = put_file("a.bin", id, n * sizeof *id);
    free(id);
    assert_fails(tn_tokens_open(path, 2, 65, &t), TN_ERR_INPUT, "id 65 of token 300006");
}
END_TEST

START_TEST(refuses_odd_sizes_and_what_is_no_file)
{
    struct tn_tokens t;

    assert_fails(tn_tokens_open(put_file("a.bin", "abc", 3), 2, 0, &t), TN_ERR_INPUT, "3 bytes");
    assert_fails(tn_tokens_open(put_file("b.bin", "abcdef", 6), 4, 0, &t), TN_ERR_INPUT, "uint32");
    assert_fails(tn_tokens_open(in_scratch("none.bin"), 2, 0, &t), TN_ERR_INPUT, "No such file");
    assert_fails(tn_tokens_open(scratch, 2, 0, &t), TN_ERR_INPUT, "is a directory");
    assert_fails(tn_tokens_open("/dev/zero", 2, 0, &t), TN_ERR_INPUT, "not a regular file");
}
END_TEST

START_TEST(says_how_many_tokens_a_window_needs)
{
    struct tn_tokens t;
    static const uint64_t few[] = {0, 1, 40, 63, 64};
    char words[64];

    for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
        assert_ok(tn_tokens_open(put_ids("val.bin", few[i], 65), 2, 65, &t));
        snprintf(words, sizeof words, "val.bin has %" PRIu64 " tokens, seq_len 64 needs at least 65", few[i]);
        assert_fails(tn_tokens_fit(&t, 64), TN_ERR_INPUT, words);
        tn_tokens_close(&t);
    }
    assert_ok(tn_tokens_open(put_ids("val.bin", 65, 65), 2, 65, &t));
    assert_ok(tn_tokens_fit(&t, 64));
    tn_tokens_close(&t);
}
END_TEST

static uint64_t resident_kib(void)
{
    unsigned long long size, resident;
    FILE *f = fopen("/proc/self/statm", "r");

    ck_assert_int_eq(fscanf(f, "%llu %llu", &size, &resident), 2);
    fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

/* 256 MiB of a file without blocks; every page is read several times. */
START_TEST(stays_small_in_memory)
{
    struct tn_tokens t;
    char *path = put_file("a.bin", "", 0);
    static int32_t got[1025];
    uint64_t bytes = 256ull << 20, most = 0;

    ck_assert_int_eq(truncate(path, (off_t)bytes), 0);
    uint64_t before = resident_kib();
    assert_ok(tn_tokens_open(path, 2, 65, &t));
    for (uint64_t i = 0; i < 20000; i++) {
        assert_ok(tn_tokens_read(&t, i * 7919 * 1024 % (t.count - 1025), 1025, got));
        if (i % 100 == 0 && resident_kib() > most)
            most = resident_kib();
    }
    ck_assert_msg(most < before + (96 << 10), "%" PRIu64 " KiB resident, %" PRIu64 " before", most, before);
    tn_tokens_close(&t);
}
END_TEST

/* A file in use that becomes shorter, or other: a sentence, no signal, and no id beyond the vocabulary. */
START_TEST(notices_a_file_that_changes)
{
    struct tn_tokens t;
    char *path = put_ids("a.bin", 5000, 65);
    uint16_t large = 65;
    int32_t got[100];

    assert_ok(tn_tokens_open(path, 2, 65, &t));
    int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, &large, 2, 2 * 42), 2);
    assert_ok(tn_tokens_read(&t, 43, 100, got));
    assert_fails(tn_tokens_read(&t, 0, 100, got), TN_ERR_INPUT, "id 65 of token 42 is outside the vocabulary of 65");
    ck_assert_int_eq(ftruncate(fd, 8001), 0);
    close(fd);
    assert_ok(tn_tokens_read(&t, 3900, 100, got));
    assert_fails(tn_tokens_read(&t, 3901, 100, got), TN_ERR_INPUT, "a.bin was cut short while it was in use");
    tn_tokens_close(&t);
}
END_TEST

/* --- the directory */

static void put_dataset(uint64_t train, uint64_t val, int with_meta)
{
    static const char tokenizer[] = "{\"kind\": \"byte\", \"version\": 1}\n";
    struct tn_meta m = {
        .tokenizer = "byte", .vocab_size = 256, .width = 2, .train_tokens = train, .val_tokens = val};
    struct tn_tokens t;

    assert_ok(tn_tokens_open(put_ids("train.bin", train, 256), 2, 0, &t));
    m.train_hash = t.hash;
    tn_tokens_close(&t);
    assert_ok(tn_tokens_open(put_ids("val.bin", val, 50), 2, 0, &t));
    m.val_hash = t.hash;
    tn_tokens_close(&t);
    put_file("tokenizer.json", tokenizer, sizeof tokenizer - 1);
    m.tokenizer_hash = XXH64(tokenizer, sizeof tokenizer - 1, 0);
    char *text = tn_meta_text(&m);
    if (with_meta)
        put_file("meta.json", text, strlen(text));
    free(text);
}

START_TEST(opens_a_directory)
{
    struct tn_dataset d;

    put_dataset(1000, 100, 1);
    assert_ok(tn_dataset_open(scratch, 0, 64, &d));
    ck_assert_int_eq(d.vocab_size, 256);
    ck_assert_str_eq(d.tokenizer, "byte");
    ck_assert_uint_eq(d.train.count, 1000);
    ck_assert_uint_eq(d.val.count, 100);
    ck_assert_int_eq(strncmp(d.fingerprint, "train=", 6), 0);
    ck_assert_uint_eq(strlen(d.fingerprint), 6 + 16 + 5 + 16);
    tn_dataset_close(&d);
    assert_ok(tn_dataset_open(scratch, 320, 64, &d));     /* a model may have room to spare */
    tn_dataset_close(&d);
    assert_fails(tn_dataset_open(scratch, 255, 64, &d), TN_ERR_INPUT, "model.vocab_size is 255");
    assert_fails(tn_dataset_open(scratch, 0, 100, &d), TN_ERR_INPUT,
                 "val.bin has 100 tokens, seq_len 100 needs at least 101");
    assert_fails(tn_dataset_open(in_scratch("nothing"), 65, 8, &d), TN_ERR_INPUT, "there is no such folder");
}
END_TEST

START_TEST(notices_files_of_another_text)
{
    struct tn_dataset d;

    put_dataset(1000, 100, 1);
    put_ids("train.bin", 1000, 255);
    assert_fails(tn_dataset_open(scratch, 0, 64, &d), TN_ERR_INPUT,
                 "train.bin is not the file that meta.json");
    put_ids("train.bin", 999, 256);
    assert_fails(tn_dataset_open(scratch, 0, 64, &d), TN_ERR_INPUT,
                 "train.bin has 999 tokens, meta.json beside it says 1000");
    put_ids("train.bin", 1000, 256);
    put_ids("val.bin", 100, 49);
    assert_fails(tn_dataset_open(scratch, 0, 64, &d), TN_ERR_INPUT, "val.bin is not the file");
    put_ids("val.bin", 100, 50);
    put_file("tokenizer.json", "{}", 2);
    assert_fails(tn_dataset_open(scratch, 0, 64, &d), TN_ERR_INPUT, "tokenizer.json is not the tokenizer");
    unlink(in_scratch("tokenizer.json"));
    assert_fails(tn_dataset_open(scratch, 0, 64, &d), TN_ERR_INPUT, "tokenizer.json");
}
END_TEST

START_TEST(takes_bare_token_files)
{
    struct tn_dataset d;

    put_dataset(1000, 100, 0);
    assert_fails(tn_dataset_open(scratch, 0, 64, &d), TN_ERR_INPUT, "set model.vocab_size");
    assert_fails(tn_dataset_open(scratch, 255, 64, &d), TN_ERR_INPUT, "train.bin: id 255 of token 255");
    assert_ok(tn_dataset_open(scratch, 256, 64, &d));
    ck_assert_int_eq(d.vocab_size, 256);
    ck_assert_str_eq(d.tokenizer, "");
    tn_dataset_close(&d);
}
END_TEST

START_TEST(refuses_a_damaged_description)
{
    struct tn_meta m;
    char *path = in_scratch("meta.json");
    static const char *const bad[][2] = {
        {"", "no JSON object"},
        {"[1]", "no JSON object"},
        {"{\"format\": 1, \"format\": 1}", "duplicate"},
        {"{\"format\": 2}", "format 2"},
        {"{\"format\": 1, \"tokenizer\": 5}", "\"tokenizer\""},
        {"{\"format\": 1, \"tokenizer\": \"char\", \"dtype\": \"int8\"}", "\"dtype\""},
        {"{\"format\": 1, \"tokenizer\": \"char\", \"dtype\": \"uint16\", \"vocab_size\": 0}",
         "\"vocab_size\""},
        {"{\"format\": 1, \"tokenizer\": \"char\", \"dtype\": \"uint16\", \"vocab_size\": 65, "
         "\"train_tokens\": -1}",
         "\"train_tokens\""},
        {"{\"format\": 1, \"tokenizer\": \"char\", \"dtype\": \"uint16\", \"vocab_size\": 65, "
         "\"train_tokens\": 1, "
         "\"val_tokens\": 1, \"tokenizer_hash\": \"12\"}",
         "\"tokenizer_hash\""},
    };

    ck_assert_int_eq(tn_meta_load(path, &m), TN_DECLINED);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_file("meta.json", bad[i][0], strlen(bad[i][0]));
        assert_fails(tn_meta_load(path, &m), TN_ERR_INPUT, bad[i][1]);
    }
}
END_TEST

TEST_MAIN("tokens", reads_what_is_there, refuses_ids_outside_the_vocabulary, scans_to_the_end,
          refuses_odd_sizes_and_what_is_no_file, says_how_many_tokens_a_window_needs, stays_small_in_memory, notices_a_file_that_changes,
          opens_a_directory, notices_files_of_another_text, takes_bare_token_files,
          refuses_a_damaged_description)
