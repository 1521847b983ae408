/* memory.h - the tensors that outlive a step, and the arena that all runs share.
 *
 * Parameters and optimizer states have names; the first plan that is bound gets all of its in one allocation,
 * later plans (evaluation, sampling) find theirs by name and must hold the same part of each. The arena and the
 * workspace of a plan lie in one block: reserve room for the largest plan before the first run is opened, and all
 * runs share it; a run that needs more than was reserved gets a larger one of its own. Nothing is allocated or
 * freed after the first step. Main thread. */
#ifndef TN_RUN_MEMORY_H
#define TN_RUN_MEMORY_H
#include <tenon/device.h>
#include "plan/plan.h"

struct tn_memory;

/* Opens a queue on the device, which it borrows. */
tn_status tn_memory_new(const struct tn_device_api *api, struct tn_device *device, struct tn_memory **out);
/* Takes; NULL is fine. Runs must have been closed. */
void tn_memory_free(struct tn_memory *m);

/* At least this plan's arena from now on. */
void tn_memory_reserve(struct tn_memory *m, const struct tn_plan *plan);

/* The local part of a parameter or state of that name, row-major, without gaps. They return when it is done. */
tn_status tn_memory_read(struct tn_memory *m, const char *name, void *host, uint64_t bytes);
tn_status tn_memory_write(struct tn_memory *m, const char *name, const void *host, uint64_t bytes);
/* Of it, the bytes from `at` on. */
tn_status tn_memory_read_part(struct tn_memory *m, const char *name, uint64_t at, void *host, uint64_t bytes);
tn_status tn_memory_write_part(struct tn_memory *m, const char *name, uint64_t at, const void *host, uint64_t bytes);
/* Where it lies, of a device whose memory the host sees; NULL if there is none of that name. */
void *tn_memory_at(const struct tn_memory *m, const char *name);
/* The k-th name, NULL beyond the last one. */
const char *tn_memory_name(const struct tn_memory *m, uint32_t k, uint64_t *bytes);
uint64_t tn_memory_bytes(const struct tn_memory *m);     /* all that was allocated through it */

/* --- for runs */

/* Where the plan's persistent storages are; ptr[s] of others is left alone. */
tn_status tn_memory_bind(struct tn_memory *m, const struct tn_plan *plan, void **ptr);
/* The arena with the workspace behind it. */
tn_status tn_memory_arena(struct tn_memory *m, uint64_t bytes, void **out);
/* A block for one run; freed with the memory. */
tn_status tn_memory_block(struct tn_memory *m, uint64_t bytes, void **out);
struct tn_queue *tn_memory_queue(const struct tn_memory *m);
const struct tn_device_api *tn_memory_api(const struct tn_memory *m);
struct tn_device *tn_memory_device(const struct tn_memory *m);
#endif
