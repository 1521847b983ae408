/* plugin.c - the communicator gloo: the streams of ../streams, over Gloo's TCP where memory is not shared. */
#include "streams/streams.h"

TN_PLUGIN("gloo", "1.0", "shared memory within a host, Gloo's TCP between hosts", TN_COMM_ID,
          &tn_streams_comm);
