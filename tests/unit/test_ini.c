/* test_ini.c - every trap of INI files: nothing is cut, moved, doubled or swallowed without a word. */
#include <check.h>
#include <stdlib.h>

#include "base/ini.h"

static struct tn_arena *arena;
static struct tn_ini ini;

static void setup(void)
{
    arena = tn_arena_new();
}

static void teardown(void)
{
    tn_arena_free(arena);
}

static void parse_bytes(const char *text, size_t bytes)
{
    char *copy = malloc(bytes ? bytes : 1); /* without a 0 behind it, so that a sanitizer sees an overrun */

    memcpy(copy, text, bytes);
    tn_ini_parse(arena, copy, bytes, &ini);
    free(copy);
}

static void parse(const char *text)
{
    parse_bytes(text, strlen(text));
}

/* "section.key=value@line" of all entries, then "line:text" of all problems, separated by |. */
static const char *result(void)
{
    const char *all = "";

    for (size_t i = 0; i < ini.entries; i++)
        all = tn_text(arena, "%s%s%s.%s=%s@%u", all, *all ? "|" : "", ini.entry[i].section, ini.entry[i].key,
                      ini.entry[i].value, ini.entry[i].line);
    for (size_t i = 0; i < ini.problems; i++)
        all = tn_text(arena, "%s%s%u:%s", all, *all ? "|" : "", ini.problem[i].line, ini.problem[i].text);
    return all;
}

static void gives(const char *text, const char *want)
{
    parse(text);
    ck_assert_str_eq(result(), want);
}

/* No entry, one problem on that line with those words. */
static void refuses(const char *text, uint32_t line, const char *words)
{
    parse(text);
    ck_assert_msg(ini.entries == 0, "%s", result());
    ck_assert_msg(ini.problems == 1, "%s", result());
    ck_assert_uint_eq(ini.problem[0].line, line);
    ck_assert_msg(strstr(ini.problem[0].text, words) != NULL, "%s", result());
}

START_TEST(plain)
{
    gives("; c\n[train]\nsteps = 10\n\n# c\nlr=1e-3\n[data]\ndir: /a:b = c\n",
          "train.steps=10@3|train.lr=1e-3@6|data.dir=/a:b = c@8");
    gives("", "");
    gives("\n\n[a]\n\n", "");
    ck_assert_uint_eq(ini.sections, 1);
    ck_assert_uint_eq(ini.section[0].line, 3);
    gives("[a]\nk = v", "a.k=v@2");              /* without a final newline */
    gives("[ a ] ; why\nk\t=\tv\t\n", "a.k=v@2");
}
END_TEST

START_TEST(comments_behind_values)
{
    gives("[a]\nk = v ; c\nl =   ; cosine\nm =;c\nn =\no = ;c\np = v;w\n",
          "a.k=v@2|a.l=@3|a.m=@4|a.n=@5|a.o=@6|a.p=v;w@7");
    refuses("[a]\nk = 1e-3 # c\n", 2, "begins with ;");
    refuses("[a]\nk = # c\n", 2, "begins with ;");
    gives("[a]\nk = run#3\n", "a.k=run#3@2");
    refuses("[a]\nk = \"v\"\n", 2, "quotation");
    refuses("[a]\nk = 'v'\n", 2, "quotation");
}
END_TEST

START_TEST(indented_lines_stand_for_themselves)
{
    gives("[a]\nlr = 1\n  min_lr = 1e-5\n\t; l = 3\n   # m = 4\n\tn = 5\n",
          "a.lr=1@2|a.min_lr=1e-5@3|a.n=5@6");
    gives("[a]\nfiles = a,\n   b\n", "a.files=a,@2|3:expected key = value, found \"b\"");
    gives("  [a]\n k = 1\n", "a.k=1@2");
}
END_TEST

