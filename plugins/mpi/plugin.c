/* plugin.c - the communicator mpi: the streams of ../streams, over MPI where memory is not shared. */
#include "library.h"
#include "streams/streams.h"

static tn_status start(void)
{
    return TN_OK;
}

TN_PLUGIN_("mpi", "1.0", "shared memory within a host, MPI between hosts", TN_COMM_ID, start, tn_mpi_end,
           {TN_COMM_ID, &tn_streams_comm});
