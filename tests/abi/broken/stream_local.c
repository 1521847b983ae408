/* stream_local.c - the communicator of threads, whose types stream.c does not see. */
#include <tenon/comm.h>
#undef TN_PLUGIN
#define TN_PLUGIN(NAME, VERSION, ABOUT, ID, TABLE) const struct tn_comm_api *const stream_local = TABLE
#include "plugins/local/plugin.c"
