/* library.h - MPI itself: begun once in a process, ended once. */
#ifndef TN_MPI_LIBRARY_H
#define TN_MPI_LIBRARY_H
#include <mpi.h>
#include <tenon/abi.h>

struct tn_mpi {
    MPI_Comm comm; /* ours alone */
    int32_t rank, size;
    char version[64];
};

/* Who started this process, if it is a launcher that MPI knows; else NULL. */
const char *tn_mpi_launcher(void);
/* Begins MPI if it has not been. Names no rank when the time is over, since MPI does not know it. */
tn_status tn_mpi_begin(double seconds, const struct tn_mpi **out);
void tn_mpi_end(void); /* unless a world has failed */
#endif
