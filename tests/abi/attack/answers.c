/* answers.c - a device, its kernels and a communicator that answer what cannot be: -DATTACK=n. */
#include <stdlib.h>
#include <tenon/comm.h>
#include <tenon/kernels.h>
#include <tenon/kit_device.h>

#define IS(n) (ATTACK == (n))

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 100;
    snprintf(why, why_size, "always");
    return TN_OK;
}

/* --- the device */

static tn_status attack_open(uint32_t local_rank, struct tn_device **out)
{
    *out = NULL;
    return IS(1) ? 3 : IS(2) ? TN_OK : tn_kit_device_open(local_rank, out);
}

static tn_status attack_info(struct tn_device *d, struct tn_device_info *out)
{
    tn_status s = tn_kit_device_info(d, out);

    if (IS(3))
        memset(out->name, 'A', sizeof out->name), out->host_access = 0x41414141;
    if (IS(4))
        snprintf(out->name, sizeof out->name, "a \033[31mred\nchip");
    return IS(5) ? 5 : s;
}

static tn_status attack_alloc(struct tn_device *d, uint64_t bytes, void **out)
{
    static int calls;

    calls++;
    *out = NULL;
    return IS(6) ? TN_OK : IS(7) && calls == 2 ? TN_ERR_MEMORY : tn_kit_device_alloc(d, bytes, out);
}

static tn_status attack_sync(struct tn_queue *q, double seconds)
{
    static int calls;

    (void)q, (void)seconds;
    return IS(8) && ++calls == 3 ? TN_ERR_IO : IS(9) ? 1 : TN_OK;
}

static const struct tn_device_api device = {
    .struct_size = sizeof device, .kind = "cpu", .probe = probe, .open = attack_open, .close = tn_kit_device_close,
    .info = attack_info, .alloc = attack_alloc, .free = tn_kit_device_free, .queue = tn_kit_device_queue,
    .queue_close = tn_kit_device_queue_close, .copy = tn_kit_device_copy, .fill = tn_kit_device_fill,
    .event = tn_kit_device_event, .event_close = tn_kit_device_event_close, .record = tn_kit_device_record,
    .wait = tn_kit_device_wait, .sync = attack_sync};

/* --- the kernels */

static tn_status launch(void *state, const struct tn_launch *l)
{
    (void)state, (void)l;
    if (IS(14))
        exit(0);
    return IS(12) ? 1 : TN_ERR;
}

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    (void)p;
    if (ATTACK < 10 || ATTACK > 15)
        return TN_DECLINED;
    out->launch = IS(15) ? (tn_status(*)(void *, const struct tn_launch *))8 : launch;
    out->workspace = IS(11) ? UINT64_MAX : 0;
    return IS(10) ? 7 : TN_OK;
}
static const char *const ops[] = {"expr", NULL};
static const struct tn_kernels kernels = {
    .struct_size = sizeof kernels, .device = "cpu", .ops = ops, .probe = probe, .prepare = prepare};

TN_PLUGIN2("answers", "1", "an attack", TN_DEVICE_ID, &device, TN_KERNELS_ID, &kernels);
