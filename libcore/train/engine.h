/* engine.h - the backends that a configuration names, found, loaded and opened.
 *
 * Every one of them is a plugin behind the public ABI. What the user named is loaded or is an error; what was left
 * open is chosen by score. All choices are made before threads start, since choosing asks plugins in forked children. */
#ifndef TENON_TRAIN_ENGINE_H
#define TENON_TRAIN_ENGINE_H
#include <tenon/device.h>
#include <tenon/optimizer.h>
#include "base/config.h"
#include "pass/pass.h"
#include "plan/plan.h"
#include "plugin/registry.h"
#include "world/world.h"

struct tn_engine {
    struct tn_registry *registry;
    struct tn_world *world;                      /* all ranks; NULL until it was found */
    const struct tn_device_api *device_api;
    struct tn_device *device;                    /* NULL until opened */
    struct tn_device_info info;
    struct tn_plan_kernels kernels[TN_MAX_KERNELS];
    uint32_t n_kernels;
    /* the optimizer, as finish wants it */
    double option_value[TN_FINISH_OPTIONS];
    struct tn_finish finish;
    struct tn_pass_entry pass[TN_AXES + 16];
    uint32_t n_pass;
    char kernel_names[128], device_text[96];
};

/* Finds and loads; adds the plugins' options to the configuration and checks all of it: every problem in one error.
 * Then meets the other ranks and compares with them, so that no rank goes on where one cannot, and starts the pool of
 * threads. place: which rank this is, NULL to ask a bootstrap plugin. On failure out is empty. */
tn_status tn_engine_find(struct tn_config *c, const struct tn_place *place, struct tn_engine *out);
/* After the plans were made, before anything is opened, with their status. Kernels for numbers that the device does not have cannot be
 * found, so where that is why, the error is one of backend.dtype; asks the device only if the plans have failed. */
tn_status tn_engine_planned(const struct tn_engine *e, const struct tn_config *c, tn_status planned);
/* Opens device and communicator. */
tn_status tn_engine_open(struct tn_engine *e, const struct tn_config *c);
void tn_engine_close(struct tn_engine *e);
/* For tn_pipeline.claims: does one of the kernel plugins list this operation? ctx: the engine. */
int tn_engine_claims(void *ctx, const char *op);
#endif
