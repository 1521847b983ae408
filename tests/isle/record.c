/* record.c - recording: a list of jobs that are kept, and one job that runs them all. */
#include <stdlib.h>
#include "isle.h"

struct tn_recording {
    struct isle_job *first;
};

static _Thread_local struct tn_recording *under_way;

static tn_status begin(struct tn_queue *q)
{
    if (under_way)
        return tn_error(TN_ERR, "isle: this thread records already");
    if (!(under_way = calloc(1, sizeof *under_way)))
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a recording");
    isle_divert(q, &under_way->first);
    return TN_OK;
}

static tn_status end(struct tn_queue *q, struct tn_recording **out)
{
    isle_divert(q, NULL);
    *out = under_way;
    under_way = NULL;
    return TN_OK;
}

struct replaying {
    struct isle_job job;
    const struct tn_recording *what;
};

static void run_replay(struct isle_job *job)
{
    for (struct isle_job *j = ((struct replaying *)job)->what->first; j; j = j->next)
        j->run(j);
}

static tn_status replay(struct tn_recording *r, struct tn_queue *q)
{
    struct replaying *p = malloc(sizeof *p);

    if (!p)
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a job");
    *p = (struct replaying){.job.run = run_replay, .what = r};
    isle_put(q, &p->job);
    return TN_OK;
}

static void close_recording(struct tn_recording *r)
{
    for (struct isle_job *next, *j = r ? r->first : NULL; j; j = next) {
        next = j->next;
        free(j);
    }
    free(r);
}

const struct tn_device_capture isle_capture = {
    .struct_size = sizeof isle_capture,
    .kind = ISLE,
    .begin = begin,
    .end = end,
    .replay = replay,
    .close = close_recording,
};
