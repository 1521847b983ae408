#!/bin/bash
# hostile-ranks.sh - under mpirun: a plugin that only some ranks have, another build of it on one, one that crashes on one.
# All ranks end, with a sentence that names rank, file and cause, and no file is touched.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
command -v mpirun >/dev/null || skip "there is no mpirun"
built=$top_builddir/tests/abi/hostile
[ -e "$built/good.so" ] || skip "make check builds $built"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT TENON_DIR TENON_IFACE TORCHELASTIC_RUN_ID
unset SLURM_PROCID SLURM_STEP_NUM_TASKS PMIX_NAMESPACE PMIX_RANK
export LSAN_OPTIONS=suppressions=$top_srcdir/tests/support/lsan.supp:print_suppressions=0
export HOME=$tmp
mpi=(mpirun --allow-run-as-root --oversubscribe --bind-to none)
make_tiny
sed -i 's/^threads.*/threads = 1/; s/^micro_batch.*/micro_batch = 2/' tiny.ini

mkdir one other none
build()
{
    run ${CC:-cc} -std=c11 -O1 -fPIC -shared -fvisibility=hidden -I"$top_srcdir/libcore/include" -Wl,--build-id "${@:2}" -o "$1" \
        "$top_srcdir/tests/toys/halving.c"
    expect_rc 0
}
build one/halving.so
build other/halving.so -DTN_OTHER -O0
cp "$built/crash.so" other/
expect cmp -s one/halving.so one/halving.so
expect [ "$(cmp one/halving.so other/halving.so | wc -l)" = 1 ]
cat >as.sh <<'END'
#!/bin/sh
# as.sh A B ARGUMENT...: trains with the plugins in A on rank 0, in B on the others
if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then path=$1; else path=$2; fi
shift 2
exec "$TENON" train tiny.ini plugins.path="$path" backend.comm=gloo checkpoint.dir=untouched "$@"
END
chmod +x as.sh

case_ "the same on all"
run "${mpi[@]}" -np 2 ./as.sh one one optimizer.name=halving optimizer.lr=0.01 train.steps=2 checkpoint.dir=fine
expect_rc 0
expect_file fine/step-00000002

case_ "only on rank 0"
run "${mpi[@]}" -np 2 ./as.sh one none optimizer.name=halving optimizer.lr=0.01
expect_rc 2
expect_err 'rank 1 of 2.*optimizer\.name = halving: there is no such plugin'
expect_no_file untouched

case_ "another build on rank 1"
run "${mpi[@]}" -np 3 ./as.sh one other optimizer.name=halving optimizer.lr=0.01 train.global_batch=12
expect_rc 2
expect_err 'the ranks differ in their plugins'
expect_err 'plugin halving: rank 0 has version 1\.0, build [0-9a-f]+; ranks 1, 2 have version 1\.0, build [0-9a-f]+'
expect_no_file untouched

case_ "one that crashes, on rank 1 alone"
cp "$built/good.so" one/crash.so
run "${mpi[@]}" -np 2 ./as.sh one other backend.bootstrap=crash
expect [ "$rc" != 0 ]
expect_err 'other/crash\.so crashed \(segmentation fault, SIGSEGV\) while it was loaded'
expect_no_file untouched
