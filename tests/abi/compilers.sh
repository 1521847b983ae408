#!/bin/bash
# compilers.sh - plugins and host may be built by different compilers: plugins by another one, and as C++, in this host;
# the plugins that were just built, and all others, in a host by the other one. Each then does golden cases.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/ranks.sh"
. "$top_srcdir/tests/abi/kept-runs.sh"
. "$top_srcdir/tests/abi/host-lib.sh"
! sanitized || skip "plugins with a sanitizer load in no other program"
export HOME=$tmp
this=${CC:-cc}
if $this --version 2>/dev/null | grep -q clang; then other=gcc others="g++ clang++"; else other=clang others="g++ clang++"; fi
golden=$top_srcdir/tests/golden compare=$top_builddir/tests/golden/compare
flags="-D_GNU_SOURCE -O2 -fPIC -shared -fvisibility=hidden -I$top_srcdir/libcore/include -Wl,--version-script=$top_srcdir/plugins/plugin.map"

# judged PROGRAM N CASE ARGUMENT...
judged_by()
{
    local program=$1 n=$2 case=$3

    shift 3
    rm -f out.safetensors
    ranks "$n" "$program" step --case "$golden/$case.safetensors" --out out.safetensors backend.threads=1 backend.device=cpu "$@"
    expect_rc 0
    run "$compare" "$golden/$case.safetensors" out.safetensors
    expect_rc 0
}

# --- in C++
cxx_runs()                                      # PROGRAM FOLDER
{
    case_ "$2 in $1"
    run "$1" plugins plugins.path="$2"
    for name in adamw ddp shard tp post copies; do
        expect_out "^$name +.* $2/$name\.so +ready"
    done
    judged_by "$1" 1 bias plugins.path="$2" backend.kernels=copies,ref
    judged_by "$1" 2 bias plugins.path="$2" backend.kernels=copies,ref backend.comm=post parallel.tp=2 parallel.sp=yes
    judged_by "$1" 3 odd plugins.path="$2" backend.kernels=copies,ref backend.comm=post train.micro_batch=1 parallel.zero=3
    judged_by "$1" 2 bias plugins.path="$2" backend.comm=post train.micro_batch=1
}
for cxx in $others; do
    command -v $cxx >/dev/null || continue
    case_ "as C++ by $cxx"
    folder=by-${cxx//+/x}
    mkdir "$folder"
    for source in plugins/{adamw,ddp,shard,tp}/plugin.c tests/abi/keep/post.c tests/abi/cxx/copies.cpp; do
        name=$(basename "${source%/plugin.c}")
        run $cxx -x c++ -std=c++20 -Wall $flags -o "$folder/${name%.c*}.so" "$top_srcdir/$source"
        expect_rc 0
    done
    cxx_runs "$TENON" "$folder"
done

# --- another C compiler
if command -v $other >/dev/null && [ "$(uname -m)" = x86_64 ]; then
    case_ "by $other"
    CC=$other run bash "$top_srcdir/tests/abi/keep.sh" "$tmp/by-$other"
    expect_rc 0
    kept_runs "by-$other" "$TENON"

    case_ "a host by $other"
    host_sources host
    host_build host $other -O0
    if [ -x host/tenon ]; then
        TENON_PLUGIN_PATH=$(built_plugins)
        export TENON_PLUGIN_PATH
        case_ "the plugins of $this in a host by $other"
        judged_by "$tmp/host/tenon" 1 bias
        judged_by "$tmp/host/tenon" 2 bias parallel.tp=2 parallel.sp=yes
        judged_by "$tmp/host/tenon" 3 odd train.micro_batch=1 parallel.zero=3
        judged_by "$tmp/host/tenon" 2 nobias parallel.cp=2
        judged_by "$tmp/host/tenon" 2 bias parallel.pp=2 train.micro_batch=1
        [ ! -d by-gxx ] || cxx_runs "$tmp/host/tenon" by-gxx
    fi
fi
[ "$expected" -gt 0 ] || skip "there is no other compiler"
