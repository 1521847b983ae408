#!/bin/bash
# slurm.sh - srun on a Slurm of two nodes that this test starts on this host: with Slurm's own variables, and with PMIx.
# Needs root and slurmctld, slurmd, srun, munged (Debian: slurmctld slurmd slurm-client munge).

# In mounts of its own the nodes' names have an address, that of this host.
if [ -z "${SLURM_TEST_INSIDE-}" ] && [ "$(id -u)" = 0 ] && type -P unshare >/dev/null && unshare --mount true 2>/dev/null; then
    SLURM_TEST_INSIDE=$(hostname -I | cut -d' ' -f1) exec unshare --mount bash "$0" "$@"
fi

. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
. "$top_srcdir/tests/support/ranks.sh"
export LSAN_OPTIONS=suppressions=$top_srcdir/tests/support/lsan.supp:print_suppressions=0
[ "$(id -u)" = 0 ] || skip "a Slurm of its own needs root"
[ -n "${SLURM_TEST_INSIDE-}" ] || skip "no mounts of its own, or no address but loopback"
for program in slurmctld slurmd srun sinfo munged; do type -P $program >/dev/null || skip "there is no $program"; done
[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] || skip "the plugin gloo is not built"

{ cat /etc/hosts; echo "$SLURM_TEST_INSIDE n1 n2"; } >hosts
mount --bind hosts /etc/hosts || skip "/etc/hosts cannot be another one here"
slurm=$PWD/slurm
down()
{
    local signal file

    for signal in TERM KILL; do
        for file in "$slurm"/*.pid; do [ -s "$file" ] && kill -$signal "$(cat "$file")" 2>/dev/null; done
        sleep 0.5
    done
}

# Everything of it is below $slurm, ports are this process's.
up()
{
    local host port=$((17000 + $$ % 5000 * 3)) node

    host=$(hostname)
    mkdir -p "$slurm"/{state,run,spool.n1,spool.n2,tmp.n1,tmp.n2}
    chmod 755 "$slurm" "$test_folder" "$PWD"
    (umask 077; head -c 1024 /dev/urandom >"$slurm/key")
    cat >"$slurm/slurm.conf" <<END
ClusterName=t
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm/run/munge.sock
SlurmctldPort=$port
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool.%n
TmpFS=$slurm/tmp.%n
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.%n.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
KillWait=2
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=4 State=UNKNOWN
PartitionName=p Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
END
    export SLURM_CONF=$slurm/slurm.conf
    munged --force --key-file="$slurm/key" --socket="$slurm/run/munge.sock" --pid-file="$slurm/munged.pid" \
        --log-file="$slurm/munged.log" --seed-file="$slurm/seed" --num-threads=2 || return
    slurmctld -c || return
    for node in n1 n2; do slurmd -c -N $node || return; done
    for ((i = 0; i < 200; i++)); do
        [ "$(sinfo -h -o %T 2>/dev/null | sort -u)" = idle ] && return
        sleep 0.1
    done
    return 1
}

trap 'down; umount /etc/hosts; finish' EXIT
up >up.log 2>&1 || { tail -n 5 up.log "$slurm"/*.log; skip "no Slurm can be started here"; }
make_tiny
train=("$TENON" train tiny.ini backend.threads=1 backend.comm=gloo train.micro_batch=2 train.steps=6 backend.timeout=30)

case_ "srun, Slurm's own variables: four ranks on two nodes"
run srun -N 2 -n 4 --ntasks-per-node=2 "${train[@]}" checkpoint.dir=plain parallel.zero=3
expect_rc 0
expect_out '^gpt2: .* on 4 ranks \(dp 4\)'
expect_out '^saved plain/step-00000006'
expect_err 'rank 3 of 4: host'
run srun -N 2 -n 3 "$TENON" train tiny.ini backend.threads=1 backend.comm=gloo train.global_batch=9 train.micro_batch=3 train.steps=6 checkpoint.dir=three
expect_rc 0
expect_out 'on 3 ranks \(dp 3\)'

case_ "the run goes on, with another number of ranks and PMIx"
if srun --mpi=list 2>&1 | grep -q pmix && [ -e "$top_builddir/plugins/pmix/.libs/pmix.so" ]; then
    run srun --mpi=pmix -N 2 -n 2 "${train[@]}" checkpoint.dir=plain train.micro_batch=4 train.steps=9 backend.bootstrap=pmix
    expect_rc 0
    expect_out 'going on from plain/step-00000006'
    expect_out 'on 2 ranks \(dp 2\)'
else
    echo "without PMIx: $(srun --mpi=list 2>&1 | tr '\n' ' ')"
fi

case_ "the communicator mpi: shared memory, and all through MPI"
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0    # Open MPI leaves much behind, in libraries that it has closed
if srun --mpi=list 2>&1 | grep -q pmix && [ -e "$top_builddir/plugins/pmix/.libs/pmix.so" ] && [ -e "$top_builddir/plugins/mpi/.libs/mpi.so" ]; then
    # One rank a node: Open MPI itself crashes where two nodes with several ranks are one host (names of its files).
    run srun --mpi=pmix -N 2 -n 2 "${train[@]}" train.micro_batch=4 checkpoint.dir=mpi parallel.zero=3 backend.comm=mpi
    expect_rc 0
    expect_err 'mpi: .*; rank 0 of 2 is its number 0 of 2'
    TENON_SHM=no run srun --mpi=pmix -N 2 -n 2 "${train[@]}" checkpoint.dir=mpi train.micro_batch=4 train.steps=9 backend.comm=mpi
    expect_rc 0
    expect_out 'going on from mpi/step-00000006'
    expect_err 'reaches rank [01] on its own host by MPI only: TENON_SHM=no'
    expect cmp <(losses mpi | wc -l) <(echo 9)
else
    echo "without PMIx or mpi"
fi

case_ "a rank that dies ends the step"
run srun -N 2 -n 2 --ntasks-per-node=1 bash -c '
    "$@" & pid=$!
    if [ "$SLURM_PROCID" = 1 ]; then for ((i = 0; i < 300; i++)); do [ -e killed/step-00000005/state.json ] && break; sleep 0.1; done; kill -KILL $pid; fi
    wait $pid' _ "$TENON" train tiny.ini backend.threads=1 backend.comm=gloo train.micro_batch=4 train.steps=100000 checkpoint.interval=5 \
    checkpoint.dir=killed schedule.steps=1000
expect [ "$rc" != 0 ]
expect_err 'rank 1 of 2 \(host .*, process [0-9]+\) died.*; rank 0 was in .*phase (step|save)'

case_ "the curve is that of one process"
run "$TENON" train tiny.ini backend.threads=1 checkpoint.dir=alone train.steps=9
expect_rc 0
for run in plain mpi; do
    [ -d $run ] || continue
    paste <(losses alone) <(losses $run) | head -n "$(losses $run | wc -l)" >curves
    expect awk '{ d = $2 - $4; if (d < 0) d = -d; if (NF != 4 || $1 != $3 || d > 1e-5 * $2) bad = 1 } END { exit bad || NR < 6 }' curves
done
