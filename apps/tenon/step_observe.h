/* step_observe.h - one parameter through an update: tenon step --observe. */
#ifndef TENON_STEP_OBSERVE_H
#define TENON_STEP_OBSERVE_H
#include "base/arena.h"
#include "train/session.h"

struct observe;

/* Lives in the arena; borrows session and name. TN_ERR_CONFIG: the model has no such parameter. All ranks together, as are
 * the others. */
tn_status observe_new(struct tn_session *s, const char *name, struct tn_arena *arena, struct observe **out);
/* tn_session_update, watched. */
tn_status observe_update(struct observe *o, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                         struct tn_session_result *out);
/* Once the gradients of the update are not needed any more: clears them, and rank 0 prints what was seen. */
tn_status observe_end(struct observe *o, uint64_t step, const int32_t *tokens);
#endif
