#!/bin/bash
# hosts-train.sh - training on two hosts, each a network namespace: the cable is cut while they train; a run directory
# that they share, and one that each has for itself.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
. "$top_srcdir/tests/support/ranks.sh"
[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] || skip "the plugin gloo is not built"
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
type -P ip >/dev/null || skip "there is no ip (Debian: iproute2)"
one=tt$$a two=tt$$b net=10.78.$(($$ % 250))
ip netns add $one 2>/dev/null || skip "no network namespace can be made here"
trap 'ip netns del $one; ip netns del $two 2>/dev/null; finish' EXIT
ip netns add $two
ip link add w$$a netns $one type veth peer name w$$b netns $two 2>/dev/null || skip "no pair of interfaces can be made here"
for i in $one:w$$a:1 $two:w$$b:2; do
    IFS=: read -r space link number <<<"$i"
    ip -n "$space" link set lo up; ip -n "$space" addr add $net."$number"/24 dev "$link"; ip -n "$space" link set "$link" up
done
make_tiny
sed -i 's/^steps = 30$/steps = 100000/' tiny.ini
mkdir here there

# on RANK ARGUMENT...: rank R of 2 on host R + 1, in the background. There the folder here/ is another one.
on()
{
    local rank=$1 space=$one

    shift
    [ "$rank" = 0 ] || space=$two
    (
        code=0
        ip netns exec $space unshare --uts --mount bash -c '
            hostname "host$(($1 + 1))"; [ "$1" = 0 ] || mount --bind there here || exit 99
            shift; exec timeout -s KILL 60 "$@"' _ "$rank" env RANK="$rank" WORLD_SIZE=2 MASTER_ADDR=$net.1 MASTER_PORT=4200 \
            "$TENON" train tiny.ini backend.threads=1 backend.comm=gloo train.log_interval=1 "$@" </dev/null >"out.$rank" 2>"err.$rank" || code=$?
        echo $code >"end.$rank"
    ) &
}

both() { rm -f out.* err.* end.*; on 0 "$@"; on 1 "$@"; }
until_() { for ((i = 0; i < 600; i++)); do "$@" && return; sleep 0.05; done; fail "never came: $*"; }
load() { rc=$(cat "end.$1") out=$(cat "out.$1") err=$(cat "err.$1") command="rank $1"; }

# as_alone RUN: its losses are those of one process.
as_alone()
{
    rm -rf alone
    run "$TENON" train tiny.ini backend.threads=1 checkpoint.dir=alone train.steps=$(losses "$1" | wc -l)
    expect_rc 0
    paste <(losses alone) <(losses "$1") >curves
    expect awk '{ d = $2 - $4; if (d < 0) d = -d; if (NF != 4 || $1 != $3 || d > 1e-5 * $2) bad = 1 } END { exit bad || NR < 4 }' curves
}

case_ "the cable is cut while they train"
both checkpoint.dir=shared parallel.zero=3 train.micro_batch=4 train.steps=100000 checkpoint.interval=4 backend.timeout=2
until_ grep -q '^step 10/' out.0
ip -n $two link set w$$b down
wait
for r in 0 1; do
    load $r
    expect_rc 1
    expect_err "^tenon: rank $((1 - r)) of 2 \(host host$((2 - r)), process [0-9]+\) does not answer, it is stopped or cut off; rank $r was in .*phase (step|save)"
done
ip -n $two link set w$$b up
last=$(find shared -maxdepth 1 -name 'step-*' | sort | tail -n 1)
both checkpoint.dir=shared parallel.zero=1 train.micro_batch=4 train.steps=$((10#${last##*step-} + 4)) checkpoint.interval=4 backend.timeout=20
wait
for r in 0 1; do load $r; expect_rc 0; done
load 0
expect_out "going on from $last"
expect [ "$(find shared -name 'optimizer-*-of-00002.safetensors' -path "*$(step_name $((10#${last##*step-} + 4)))*" | wc -l)" = 2 ]
as_alone shared

case_ "each host has a run directory of its own: rank 0 writes for both"
both checkpoint.dir=here/run parallel.zero=3 train.micro_batch=4 train.steps=4 checkpoint.interval=2 backend.timeout=20
wait
for r in 0 1; do load $r; expect_rc 0; done
load 0
expect_err 'here/run is not shared by all ranks: rank 0 writes the checkpoints, and to go on from one it must lie on every host'
expect_file here/run/step-00000004/model-00001-of-00001.safetensors
expect [ -z "$(find there -type f)" ]
both checkpoint.dir=here/run parallel.zero=3 train.micro_batch=4 train.steps=6 backend.timeout=20
wait
for r in 0 1; do load $r; expect_rc 2; done
load 0
expect_err 'the checkpoint to go on from: rank 0 has step 4; rank 1 has none'
cp -r here/run there
both checkpoint.dir=here/run parallel.zero=3 train.micro_batch=4 train.steps=6 backend.timeout=20
wait
for r in 0 1; do load $r; expect_rc 0; done
as_alone here/run
both checkpoint.dir=here/other parallel.zero=3 train.micro_batch=4 train.steps=4 checkpoint.gather=no backend.timeout=20
wait
for r in 0 1; do load $r; expect_rc 2; done
load 0
expect_err '^tenon: rank 1 of 2 \(host host2, process [0-9]+\): here/other is not the folder that rank 0 has: with checkpoint.gather = no'
