/* test_sampler.c - which windows are drawn: the same for every cut of the batch and after a resume, never
 * across the end, all of an epoch once; and that evaluation has its own. */
#include "files.h"

#include "data/permute.h"
#include "data/sampler.h"

/* Token i of the file is i, so a value says where it comes from. */
static void open_counting(uint64_t n, struct tn_tokens *t)
{
    uint16_t *id = calloc(n, sizeof *id);

    for (uint64_t i = 0; i < n; i++)
        id[i] = (uint16_t)i;
    assert_ok(tn_tokens_open(put_file("train.bin", id, n * sizeof *id), 2, 65536, t));
    free(id);
}

START_TEST(targets_are_inputs_shifted_by_one)
{
    struct tn_tokens t;
    struct tn_sampler s;
    int32_t x[4][8], y[4][8];

    open_counting(100, &t);
    for (uint32_t order = TN_ORDER_RANDOM; order <= TN_ORDER_SHUFFLE; order++) {
        assert_ok(tn_sampler_init(&t, "train", order, 1337, 8, 4, &s));
        for (uint64_t step = 0; step < 50; step++) {
            assert_ok(tn_sampler_fill(&s, step, 0, 4, x[0], y[0]));
            for (uint64_t i = 0; i < 4; i++)
                for (int k = 0; k < 8; k++) {
                    ck_assert_int_eq(x[i][k], (int32_t)tn_sampler_start(&s, step, i) + k);
                    ck_assert_int_eq(y[i][k], x[i][k] + 1);
                }
        }
    }
    tn_tokens_close(&t);
}
END_TEST

/* Every start is possible, the last one too, and none beyond: 12 tokens and windows of 8 + 1 leave four. */
START_TEST(random_windows_reach_both_ends)
{
    struct tn_tokens t;
    struct tn_sampler s;
    unsigned seen[4] = {0}, seen_eval[4] = {0};

    open_counting(12, &t);
    assert_ok(tn_sampler_init(&t, "train", TN_ORDER_RANDOM, 1, 8, 4, &s));
    for (uint64_t step = 0; step < 1000; step++)
        for (uint64_t i = 0; i < 4; i++) {
            uint64_t start = tn_sampler_start(&s, step, i);
            ck_assert_uint_lt(start, 4);
            seen[start]++;
            start = tn_sampler_eval_start(&s, step * 4 + i);
            ck_assert_uint_lt(start, 4);
            seen_eval[start]++;
        }
    for (int i = 0; i < 4; i++) {
        ck_assert_msg(seen[i] > 850 && seen[i] < 1150, "start %d: %u of 4000", i, seen[i]);
        ck_assert_msg(seen_eval[i] > 850 && seen_eval[i] < 1150, "start %d: %u of 4000", i, seen_eval[i]);
    }
    tn_tokens_close(&t);
}
END_TEST

START_TEST(one_window_is_enough)
{
    struct tn_tokens t;
    struct tn_sampler s;
    int32_t x[8], y[8];

    open_counting(9, &t);
    for (uint32_t order = TN_ORDER_RANDOM; order <= TN_ORDER_SHUFFLE; order++) {
        assert_ok(tn_sampler_init(&t, "train", order, 1, 8, 3, &s));
        assert_ok(tn_sampler_fill(&s, 1000000, 2, 1, x, y));
        ck_assert_int_eq(x[0], 0);
        ck_assert_int_eq(y[7], 8);
        assert_ok(tn_sampler_eval_fill(&s, 5, 1, x, y));
        ck_assert_int_eq(x[0], 0);
    }
    assert_fails(tn_sampler_init(&t, "train", TN_ORDER_RANDOM, 1, 9, 3, &s), TN_ERR_INPUT,
                 "has 9 tokens, seq_len 9 needs at least 10");
    tn_tokens_close(&t);
}
END_TEST

/* A batch of 6 as one, as 2 ranks of 3 with micro-batches of 1 and 2, last part first. */
START_TEST(the_cut_of_a_batch_does_not_matter)
{
    struct tn_tokens t;
    struct tn_sampler s;
    int32_t x[6][8], y[6][8], px[6][8], py[6][8];

    open_counting(1000, &t);
    for (uint32_t order = TN_ORDER_RANDOM; order <= TN_ORDER_SHUFFLE; order++) {
        assert_ok(tn_sampler_init(&t, "train", order, 42, 8, 6, &s));
        for (uint64_t step = 0; step < 100; step++) {
            assert_ok(tn_sampler_fill(&s, step, 0, 6, x[0], y[0]));
            assert_ok(tn_sampler_fill(&s, step, 4, 2, px[4], py[4]));
            assert_ok(tn_sampler_fill(&s, step, 3, 1, px[3], py[3]));
            assert_ok(tn_sampler_fill(&s, step, 0, 3, px[0], py[0]));
            ck_assert_mem_eq(x, px, sizeof x);
            ck_assert_mem_eq(y, py, sizeof y);
        }
    }
    tn_tokens_close(&t);
}
END_TEST

/* 7 windows in batches of 3, for 40 epochs: each window once in each epoch, though batches straddle them. */
START_TEST(an_epoch_takes_each_window_once)
{
    struct tn_tokens t;
    struct tn_sampler s;
    unsigned orders = 0;
    uint64_t before[7] = {0};

    open_counting(7 * 8 + 5, &t);
    assert_ok(tn_sampler_init(&t, "train", TN_ORDER_SHUFFLE, 3, 8, 3, &s));
    ck_assert_uint_eq(tn_sampler_windows(&s), 7);
    for (uint64_t epoch = 0; epoch < 40; epoch++) {
        unsigned seen = 0, same = 1;
        for (uint64_t k = 0; k < 7; k++) {
            uint64_t place = epoch * 7 + k, start = tn_sampler_start(&s, place / 3, place % 3);
            ck_assert_uint_eq(start % 8, 0);
            ck_assert_uint_lt(start / 8, 7);
            seen |= 1u << start / 8;
            same &= before[k] == start;
            before[k] = start;
        }
        ck_assert_uint_eq(seen, 127);
        orders += !same;
    }
    ck_assert_uint_ge(orders, 39);               /* the order changes from epoch to epoch */
    tn_tokens_close(&t);
}
END_TEST

