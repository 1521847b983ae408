#!/bin/bash
# launch.sh - real processes meet, agree, work and fail together: with torchrun's variables, through a shared directory,
# under mpirun. The communicator is stub.so, which needs nothing but the store.
. "$(dirname "$0")/../support/lib.sh"
world=$top_builddir/tests/parallel/world
export LSAN_OPTIONS=suppressions=$top_srcdir/tests/support/lsan.supp:print_suppressions=0
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT TENON_DIR TENON_IFACE TORCHELASTIC_RUN_ID
unset SLURM_PROCID SLURM_STEP_NUM_TASKS PMIX_NAMESPACE PMIX_RANK TENON_LOG
set_=("plugins.path=$top_builddir/tests/parallel/stub.so" backend.comm=stub backend.timeout=10)
port=$((20000 + $$ % 10000))

# start RANK [SIZE] VARIABLE=... -- ARGUMENT...: one rank in the background; its end is in end.RANK.
start()
{
    local rank=$1 size=$2 variables=()

    shift 2
    while [ "$1" != -- ]; do variables+=("$1"); shift; done
    shift
    (
        code=0
        began=$(date +%s%N)
        env RANK="$rank" WORLD_SIZE="$size" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port ${variables[@]+"${variables[@]}"} \
            timeout -k 1 -s KILL 40 "$world" "${set_[@]}" "$@" </dev/null >"out.$rank" 2>"err.$rank" || code=$?
        echo "$code $((($(date +%s%N) - began) / 1000000))" >"end.$rank"
    ) &
}

# all SIZE VARIABLE=... -- ARGUMENT...: all ranks; returns when all have ended.
all()
{
    local size=$1 r

    shift
    port=$((port + 20))
    rm -f out.* err.* end.*
    for ((r = 0; r < size; r++)); do start $r "$size" "$@"; done
    wait
}

code() { cut -d' ' -f1 "end.$1" 2>/dev/null; }
took() { cut -d' ' -f2 "end.$1" 2>/dev/null; }

# ended RANK CODE ERE...: its exit status, and what stands in its stderr.
ended()
{
    local rank=$1 status=$2

    shift 2
    rc=$(code "$rank") out=$(cat "out.$rank") err=$(cat "err.$rank")
    command="rank $rank"
    expect_rc "$status"
    for pattern; do expect_err "$pattern"; done
}

# once SIZE CODE ERE...: all ranks end with this status, and rank 0 alone says why.
once()
{
    local size=$1 status=$2 r

    shift 2
    ended 0 "$status" "$@"
    for ((r = 1; r < size; r++)); do ended $r "$status"; expect_err_lines 0; done
}

quicker() { [ "$(took "$1")" -lt "$2" ]; }

case_ "alone, without any launcher"
run "$world" "${set_[@]:0:1}"
expect_rc 0; expect_out 'rank 0 of 1: done'; expect_err_lines 0

case_ "two to four ranks with torchrun's variables"
for n in 2 3 4; do
    all $n --
    for ((r = 0; r < n; r++)); do
        ended $r 0
        expect_out "rank $r of $n: done, dp $n tp 1, sum $((n * (n + 1) / 2)), along the axes $((n * (n + 1) / 2)), local $r of $n, node 0 of 1, $n on"
    done
    rc=$(code 0) err=$(cat err.0) command="rank 0"
    expect_err "rank $((n - 1)) of $n: host .*, process [0-9]+, address 127\.0\.0\.1 on lo, [0-9]+ of [0-9]+ CPUs"
    expect [ ! -s err.1 ]
    expect quicker 0 5000
done

case_ "a mesh"
all 4 -- parallel.tp=2
for r in 0 1 2 3; do ended $r 0; expect_out "dp 2 tp 2, sum 10"; done
rc=$(code 3) out=$(cat out.3)
expect_out "along the axes 607"         # dp: ranks 1 and 3, tp: ranks 2 and 3
all 4 -- parallel.tp=3
once 4 2 '^tenon: .*parallel\.tp.*does not divide the 4 ranks that were started; the product must be 1, 2 or 4'
all 2 -- parallel.dp=3
once 2 2 'parallel\.dp.*the 2 ranks that were started make dp = 2'
all 4 -- parallel.ep=3
once 4 2 'parallel\.ep.*must divide dp = 4, so it can be 1, 2 or 4'

