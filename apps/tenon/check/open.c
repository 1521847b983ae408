/* open.c - what a test loads, in its child: the plugin, ref, a device. */
#include "base/status.h"
#include "bench.h"
#include "suite.h"
#include "plugin/registry.h"

const struct tn_loaded *check_open(struct check_run *r)
{
    const struct tn_loaded *p = NULL;

    if (tn_plugin_open(r->subject->path, &p) < 0)
        check_fail(r, "%s", tn_error_text());
    return p;
}

const void *check_table(struct check_run *r, const char *id)
{
    const void *t = tn_plugin_table(check_open(r), id);

    if (!t)
        check_fail(r, "it has no %s", id);
    return t;
}

const void *check_ref(struct check_run *r, const char *id)
{
    const struct tn_loaded *p = NULL;

    if (!*r->subject->ref)
        check_skip(r, "the plugin ref, which it is compared with, was not found");
    if (tn_plugin_open(r->subject->ref, &p) < 0)
        check_fail(r, "ref: %s", tn_error_text());
    return tn_plugin_table(p, id);
}

const struct tn_device_api *check_find_device(struct check_run *r, const char *kind, char *why, size_t room)
{
    const struct tn_device_api *d = tn_plugin_table(check_open(r), TN_DEVICE_ID);
    struct tn_registry *all = NULL;

    if (d && !strcmp(d->kind, kind))
        return d;
    if (!strcmp(kind, "cpu"))
        return check_ref(r, TN_DEVICE_ID);
    d = NULL;
    if (tn_registry_open(r->subject->plugins_path, &all) < 0 || tn_registry_device(all, "its memory", kind, &d) < 0)
        snprintf(why, room, "no plugin is the device %s: %s", kind, check_said());
    tn_registry_close(all);
    return d;
}

static struct tn_bench_device open_device(struct check_run *r, const char *kind)
{
    struct tn_device_info info = {.struct_size = sizeof info};
    uint32_t score = 0;
    char why[TN_WHY_SIZE] = "";
    const struct tn_device_api *api = check_find_device(r, kind, why, sizeof why);
    struct tn_bench_device out = {.api = api, .seconds = 30};

    if (!api)
        check_skip(r, "%s", why);
    if (api->probe(&score, why, sizeof why) < 0 || !score)
        check_skip(r, "there is no device %s here: %s", kind, *why ? why : check_said());
    if (api->open(0, &out.device) < 0)
        check_fail(r, "the device does not open: %s", check_said());
    if (api->queue(out.device, &out.queue) < 0)
        check_fail(r, "the device has no queue: %s", check_said());
    if (api->info(out.device, &info) < 0)
        check_fail(r, "the device has no info: %s", check_said());
    out.dtypes = info.dtypes;
    out.capture = tn_plugin_table(tn_plugin_owner(api), TN_DEVICE_CAPTURE_ID);
    return out;
}

int check_device(struct check_run *r, const char *kind, struct tn_bench_device *out)
{
    static struct tn_bench_device opened;        /* a process asks for one kind only */

    if (!opened.api)
        opened = open_device(r, kind);
    *out = opened;
    return strcmp(kind, "cpu") != 0;
}
