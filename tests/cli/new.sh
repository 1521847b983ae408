#!/bin/bash
# new.sh - tenon plugins new, as a newcomer has it: with what `make install` gives and nothing of the tree. Each kind is
# written, built by every compiler that is here without a warning, checked, tried, computes the golden cases, and is
# installed and found.
. "$(dirname "$0")/../support/lib.sh"
RUN_SECONDS=${RUN_SECONDS:-600}
unset MAKEFLAGS MFLAGS MAKELEVEL DESTDIR
# As conformance/check.sh: asking for too much is an answer, memory that was given back is free.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}allocator_may_return_null=1:quarantine_size_mb=1
command -v pkg-config >/dev/null || skip "no pkg-config"
[ -f "$top_builddir/config.status" ] || skip "$top_builddir is no build tree"
compare=$top_builddir/tests/golden/compare

case_ "make install"
run make -C "$top_builddir" --no-print-directory install DESTDIR="$tmp/dest"
expect_rc 0
pc=$(find dest -name tenon.pc)
expect test -n "$pc"
export PKG_CONFIG_PATH=$tmp/${pc%/*} PKG_CONFIG_SYSROOT_DIR=$tmp/dest HOME=$tmp/home
mkdir "$HOME" golden
bin=$(find dest -type f -name tenon -path '*/bin/*')
export PATH=$tmp/${bin%/*}:$PATH
export TENON_PLUGIN_PATH=$tmp/dest$(pkg-config --variable=plugindir tenon | sed "s#^$tmp/dest##")
cp "$top_srcdir"/tests/golden/*.safetensors golden/
expect_file "$TENON_PLUGIN_PATH"/ref.so
expect test -n "$(find dest -name tenon-kernels.3)" -a -n "$(find dest -name reference.html)"
docs=$tmp/dest$(pkg-config --variable=docdir tenon | sed "s#^$tmp/dest##")
expect_file "$docs/docs/plugins.md"
expect_file "$docs/reference.html"
for page in "$docs"/docs/*.md; do        # links among the documents hold where they are installed, too
    for link in $(grep -o '](\(\.\./README\|[a-z]*\)\.md' "$page" | cut -c 3-); do expect_file "${page%/*}/$link"; done
done

case_ "what cannot be"
run tenon plugins new kernel "My Chip"
expect_rc 2; expect_err 'plugins new: "My Chip" is no name of a plugin'; expect_no_file "My Chip"
run tenon plugins new kernels -x
expect_rc 2
run tenon plugins new kernels .x
expect_rc 2; expect_err 'no name of a plugin'; expect_no_file .x
run tenon plugins new kernels a123456789b123456789c123456789d1
expect_rc 2; expect_err 'has 32 characters; 31 are the most'
run tenon plugins new optimiser mine
expect_rc 2; expect_err 'there is no kind optimiser; did you mean optimizer'; expect_no_file mine
run tenon plugins new optimizer
expect_rc 2
mkdir taken && echo mine >taken/README.md
run tenon plugins new optimizer taken
expect_rc 2; expect_err 'taken is there already'
expect test "$(cat taken/README.md)" = mine -a "$(ls taken | wc -l)" = 1
run tenon plugins new optimizer other --dir nowhere/other
expect_rc 1; expect_err 'nowhere/other cannot be made'
ln -s /dev/full full 2>/dev/null
run tenon plugins new optimizer full
expect_rc 2; expect_err 'is there already'

case_ "longest name, another folder, other words for a kind"
run tenon plugins new strategy a123456789b123456789c1234567-._ --dir long
expect_rc 0
expect_file long/a123456789b123456789c1234567-._.c
run make -C long
expect_rc 0
run tenon help plugins new
expect_rc 0; expect_out '^usage: tenon plugins new KIND NAME'
run tenon plugins new --help
expect_rc 0; expect_out '^usage: tenon plugins new KIND NAME'

# The golden case NAME with settings, from the folder of a plugin; $launch starts more than one rank.
golden()
{
    local name=$1

    shift
    run ${launch:-} tenon step --case "$tmp/golden/$name.safetensors" --out out.safetensors "$@"
    expect_rc 0
    run "$compare" "$tmp/golden/$name.safetensors" out.safetensors
    expect_rc 0
    rm -f out.safetensors
}

# two: a golden case on two ranks, one on which dp can cut the batch.
two()
{
    local port=$((20000 + RANDOM % 10000))

    RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port tenon step --case "$tmp/golden/bias.safetensors" \
        --out none.safetensors "$@" >/dev/null 2>&1 &
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port golden bias "$@"
    wait
}

for kind in backend kernels comm optimizer pass bootstrap; do
    name=my-$kind.1
    cd "$tmp" || exit 99
    began=$SECONDS

    case_ "$kind: new"
    run tenon plugins new $kind $name
    expect_rc 0
    expect_out "^$name: $name\.c, Makefile, README\.md, try\.ini$"
    expect test "$(ls $name | wc -l)" = 4
    expect test -z "$(grep -rl '@[A-Z]*@' $name)"
    expect test "$(wc -l <$name/$name.c)" -le 320
    cd $name || exit 99

    for compiler in "CC=gcc" "CC=clang" "CC=g++ STD=c++20" "CC=clang++ STD=c++20" "CC=${CC:-cc}"; do
        program=${compiler#CC=}
        command -v ${program%% *} >/dev/null || continue
        case_ "$kind: $compiler"
        rm -f $name.so
        eval "set -- CC='${program%% STD*}' ${compiler#"CC=${program%% STD*}"}"
        run make "$@" CFLAGS="-O2 -Wall -Wextra -Wno-unknown-warning-option -Werror"
        expect_rc 0
        expect_file $name.so
        run tenon plugins plugins.path=./$name.so
        expect_out "^$name +0\.1 .*(ready|not usable here: .*_RANK is not set)$"
    done

    case_ "$kind: one exported symbol"
    run nm -D --defined-only $name.so
    expect test "$(grep -c . <<<"$out")" = 1
    expect_out ' T tn_plugin_entry$'

    if tenon help plugins check 2>/dev/null | grep -q '^usage: tenon plugins check'; then
        case_ "$kind: conformance"
        run make check
        expect_rc 0
    fi

    case_ "$kind: make try"
    run make try
    expect_rc 0

    case_ "$kind: what its README names"
    for page in $(grep -o 'man tenon-[a-z_]*' README.md | cut -d ' ' -f 2); do
        expect test -n "$(find "$tmp/dest" -name "$page.3")"
    done
    for page in $(grep -o '[a-z]*\.md' README.md | grep -v README | sort -u); do expect_file "$docs/docs/$page"; done
    run tenon plugins plugins.path=. --explain
    expect_rc 0; expect_out "^ +$name "
    case $kind in
    comm) run tenon probe try.ini --ranks 2 --no-sweep plugins.path=.; expect_rc 0 ;;
    pass) run tenon plan try.ini --world 2 plugins.path=.; expect_rc 0; expect_out 'all_reduce' ;;
    kernels) run tenon plan try.ini plugins.path=.; expect_rc 0; expect_out "^launches .* $name [1-9][0-9]*" ;;
    esac

    case_ "$kind: golden"
    path=plugins.path=./$name.so
    case $kind in
    backend) for c in bias odd sgd; do golden $c $path backend.device=$name; done ;;
    kernels) for c in bias odd sgd; do golden $c $path backend.kernels=$name,ref; done ;;
    comm) two $path backend.comm=$name parallel.dp=2 parallel.zero=2; two $path backend.comm=$name parallel.tp=2
          two $path backend.comm=$name parallel.pp=2 ;;
    pass) two $path plugins.dp=$name parallel.dp=2 ;;
    esac

    case_ "$kind: found where it was installed"
    run make install
    expect_rc 0
    run tenon plugins
    expect_out "^$name +0\.1 .*$HOME/\.local/lib/tenon/plugins/$name\.so"
    if [ $kind = backend ]; then         # it is taken where it is named, and nowhere else
        sed '/^device/d' try.ini >left.ini
        run tenon train left.ini
        expect_rc 0; expect_out '^device cpu '
    fi
    run make uninstall
    expect_no_file "$HOME/.local/lib/tenon/plugins/$name.so"
    echo "$kind: $((SECONDS - began)) s"
done

cd "$tmp" || exit 99
case_ "pairs: the strategy beside others of two ranks each"
for other in tp pp cp; do
    run tenon verify my-pass.1/try.ini --ranks 4 parallel.dp=2 parallel.$other=2 plugins.path=my-pass.1/my-pass.1.so \
        data.dir=my-pass.1/data
    expect_rc 0
    expect_out '^equal: 4 ranks'
done

case_ "the bootstrap says what is missing"
run env MY_BOOTSTRAP_1_RANK=0 MY_BOOTSTRAP_1_SIZE=two tenon train my-bootstrap.1/try.ini data.dir=my-bootstrap.1/data \
    plugins.path=my-bootstrap.1/my-bootstrap.1.so
expect_rc 2; expect_err 'my-bootstrap\.1: MY_BOOTSTRAP_1_SIZE is "two", it must be a number from 1 to 1000000'
run env MY_BOOTSTRAP_1_RANK=0 tenon train my-bootstrap.1/try.ini data.dir=my-bootstrap.1/data \
    plugins.path=my-bootstrap.1/my-bootstrap.1.so
expect_rc 2; expect_err 'MY_BOOTSTRAP_1_RANK is set and MY_BOOTSTRAP_1_SIZE is not'
