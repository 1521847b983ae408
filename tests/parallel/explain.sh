#!/bin/bash
# explain.sh - tenon plugins --explain under a launcher: rank 0 prints, and says where the others differ.
. "$(dirname "$0")/../support/lib.sh"
export LSAN_OPTIONS=suppressions=$top_srcdir/tests/support/lsan.supp:print_suppressions=0
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT PMIX_NAMESPACE PMIX_RANK SLURM_PROCID
export TENON_WORLD_SIZE=3

# three LEVEL: rank 2 has this level of kernels; what each printed is in out.RANK.
three()
{
    local r

    rm -rf meet out.* && mkdir meet
    for r in 1 2; do
        env TENON_DIR="$PWD/meet" TENON_RANK=$r ${2:+TENON_CPU_LEVEL=$([ $r = 2 ] && echo "$1" || echo "$2")} timeout 40 "$TENON" plugins --explain backend.timeout=20 >out.$r 2>&1 &
    done
    run env TENON_DIR="$PWD/meet" TENON_RANK=0 ${2:+TENON_CPU_LEVEL=$2} "$TENON" plugins --explain backend.timeout=20
    wait
}

case_ "all alike"
three v2 ""
expect_rc 0
expect_out '^rank 0 of 3 '
expect_out '^tenon\.comm/1, by score'
expect_out '^2 other ranks: the same\.'
expect_not_out 'otherwise'
expect test ! -s out.1
expect test ! -s out.2

case_ "one with other kernels"
three v9 v2
expect_rc 0
expect_out '^On rank 2 of 3 .* it is otherwise:'
expect_out '^  cpu .*TENON_CPU_LEVEL is v9'
expect_out '^1 other rank: the same\.'

case_ "one that does not come"
rm -rf meet && mkdir meet
run env TENON_DIR="$PWD/meet" TENON_RANK=0 "$TENON" plugins --explain backend.timeout=1
expect_rc 1
expect_err 'ranks 1 and 2 of 3 did not arrive within 1 s'
