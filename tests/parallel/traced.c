/* traced.c - are these files traces, and do they add up? For trace.sh.
 *
 * usage: traced [--pipeline] FILE ...   one file for each rank, in order
 *
 * In every file: all that Chrome's format wants; the events of a row follow one another or lie within one another; all of
 * the executor's row lies in the update, and all but tasks in tasks; what is said of the whole is the sum of the parts; each
 * collective begins with a start and ends with a wait, and all were waited for. With --pipeline, of two stages: what rank 0
 * sends of micro-batch 0 is under way in its forward of 1, and nothing arrives before it was sent, by the clocks as they
 * were aligned. Prints for each rank how many launches, collectives and waits there are, and whether forward 1 on rank 0
 * and forward 0 on rank 1 overlap, which a busy machine may prevent. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 100000
#define NEAR 0.01                                /* microseconds */

struct event {
    const char *name, *category;
    int row;
    double begin, end;
    json_t *arguments;
};

struct rank {
    json_t *root;
    struct event *event;
    int n;
    double precision;
};

static int failures;

#define CHECK(x, ...) ((x) ? (void)0 : (failures++, printf("FAIL rank %d: ", number), printf(__VA_ARGS__), (void)printf("\n")))

static double real(const json_t *object, const char *key)
{
    const json_t *x = json_object_get(object, key);

    return x && json_is_number(x) ? json_number_value(x) : NAN;
}

static int is(const struct event *e, const char *category)
{
    return !strcmp(e->category, category);
}

static int earlier(const void *x, const void *y)
{
    const struct event *a = x, *b = y;

    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end > b->end ? -1 : a->end < b->end;
}

static void read_event(struct rank *r, int number, json_t *e, int *named)
{
    const char *phase = json_string_value(json_object_get(e, "ph")), *name = json_string_value(json_object_get(e, "name"));
    const char *category = json_string_value(json_object_get(e, "cat"));
    double begin = real(e, "ts"), length = real(e, "dur");

    CHECK(phase && name && real(e, "pid") == number && real(e, "tid") >= 0, "an event without name, phase, process or row");
    if (phase && name && !strcmp(phase, "M")) {
        *named += !strcmp(name, "process_name") || !strcmp(name, "thread_name");
        return;
    }
    CHECK(phase && !strcmp(phase, "X") && category && begin >= 0 && length >= 0, "%s is no event with a length", name ? name : "?");
    if (!name || !category || r->n == MOST)
        return;
    r->event[r->n++] =
        (struct event){name, category, (int)real(e, "tid"), begin, begin + length, json_object_get(e, "args")};
}

static int read_file(struct rank *r, int number, const char *path)
{
    json_error_t error;
    json_t *events, *e;
    int named = 0;
    size_t i;

    r->root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    events = json_object_get(r->root, "traceEvents");
    CHECK(r->root && json_is_array(events), "%s: line %d: %s", path, error.line, error.text);
    if (!json_is_array(events))
        return 0;
    r->event = calloc(MOST, sizeof *r->event);
    if (!r->event)
        exit(99);
    json_array_foreach(events, i, e)
        read_event(r, number, e, &named);
    r->precision = real(json_object_get(r->root, "otherData"), "clock_precision_us");
    CHECK(r->precision >= 0 && r->precision < 1e6, "the precision of the clock is %g us", r->precision);
    CHECK(real(json_object_get(r->root, "otherData"), "rank") == number, "the rank is another one");
    CHECK(named >= 2, "process and rows have no names");
    qsort(r->event, (size_t)r->n, sizeof *r->event, earlier);
    return 1;
}

/* Sorted: whatever begins within another one ends within it. */
static void check_nesting(const struct rank *r, int number)
{
    const struct event *open[8];
    int n = 0;

    for (int i = 0; i < r->n; i++) {
        const struct event *e = &r->event[i];

        while (n && (open[n - 1]->row != e->row || open[n - 1]->end <= e->begin + NEAR))
            n--;
        CHECK(!n || e->end <= open[n - 1]->end + NEAR, "%s begins within %s and ends behind it", e->name, open[n - 1]->name);
        if (e->row == 1)
            CHECK(n == (is(e, "update") ? 0 : is(e, "task") ? 1 : 2), "%s lies in %d others", e->name, n);
        else
            CHECK(!n && is(e, "communication"), "%s lies in another one, or does not belong there", e->name);
        if (n < 8)
            open[n++] = e;
    }
}

static const struct event *find(const struct rank *r, const char *category, double begin, double end)
{
    for (int i = 0; i < r->n; i++)
        if (is(&r->event[i], category) && (isnan(begin) || fabs(r->event[i].begin - begin) < NEAR) &&
            (isnan(end) || fabs(r->event[i].end - end) < NEAR))
            return &r->event[i];
    return NULL;
}

/* Time in which at least one event of the category is under way; row by row is not in order of time, so: all pairs of
 * beginnings that no other event covers. */
