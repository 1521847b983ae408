/* interface.c - one const table of all interfaces, and the rules of struct_size: see interface.h. */
#include "plugin/interface.h"

#include <tenon/bootstrap.h>
#include <tenon/comm.h>
#include <tenon/device.h>
#include <tenon/kernels.h>
#include <tenon/optimizer.h>
#include <tenon/pass.h>

/* clang-format off */
#define MEMBER(STRUCT, NAME) {#NAME, offsetof(struct STRUCT, NAME), 0}
#define END {NULL, 0, 0}
/* clang-format on */

static const struct tn_member device_members[] = {
    MEMBER(tn_device_api, kind),
    MEMBER(tn_device_api, probe),
    MEMBER(tn_device_api, open),
    MEMBER(tn_device_api, close),
    MEMBER(tn_device_api, info),
    MEMBER(tn_device_api, alloc),
    MEMBER(tn_device_api, free),
    MEMBER(tn_device_api, queue),
    MEMBER(tn_device_api, queue_close),
    MEMBER(tn_device_api, copy),
    MEMBER(tn_device_api, fill),
    MEMBER(tn_device_api, event),
    MEMBER(tn_device_api, event_close),
    MEMBER(tn_device_api, record),
    MEMBER(tn_device_api, wait),
    MEMBER(tn_device_api, sync),
    END,
};
static const struct tn_member kernels_members[] = {
    MEMBER(tn_kernels, device),
    MEMBER(tn_kernels, ops),
    MEMBER(tn_kernels, probe),
    MEMBER(tn_kernels, prepare),
    END,
};
static const struct tn_member comm_members[] = {
    MEMBER(tn_comm_api, devices), MEMBER(tn_comm_api, probe), MEMBER(tn_comm_api, open),
    MEMBER(tn_comm_api, group),   MEMBER(tn_comm_api, start), MEMBER(tn_comm_api, wait),
    MEMBER(tn_comm_api, abort),   MEMBER(tn_comm_api, close), END,
};
static const struct tn_member capture_members[] = {
    MEMBER(tn_device_capture, kind),   MEMBER(tn_device_capture, begin), MEMBER(tn_device_capture, end),
    MEMBER(tn_device_capture, replay), MEMBER(tn_device_capture, close), END,
};
static const struct tn_member no_members[] = {END};
static const struct tn_member optimizer_one_of[] = {
    MEMBER(tn_optimizer, update),
    MEMBER(tn_optimizer, choose),
    MEMBER(tn_optimizer, build),
    END,
};
static const struct tn_member pass_members[] = {MEMBER(tn_pass, forward), END};
static const struct tn_member bootstrap_members[] = {MEMBER(tn_bootstrap, probe),
                                                     MEMBER(tn_bootstrap, locate), END};

const struct tn_interface_type tn_interface_types[] = {
    {.id = TN_DEVICE_ID,
     .what = "a device",
     .size = sizeof(struct tn_device_api),
     .probe = offsetof(struct tn_device_api, probe),
     .kind = offsetof(struct tn_device_api, kind),
     .mandatory = device_members},
    {.id = TN_DEVICE_CAPTURE_ID,
     .what = "recording of steps",
     .size = sizeof(struct tn_device_capture),
     .kind = offsetof(struct tn_device_capture, kind),
     .mandatory = capture_members},
    {.id = TN_KERNELS_ID,
     .what = "kernels",
     .size = sizeof(struct tn_kernels),
     .probe = offsetof(struct tn_kernels, probe),
     .kind = offsetof(struct tn_kernels, device),
     .mandatory = kernels_members},
    {.id = TN_COMM_ID,
     .what = "a communicator",
     .size = sizeof(struct tn_comm_api),
     .probe = offsetof(struct tn_comm_api, probe),
     .kinds = offsetof(struct tn_comm_api, devices),
     .mandatory = comm_members},
    {.id = TN_OPTIMIZER_ID,
     .what = "an optimizer",
     .size = sizeof(struct tn_optimizer),
     .mandatory = no_members,
     .one_of = optimizer_one_of},
    {.id = TN_PASS_ID, .what = "a pass", .size = sizeof(struct tn_pass), .mandatory = pass_members},
    {.id = TN_BOOTSTRAP_ID,
     .what = "a bootstrap",
     .size = sizeof(struct tn_bootstrap),
     .probe = offsetof(struct tn_bootstrap, probe),
     .mandatory = bootstrap_members},
    {.id = NULL},
};

const struct tn_interface_type *tn_interface_type(const char *id)
{
    for (const struct tn_interface_type *t = tn_interface_types; t->id; t++)
        if (!strcmp(t->id, id))
            return t;
    return NULL;
}

tn_status tn_struct_take(const char *what, const void *theirs, uint32_t size, void *ours, char *why)
{
    const unsigned char *from = theirs;
    uint32_t have;

    memset(ours, 0, size);
    if (!theirs) {
        snprintf(why, TN_WHY_SIZE, "%s is NULL", what);
        return TN_ERR_INPUT;
    }
    memcpy(&have, theirs, sizeof have);
    if (have < 8 || have > TN_MAX_STRUCT) {
        snprintf(why, TN_WHY_SIZE, "the struct_size of %s is %u, which is no size (8 to %u)", what, have,
                 TN_MAX_STRUCT);
        return TN_ERR_INPUT;
    }
    for (uint32_t i = size; i < have; i++)
        if (from[i]) {
            snprintf(why, TN_WHY_SIZE,
                     "%s says something at byte %u that this host does not know (it knows %u bytes); "
                     "it needs a newer host",
                     what, i, size);
            return TN_ERR_INPUT;
        }
    memcpy(ours, theirs, have < size ? have : size);
    memcpy(ours, &size, sizeof size); /* TN_HAS on our copy is true for all we know */
    return TN_OK;
}

static int is_set(const void *table, uint32_t offset)
{
    void *member;

    memcpy(&member, (const char *)table + offset, sizeof member);
    return member != NULL;
}

tn_status tn_interface_take(const struct tn_interface_type *type, const void *theirs, void *ours, char *why)
{
    tn_status s = tn_struct_take(type->id, theirs, type->size, ours, why);
    int any = 0;

    if (s < 0)
        return s;
    for (const struct tn_member *m = type->mandatory; m->name; m++)
        if (!is_set(ours, m->offset)) {
            snprintf(why, TN_WHY_SIZE, "%s lacks the mandatory %s", type->id, m->name);
            return TN_ERR_INPUT;
        }
    for (const struct tn_member *m = type->one_of; m && m->name; m++)
        any |= is_set(ours, m->offset);
    if (type->one_of && !any) {
        int k = snprintf(why, TN_WHY_SIZE, "%s has none of", type->id);
        for (const struct tn_member *m = type->one_of; m->name; m++)
            k += snprintf(why + k, TN_WHY_SIZE - (size_t)k, "%s %s", m == type->one_of ? "" : ",", m->name);
        return TN_ERR_INPUT;
    }
    return TN_OK;
}

void tn_interface_kinds(const struct tn_interface_type *type, const void *table, char *out, size_t room)
{
    const char *const *list = NULL;
    const char *one = NULL;
    size_t k = 0;

    *out = 0;
    if (type->kind)
        memcpy(&one, (const char *)table + type->kind, sizeof one);
    if (type->kinds)
        memcpy(&list, (const char *)table + type->kinds, sizeof list);
    if (one)
        snprintf(out, room, "%s", one);
    for (; list && *list && k < room; list++)
        k += (size_t)snprintf(out + k, room - k, "%s%s", k ? ", " : "", *list);
}