case_ "several ranks asked for, one process"
run "$world" "${set_[@]:0:1}" parallel.tp=2
expect_rc 2; expect_err 'parallel\.tp.*started alone.*mpirun, srun or torchrun'

case_ "variables that make no sense stop before anything is touched"
for bad in RANK=5 RANK=x WORLD_SIZE= MASTER_PORT=99999 MASTER_PORT= MASTER_ADDR= LOCAL_WORLD_SIZE=7; do
    run env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$bad" WORLD_TOUCH=touched "$world" "${set_[@]}" \
        backend.timeout=3
    expect_rc 2; expect_err "env: ${bad%%=*}"; expect_no_file touched
done
run env RANK=5 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TENON_DIR="$PWD" TENON_RANK=0 TENON_WORLD_SIZE=1 "$world" \
    "${set_[@]}"
expect_rc 2; expect_err 'env: RANK is 5'

case_ "ranks that differ in their configuration"
port=$((port + 20)); rm -f out.* err.* end.*
start 0 3 WORLD_TOUCH=touched -- optimizer.lr=0.1
start 1 3 WORLD_TOUCH=touched -- optimizer.lr=0.2 train.seed=7
start 2 3 WORLD_TOUCH=touched -- optimizer.lr=0.1 data.dir=/elsewhere backend.threads=1
wait
once 3 2 'the ranks differ in their configuration' 'optimizer\.lr: ranks 0, 2 have 0\.1; rank 1 has 0\.2' \
    'train\.seed: ranks 0, 2 have 1337; rank 1 has 7'
err=$(cat err.0) command="rank 0"
expect_not_err 'data\.dir|threads|died'
for r in 0 1 2; do expect quicker $r 5000; done
expect_no_file touched

case_ "ranks that differ in a plugin"
sed 's/"1.0"/"1.1"/' "$top_srcdir/tests/parallel/stub.c" >other.c
# shellcheck disable=SC2086
expect ${CC:-cc} -D_GNU_SOURCE -fPIC -shared -fvisibility=hidden -I"$top_srcdir/libcore/include" -Wl,--build-id -o other.so other.c
port=$((port + 20)); rm -f out.* err.* end.*
start 0 2 --
start 1 2 -- plugins.path="$PWD/other.so"
wait
once 2 2 'differ in their plugins' 'plugin stub: rank 0 has version 1\.0, build .*; rank 1 has version 1\.1, build'

case_ "a configuration that is wrong on one rank, on all, on all in another way"
wrong()
{
    port=$((port + 20)); rm -f out.* err.* end.*
    for r in 0 1 2; do start $r 3 -- ${1:+"$1"}; shift; done
    wait
    for r in 0 1 2; do expect quicker $r 5000; done
}
wrong "" "" optimizer.lrr=1
once 3 2 '^tenon: rank 2 of 3 \(host .*, process [0-9]+\): .*optimizer\.lrr'
wrong train.stepz=1 train.stepz=1 train.stepz=1
once 3 2 'train\.stepz.*did you mean train\.steps'
err=$(cat err.0) command="rank 0"
expect_err_lines 1
wrong backend.comm=stab backend.comm=stab optimizer.lrr=1
once 3 2 '^tenon: ranks 0, 1: .*backend\.comm.*stab' '^tenon: rank 2 of 3 .*optimizer\.lrr'

case_ "a rank that never starts"
port=$((port + 20)); rm -f out.* err.* end.*
for r in 0 1 3; do start $r 4 -- backend.timeout=2; done
wait
for r in 0 1 3; do ended $r 1 'rank 2 of 4 did not arrive within 2 s; rank 0 listens on 127\.0\.0\.1 port [0-9]+'; expect quicker $r 7000; done
port=$((port + 20)); rm -f out.* err.* end.*
start 1 2 -- backend.timeout=1
wait
ended 1 1 'rank 0 of 2 did not arrive within 1 s; last tried: 127\.0\.0\.1 port [0-9]+: Connection refused \(errno 111\)'

case_ "a rank that is late"
all 3 WORLD_DO="late 0" --
for r in 0 1 2; do ended $r 0; done
all 3 WORLD_DO="late 2" --
for r in 0 1 2; do ended $r 0; done

