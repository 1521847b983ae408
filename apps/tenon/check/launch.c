/* launch.c - runs a kernel on a problem and looks for what it should not have done. recorded.c does it in a recording. */
#include <stdlib.h>
#include "bench_inside.h"

void tn_bench_reset(struct tn_bench *b)
{
    for (uint32_t o = 0; o < b->n; o++)
        memset(b->x[o].memory.data, POISON, b->x[o].memory.bytes);
    for (uint32_t o = 0; o < b->n; o++) {
        const int output = o >= b->p.n_in;

        for (int64_t e = 0; e < b->x[o].count; e++)
            if (!output || b->p.accumulate >> (o - b->p.n_in) & 1)
                tn_number_write(b->d.operand[o].dtype, tn_bench_place(b, o, e), b->x[o].value[e]);
    }
    for (uint32_t o = 0; o < b->n; o++)
        memcpy(b->x[o].before, b->x[o].memory.data, b->x[o].memory.bytes);
}

/* Sizes and addresses that no one survives. */
static void spoil(struct described *d)
{
    const int64_t bad = (int64_t)1 << 40;

    for (size_t i = 0; i + sizeof bad <= sizeof *d; i += sizeof bad)
        memcpy((char *)d + i, &bad, sizeof bad);
}

/* What runs now, for a fault in it. */
static const struct tn_bench *running;
static const struct tn_guarded *running_work;

int tn_bench_fault(const void *address, char *text, size_t room)
{
    const char *at = address;

    for (uint32_t o = 0; running && o <= running->n; o++) {
        const struct tn_guarded *g = o < running->n ? &running->x[o].memory : running_work;
        const uint32_t n_in = running->p.n_in;

        if (at < g->map || at >= g->map + g->mapped)
            continue;
        if (o == running->n)
            snprintf(text, room, "touched what lies %s its workspace", at < g->data ? "in front of" : "behind");
        else
            snprintf(text, room, "touched what lies %s %s %u", at < g->data ? "in front of" : "behind",
                     o < n_in ? "input" : "output", o < n_in ? o : o - n_in);
        return 1;
    }
    return 0;
}

tn_status tn_bench_launch(struct tn_bench *b, const struct tn_kernel *k, const struct tn_guarded *work, int to_end)
{
    void *buffer[TN_MAX_OPERANDS];
    struct tn_launch l = {
        .struct_size = sizeof l, .micro = b->micro, .buffer = buffer, .workspace = work->data};
    struct described *saved = malloc(sizeof *saved);
    const int has_program = !!b->p.program;
    tn_status s;

    for (uint32_t o = 0; o < b->n; o++) {
        const uint32_t real = b->x[o].alias < 0 ? o : (uint32_t)b->x[o].alias;
        char *data = b->device ? tn_remote_data(b, real) : b->x[real].memory.data;

        buffer[o] = b->x[o].unread ? NULL : data + b->x[real].skip;
    }
    l.uniform = has_program ? (const void *)b->uniform : b->key;
    if (b->device) {
        l.workspace = tn_remote_data(b, b->n), l.uniform = tn_remote_data(b, b->n + 1);
        l.queue = b->device->queue;
    }
    memcpy(saved, &b->d, sizeof b->d);
    spoil(&b->d);
    running = b, running_work = work;
    s = k->launch(k->state, &l);
    if (s == TN_OK && b->device && to_end)       /* before what it was given is there again */
        s = b->device->api->sync(b->device->queue, b->device->seconds);
    running = NULL;
    memcpy(&b->d, saved, sizeof b->d);
    free(saved);
    return s;
}

static tn_status fail(struct tn_bench *b, const char *what, uint32_t operand)
{
    snprintf(b->error, sizeof b->error, "%s %s %u", what, operand < b->p.n_in ? "input" : "output",
             operand < b->p.n_in ? operand : operand - b->p.n_in);
    return TN_ERR;
}

