/* test_progress.c - the line of a run: as wide as the terminal, and plain where there is none. */
#include "files.h"

#include "train/progress.h"

#include <pty.h>

/* What was written to f since it was opened. */
static char *written(FILE *f)
{
    static char text[4096];
    size_t n;

    fflush(f);
    rewind(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    return text;
}

static const struct tn_progress_update at_7 = {
    .step = 7, .loss = 3.14159, .gnorm = 0.5, .lr = 1e-3, .tokens = 256, .seconds = 0.5};

START_TEST(plain_lines_come_at_the_interval)
{
    FILE *f = tmpfile();
    struct tn_progress p;
    struct tn_progress_update u = at_7;

    tn_progress_start(f, 10, 4, &p);
    for (u.step = 1; u.step <= 10; u.step++)
        tn_progress_update(&p, &u);
    tn_progress_end(&p);
    ck_assert_str_eq(written(f), "step 4/10  loss 3.1416  lr 1.00e-03  norm 0.500  512 tokens/s  3s left\n"
                                 "step 8/10  loss 3.1416  lr 1.00e-03  norm 0.500  512 tokens/s  1s left\n"
                                 "step 10/10  loss 3.1416  lr 1.00e-03  norm 0.500  512 tokens/s\n");
    fclose(f);
}
END_TEST

START_TEST(no_line_is_wider_than_the_terminal)
{
    static const int widths[] = {1, 2, 10, 20, 40, 60, 79, 200};

    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        FILE *f = tmpfile();
        struct tn_progress p;
        tn_progress_start(f, 10, 1, &p);
        p.terminal = 1;
        p.width = widths[i];
        tn_progress_update(&p, &at_7);
        char *text = written(f);
        ck_assert_int_eq(text[0], '\r');
        ck_assert_int_lt((int)strlen(text + 1), widths[i]);
        ck_assert(!strchr(text, '\n'));
        if (widths[i] >= 20)
            ck_assert_ptr_nonnull(strstr(text, "step 7/10"));
        fclose(f);
    }
}
END_TEST

/* A message leaves nothing of the line behind it, the line comes back after it, the last one stays. */
START_TEST(messages_have_their_own_line)
{
    FILE *f = tmpfile();
    struct tn_progress p;
    struct tn_progress_update u = at_7;

    tn_progress_start(f, 10, 1, &p);
    p.terminal = 1;
    p.width = 16;
    tn_progress_update(&p, &u);
    tn_progress_say(&p, "saved %s", "x");
    u.step = 10;
    tn_progress_update(&p, &u);
    tn_progress_say(&p, "saved %s", "y");
    tn_progress_end(&p);
    ck_assert_str_eq(written(f), "\rstep 7/10\r         \r\rsaved x\n\rstep 10/10\n\rsaved y\n");
    fclose(f);
}
END_TEST

START_TEST(a_terminal_is_asked_for_its_width)
{
    struct winsize size = {.ws_row = 24, .ws_col = 30};
    int master, slave;
    char text[256];

    ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, &size), 0);
    FILE *f = fdopen(slave, "w");
    struct tn_progress p;
    tn_progress_start(f, 10, 1, &p);
    ck_assert(p.terminal);
    tn_progress_update(&p, &at_7);
    ssize_t n = read(master, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    ck_assert_str_eq(text, "\rstep 7/10  loss 3.1416");
    fclose(f);
    close(master);
}
END_TEST

/* The first five updates are slow, and a pause between updates (validation, saving) is nobody's time. */
START_TEST(the_rate_leaves_the_warm_up_out)
{
    FILE *f = tmpfile();
    struct tn_progress p;
    struct tn_progress_update u = at_7;

    tn_progress_start(f, 20, 100, &p);
    for (u.step = 1; u.step <= 5; u.step++) {
        u.seconds = 7;
        tn_progress_update(&p, &u);
    }
    ck_assert_double_eq(tn_progress_rate(&p), 0);
    tn_progress_sum(&p);
    ck_assert_str_eq(written(f), "");
    for (; u.step <= 8; u.step++) {
        u.seconds = (double)(u.step - 5);        /* 1, 2, 3 */
        tn_progress_update(&p, &u);
        usleep(2000);
    }
    ck_assert_double_eq(tn_progress_rate(&p), 3 * 256 / 6.0);
    tn_progress_sum(&p);
    ck_assert_str_eq(written(f), "128 tokens/s over 3 updates, the first 5, validation and saving left out\n");
    fclose(f);
}
END_TEST

START_TEST(times_are_short)
{
    static const struct {
        double seconds;
        const char *text;
    } times[] = {{0, "0s"},       {59.4, "59s"},    {59.6, "1m00s"}, {3599, "59m59s"},
                 {7261, "2h01m"}, {90000, "1d01h"}, {-5, "0s"},      {1e30, "0s"}};
    char text[32];

    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        ck_assert_str_eq(tn_progress_time(times[i].seconds, text, sizeof text), times[i].text);
}
END_TEST

TEST_MAIN("progress", plain_lines_come_at_the_interval, no_line_is_wider_than_the_terminal,
          messages_have_their_own_line, a_terminal_is_asked_for_its_width, the_rate_leaves_the_warm_up_out, times_are_short)
