/* stage.h - blocks of host memory for what a communicator cannot take from the device itself.
 *
 * A block is taken when a transfer begins and given back when it has ended; the next one of its size takes it again. A
 * run goes through its steps in thought when it is opened (tn_run_join), so that a step allocates nothing, and there
 * is as much as is under way at once. Page-locked where the device has such memory. Executor's thread. */
#ifndef TN_RUN_STAGE_H
#define TN_RUN_STAGE_H
#include <tenon/device.h>

struct tn_stage;

/* Borrows both. */
struct tn_stage *tn_stage_new(const struct tn_device_api *api, struct tn_device *device);
void tn_stage_free(struct tn_stage *s);          /* takes, with all blocks; NULL is fine */
/* bytes > 0; rounded up to what other sizes share. */
tn_status tn_stage_take(struct tn_stage *s, uint64_t bytes, void **out);
void tn_stage_give(struct tn_stage *s, void *block);     /* NULL: nothing */
uint64_t tn_stage_bytes(const struct tn_stage *s);       /* all that was ever needed at once */
#endif
