/* Text of others: what a terminal would obey and what is no text does not come through. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "base/plain.h"

static void becomes(const char *from, const char *to, int newlines)
{
    char text[64];

    strcpy(text, from);
    tn_plain(text, newlines);
    ck_assert_str_eq(text, to);
    ck_assert_int_eq(tn_is_plain(from, newlines), !strcmp(from, to));
    ck_assert(tn_is_plain(text, newlines));
}

START_TEST(what_can_be_seen_stays)
{
    becomes("", "", 0);
    becomes("plain ~!", "plain ~!", 0);
    becomes("µ Größe \xe2\x82\xac \xf0\x9f\x99\x82", "µ Größe \xe2\x82\xac \xf0\x9f\x99\x82", 0);
    becomes("two\nlines", "two\nlines", 1);
}
END_TEST

START_TEST(controls_go)
{
    becomes("two\nlines\ttab\r", "two lines tab ", 0);
    becomes("\033[31mred\x7f", " [31mred?", 1);
    becomes("\xc2\x9b" "5m", "??5m", 0);                        /* CSI as one character of Unicode */
    becomes("a\xe2\x80\xae" "b", "a???b", 0);                   /* right to left from here */
    becomes("\xe2\x80\xa8", "???", 1);                          /* a line of its own */
}
END_TEST

START_TEST(what_is_no_text_goes)
{
    becomes("\xff\xfe", "??", 0);
    becomes("\xc3", "?", 0);                                    /* cut off */
    becomes("\xe2\x82", "??", 0);
    becomes("\xc0\x8a", "??", 0);                               /* a newline, too long */
    becomes("\xed\xa0\x80", "???", 0);                          /* half of a pair */
    becomes("\xf4\x90\x80\x80", "????", 0);                     /* beyond the last one */
    becomes("\x80z", "?z", 0);
}
END_TEST

START_TEST(a_field_ends)
{
    char field[4] = {'a', '\n', 'b', 'c'};

    tn_plain_field(field, sizeof field);
    ck_assert_str_eq(field, "a b");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plain");
    TCase *c = tcase_create("all");
    SRunner *r;
    int failed;

    tcase_add_test(c, what_can_be_seen_stays);
    tcase_add_test(c, controls_go);
    tcase_add_test(c, what_is_no_text_goes);
    tcase_add_test(c, a_field_ends);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