/* "k = " and a value, the whole line of so many characters; its tail looks like a key. */
START_TEST(long_lines_are_whole_or_refused)
{
    for (int end = 0; end < 2; end++)
        for (int n = 190; n <= 420; n++) {
            char value[512], text[600];
            memset(value, 'x', sizeof value);
            memcpy(value + n - 8, "=y=z", 4);
            value[n - 4] = 0;
            snprintf(text, sizeof text, "[a]\nk = %s%s", value, end ? "\n" : "");
            parse(text);
            if (n <= TN_INI_LINE) {
                ck_assert_str_eq(result(), tn_text(arena, "a.k=%s@2", value));
            } else {
                ck_assert_uint_eq(ini.entries, 0);
                ck_assert_uint_eq(ini.problems, 1);
                ck_assert_msg(strstr(result(), tn_text(arena, "2:the line has %d characters", n)) != NULL,
                              "%s", result());
            }
        }
    char *comment = tn_text(arena, "[a]\n; %0500d = 3\nk = 1\n", 0);
    gives(comment, "a.k=1@3");
}
END_TEST

START_TEST(section_names_are_whole_or_refused)
{
    for (int n = 40; n <= 70; n++) {
        char *name = tn_text(arena, "%0*d", n, 0);
        parse(tn_text(arena, "[%s]\nk = 1\n", name));
        if (n <= TN_INI_NAME)
            ck_assert_str_eq(result(), tn_text(arena, "%s.k=1@2", name));
        else
            refuses(tn_text(arena, "[%s]\nk = 1\n", name), 1, "more than 49");
    }
    refuses("[]\nk=1\n", 1, "without a name");
    refuses("[a\nk=1\n", 1, "no ]");
    refuses("[a] b = 1\nk=1\n", 1, "only a comment");
    refuses("[a ;b]\nk=1\n", 1, "letters, digits");
    refuses("k = 1\n", 1, "before the first");
}
END_TEST

START_TEST(duplicates_name_both_lines)
{
    gives("[a]\nlr = 1\n[b]\nlr = 2\n", "a.lr=1@2|b.lr=2@4");
    gives("[a]\nlr = 1\nlr = 2\n", "a.lr=1@2|3:a.lr again; it is on line 2 already");
    gives("[a]\nlr = 1\n[b]\n[a]\nlr = 2\n", "a.lr=1@2|4:section [a] again; it began on line 1, put all its "
                                             "keys there|5:a.lr again; it is on line 2 already");
}
END_TEST

START_TEST(bytes)
{
    gives("\xef\xbb\xbf[a]\nk = 1\n", "a.k=1@2");
    gives("[a]\r\nk = 1\r\n; c\r\n", "a.k=1@2");
    gives("[a]\nk = gr\xc3\xbc\xc3\x9f\n", "a.k=gr\xc3\xbc\xc3\x9f@2");
    refuses("[a]\nk = 1\rl = 2\n", 2, "carriage return");
    refuses("[a]\nk = \x01\n", 2, "control character");
    refuses("[a]\nk = \xff\n", 2, "not UTF-8");
    refuses("[a]\nk = \xc0\xaf\n", 2, "not UTF-8");
    refuses("[a]\nk = \xed\xa0\x80\n", 2, "not UTF-8");
    refuses("[a]\nk = \xf4\x90\x80\x80\n", 2, "not UTF-8");
    refuses("[a]\nk = \xe2\x82", 2, "not UTF-8");
    parse_bytes("[a]\nk = 1\0\nl = 2\n", 17);
    ck_assert_str_eq(result(), "a.l=2@3|2:a NUL byte in the line");
    parse_bytes("\xff\xfe[\0a\0]\0", 8);
    ck_assert_str_eq(result(), "1:the file is UTF-16; save it as UTF-8");
}
END_TEST

START_TEST(lines_that_are_nothing)
{
    refuses("[a]\nlr 1e-3\n", 2, "expected key = value, found \"lr 1e-3\"");
    refuses("[a]\n= 5\n", 2, "expected key = value");
    refuses("[a]\nk ;= 1\n", 2, "expected key = value");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ini");
    TCase *t = tcase_create("ini");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, plain);
    tcase_add_test(t, comments_behind_values);
    tcase_add_test(t, indented_lines_stand_for_themselves);
    tcase_add_test(t, long_lines_are_whole_or_refused);
    tcase_add_test(t, section_names_are_whole_or_refused);
    tcase_add_test(t, duplicates_name_both_lines);
    tcase_add_test(t, bytes);
    tcase_add_test(t, lines_that_are_nothing);
    suite_add_tcase(suite, t);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
