/* test_gpt2.c - GPT-2's own vocabulary, which is not shipped: TENON_GPT2_BPE names a folder that has it (encoder.json
 * and vocab.bpe, or one of the other forms). Ids as tiktoken gives them, and, where TENON_SHAKESPEARE names tiny
 * Shakespeare's text, the numbers of tokens that nanoGPT finds in it. Without the folder the test is skipped. */
#include "files.h"

#include "data/prepare.h"
#include "data/tokenizer.h"

static const struct { const char *text; int32_t id[80]; } vectors[] = {
    {"hello world", {31373, 995}},
    {"Hello, World!", {15496, 11, 2159, 0}},
    {" leading and trailing ", {3756, 290, 25462, 220}},
    {"I'm sure you'll say they've won; it's John's.",
     {40, 1101, 1654, 345, 1183, 910, 484, 1053, 1839, 26, 340, 338, 1757, 338, 13}},
    {"3.14159 and 1,000,000", {18, 13, 1415, 19707, 290, 352, 11, 830, 11, 830}},
    {"tabs\tand\n\nnewlines \n  mixed", {8658, 82, 197, 392, 198, 198, 3605, 6615, 220, 198, 220, 7668}},
    {"na\xC3\xAFve caf\xC3\xA9 \xE2\x80\x93 \xE2\x80\x9Cquotes\xE2\x80\x9D\xE2\x80\xA6",
     {2616, 38776, 40304, 784, 564, 250, 421, 6421, 447, 251, 1399}},
    {"\xE4\xB8\xAD\xE6\x96\x87 \xE5\x92\x8C \xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E "
     "\xE3\x83\x86\xE3\x82\xB9\xE3\x83\x88",
     {40792, 23877, 229, 10263, 240, 234, 10545, 245, 98, 17312, 105, 45739, 252, 14524, 228, 43302}},
    {"\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82, \xD0\xBC\xD0\xB8\xD1\x80!",
     {140, 253, 21169, 18849, 38857, 16843, 20375, 11, 12466, 120, 18849, 21169, 0}},
    {"emoji \xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD family \xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D"
     "\xF0\x9F\x91\xA7 flags \xF0\x9F\x87\xAB\xF0\x9F\x87\xB7",
     {368, 31370, 50169, 235, 8582, 237, 121, 1641, 50169, 101, 447, 235, 41840, 102, 447, 235, 41840, 100, 9701,
      12520, 229, 104, 8582, 229, 115}},
    {"don't DON'T Don\xE2\x80\x99T", {9099, 470, 23917, 6, 51, 2094, 447, 247, 51}},
    {"<|endoftext|>", {27, 91, 437, 1659, 5239, 91, 29}},
    {"", {0}},
};

static struct tn_tokenizer *opened(void)
{
    const struct tn_tokenizer_choice choice = {.kind = "gpt2", .folder = getenv("TENON_GPT2_BPE")};
    struct tn_tokenizer *t;

    assert_ok(tn_tokenizer_train(&choice, "x", "", 0, 0, &t));
    return t;
}

/* expected ends with a 0 behind at least one id. */
static void assert_vector(const struct tn_tokenizer *t, const char *text, const int32_t *expected)
{
    int32_t id[512];
    uint64_t n, k, at = 0;

    assert_ok(tn_tokenizer_encode(t, "x", text, strlen(text), id, &n));
    for (uint64_t i = 0; i < n; at += k, i++) {
        ck_assert_msg(id[i] == expected[i], "\"%s\": id %d is %d, expected %d", text, (int)i, id[i], expected[i]);
        ck_assert_mem_eq(text + at, tn_tokenizer_piece(t, id[i], &k), k);
    }
    ck_assert_int_eq(expected[n], 0);
    ck_assert_uint_eq(at, strlen(text));
}

START_TEST(texts_have_the_published_ids)
{
    struct tn_tokenizer *t = opened();
    int32_t id[512] = {0};
    char run[302];
    uint64_t n;

    ck_assert_int_eq(tn_tokenizer_vocab_size(t), 50257);
    ck_assert_int_eq(tn_tokenizer_end_of_text(t), 50256);
    ck_assert_mem_eq(tn_tokenizer_piece(t, 50256, &n), "<|endoftext|>", 13);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        assert_vector(t, vectors[i].text, vectors[i].id);
    memset(run, 'a', 300);                       /* 75 times "aaaa" */
    run[300] = 0;
    for (int i = 0; i < 75; i++)
        id[i] = 24794;
    assert_vector(t, run, id);
    memset(run, ' ', 50);
    strcpy(run + 50, "x");
    memset(id, 0, sizeof id);
    for (int i = 0; i < 49; i++)
        id[i] = 220;
    id[49] = 2124;
    assert_vector(t, run, id);
    tn_tokenizer_free(t);
}
END_TEST

/* Every token's bytes, alone, are that token again, but for the one that is not made by merges. */
START_TEST(tokens_are_their_own_encoding)
{
    struct tn_tokenizer *t = opened();
    int others = 0;

    for (int64_t i = 0; i < 50256; i++) {
        int32_t id[512];
        uint64_t n, bytes;
        const char *piece = tn_tokenizer_piece(t, i, &bytes);
        ck_assert_uint_le(bytes, 512);
        assert_ok(tn_tokenizer_encode(t, "x", piece, bytes, id, &n));
        others += n != 1 || id[0] != i;
    }
    ck_assert_int_lt(others, 200);               /* blanks and apostrophes that the pattern takes apart */
    tn_tokenizer_free(t);
}
END_TEST

START_TEST(tiny_shakespeare_has_as_many_tokens_as_in_nanogpt)
{
    struct tn_prepare p = {.input = getenv("TENON_SHAKESPEARE"), .out = in_scratch("a"), .tokenizer = "gpt2",
                           .bpe_dir = getenv("TENON_GPT2_BPE"), .val_fraction = 0.1};
    struct tn_meta m;
    int already;

    if (!p.input)
        return;
    assert_ok(tn_prepare(&p, &m, &already));
    ck_assert_uint_eq(m.train_tokens, 301966);
    ck_assert_uint_eq(m.val_tokens, 36059);
    ck_assert_int_eq(m.vocab_size, 50257);
    ck_assert_uint_eq(m.width, 2);
    p.bpe_dir = p.out;                           /* what was written is GPT-2's vocabulary again */
    p.out = in_scratch("b");
    assert_ok(tn_prepare(&p, &m, &already));
    ck_assert_uint_eq(m.train_tokens, 301966);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {texts_have_the_published_ids, tokens_are_their_own_encoding,
                                  tiny_shakespeare_has_as_many_tokens_as_in_nanogpt};

    if (!getenv("TENON_GPT2_BPE")) {
        puts("skipped: TENON_GPT2_BPE names no folder with GPT-2's vocabulary");
        return 77;
    }
    return run_tests("gpt2", tests, sizeof tests / sizeof tests[0]);
}
