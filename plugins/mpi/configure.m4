# Any MPI of level 3 whose library says where it is; Open MPI is the one that is tried.
TN_PLUGIN_SWITCH([mpi], [communicator, shared memory within a host, MPI between hosts],
[PKG_CHECK_MODULES([MPI], [ompi-c], [tn_found="Open MPI `$PKG_CONFIG --modversion ompi-c`"],
    [PKG_CHECK_MODULES([MPI], [mpi-c], [tn_found="MPI `$PKG_CONFIG --modversion mpi-c`"],
        [tn_missing="there is no ompi-c.pc and no mpi-c.pc (on Debian: apt-get install libopenmpi-dev)"])])])
