#!/bin/bash
# probe.sh - the ranks, the values of every collective, the sweep; and wrong values are found.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/ranks.sh"
gloo=$top_builddir/plugins/gloo/.libs/gloo.so
few="--sizes 4K,100000 --warmup 1 --repeat 3"

case_ "alone"
run "$TENON" probe $few
expect_rc 0
expect_out '^1 rank on 1 host, communicator self'
expect_out '^  reduce_scatter +\[0 1\] of fp32 fp64 bf16 fp16 int32 int64 uint8$'
expect_out '^  all_to_all +97\.66 KiB '
expect_err_lines 0

case_ "mistakes"
run "$TENON" probe --collectives all_redcue
expect_rc 2; expect_err_lines; expect_err 'no all_redcue, did you mean all_reduce\?'
run "$TENON" probe --sizes 4Q
expect_rc 2; expect_err_lines; expect_err '--sizes 4Q: expected sizes'
run "$TENON" probe parallel.tp=2
expect_rc 2; expect_err_lines; expect_err 'parallel\.tp = 2: .*started alone'
run "$TENON" probe --ranks 65
expect_rc 2; expect_err_lines; expect_err '--ranks 65'

[ -e "$gloo" ] || skip "the plugin gloo is not built"

# the numbers that a reader can work out
two()
{
    expect_rc 0
    expect_out '^2 ranks on 1 host, communicator gloo'
    expect_out '^  rank 1 +host .*, process [0-9]+, address [0-9.]+ on '
    expect_out '^  groups of dp: \[0 1\]$'
    expect_out '^  all_reduce +\[3 3\] of fp32 fp64 bf16 fp16 int32 int64 uint8$'
    expect_out '^  all_gather +\[0 10 1 11\] of fp32'
    expect_out '^  reduce_scatter \[100 102\] of fp32'
    expect_out '^  all_to_all +\[0 1 100 101\] of fp32'
    expect_out '^  the same along dp, 2 ranks each$'
    expect_out '^  all_reduce +4 KiB +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$'
}

case_ "two ranks of a launcher"
ranks 2 "$TENON" probe $few backend.comm=gloo
two
expect [ ! -s rank.1.out ]

case_ "two ranks started by itself"
run "$TENON" probe --ranks 2 $few backend.comm=gloo
two
TENON_SHM=no run "$TENON" probe --ranks 2 $few backend.comm=gloo --dtype bf16
two
expect_out '^sweep of bf16'

case_ "four ranks on a mesh: what a bus would carry is 2 (n - 1) / n and (n - 1) / n of the payload"
run "$TENON" probe --ranks 4 $few backend.comm=gloo parallel.tp=2
expect_rc 0
expect_out '^  groups of dp: \[0 2\] \[1 3\]$'
expect_out '^  groups of tp: \[0 1\] \[2 3\]$'
expect_out '^  all_reduce +\[10 10\] of'
expect_out '^  reduce_scatter \[600 604\] of'
expect_out '^  the same along tp, 2 ranks each$'
run "$TENON" probe --ranks 4 $few backend.comm=gloo --json --collectives all_reduce,all_gather
expect_rc 0
if type -P python3 >/dev/null; then
    printf '%s' "$out" >probe.json
    run python3 -c '
import json
p = json.load(open("probe.json"))
assert p["ranks"] == 4 and p["values"] == "right" and len(p["places"]) == 4 and len(p["sweep"]) == 4
for x in p["sweep"]:
    share = {"all_reduce": 1.5, "all_gather": 0.75}[x["collective"]]
    assert abs(x["bus_gbps"] / x["payload_gbps"] - share) < 1e-3, x
    assert abs(x["payload_gbps"] * 1e9 * x["seconds"] / x["bytes"] - 1) < 1e-3, x
'
    expect_rc 0
fi

case_ "one wrong number on one rank, of one operation on one type"
export FAULTY_OF=$gloo
faulty=("plugins.path=$top_builddir/tests/parallel/faulty.so" backend.comm=faulty)
run "$TENON" probe --ranks 3 --no-sweep "${faulty[@]}"
expect_rc 0
FAULTY=2:6:1 run "$TENON" probe --ranks 3 --no-sweep "${faulty[@]}"
expect_rc 1
expect_err 'probe: all_gather of int64 with parts of 2 on the world \(3 ranks\): rank 1 has 13 at element 5, where 12 is right'
expect_err 'rank 1 of 3 .*: probe: all_gather of int64'
FAULTY=3:2:0 run "$TENON" probe --ranks 2 --no-sweep "${faulty[@]}"
expect_rc 1
expect_err 'probe: reduce_scatter \(min\) of bf16 .*rank 0 has'