case_ "a rank that is killed in the rendezvous"
port=$((port + 20)); rm -f out.* err.* end.*
start 0 3 -- backend.timeout=20
env RANK=1 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$world" "${set_[@]}" backend.timeout=20 2>/dev/null & victim=$!
sleep 1
kill -KILL $victim
wait
ended 0 1 'rank 1 of 3 .*died.*rank 0 was in phase rendezvous'
expect quicker 0 4000

case_ "a rank that dies in a step"
for what in kill exit; do
    for whom in 1 0; do
        all 3 WORLD_DO="$what $whom" --
        for r in 0 1 2; do
            [ $r = $whom ] && continue
            ended $r 1 "^tenon: rank $whom of 3 \(host .*, process [0-9]+\) died" "rank $r was in sum \(number [23]\).*phase step"
            expect quicker $r 5000
        done
    done
done

case_ "a rank that is stopped"
for whom in 2 0; do
    port=$((port + 20)); rm -f out.* err.* end.*
    for r in 0 1 2; do start $r 3 WORLD_DO="stop $whom" -- backend.timeout=2; done
    for r in 0 1 2; do
        [ $r = $whom ] && continue
        for ((i = 0; i < 100; i++)); do [ -e end.$r ] && break; sleep 0.1; done
        ended $r 1 "^tenon: rank $whom of 3 \(host .*, process [0-9]+\) does not answer, it is stopped or cut off"
        expect quicker $r 7500
    done
    pid=$(sed -n "s/.*rank $whom of 3: host .*, process \([0-9]*\),.*/\1/p" err.0)
    expect [ -n "$pid" ]
    kill -KILL "$pid"
    wait
done

case_ "a rank that gives up says why"
all 3 WORLD_DO="abandon 1" --
for r in 0 2; do ended $r 1 '^tenon: rank 1 of 3 .* failed: the disk is full; rank . was in sum \(number [23]\)'; expect quicker $r 4000; done
ended 1 1 'the disk is full'
all 2 WORLD_DO="leave 1" -- backend.timeout=30
ended 0 1 'rank 1 of 2 .* left before the others: the loss is not finite'
ended 1 1 '^tenon: the loss is not finite'
all 2 WORLD_DO="leave 0" -- backend.timeout=3    # sooner than the store takes the goodbye amiss
ended 0 1 '^tenon: the loss is not finite'
ended 1 1 'rank 0 of 2 .* (left before the others|failed): the loss is not finite'

case_ "a rank that computes for ever is ended too"
all 3 WORLD_DO="busy 2" -- backend.timeout=2
for r in 0 1; do ended $r 1 'no rank is gone; furthest behind is rank 2 of 3 .* in phase step'; done
ended 2 1 'furthest behind is rank 2 of 3'
expect quicker 2 7000

case_ "a port that is taken"
port=$((port + 20))
python3 - $port >ready <<'END' &
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen(8)
print("ready", flush=True)
s.settimeout(20)
try:
    while True: s.accept()[0].send(b"220 another service\r\n")
except OSError: pass
END
taker=$!
for ((i = 0; i < 50; i++)); do [ -s ready ] && break; sleep 0.1; done
rm -f out.* err.* end.*
start 0 2 -- backend.timeout=2
start 1 2 -- backend.timeout=2
for r in 0 1; do for ((i = 0; i < 100; i++)); do [ -e end.$r ] && break; sleep 0.1; done; done
ended 0 1 "cannot listen on 127\.0\.0\.1 port $port: Address already in use \(errno 98\)"
ended 1 1 "rank 0 of 2 did not arrive within 2 s; last tried: 127\.0\.0\.1 port $port is no store of this program"
rm -f out.* err.* end.*
for r in 0 1; do start $r 2 TORCHELASTIC_RUN_ID=job TORCHELASTIC_RESTART_COUNT=2 --; done
for r in 0 1; do for ((i = 0; i < 100; i++)); do [ -e end.$r ] && break; sleep 0.1; done; done
for r in 0 1; do ended $r 0; done       # the agent's port: the next one is taken
kill $taker 2>/dev/null
wait

case_ "interfaces"
all 2 TENON_IFACE=doesnotexist --
ended 0 2 'TENON_IFACE: no interface doesnotexist .*there are: .*lo \(127\.0\.0\.1\)'
all 2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 -- backend.timeout=3
ended 1 2 'the address of rank 0 is 127\.0\.0\.1.*the ranks are on 2 hosts'

