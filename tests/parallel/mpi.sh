#!/bin/bash
# mpi.sh - the communicator mpi under mpirun: shared steps come out as float64 autograd says, and a rank that dies,
# stops, or is not of this job is named. With TENON_SHM=no every byte goes through MPI, else only what leaves the host.
. "$(dirname "$0")/../support/lib.sh"
golden=$top_srcdir/tests/golden
world=$top_builddir/tests/parallel/world
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0    # Open MPI leaves much behind, in libraries that it has closed
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT TENON_DIR TENON_IFACE TORCHELASTIC_RUN_ID
unset SLURM_PROCID SLURM_STEP_NUM_TASKS PMIX_NAMESPACE PMIX_RANK TENON_LOG TENON_SHM
mpi=(mpirun --allow-run-as-root --oversubscribe --bind-to none)

# passes N CASE ARGUMENT...
passes()
{
    local n=$1 case=$2

    shift 2
    case_ "$case on $n: ${TENON_SHM:+all through MPI, }$*"
    rm -f out.safetensors
    run "${mpi[@]}" -np "$n" "$TENON" step --case "$golden/$case.safetensors" --out out.safetensors \
        backend.threads=1 backend.comm=mpi "$@"
    expect_rc 0
    expect_err "mpi: .*; rank 0 of $n is its number 0 of $n"
    run "$top_builddir/tests/golden/compare" "$golden/$case.safetensors" out.safetensors
    expect_rc 0
}

passes 2 bias train.micro_batch=1
passes 3 odd train.micro_batch=1 parallel.zero=1
passes 2 bias parallel.tp=2 parallel.sp=yes
passes 4 bias parallel.tp=2 train.micro_batch=1 parallel.zero=3
export TENON_SHM=no
passes 2 sgd train.micro_batch=2
passes 3 odd train.micro_batch=1 parallel.zero=3
passes 2 bias train.micro_batch=1 parallel.zero=2
passes 2 sgd train.micro_batch=1 parallel.zero=1
passes 3 odd parallel.tp=3 parallel.sp=yes
passes 2 nobias parallel.cp=2
unset TENON_SHM

for shm in yes no; do
    export TENON_SHM=$shm
    set_=(backend.comm=mpi backend.timeout=2)
    case_ "all is well, shared memory: $shm"
    run "${mpi[@]}" -np 3 "$world" "${set_[@]}"
    expect_rc 0
    for r in 0 1 2; do expect_out "rank $r of 3: done, dp 3 tp 1, sum 6"; done
    expect_not_err 'finalize'

    case_ "a rank that dies, shared memory: $shm"
    began=$SECONDS
    run "${mpi[@]}" -np 3 -x WORLD_DO="kill 2" "$world" "${set_[@]}" backend.timeout=20
    expect [ "$rc" != 0 ]
    expect [ $((SECONDS - began)) -lt 8 ]
    # mpirun ends the others when the first of them has ended, so not all may have come to say it
    expect_err 'rank 2 of 3 \(host .*\) died.*; rank [01] was in sum \(number [23]\), phase step'

    case_ "a rank that is stopped, shared memory: $shm"
    run "${mpi[@]}" -np 3 -x WORLD_DO="stop 1" "$world" "${set_[@]}"
    expect [ "$rc" != 0 ]
    expect_err 'rank 1 of 3 .* does not answer.*; rank [02] was in sum \(number [23]\)'
done
unset TENON_SHM

case_ "a rank that gives up says why, and does not wait in MPI_Finalize"
began=$SECONDS
run "${mpi[@]}" -np 2 -x WORLD_DO="abandon 1" "$world" backend.comm=mpi backend.timeout=20
expect [ "$rc" != 0 ]
expect_err 'the disk is full'
expect [ $((SECONDS - began)) -lt 8 ]

case_ "without mpirun"
run "$TENON" step --case "$golden/bias.safetensors" --out none.safetensors backend.comm=mpi
expect_rc 2
expect_err 'backend\.comm = mpi: .*neither mpirun nor srun --mpi=pmix started this process'
expect_no_file none.safetensors

case_ "two jobs are not one"
port=$((21000 + $$ % 8000))
for r in 0 1; do
    "${mpi[@]}" -np 1 -x RANK=$r -x WORLD_SIZE=2 -x MASTER_ADDR=127.0.0.1 -x MASTER_PORT=$port \
        timeout -k 1 -s KILL 40 "$world" backend.comm=mpi backend.timeout=10 </dev/null >"out.$r" 2>"err.$r" && : >"good.$r" &
done
wait
err=$(cat err.0 err.1)
expect_no_file good.0
expect_no_file good.1
expect_err 'mpi: rank [01] of 2 is number 0 of 1 for MPI; all ranks must be started by one mpirun or srun'

case_ "chosen by name only, where gloo can do it too"
run "${mpi[@]}" -np 1 "$TENON" plugins --explain
expect_out '^ +mpi +10 .*MPI between hosts; started by mpirun'
