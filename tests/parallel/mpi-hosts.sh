#!/bin/bash
# mpi-hosts.sh - one mpirun over two hosts, each a network namespace: shared memory within them, MPI's TCP between; the
# curve is that of one process, and when the cable is cut those on both sides say whom they miss.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT TENON_DIR TENON_IFACE TORCHELASTIC_RUN_ID
unset SLURM_PROCID SLURM_STEP_NUM_TASKS PMIX_NAMESPACE PMIX_RANK TENON_LOG TENON_SHM
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0    # Open MPI leaves much behind, in libraries that it has closed
[ -e "$top_builddir/plugins/mpi/.libs/mpi.so" ] || skip "the plugin mpi is not built"
[ -e "$top_builddir/plugins/pmix/.libs/pmix.so" ] || skip "the plugin pmix is not built"
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
type -P ip >/dev/null || skip "there is no ip (Debian: iproute2)"
one=tm$$a two=tm$$b net=10.79.$(($$ % 250))
ip netns add $one 2>/dev/null || skip "no network namespace can be made here"
down() { for space in $one $two; do for p in $(ip netns pids $space 2>/dev/null); do kill -KILL "$p" 2>/dev/null; done; ip netns del $space 2>/dev/null; done; }
trap 'down; finish' EXIT
ip netns add $two
ip link add m$$a netns $one type veth peer name m$$b netns $two 2>/dev/null || skip "no pair of interfaces can be made here"
for i in $one:m$$a:1 $two:m$$b:2; do
    IFS=: read -r space link number <<<"$i"
    ip -n "$space" link set lo up; ip -n "$space" addr add $net."$number"/24 dev "$link"; ip -n "$space" link set "$link" up
done
make_tiny
sed -i 's/^steps = 30$/steps = 100000/' tiny.ini

# In place of ssh: agent [OPTION...] HOST COMMAND...
cat >agent <<END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
space=$one host=\$1
[ "\$host" = host1 ] || space=$two
shift
exec ip netns exec \$space unshare --uts bash -c "hostname \$host; \$*"
END
# Each rank writes files of its own: what it says after the cut does not come through the cable.
cat >rank <<'END'
#!/bin/bash
r=$OMPI_COMM_WORLD_RANK code=0
"$@" >"out.$r" 2>"err.$r" || code=$?
echo $code >"end.$r"
exit $code
END
chmod +x agent rank

# on_both RANKS-EACH ARGUMENT...: in the background
on_both()
{
    local each=$1

    shift
    rm -f out.* err.* end.*
    ip netns exec $one unshare --uts bash -c 'hostname host1; exec timeout -k 1 -s KILL 80 "$@"' _ mpirun --allow-run-as-root --oversubscribe \
        --bind-to none --mca plm_rsh_agent "$PWD/agent" --mca oob_tcp_if_include $net.0/24 --mca btl_tcp_if_include $net.0/24 \
        -H host1:"$each",host2:"$each" -np $((2 * each)) "$PWD/rank" "$TENON" train tiny.ini backend.threads=1 backend.comm=mpi \
        train.log_interval=1 "$@" </dev/null >mpirun.out 2>mpirun.err &
    mpirun=$!
}

until_() { for ((i = 0; i < 600; i++)); do "$@" && return; sleep 0.05; done; cat mpirun.err err.* >&2; fail "never came: $*"; }
load() { rc=$(cat "end.$1") out=$(cat "out.$1") err=$(cat "err.$1") command="rank $1"; }
as_alone()
{
    rm -rf alone
    run "$TENON" train tiny.ini backend.threads=1 checkpoint.dir=alone train.steps="$(losses "$1" | wc -l)"
    expect_rc 0
    paste <(losses alone) <(losses "$1") >curves
    expect awk '{ d = $2 - $4; if (d < 0) d = -d; if (NF != 4 || $1 != $3 || d > 1e-5 * $2) bad = 1 } END { exit bad || NR < 4 }' curves
}

for zero in 0 3; do
    case_ "two ranks on each of two hosts, zero $zero"
    on_both 2 checkpoint.dir=run$zero parallel.zero=$zero train.micro_batch=2 train.steps=6 backend.timeout=20
    wait $mpirun || { cat mpirun.err; head -n 5 err.*; }
    for r in 0 1 2 3; do load $r; expect_rc 0; done
    load 0
    expect_out 'on 4 ranks'
    expect_err 'mpi: rank 0 of 4 on host1.*shared memory with: 1; MPI with: 2 3'
    as_alone run$zero
done

case_ "the cable is cut while they train"
on_both 1 checkpoint.dir=cut parallel.zero=1 train.micro_batch=4 train.steps=100000 checkpoint.interval=4 backend.timeout=2
until_ grep -qs '^step 10/' out.0
ip -n $two link set m$$b down
until_ test -s end.0
until_ test -s end.1
for r in 0 1; do
    load $r
    expect_rc 1
    expect_err "^tenon: rank $((1 - r)) of 2 \(host host$((2 - r)), process [0-9]+\) does not answer, it is stopped or cut off; rank $r was in .*phase (step|save)"
done
