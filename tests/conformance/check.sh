#!/bin/bash
# check.sh - every plugin that is shipped passes tenon plugins check; and what the command says and writes.
. "$(dirname "$0")/../support/lib.sh"
RUN_SECONDS=580
[ -e "$top_builddir/plugins/ref/.libs/ref.so" ] || skip "ref was not built"
# Asking for too much is an answer; what a test leaves when it ends is not a leak.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}allocator_may_return_null=1:detect_leaks=0:quarantine_size_mb=1

is_built()
{
    [ -e "$top_builddir/plugins/$1/.libs/$1.so" ]
}

for name in self gloo local env pmix dir sgd adagrad rmsprop adam adamw lion ddp shard tp cp pp ep cpu; do
    is_built $name || continue
    case_ "$name"
    run "$TENON" plugins check $name
    expect_rc 0
    expect_out '^all [1-9][0-9]* passed'
    expect_not_out '^FAILED'
done

# All but what cpu is compared with above: the device, and the oracle with itself on small problems.
case_ ref
run "$TENON" plugins check ref --only file,device,gradient,kernels/expr,kernels/copy,kernels/sum,kernels/attention,kernels/layernorm
expect_rc 0

case_ "mpi, alone and launched"
if is_built mpi; then
    run "$TENON" plugins check mpi
    expect_rc 0
    expect_out 'needs a launcher .*mpirun -np 2 tenon plugins check mpi'
    run mpirun --allow-run-as-root --oversubscribe -np 2 "$TENON" plugins check mpi
    expect_rc 0
    expect_out '^comm +3 +2 +2 +0 '
fi

case_ "a list, a part, a document"
run "$TENON" plugins check ref --list
expect_rc 0
expect_out '^kernels/einsum/1 +einsum \(b3 t7 c17 o5\)'
run "$TENON" plugins check ref --only kernels/copy/1,file --json
expect_rc 0
expect_out '"name": "kernels/copy/1"'
expect_out '"passed": [89]'                                     # a sanitizer ends processes in its own way
if command -v python3 >/dev/null; then
    run python3 -c 'import json,sys; d=json.loads(sys.argv[1]); assert len(d["tests"]) == 9 and d["plugin"]["name"] == "ref"' "$out"
    expect_rc 0
fi

case_ "what is no plugin"
run "$TENON" plugins check nosuch
expect_rc 2
expect_err 'there is no plugin nosuch'
run "$TENON" plugins check ./nosuch.so
expect_rc 2
echo nothing >text.so
run "$TENON" plugins check text.so
expect_rc 2
expect_err 'text\.so'
run "$TENON" plugins check ref --only nothing
expect_rc 2
expect_err 'no test of this plugin is nothing'
run "$TENON" plugins check
expect_rc 2