case_ "two ranks say that they are the same"
port=$((port + 20)); rm -f out.* err.* end.*
start 0 2 -- backend.timeout=3
start 1 2 -- backend.timeout=3
( sleep 0.1; env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port WORLD_DO="late 1" "$world" "${set_[@]}" >twin.out 2>twin.err; echo $? >twin ) &
wait
expect [ "$(cat twin)" != 0 ]

case_ "through a shared directory, with what an older run left there"
mkdir shared
echo '127.0.0.1 port 9 run 0123456789abcdef' >shared/tenon-0.address
for r in 2 1 0; do
    (
        env TENON_DIR="$PWD/shared" TENON_RANK=$r TENON_WORLD_SIZE=3 timeout 30 "$world" "${set_[@]}" >out.$r 2>err.$r
        echo "$? 0" >end.$r
    ) &
    sleep 0.3
done
wait
for r in 0 1 2; do ended $r 0; expect_out "rank $r of 3: done.*sum 6.*local $r of 3, node 0 of 1"; done
expect_no_file shared/tenon-0.address
run env TENON_DIR=relative TENON_RANK=0 TENON_WORLD_SIZE=2 "$world" "${set_[@]}"
expect_rc 2; expect_err 'dir: TENON_DIR is "relative"'
run env TENON_DIR="$PWD/shared" TENON_RANK=2 TENON_WORLD_SIZE=2 "$world" "${set_[@]}"
expect_rc 2; expect_err 'dir: TENON_RANK is 2, it must be from 0 to 1'
run env TENON_DIR="$PWD/shared" TENON_RANK=1 TENON_WORLD_SIZE=2 "$world" "${set_[@]}" backend.timeout=1
expect_rc 1; expect_err 'rank 0 of 2 did not arrive within 1 s'

case_ "mpirun"
if ! type -P mpirun >/dev/null || [ ! -e "$top_builddir/plugins/pmix/.libs/pmix.so" ]; then
    echo "without mpirun: $(type -P mpirun >/dev/null && echo 'plugin pmix is not built' || echo 'there is no mpirun')"
else
    mpi=(mpirun --allow-run-as-root --oversubscribe --bind-to none)
    run "${mpi[@]}" -np 3 "$world" "${set_[@]}"
    expect_rc 0
    for r in 0 1 2; do expect_out "rank $r of 3: done, dp 3 tp 1, sum 6, along the axes 6, local $r of 3, node 0 of 1"; done
    expect_err 'rank 2 of 3: host .* address 127\.0\.0\.1 on lo'
    # rank 0 is late, so the others ask for an address that nobody has given yet
    run "${mpi[@]}" -np 1 bash -c 'sleep 1; exec "$@"' _ "$world" "${set_[@]}" : -np 2 "$world" "${set_[@]}"
    expect_rc 0; expect_out 'rank 2 of 3: done'
    run "${mpi[@]}" -np 1 bash -c 'sleep 30' : -np 1 "$world" "${set_[@]}" backend.timeout=2
    expect [ "$rc" != 0 ]; expect_err 'rank 0 of 2 did not arrive within 2 s; last tried: pmix: rank 0 did not publish'
    run "${mpi[@]}" -np 1 "$world" "${set_[@]:0:1}"
    expect_rc 0; expect_out 'rank 0 of 1: done'
    run "${mpi[@]}" -np 3 -x WORLD_DO="kill 2" "$world" "${set_[@]}"
    expect [ "$rc" != 0 ]; expect_err 'rank 2 of 3 \(host .*\) died.*; rank 0 was in sum \(number [23]\), phase step'
    expect_err 'rank 2 of 3 \(host .*\) died.*; rank 1 was in sum'
    run "${mpi[@]}" -np 3 -x WORLD_DO="stop 1" "$world" "${set_[@]}" backend.timeout=2
    expect [ "$rc" != 0 ]; expect_err 'rank 1 of 3 .* does not answer.*; rank [02] was in sum \(number [23]\)'
    run "${mpi[@]}" -np 2 "$world" "${set_[@]}" backend.bootstrap=env
    expect [ "$rc" != 0 ]; expect_err 'OMPI_COMM_WORLD_SIZE is 2, so mpirun'
    run "${mpi[@]}" -np 1 "$world" "${set_[@]}" optimizer.lr=0.1 : -np 1 "$world" "${set_[@]}" optimizer.lr=0.2
    expect_rc 2; expect_err 'optimizer\.lr: rank 0 has 0\.1; rank 1 has 0\.2'
fi
