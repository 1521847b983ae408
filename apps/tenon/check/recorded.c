/* recorded.c - a kernel launched inside a recording (tenon.device.capture/1), which is replayed.
 *
 * A recording writes down what is put on the queue, with addresses but without what lies there. So the kernel is
 * launched as usual on two sets of numbers, which are the answers; then once while the queue records, when nothing may
 * change; and the recording is replayed with other numbers in the same buffers each time. Every replay must give the
 * bits of the usual launch, and leave alone what that leaves alone. */
#include <stdlib.h>
#include "bench_inside.h"

#define REPLAYS 4

struct trial {
    struct tn_bench *b;
    const struct tn_kernel *k;
    const struct tn_guarded *work;
    double *answer[2][TN_MAX_OPERANDS];          /* by set of numbers, by operand; outputs only */
};

static tn_status say(struct tn_bench *b, const char *what)
{
    snprintf(b->error, sizeof b->error, "recorded: %s: %s", what, tn_bench_said());
    return TN_ERR;
}

/* The other set: each buffer from its end, and other uniforms. Positions, which count upwards, stay. Twice is the first
 * set again. */
static void other_numbers(struct tn_bench *b)
{
    float uniform;

    for (uint32_t o = 0; o < b->n; o++)
        for (int64_t e = 0, n = b->d.operand[o].dtype == TN_I32 && !b->x[o].limit ? 0 : b->x[o].count; e < n / 2; e++) {
            const double first = b->x[o].value[e];

            b->x[o].value[e] = b->x[o].value[n - 1 - e];
            b->x[o].value[n - 1 - e] = first;
        }
    for (uint32_t i = 0; i < 8; i++) {
        uniform = b->uniform[i];
        b->uniform[i] = b->uniform[15 - i];
        b->uniform[15 - i] = uniform;
    }
    b->key[2] ^= 5;                              /* the step */
}

static tn_status begin(const struct trial *t)
{
    tn_bench_reset(t->b);
    memset(t->work->data, POISON, t->work->bytes);
    return tn_remote_push(t->b, t->work);
}

static tn_status take(const struct trial *t)
{
    const tn_status s = tn_remote_pull(t->b, t->work);

    return s == TN_OK ? tn_bench_inspect(t->b) : s;
}

/* As usual: the answer to these numbers. */
static tn_status answer(struct trial *t, uint32_t set)
{
    struct tn_bench *b = t->b;
    tn_status s = begin(t);

    if (s == TN_OK && tn_bench_launch(b, t->k, t->work, 1) != TN_OK)
        s = say(b, "launch");
    s = s == TN_OK ? take(t) : s;
    for (uint32_t o = b->p.n_in; o < b->n && s == TN_OK; o++) {
        const size_t bytes = (size_t)b->x[o].count * sizeof(double);

        t->answer[set][o] = memcpy(malloc(bytes + 1), b->x[o].result, bytes);
    }
    return s;
}

/* The launch while the queue records; afterwards all memory is as it was. */
static tn_status record(const struct trial *t, struct tn_recording **out)
{
    const struct tn_bench_device *d = t->b->device;
    tn_status s = begin(t), launched;

    if (s != TN_OK || d->capture->begin(d->queue) < 0)
        return s != TN_OK ? s : say(t->b, "begin");
    if ((launched = tn_bench_launch(t->b, t->k, t->work, 0)) < 0)
        say(t->b, "launch");
    if (d->capture->end(d->queue, out) < 0)
        return launched < 0 ? TN_ERR : say(t->b, "end");
    if (launched < 0)
        return TN_ERR;
    if (d->api->sync(d->queue, d->seconds) != TN_OK)
        return say(t->b, "sync");
    s = tn_remote_pull(t->b, t->work);
    for (uint32_t o = 0; o < t->b->n && s == TN_OK; o++)
        if (memcmp(t->b->x[o].before, t->b->x[o].memory.data, t->b->x[o].memory.bytes)) {
            snprintf(t->b->error, sizeof t->b->error, "recorded: it was done while it was written down: operand %u has changed", o);
            return TN_ERR;
        }
    return s;
}

static tn_status replay(const struct trial *t, struct tn_recording *r, uint32_t set, uint32_t turn)
{
    const struct tn_bench_device *d = t->b->device;
    tn_status s = begin(t);

    if (s == TN_OK && (d->capture->replay(r, d->queue) < 0 || d->api->sync(d->queue, d->seconds) != TN_OK))
        s = say(t->b, "replay");
    s = s == TN_OK ? take(t) : s;
    for (uint32_t o = t->b->p.n_in; o < t->b->n && s == TN_OK; o++)
        if (memcmp(t->answer[set][o], t->b->x[o].result, (size_t)t->b->x[o].count * sizeof(double))) {
            snprintf(t->b->error, sizeof t->b->error, "recorded: replay %u gives other bits in output %u than a launch", turn,
                     o - t->b->p.n_in);
            s = TN_ERR;
        }
    return s;
}

static tn_status run(struct trial *t)
{
    struct tn_recording *r = NULL;
    tn_status s = answer(t, 0);

    other_numbers(t->b);
    s = s == TN_OK ? answer(t, 1) : s;
    other_numbers(t->b);
    s = s == TN_OK ? record(t, &r) : s;
    for (uint32_t turn = 1; turn <= REPLAYS && s == TN_OK; turn++) { /* first with numbers that were not there before */
        other_numbers(t->b);
        s = replay(t, r, turn % 2, turn);
    }
    if (r)
        t->b->device->capture->close(r);
    for (uint32_t o = 0; o < t->b->n; o++)
        free(t->answer[0][o]), free(t->answer[1][o]);
    return s;
}

tn_status tn_bench_run_recorded(struct tn_bench *b, const struct tn_kernels *k)
{
    struct tn_kernel kernel = {.struct_size = sizeof kernel};
    struct trial t = {.b = b, .k = &kernel};
    struct tn_guarded work;
    tn_status s = k->prepare(&b->p, &kernel);

    if (s == TN_DECLINED)
        return s;
    if (s != TN_OK || !kernel.launch)
        return say(b, "prepare");
    work = tn_guarded_new(kernel.workspace);
    t.work = &work;
    s = tn_remote_open(b, &work);
    s = s == TN_OK ? run(&t) : s;
    tn_remote_close(b);
    if (kernel.release)
        kernel.release(kernel.state);
    tn_guarded_free(&work);
    return s;
}
