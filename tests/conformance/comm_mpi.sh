#!/bin/bash
# comm_mpi.sh - the communicator mpi against the list that all have to pass, under mpirun: within shared memory on 1 to 4
# ranks, and with every byte through MPI; ranks that do not agree, die, stop, come late or never; and without mpirun.
. "$(dirname "$0")/../support/lib.sh"
RUN_SECONDS=280
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0    # Open MPI leaves much behind, in libraries that it has closed

case_ "values and failures"
run "$top_builddir/tests/conformance/test_comm" mpi
expect_rc 0
expect_out 'ok mpi TENON_SHM=no, 3 ranks'
