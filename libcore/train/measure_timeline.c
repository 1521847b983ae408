/* measure_timeline.c - resident memory after each launch of the first update: see measure.h.
 *
 * The arena is one block that the system hands out page by page, at the first touch; so only the first update shows how far it
 * is used. /proc is read by one pread on a file that is open already: an update allocates nothing. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "train/engine.h"
#include "train/measure_own.h"

struct timeline {
    int file;
    uint64_t before, *out;
};

/* The second number of statm is in pages; 0 if it is not there. */
static uint64_t resident(int file)
{
    char text[128];
    ssize_t n = pread(file, text, sizeof text - 1, 0);
    char *end;

    if (n <= 0)
        return 0;
    text[n] = 0;
    strtoull(text, &end, 10);
    return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void after(void *ctx, uint32_t row)
{
    struct timeline *t = ctx;
    uint64_t now = resident(t->file);

    t->out[row] = now > t->before ? now - t->before : 0;
}

tn_status tn_measure_timeline(struct tn_session *s, uint64_t seed, struct tn_arena *arena, uint64_t **out)
{
    uint32_t n = tn_session_plan(s, TN_SESSION_TRAIN)->n_row;
    struct timeline t = {.file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC),
                         .out = tn_alloc_array(arena, n + 1u, sizeof *t.out)};
    struct tn_session_times times = {.run = {.row = tn_alloc_array(arena, n + 1u, sizeof(double)), .after = after, .ctx = &t}};
    struct tn_session_result result;
    struct tn_feed f;
    tn_status status;

    *out = NULL;
    tn_feed_new(&f, s, seed, arena);
    t.before = resident(t.file);
    status = tn_feed_step(&f, &times, &result);
    if (t.file >= 0)
        close(t.file);
    if (status == TN_OK && t.before > 0 && tn_session_engine(s)->info.host_access)
        *out = t.out;
    return status;
}
