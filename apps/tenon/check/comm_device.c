/* comm_device.c - the device whose memory a communicator takes: looked for when the plugin is asked, and opened by each
 * rank, the one of its number on this host.
 *
 * Whoever has talked to a GPU cannot be forked any more, so devices are counted in a process that ends then, and ranks
 * open theirs after they were forked. */
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "comm.h"
#include "suite.h"
#include "plugin/rules.h"

#define MOST_RANKS 4u

static const struct check_devices *found;

static void open_device(struct tn_rank *r, uint32_t local_rank)
{
    const struct tn_loaded *p = NULL;

    if (tn_plugin_open(found->path, &p) < 0 || !(r->device_api = tn_plugin_table(p, TN_DEVICE_ID)))
        tn_comm_wrong(r, __LINE__, "the device %s: %s", found->kind, tn_error_text());
    r->capture = tn_plugin_table(p, TN_DEVICE_CAPTURE_ID);
    if (r->device_api->open(local_rank, &r->device) < 0)
        tn_comm_wrong(r, __LINE__, "device %u of %s does not open: %s", local_rank, found->kind, tn_error_text());
}

static void enter(struct tn_rank *r)
{
    tn_rules_rank();
    r->api = tn_comm_way == TN_COMM_HOST ? r->own : &tn_comm_through;
    tn_comm_through_as(r);
}

static void close_device(struct tn_rank *r)
{
    r->device_api->close(r->device);
}

static const struct tn_comm_device device = {.open = open_device, .enter = enter, .close = close_device};

void check_comm_device(const struct check_devices *d)
{
    found = d;
    tn_comm_device = d->n ? &device : NULL;
}

/* --- looking for them */

/* How many there are, as far as ranks of this host could need them. */
static void count(struct check_run *r, const char *kind, struct check_devices *d)
{
    const uint32_t most = r->subject->local_size > MOST_RANKS ? r->subject->local_size : MOST_RANKS;
    const struct tn_device_api *api = check_find_device(r, kind, d->why, sizeof d->why);
    struct tn_device *one;
    uint32_t score = 0;

    if (!api)
        return;
    snprintf(d->path, sizeof d->path, "%s", tn_plugin_owner(api)->path);
    d->captures = tn_plugin_table(tn_plugin_owner(api), TN_DEVICE_CAPTURE_ID) != NULL && api->native;
    if (!api->native)
        snprintf(d->why, sizeof d->why, "the device %s shows no streams (tn_device_api.native)", kind);
    else if (api->probe(&score, d->why, 256) < 0 || !score)
        snprintf(d->why, sizeof d->why, "%s", *d->why ? d->why : check_said());
    else
        for (*d->why = 0; d->n < most; d->n++, api->close(one))
            if (api->open(d->n, &one) < 0) {
                snprintf(d->why, sizeof d->why, "%s", check_said());
                break;
            }
}

void check_comm_devices(struct check_run *r, struct check_claims *out)
{
    const struct tn_comm_api *c = check_table(r, TN_COMM_ID);
    pid_t pid;

    for (const char *const *kind = c->devices; *kind && !out->devices.n; kind++) {
        if (!strcmp(*kind, "cpu"))
            continue;
        out->devices = (struct check_devices){.n = 0};
        snprintf(out->devices.kind, sizeof out->devices.kind, "%s", *kind);
        if (!(pid = fork())) {                   /* out is shared memory */
            count(r, *kind, &out->devices);
            _exit(0);
        }
        while (pid > 0 && waitpid(pid, &(int){0}, 0) < 0)
            ;
    }
    check_comm_device(&out->devices);
}
