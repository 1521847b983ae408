/* test_events.c - events for TensorBoard: the bytes of a record, and what a start leaves of a file.
 *
 * The checksum has a known answer: the bytes here are those that tensorboard and tbparse read (tests/cli/tensorboard.sh reads
 * all of a run). */
#include "files.h"

#include "ckpt/events.h"

#include <signal.h>
#include <sys/resource.h>

/* Records of 60 and so bytes; the first one, of the version, is 24 + 16. */
#define VERSION 40

static char *read_all(const char *path, size_t *n)
{
    char *text;

    assert_ok(tn_file_read(path, 1 << 20, &text, n));
    return text;
}

static size_t size_of(const char *path)
{
    size_t n;

    free(read_all(path, &n));
    return n;
}

static void write_loss(struct tn_events *e, int64_t step, double loss)
{
    assert_ok(tn_events_write(e, step, &(struct tn_event_value){"loss", loss}, 1));
}

/* Of step 300, loss 1.5: all bytes but the time are known. */
START_TEST(a_record_byte_by_byte)
{
    static const uint8_t head[] = {27, 0, 0, 0, 0, 0, 0, 0},
                         event[] = {0x10, 0xac, 0x02, 0x2a, 13, 0x0a, 11, 0x0a, 4, 'l', 'o', 's', 's', 0x15, 0, 0, 0xc0, 0x3f};
    /* Length 24 is in many descriptions of the format: its masked CRC-32C. */
    static const uint8_t version_head[] = {24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22};
    struct tn_events *e;
    char *path = in_scratch("events"), *text;
    size_t n;

    assert_ok(tn_events_open(path, -1, &e));
    write_loss(e, 300, 1.5);
    tn_events_close(e);
    text = read_all(path, &n);
    ck_assert_uint_eq(n, VERSION + 12 + 9 + sizeof event + 4);
    ck_assert_mem_eq(text, version_head, sizeof version_head);
    ck_assert_mem_eq(text + 12 + 9, "\x1a\x0d" "brain.Event:2", 15);
    ck_assert_mem_eq(text + VERSION, head, sizeof head);
    ck_assert_mem_eq(text + VERSION + 12 + 9, event, sizeof event);
    free(text);
}
END_TEST

START_TEST(each_step_is_there_once)
{
    struct tn_events *e;
    char *path = in_scratch("events"), *before, *after;
    size_t one, two, n;

    assert_ok(tn_events_open(path, -1, &e));
    write_loss(e, 0, 4);
    write_loss(e, 1, 3);
    one = size_of(path);
    write_loss(e, 2, 2);
    write_loss(e, 200, 1);
    tn_events_close(e);
    before = read_all(path, &n);
    assert_ok(tn_events_open(path, 1, &e));      /* the checkpoint was of step 1 */
    ck_assert_uint_eq(size_of(path), one);
    write_loss(e, 2, 2.5);
    two = size_of(path);
    tn_events_close(e);
    after = read_all(path, &n);
    ck_assert_mem_eq(before, after, one);
    assert_ok(tn_events_open(path, 2, &e));      /* nothing is beyond */
    tn_events_close(e);
    ck_assert_uint_eq(size_of(path), two);
    assert_ok(tn_events_open(path, -1, &e));
    tn_events_close(e);
    ck_assert_uint_eq(size_of(path), VERSION);
    free(before), free(after);
}
END_TEST

/* Cut at every byte, or one changed: the records before it stay, and what follows is written behind them. */
START_TEST(damage_costs_what_follows_it)
{
    struct tn_events *e;
    char *path = in_scratch("events"), *text;
    size_t n, one;

    assert_ok(tn_events_open(path, -1, &e));
    write_loss(e, 1, 4);
    one = size_of(path);
    write_loss(e, 2, 3);
    tn_events_close(e);
    text = read_all(path, &n);
    for (size_t cut = 0; cut < n; cut++) {
        put_file("events", text, cut);
        assert_ok(tn_events_open(path, 9, &e));
        tn_events_close(e);
        ck_assert_uint_eq(size_of(path), cut < one ? VERSION : one);
    }
    for (size_t at = one; at < n; at++) {
        text[at] ^= 4;
        put_file("events", text, n);
        text[at] ^= 4;
        assert_ok(tn_events_open(path, 9, &e));
        tn_events_close(e);
        ck_assert_uint_eq(size_of(path), one);
    }
    free(text);
}
END_TEST

START_TEST(what_does_not_fit_leaves_nothing)
{
    struct rlimit limit = {VERSION + 60, 1000};
    struct tn_events *e;
    char *path = in_scratch("events");
    size_t one;

    assert_ok(tn_events_open(path, -1, &e));
    write_loss(e, 1, 4);
    one = size_of(path);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_fails(tn_events_write(e, 2, &(struct tn_event_value){"loss", 1}, 1), TN_ERR_IO, "File too large");
    ck_assert_uint_eq(size_of(path), one);
    tn_events_close(e);
}
END_TEST

TEST_MAIN("events", a_record_byte_by_byte, each_step_is_there_once, damage_costs_what_follows_it,
          what_does_not_fit_leaves_nothing)
