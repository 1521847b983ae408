# kept-runs.sh - for shell tests, after lib.sh and ranks.sh: what a host must still do with the plugins of a folder that
# keep.sh made. One found first hides the one of its name that was just built, so each run has the old ones in its place.

# kept_runs FOLDER PROGRAM [SETTING...]
kept_runs()
{
    local from=$1 program=$2 golden=$top_srcdir/tests/golden compare=$top_builddir/tests/golden/compare name

    shift 2
    local use=("plugins.path=$from" backend.threads=1 "$@")

    case_ "$from: each is ready"
    run "$program" plugins plugins.path="$from"
    expect_rc 0
    for name in "$from"/*.so; do
        name=$(basename "$name" .so)
        expect_out "^$name +.* $from/$name\.so +ready"
    done

    # judged N CASE ARGUMENT...
    judged()
    {
        local n=$1 case=$2

        shift 2
        case_ "$from: $case on $n: $*"
        rm -f out.safetensors
        if [ "$n" = 1 ]; then
            run "$program" step --case "$golden/$case.safetensors" --out out.safetensors "${use[@]}" "$@"
        else
            ranks "$n" "$program" step --case "$golden/$case.safetensors" --out out.safetensors "${use[@]}" backend.bootstrap=env \
                backend.comm=post "$@"
        fi
        expect_rc 0
        run "$compare" "$golden/$case.safetensors" out.safetensors
        expect_rc 0
    }
    judged 1 sgd backend.device=isle
    judged 1 bias backend.device=isle
    judged 2 bias backend.device=isle train.micro_batch=1
    judged 3 odd backend.device=isle train.micro_batch=1 parallel.zero=3
    judged 3 odd backend.device=isle parallel.tp=3 parallel.sp=yes
    judged 2 nobias backend.device=isle parallel.cp=2 parallel.ring=no
    judged 2 bias backend.device=isle parallel.pp=2 train.micro_batch=1
    [ "${kept_cpu:-yes}" = yes ] || return 0
    judged 1 odd backend.device=cpu backend.kernels=toykernels,ref
    judged 2 nobias backend.device=cpu backend.kernels=toykernels,ref parallel.cp=2
    judged 4 bias backend.device=cpu backend.kernels=toykernels,ref parallel.pp=2 parallel.tp=2 parallel.sp=yes train.micro_batch=1
}