static double covered(const struct rank *r, const char *category)
{
    double sum = 0, until = -1;

    for (;;) {
        const struct event *next = NULL;

        for (int i = 0; i < r->n; i++)
            if (is(&r->event[i], category) && r->event[i].end > until && (!next || r->event[i].begin < next->begin))
                next = &r->event[i];
        if (!next)
            return sum;
        sum += next->end - (next->begin > until ? next->begin : until);
        until = next->end;
    }
}

static void check_sums(const struct rank *r, int number)
{
    const json_t *said = json_object_get(r->root, "otherData");
    double compute = 0, start = 0, idle = 0, whole = 0;
    int launches = 0, collectives = 0, waits = 0;

    for (int i = 0; i < r->n; i++) {
        const struct event *e = &r->event[i];
        double length = e->end - e->begin;

        compute += is(e, "compute") ? length : 0, start += is(e, "start") ? length : 0;
        idle += is(e, "idle") ? length : 0, whole += is(e, "update") ? length : 0;
        launches += is(e, "compute"), waits += is(e, "idle"), collectives += is(e, "communication");
        if (is(e, "compute"))
            CHECK(real(e->arguments, "flops") >= 0 && real(e->arguments, "bytes") >= 0 && real(e->arguments, "micro_batch") >= 0,
                  "%s: no flops, bytes or micro-batch", e->name);
        if (!is(e, "communication"))
            continue;
        CHECK(real(e->arguments, "bytes") >= 0 && real(e->arguments, "ranks") >= 2, "%s: no bytes, or fewer than two ranks", e->name);
        CHECK(!json_object_get(e->arguments, "nobody_waited"), "nobody waited for %s", e->name);
        CHECK(find(r, "start", e->begin, NAN) && find(r, "idle", NAN, e->end), "%s does not begin with a start and end with a wait", e->name);
    }
    CHECK(fabs(compute - 1e6 * real(said, "compute_seconds")) < 1, "compute: %g us, said %g", compute, 1e6 * real(said, "compute_seconds"));
    CHECK(fabs(idle - 1e6 * real(said, "wait_seconds")) < 1, "waits: %g us, said %g", idle, 1e6 * real(said, "wait_seconds"));
    CHECK(fabs(start + idle - 1e6 * real(said, "exposed_seconds")) < 1, "exposed: %g us, said %g", start + idle, 1e6 * real(said, "exposed_seconds"));
    CHECK(fabs(covered(r, "communication") - 1e6 * real(said, "communication_seconds")) < 1, "communication: %g us, said %g",
          covered(r, "communication"), 1e6 * real(said, "communication_seconds"));
    CHECK(start + idle <= covered(r, "communication") + 1, "more is exposed than there is");
    CHECK(compute > 0 && compute + start + idle <= whole + 1, "the parts, %g us, are more than the update, %g", compute + start + idle, whole);
    CHECK(fabs(whole - 1e6 * real(said, "seconds")) < 1, "update: %g us, said %g", whole, 1e6 * real(said, "seconds"));
    printf("rank %d: %d launches, %d collectives, %d waits\n", number, launches, collectives, waits);
}

static const struct event *task(const struct rank *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (is(&r->event[i], "task") && !strcmp(r->event[i].name, name))
            return &r->event[i];
    return NULL;
}

/* What goes to the next stage in the forward of a micro-batch. */
static const struct event *message(const struct rank *r, int micro)
{
    for (int i = 0; i < r->n; i++)
        if (is(&r->event[i], "communication") && !strcmp(json_string_value(json_object_get(r->event[i].arguments, "list")), "forward") &&
            real(r->event[i].arguments, "micro_batch") == micro)
            return &r->event[i];
    return NULL;
}

static void check_pipeline(const struct rank *r)
{
    const struct event *ahead = task(&r[0], "forward 1"), *first = task(&r[1], "forward 0");
    double off = r[0].precision + NEAR;
    int number = 0, n = 0;

    CHECK(ahead && first && message(&r[0], 0), "a forward, or what it sends, is missing");
    if (failures)
        return;
    CHECK(message(&r[0], 0)->begin < ahead->begin && message(&r[0], 0)->end > ahead->begin, "the first send ends before the next forward begins");
    if (ahead->begin < first->end && ahead->end > first->begin)
        printf("forward 1 on rank 0 and forward 0 on rank 1 overlap\n");
    for (const struct event *to, *from; (from = message(&r[0], n)) && (to = message(&r[1], n)); n++)
        CHECK(to->end >= from->begin - off, "message %d arrives %g us before it was sent", n, from->begin - to->end);
    CHECK(n >= 2, "%d messages to the next stage", n);
}

int main(int argc, char **argv)
{
    int pipeline = argc > 1 && !strcmp(argv[1], "--pipeline"), n = argc - 1 - pipeline, number = 0;
    struct rank *r = calloc((size_t)(n > 0 ? n : 1), sizeof *r);

    if (!r || n < 1)
        return 99;
    for (number = 0; number < n; number++)
        if (read_file(&r[number], number, argv[1 + pipeline + number])) {
            check_nesting(&r[number], number);
            check_sums(&r[number], number);
        }
    if (pipeline && !failures)
        check_pipeline(r);
    for (number = 0; number < n; number++) {
        json_decref(r[number].root);
        free(r[number].event);
    }
    free(r);
    return failures != 0;
}
