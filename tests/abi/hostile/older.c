/* older - a table that ends before publish; what follows it in memory is none of ours */
#include "hostile.h"

SAY(2)
static const struct { uint32_t struct_size, reserved0; void *probe, *locate, *garbage[2]; } table = {
    offsetof(struct tn_bootstrap, publish), 0, (void *)probe, (void *)locate,
    {(void *)8, (void *)8}};
TN_PLUGIN("older", "1", "built long ago", TN_BOOTSTRAP_ID, &table);