/* Two windows, batches of 5: sequences go on through the epochs, also within one batch. */
START_TEST(few_data_wrap)
{
    struct tn_tokens t;
    struct tn_sampler s;
    unsigned first = 0;

    open_counting(17, &t);
    assert_ok(tn_sampler_init(&t, "train", TN_ORDER_SHUFFLE, 9, 8, 5, &s));
    for (uint64_t place = 0; place < 400; place += 2) {
        uint64_t a = tn_sampler_start(&s, place / 5, place % 5),
                 b = tn_sampler_start(&s, (place + 1) / 5, (place + 1) % 5);
        ck_assert_uint_eq(a + b, 8);             /* 0 and 8, in one order or the other */
        first += a == 0;
    }
    ck_assert_msg(first > 60 && first < 140, "window 0 came first %u times of 200", first);
    tn_tokens_close(&t);
}
END_TEST

START_TEST(seeds_and_parts_differ)
{
    struct tn_tokens t;
    struct tn_sampler a, b, c;
    unsigned ab = 0, ac = 0, evals = 0;

    open_counting(10000, &t);
    for (uint32_t order = TN_ORDER_RANDOM; order <= TN_ORDER_SHUFFLE; order++) {
        assert_ok(tn_sampler_init(&t, "train", order, 1, 8, 4, &a));
        assert_ok(tn_sampler_init(&t, "train", order, 2, 8, 4, &b));
        assert_ok(tn_sampler_init(&t, "val", order, 1, 8, 4, &c));
        for (uint64_t i = 0; i < 400; i++) {
            ab += tn_sampler_start(&a, i / 4, i % 4) == tn_sampler_start(&b, i / 4, i % 4);
            ac += tn_sampler_eval_start(&a, i) == tn_sampler_eval_start(&c, i);
            evals += tn_sampler_start(&a, i / 4, i % 4) == tn_sampler_eval_start(&a, i);
        }
    }
    ck_assert_uint_lt(ab, 8);
    ck_assert_uint_lt(ac, 8);
    ck_assert_uint_lt(evals, 8);
    tn_tokens_close(&t);
}
END_TEST

/* These numbers are part of what a checkpoint means: a change breaks exact resume of all runs. */
START_TEST(the_order_is_pinned)
{
    struct tn_tokens t;
    struct tn_sampler s;

    open_counting(10000, &t);
    assert_ok(tn_sampler_init(&t, "train", TN_ORDER_RANDOM, 1337, 64, 12, &s));
    ck_assert_uint_eq(tn_sampler_start(&s, 0, 0), 4003);
    ck_assert_uint_eq(tn_sampler_start(&s, 7, 11), 5311);
    ck_assert_uint_eq(tn_sampler_eval_start(&s, 3), 9789);
    s.order = TN_ORDER_SHUFFLE;
    ck_assert_uint_eq(tn_sampler_start(&s, 0, 0), 6016);
    ck_assert_uint_eq(tn_sampler_start(&s, 700, 11), 4480);
    tn_tokens_close(&t);
}
END_TEST

START_TEST(permutes_every_size)
{
    unsigned char seen[1100];

    for (uint64_t n = 1; n <= 1025; n += n < 70 ? 1 : 191)
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t p = tn_permute(11, 5, epoch, i, n);
                ck_assert_uint_lt(p, n);
                ck_assert_uint_eq(seen[p]++, 0);
            }
        }
    ck_assert_uint_lt(tn_permute(11, 5, 0, 12345678901ull, 1ull << 40), 1ull << 40);
}
END_TEST

/* All places of an element of 5 are about equally likely over the epochs, and all 6 orders of 3. */
START_TEST(permutations_are_fair)
{
    unsigned place[5][5] = {{0}}, order[27] = {0}, orders = 0;

    for (uint32_t epoch = 0; epoch < 5000; epoch++) {
        for (uint64_t i = 0; i < 5; i++)
            place[i][tn_permute(1, 2, epoch, i, 5)]++;
        order[9 * tn_permute(1, 2, epoch, 0, 3) + 3 * tn_permute(1, 2, epoch, 1, 3) +
              tn_permute(1, 2, epoch, 2, 3)]++;
    }
    for (int i = 0; i < 25; i++)
        ck_assert_msg(place[i / 5][i % 5] > 850 && place[i / 5][i % 5] < 1150, "%d: %u", i,
                      place[i / 5][i % 5]);
    for (int i = 0; i < 27; i++) {
        orders += order[i] > 0;
        ck_assert_msg(order[i] == 0 || (order[i] > 650 && order[i] < 1000), "order %d: %u", i, order[i]);
    }
    ck_assert_uint_eq(orders, 6);
}
END_TEST

TEST_MAIN("sampler", targets_are_inputs_shifted_by_one, random_windows_reach_both_ends, one_window_is_enough,
          the_cut_of_a_batch_does_not_matter, an_epoch_takes_each_window_once, few_data_wrap,
          seeds_and_parts_differ, the_order_is_pinned, permutes_every_size, permutations_are_fair)
