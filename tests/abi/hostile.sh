#!/bin/bash
# hostile.sh - plugins that mean no good, beside good ones: a run that does not ask for them is as without them; one that
# does ends with one sentence, which names file and cause, and touches no file.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
. "$top_srcdir/tests/abi/host-lib.sh"

built=$top_builddir/tests/abi/hostile
[ -e "$built/good.so" ] || skip "make check builds $built"
export HOME=$tmp
flags="-std=c11 -D_GNU_SOURCE -O1 -fPIC -shared -fvisibility=hidden -I$top_srcdir/libcore/include"
mkdir some alone
make_tiny
cp tiny.ini before.ini

# --- what is wrong with the file itself
for name in good better absent alias badname crash endless exits future hang illegal missing newer noentry nonote nostart \
    notable nothing older overflow prints probecrash processor promise same size0 sizehuge tail undefined unknown aborts; do
    cp "$built/$name.so" some/
done
head -c 700 "$built/good.so" >some/short.so
head -c $(($(stat -c %s "$built/better.so") - 100)) "$built/better.so" >some/tailless.so
cp "$built/good.so" some/foreign.so
printf '\050\000' | dd of=some/foreign.so bs=1 seek=18 conv=notrunc status=none      # 40: 32-bit ARM
cp "$built/good.so" some/open.so
chmod o+w some/open.so
echo "I am no plugin" >some/text.so
: >some/empty.so
ln -s nowhere.so some/dangling.so
ln -s loop.so some/loop.so
ln -s good.so some/zlink.so
mkdir some/folder.so
mkfifo some/fifo.so

case_ "a run that asks for none of them"
train plain
train beside plugins.path=some
same_checkpoint plain beside 30
expect_same <(losses plain) <(losses beside)

case_ "the list names each"
run "$TENON" plugins plugins.path=some
expect_rc 0
# refused NAME CAUSE: some/NAME.so is listed, with this cause
refused()
{
    expect_out " some/$1\.so +(refused: |not usable here: )?$2"
}
refused good 'ready'
refused short 'is truncated'
refused tailless 'is truncated'
refused foreign 'is for another machine \(ELF class 2, byte order 1, machine 40; this host has'
refused open 'may be written by everybody'
refused text 'is not a shared object \(no ELF magic\)'
refused empty 'is not a shared object'
refused dangling 'cannot be opened: No such file'
refused loop 'cannot be opened: Too many levels'
refused folder 'is not a regular file'
refused fifo 'is not a regular file'
refused crash 'crashed while it was loaded'
refused illegal 'crashed while it was loaded and asked \(signal 4, Illegal instruction\)'
refused hang 'did not answer within 2 s'
expect_not_out 'zlink'                          # the same file as good.so

# by_name NAME CAUSE [ENVIRONMENT...]: asked for, it ends the run before anything is touched.
by_name()
{
    local name=$1 cause=$2

    case_ "$name, asked for by name"
    run "$TENON" train tiny.ini plugins.path="${path:-some}" backend.bootstrap="$name" checkpoint.dir=untouched
    expect_rc 2
    expect_err "${path:-some}/${file:-$name}\.so"
    expect_err "$cause"
    expect_err_lines "${lines:-1}"
    expect_no_file untouched
    expect_same tiny.ini before.ini
}

by_name aborts 'gave up \(abort, SIGABRT'
by_name alias 'calls itself elias, but its note says alias'
by_name crash 'crashed \(segmentation fault, SIGSEGV\) while it was loaded$'
by_name endless 'a list of interfaces without an end'
by_name exits 'called exit\(\) while it was loaded$'
by_name foreign 'is for another machine'
by_name future 'speaks ABI 8 to 9, this host speaks 1 to 1'
by_name illegal 'crashed \(illegal instruction, SIGILL: perhaps one that this CPU does not have\) while it was loaded$'
by_name missing 'tenon\.bootstrap/1 lacks the mandatory locate'
by_name noentry 'does not export tn_plugin_entry'
by_name nonote 'no Tenon note'
by_name nostart 'could not start: the licence server is asleep'
by_name notable 'tenon\.bootstrap/1 is NULL'
by_name nothing 'its tn_plugin_entry returned nothing'
by_name open 'may be written by everybody'
by_name overflow 'crashed \(segmentation fault'
by_name probecrash 'crashed \(bus error, SIGBUS\) while it was asked'
by_name processor 'needs CPU level 9'
by_name promise 'has none|provides|promises'
by_name same 'the name good is already taken by some/good\.so'
by_name short 'is truncated'
by_name size0 'the struct_size of tenon\.bootstrap/1 is 0'
by_name sizehuge 'the struct_size of tenon\.bootstrap/1 is 4294967295'
by_name tail 'at byte [0-9]+ that this host does not know .*; it needs a newer host'
by_name undefined 'undefined symbol: tn_nowhere'

