#!/bin/bash
# hosts.sh - two hosts, each a network namespace with a name of its own, and a cable between them that can be cut.
. "$(dirname "$0")/../support/lib.sh"
world=$top_builddir/tests/parallel/world
one=tn$$a two=tn$$b net=10.77.$(($$ % 250))
set_=("plugins.path=$top_builddir/tests/parallel/stub.so" backend.comm=stub)

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
type -P ip >/dev/null || skip "there is no ip (Debian: iproute2)"
ip netns add $one 2>/dev/null || skip "no network namespace can be made here"
trap 'ip netns del $one; ip netns del $two 2>/dev/null; finish' EXIT
ip netns add $two
ip link add v$$a netns $one type veth peer name v$$b netns $two 2>/dev/null || skip "no pair of interfaces can be made here"
ip -n $one link set lo up; ip -n $two link set lo up
ip -n $one addr add $net.1/24 dev v$$a; ip -n $one link set v$$a up
ip -n $two addr add $net.2/24 dev v$$b; ip -n $two link set v$$b up

# on HOST VARIABLE=... -- ARGUMENT...: a rank on host 1 or 2, in the background; files are named by RANK.
on()
{
    local space=$one name=host$1 variables=() rank

    [ "$1" = 2 ] && space=$two
    shift
    while [ "$1" != -- ]; do variables+=("$1"); shift; done
    shift
    rank=$(printf '%s\n' "${variables[@]}" | sed -n 's/^\(TENON_\)\{0,1\}RANK=//p')
    (
        code=0
        ip netns exec $space unshare --uts bash -c 'hostname "$0"; exec "$@"' "$name" env "${variables[@]}" \
            timeout -s KILL 40 "$world" "${set_[@]}" "$@" </dev/null >"out.$rank" 2>"err.$rank" || code=$?
        echo $code >"end.$rank"
    ) &
}

ended()
{
    rc=$(cat "end.$1") out=$(cat "out.$1") err=$(cat "err.$1") command="rank $1"
    expect_rc "$2"
    [ $# -lt 3 ] || expect_err "$3"
}

variables=(WORLD_SIZE=2 MASTER_ADDR=$net.1 MASTER_PORT=4100)

case_ "one rank a host"
on 1 RANK=0 "${variables[@]}" -- backend.timeout=10
on 2 RANK=1 "${variables[@]}" -- backend.timeout=10
wait
for r in 0 1; do ended $r 0; expect_out "rank $r of 2: done.*sum 3.*local 0 of 1, node $r of 2, 1 on"; done
ended 0 0 "rank 0 of 2: host host1, process [0-9]+, address $net\.1 on v$$a"
ended 0 0 "rank 1 of 2: host host2, process [0-9]+, address $net\.2 on v$$b"

case_ "hosts that nobody counted, through a directory"
mkdir shared
for r in 0 1 2; do on $((r % 2 + 1)) TENON_DIR="$PWD/shared" TENON_RANK=$r TENON_WORLD_SIZE=3 -- backend.timeout=10; done
wait
ended 0 0; expect_out 'local 0 of 2, node 0 of 2'
ended 1 0; expect_out 'local 0 of 1, node 1 of 2'
ended 2 0; expect_out 'local 1 of 2, node 0 of 2'

case_ "loopback is for one host"
on 1 RANK=0 "${variables[@]}" TENON_IFACE=lo -- backend.timeout=3
on 2 RANK=1 "${variables[@]}" -- backend.timeout=3
wait
ended 0 2 'rank 0 has the address 127\.0\.0\.1 \(lo\), which other hosts cannot reach.*set TENON_IFACE'
ended 1 1 'rank 0 of 2 .*failed: rank 0 has the address 127'

case_ "an address that leads nowhere"
on 2 RANK=1 WORLD_SIZE=2 MASTER_ADDR=$net.9 MASTER_PORT=4100 -- backend.timeout=2
wait
ended 1 1 "rank 0 of 2 did not arrive within 2 s; last tried: $net\.9 port 4100"

case_ "the cable is cut"
on 1 RANK=0 "${variables[@]}" WORLD_DO="nap 0" -- backend.timeout=3
on 2 RANK=1 "${variables[@]}" WORLD_DO="nap 0" -- backend.timeout=3
sleep 1
ip -n $two link set v$$b down
wait
ended 0 1 'rank 1 of 2 \(host host2, process [0-9]+\) does not answer, it is stopped or cut off; rank 0 was in sum \(number [34]\)'
ended 1 1 'rank 0 of 2 \(host host1, process [0-9]+\) does not answer, it is stopped or cut off; rank 1 was in sum \(number 3\)'
