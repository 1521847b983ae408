/* test_offset.c - places in the arena: never two at once, never far from the least possible. */
#include "plan_kit.h"
#include "plan/offset.h"

static uint64_t state;

static uint32_t below(uint32_t n)
{
    return (uint32_t)((kit_random(&state) + 0.5) * n);
}

static void check_spans(const struct tn_span *s, uint32_t n, uint64_t top)
{
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_eq(s[i].offset % TN_OFFSET_ALIGN, 0);
        ck_assert_uint_le(s[i].offset + s[i].bytes, top);
        for (uint32_t j = 0; j < i; j++) {
            int together = s[i].first <= s[j].last && s[j].first <= s[i].last;
            int apart = s[i].offset + s[i].bytes <= s[j].offset || s[j].offset + s[j].bytes <= s[i].offset;
            ck_assert_msg(!together || apart, "spans %u and %u share bytes and time", j, i);
        }
    }
}

START_TEST(random_spans_never_meet)
{
    for (uint32_t round = 0; round < 200; round++) {
        struct tn_arena *a = tn_arena_new();
        struct tn_span s[150];
        uint32_t n = below(150);
        state = round;
        for (uint32_t i = 0; i < n; i++) {
            s[i] = (struct tn_span){
                .bytes = below(10) ? below(1u << below(16)) : 0, .offset = 12345, .first = below(300)};
            s[i].last = s[i].first + (below(4) ? below(10) : below(200));
        }
        uint64_t top = tn_offsets(a, s, n), peak = tn_live_peak(a, s, n);
        check_spans(s, n, top);
        ck_assert_uint_ge(top, peak);
        ck_assert_msg((double)top <= 1.35 * (double)peak + 64, "arena %llu, live at once %llu",
                      (unsigned long long)top, (unsigned long long)peak);
        tn_arena_free(a);
    }
}
END_TEST

/* A training step: activations live from forward to backward, one inside the other, with short scratch
 * between. */
START_TEST(a_step_is_packed_tightly)
{
    struct tn_arena *a = tn_arena_new();
    struct tn_span s[80];
    uint32_t n = 0;

    for (uint32_t l = 0; l < 20; l++) {
        s[n++] = (struct tn_span){.bytes = 4096, .first = 3 * l, .last = 120 - 3 * l};
        s[n++] = (struct tn_span){.bytes = 16384, .first = 3 * l + 1, .last = 119 - 3 * l};
        s[n++] = (struct tn_span){.bytes = 8000, .first = 3 * l + 1, .last = 3 * l + 2};
        s[n++] = (struct tn_span){.bytes = 10000, .first = 118 - 3 * l, .last = 119 - 3 * l};
    }
    uint64_t top = tn_offsets(a, s, n), peak = tn_live_peak(a, s, n);
    check_spans(s, n, top);
    ck_assert_uint_eq(top, peak);
    tn_arena_free(a);
}
END_TEST

START_TEST(nothing_is_fine)
{
    struct tn_arena *a = tn_arena_new();
    struct tn_span s[2] = {{.bytes = 0, .first = 0, .last = 5}, {.bytes = 1, .first = 2, .last = 2}};

    ck_assert_uint_eq(tn_offsets(a, s, 0), 0);
    ck_assert_uint_eq(tn_live_peak(a, s, 0), 0);
    ck_assert_uint_eq(tn_offsets(a, s, 2), 64);
    ck_assert_uint_eq(tn_live_peak(a, s, 2), 64);
    tn_arena_free(a);
}
END_TEST

KIT_MAIN("offset", random_spans_never_meet, a_step_is_packed_tightly, nothing_is_fine)