# --- AVX-512: where there is none, the note says so; where there is, it works
cp "$built/avx512.so" alone/
if grep -q avx512vl /proc/cpuinfo && grep -q avx512dq /proc/cpuinfo && grep -q avx512bw /proc/cpuinfo; then
    case_ "needs AVX-512, and has it"
    train wide plugins.path=alone backend.bootstrap=avx512 train.steps=1
else
    path=alone by_name avx512 'needs CPU level 4 \(x86-64-v4\), this CPU has level [0-3]'
fi

# --- more symbols than one: it works, and is told
case_ "a leak of symbols"
cp "$built/leaks.so" alone/
run "$TENON" train tiny.ini plugins.path=alone backend.bootstrap=leaks checkpoint.dir=leaks train.steps=1
expect_rc 0
expect_err 'alone/leaks\.so: exports 2 symbols beside tn_plugin_entry, such as leaks_(one|two), .*-fvisibility=hidden'
expect_err_lines 1

# --- C++
if command -v "${CXX:-c++}" >/dev/null; then
    for name in throws kthrows unique; do
        run ${CXX:-c++} -std=c++17 -O1 -fPIC -shared -fvisibility=hidden -I"$top_srcdir/libcore/include" -o alone/$name.so \
            "$top_srcdir/tests/abi/hostile/$name.cpp"
        expect_rc 0
    done
    path=alone lines=3 by_name throws 'gave up \(abort, SIGABRT: what an exception does that nobody catches\) while it was asked'
    expect_err 'what\(\): +no hardware'
    path=alone by_name unique 'exports .*shared_state.*, which would be shared with every other plugin'
fi

# --- at work. A sanitizer has handlers of its own.
late_crashes()
{
    case_ "a kernel that crashes at work"
    run "$TENON" train tiny.ini plugins.path="$built/klaunch.so" backend.kernels=klaunch,cpu checkpoint.dir=work
    expect_rc 139
    expect_err 'klaunch\.so: crashed \(segmentation fault, SIGSEGV\) at \+0x[0-9a-f]+ of it, or in what it called there$'
    train work train.steps=2                    # the folder it left is good
    expect_out 'no checkpoint in work, starting fresh'

    [ -e alone/kthrows.so ] || return
    case_ "an exception out of prepare"
    run "$TENON" train tiny.ini plugins.path=alone/kthrows.so backend.kernels=kthrows,cpu checkpoint.dir=untouched
    expect_rc 134
    expect_err 'what\(\): +out of registers'
    expect_err 'alone/kthrows\.so: crashed \(abort, SIGABRT: what an exception does that nobody catches\) at \+0x[0-9a-f]+ of it'
    expect_no_file untouched
}
sanitized || late_crashes

case_ "a kernel that has nothing to launch"
run "$TENON" train tiny.ini plugins.path="$built/kempty.so" backend.kernels=kempty,cpu checkpoint.dir=untouched
expect_rc 1
expect_err 'kernel plugin kempty prepared expr without a launch function'
expect_err_lines 1
expect_no_file untouched

# --- a second OpenMP runtime. The libraries are empty: their names are what counts.
echo "int nothing_$RANDOM;" >nothing.c
library()
{
    run ${CC:-cc} -shared -fPIC -Wl,-soname,"$1" -o "alone/$1" nothing.c
    expect_rc 0
}
plugin()                                        # plugin NAME FROM LIBRARY: which needs this library
{
    sed "s/\"$2\"/\"$1\"/g" "$top_srcdir/tests/$3/$2.c" >"$1.c"
    run ${CC:-cc} $flags -I"$top_srcdir/tests/abi/hostile" -o "alone/$1.so" "$1.c" -Wl,--no-as-needed "alone/$4" -Wl,-rpath,'$ORIGIN'
    expect_rc 0
}
library libomp.so.5
library libgomp-other.so.1
run ${CC:-cc} -shared -fPIC -o alone/libwrap.so.1 -Wl,-soname,libwrap.so.1 nothing.c -Wl,--no-as-needed alone/libomp.so.5 -Wl,-rpath,'$ORIGIN'
expect_rc 0
plugin direct good abi/hostile libomp.so.5
plugin transitive good abi/hostile libwrap.so.1
plugin halves halving toys libgomp-other.so.1
sed -i 's/momentum.*//; s/^name = adamw/name = halves/; s/^lr = .*//' tiny.ini
cp tiny.ini before.ini
path=alone by_name direct 'brings a second OpenMP runtime \(libomp\.so\.5\); link it with libgomp or use the host.s threads'
path=alone by_name transitive 'brought a second OpenMP runtime into the process \(.*(libomp\.so\.5.*libgomp-other|libgomp-other.*libomp\.so\.5)'
case_ "one runtime is none too many"
run "$TENON" train tiny.ini plugins.path=alone/halves.so checkpoint.dir=halves train.steps=1 optimizer.lr=0.01
expect_rc 0
