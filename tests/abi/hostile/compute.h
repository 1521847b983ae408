/* compute.h - kernels and a device that do nothing, for choices by kind of device and by score. */
#ifndef COMPUTE_H
#define COMPUTE_H
#include "hostile.h"

#include <tenon/device.h>
#include <tenon/kernels.h>

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    (void)p;
    (void)out;
    return TN_DECLINED;
}

static const char *const ops[] = {"copy", NULL};

#define KERNELS(DEVICE) \
    static const struct tn_kernels kernels = { \
        .struct_size = sizeof kernels, .device = DEVICE, .ops = ops, .probe = probe, .prepare = prepare};

/* Its functions are there, and are never called. */
#define IDLE ((void *)prepare)
#define DEVICE(KIND) \
    static const struct tn_device_api device = { \
        .struct_size = sizeof device, .kind = KIND, .probe = probe, .open = IDLE, .close = IDLE, .info = IDLE, \
        .alloc = IDLE, .free = IDLE, .queue = IDLE, .queue_close = IDLE, .copy = IDLE, .fill = IDLE, .event = IDLE, \
        .event_close = IDLE, .record = IDLE, .wait = IDLE, .sync = IDLE};
#endif