tn_status tn_bench_inspect(struct tn_bench *b)
{
    uint32_t written = 0;

    for (uint32_t o = b->p.n_in; o < b->n; o++) {
        written |= b->x[o].alias < 0 ? 0 : 1u << b->x[o].alias;
        for (int64_t e = 0; e < b->x[o].count; e++)
            b->x[o].result[e] = tn_number_read(b->d.operand[o].dtype, tn_bench_place(b, o, e));
        for (int64_t e = 0; e < b->x[o].count; e++)
            memset(tn_bench_place(b, o, e), POISON, tn_number_width(b->d.operand[o].dtype));
    }
    for (uint32_t o = 0; o < b->n; o++) {
        const struct operand *x = &b->x[o];
        const int over = tn_guarded_overrun(&x->memory);

        if (over)
            return fail(b, over < 0 ? "wrote in front of" : "wrote between or behind the elements of", o);
        if (o < b->p.n_in && !(written >> o & 1) && memcmp(x->before, x->memory.data, x->memory.bytes))
            return fail(b, "changed", o);
        for (size_t i = 0; (o >= b->p.n_in || written >> o & 1) && i < x->memory.bytes; i++)
            if (x->memory.data[i] != (char)POISON)
                return fail(b, "wrote between or behind the elements of", o);
    }
    return TN_OK;
}

static tn_status twice(struct tn_bench *b, const struct tn_kernel *k, const struct tn_guarded *work)
{
    double *first[TN_MAX_OPERANDS] = {NULL};
    tn_status s = TN_OK;

    for (int run = 0; run < 2 - b->once && s == TN_OK; run++) {
        tn_bench_reset(b);
        memset(work->data, POISON, work->bytes);
        if (b->device && (s = tn_remote_push(b, work)) != TN_OK)
            break;
        if ((s = tn_bench_launch(b, k, work, 1)) != TN_OK) {
            snprintf(b->error, sizeof b->error, "launch: status %d: %s", (int)s, tn_bench_said());
            s = TN_ERR;
            break;
        }
        s = b->device ? tn_remote_pull(b, work) : TN_OK;
        s = s == TN_OK ? tn_bench_inspect(b) : s;
        for (uint32_t o = b->p.n_in; o < b->n && s == TN_OK; o++) {
            const size_t bytes = (size_t)b->x[o].count * sizeof(double);

            if (!run)
                first[o] = memcpy(malloc(bytes), b->x[o].result, bytes);
            else if (memcmp(first[o], b->x[o].result, bytes))
                s = fail(b, "a second launch gives other bits in", o);
        }
    }
    if (s == TN_OK && tn_guarded_overrun(work)) {
        snprintf(b->error, sizeof b->error, "wrote %s its workspace",
                 tn_guarded_overrun(work) < 0 ? "in front of" : "behind");
        s = TN_ERR;
    }
    for (uint32_t o = 0; o < b->n; o++)
        free(first[o]);
    return s;
}

int tn_bench_declines(const struct tn_bench *b, const struct tn_kernels *k)
{
    struct tn_kernel kernel = {.struct_size = sizeof kernel};
    const tn_status s = k->prepare(&b->p, &kernel);

    if (s == TN_OK && kernel.release)
        kernel.release(kernel.state);
    return s == TN_DECLINED;
}

tn_status tn_bench_run(struct tn_bench *b, const struct tn_kernels *k)
{
    struct tn_kernel kernel = {.struct_size = sizeof kernel};
    struct tn_guarded work;
    tn_status s = k->prepare(&b->p, &kernel);

    if (s == TN_DECLINED)
        return s;
    if (s != TN_OK || !kernel.launch) {
        snprintf(b->error, sizeof b->error, "prepare: status %d: %s", (int)s,
                 s ? tn_bench_said() : "no launch");
        return TN_ERR;
    }
    work = tn_guarded_new(kernel.workspace);
    if (b->front)
        tn_guarded_front(&work);
    s = b->device ? tn_remote_open(b, &work) : TN_OK;
    s = s == TN_OK ? twice(b, &kernel, &work) : s;
    if (b->device)
        tn_remote_close(b);
    if (kernel.release)
        kernel.release(kernel.state);
    tn_guarded_free(&work);
    return s;
}
