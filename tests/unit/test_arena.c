/* test_arena.c - what an arena hands out is zeroed, aligned, apart; names are equal by pointer. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static size_t others(const unsigned char *p, size_t bytes, unsigned char value)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++)
        n += p[i] != value;
    return n;
}

START_TEST(zeroed_aligned_and_apart)
{
    struct tn_arena *arena = tn_arena_new();
    unsigned char *last = NULL;
    size_t last_bytes = 0;

    for (size_t bytes = 0; bytes < 100000; bytes = bytes * 5 / 4 + 1) {
        unsigned char *p = tn_alloc(arena, bytes);
        ck_assert_uint_eq((uintptr_t)p % 16, 0);
        ck_assert_uint_eq(others(p, bytes, 0), 0);
        memset(p, 0xaa, bytes);
        ck_assert_uint_eq(others(last, last_bytes, 0xbb), 0); /* the one before was not touched */
        memset(p, 0xbb, bytes);
        last = p, last_bytes = bytes;
    }
    tn_arena_free(arena);
    tn_arena_free(NULL);
}
END_TEST

START_TEST(lists_grow)
{
    struct tn_arena *arena = tn_arena_new();
    int *list = NULL;

    for (int n = 0; n < 1000; n++) {
        list = tn_alloc_grow(arena, list, (size_t)n, sizeof *list);
        list[n] = n;
    }
    for (int n = 0; n < 1000; n++)
        ck_assert_int_eq(list[n], n);
    tn_arena_free(arena);
}
END_TEST

START_TEST(texts_of_any_length)
{
    struct tn_arena *arena = tn_arena_new();
    char *text = tn_text(arena, "%0*d|%s", 40000, 7, "end");

    ck_assert_uint_eq(strlen(text), 40004);
    ck_assert_str_eq(text + 39999, "7|end");
    tn_arena_free(arena);
}
END_TEST

START_TEST(names_are_equal_by_pointer)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_names *names = tn_names_new(arena);
    const char *first[3000];
    char text[16];

    for (int i = 0; i < 3000; i++) {
        snprintf(text, sizeof text, "name%d", i);
        first[i] = tn_intern(names, text);
        ck_assert_ptr_ne(first[i], text);
    }
    for (int i = 0; i < 3000; i++) {
        snprintf(text, sizeof text, "name%d", i);
        ck_assert_ptr_eq(tn_intern(names, text), first[i]);
        ck_assert_str_eq(first[i], text);
    }
    ck_assert_ptr_eq(tn_intern_bytes(names, "name12345", 6), first[12]);
    ck_assert_ptr_ne(tn_intern_bytes(names, "a\0b", 3), tn_intern_bytes(names, "a\0c", 3));
    ck_assert_ptr_eq(tn_intern(names, ""), tn_intern_bytes(names, "x", 0));
    tn_arena_free(arena);
}
END_TEST

static struct tn_arena *volatile too_small;      /* still reachable when the program ends */

START_TEST(no_memory_ends_with_a_sentence)
{
    too_small = tn_arena_new();
    tn_alloc_array(too_small, SIZE_MAX / 16 + 2, 16);   /* a product that wraps to 16 */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arena");
    TCase *t = tcase_create("arena");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(t, zeroed_aligned_and_apart);
    tcase_add_test(t, lists_grow);
    tcase_add_test(t, texts_of_any_length);
    tcase_add_test(t, names_are_equal_by_pointer);
    tcase_add_exit_test(t, no_memory_ends_with_a_sentence, 1);
    suite_add_tcase(suite, t);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
