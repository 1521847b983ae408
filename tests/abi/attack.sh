#!/bin/bash
# attack.sh - plugins that load and then do what a plugin may not: to the process, in their lists, in their answers, to the
# graph, and to tenon plugins check. Each ends in a sentence with file and cause, or is put right with one; what stands on a
# terminal is text.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
. "$top_srcdir/tests/abi/host-lib.sh"
[ -e "$top_builddir/plugins/cpu/.libs/cpu.so" ] || [ -e "$top_builddir/plugins/ref/.libs/ref.so" ] || skip "no kernels were built"
export HOME=$tmp
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
make_tiny
sed -i 's/^steps = 30/steps = 3/' tiny.ini

# build SOURCE [N]: SOURCE.so, with one of its attacks
build()
{
    run ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O1 -Wall -Wextra -fPIC -shared -fvisibility=hidden -DATTACK="${2:-0}" \
        -I"$top_srcdir/libcore/include" -o "$1.so" "$top_srcdir/tests/abi/attack/$1.c" -lm
    expect_rc 0
}

# No escape, no byte that is no text.
expect_plain()
{
    expected=$((expected + 1))
    ! LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' "$test_folder/out" "$test_folder/err" || fail "a control character was printed"
    iconv -f UTF-8 -t UTF-8 "$test_folder/out" "$test_folder/err" >/dev/null 2>&1 || fail "what was printed is no UTF-8"
}

# --- the process
build deed
train untouched plugins.path=./deed.so backend.bootstrap=deed
deed()                                          # deed WHEN DEED COMMAND...
{
    local when=$1 deed=$2
    shift 2
    run env ATTACK_WHEN="$when" ATTACK_DEED="$deed" "$@"
}

put_back()                                      # put_back WHEN DEED TEXT WORDS: told, put back, and the run is as without it
{
    [ "$2" != denormals ] || [ "$(uname -m)" = x86_64 ] || return
    case_ "$2, at its $1"
    rm -rf run
    deed "$1" "$2" "$TENON" train tiny.ini plugins.path=./deed.so backend.bootstrap=deed checkpoint.dir=run
    expect_rc 0
    expect_err "^tenon: warning: \./deed\.so $3 while it was $4; it was put back$"
    expect_err_lines 1
    same_checkpoint untouched run 3
    expect test "$(stat -c %a run/metrics.jsonl)" = "$(stat -c %a untouched/metrics.jsonl)"
}
put_back start close 'closed or replaced stdin, stdout or stderr' loaded
put_back load chdir 'changed the working directory' loaded
put_back load umask 'changed the umask' loaded
put_back start locale 'changed the locale' loaded
put_back load rounding 'changed the rounding of the processor' loaded
put_back start traps 'made the processor trap' loaded
put_back load denormals 'made the processor flush denormals to zero \(linked with -ffast-math\?\)' loaded
put_back start block 'changed which signals are blocked' loaded
put_back stop rounding 'changed the rounding of the processor' stopped

case_ "an exit where nothing may end"
deed stop exit "$TENON" train tiny.ini plugins.path=./deed.so backend.bootstrap=deed checkpoint.dir=run1
expect_rc 2
expect_err '^tenon: \./deed\.so called exit\(\) while it was stopped$'
deed locate exit "$TENON" train tiny.ini plugins.path=./deed.so backend.bootstrap=deed checkpoint.dir=run2
expect_rc 1
expect_err '^tenon: \./deed\.so: called exit\(\) at \+0x[0-9a-f]+ of it, or in what it called there$'
expect_no_file run2

case_ "what it says is text"
deed start say "$TENON" train tiny.ini plugins.path=./deed.so backend.bootstrap=deed checkpoint.dir=run3
expect_rc 0
expect_err '^tenon: warning: a  \[31mred\?\?\?5m line$'
expect_err '^tenon: warning: and another one$'
expect_plain
run "$TENON" plugins --explain plugins.path=./deed.so
expect_out 'deed +5 +a reason  \[2Jwith \? in it'
expect_plain

case_ "a name that a terminal would obey"
mkdir odd
cp deed.so "odd/$(printf 'x\033[31m\ny').so"
run "$TENON" plugins plugins.path=odd
expect_rc 0
expect_out 'odd/x \[31m y\.so +refused: has characters in its path that cannot be shown'
expect_plain
run "$TENON" plugins check "odd/$(printf 'x\033[31m\ny').so" --only file
expect_rc 2
expect_plain

case_ "asked in a process of its own: nothing is left, nobody else is hit"
deed load group "$TENON" plugins plugins.path=./deed.so
expect_rc 0
expect_out '^deed .*refused: crashed while it was loaded and asked \(signal 15'
deed load leave "$TENON" plugins plugins.path=./deed.so
expect_rc 0
expect_out '^deed .*refused: did not answer within 2 s'

case_ "ten thousand places"
TENON_PLUGIN_PATH=$(seq -f 'rel%g' -s : 10000) run "$TENON" plugins
expect_rc 0
expect_err_lines 1
expect_err 'rel1 and 9999 more are not absolute paths'
TENON_PLUGIN_PATH=$(seq -f '/no/%g' -s : 10000) run "$TENON" train tiny.ini optimizer.name=nosuch checkpoint.dir=run4
expect_rc 2
expect_err 'searched: /no/1 \(No such file or directory\), .*, and [0-9]+ more, which tenon plugins --explain lists'
expect test "$(wc -c <"$test_folder/err")" -lt 2000

# --- tenon plugins check
mkdir place
export TMPDIR=$tmp/place
checked()                                       # checked WHEN DEED TEST TEXT
{
    [ "$2" != denormals ] || [ "$(uname -m)" = x86_64 ] || return
    case_ "checked: $2, at its $1"
    deed "$1" "$2" "$TENON" plugins check ./deed.so --only file --seconds 2
    expect_rc 1
    expect_out "^FAILED $3"
    expect_out "$4"
    expect_plain
    expect test -z "$(ls place)"
}
case_ "checked: nothing wrong"
run "$TENON" plugins check ./deed.so --only file/loads,file/probes,file/stops,file/ends
expect_rc 0
checked load close file/loads: 'as it was loaded, it closed or replaced stdin, stdout or stderr'
checked probe chdir file/probes: 'as it was asked, it changed the working directory'
checked load umask file/loads: 'changed the umask'
checked load denormals file/loads: 'flush denormals'
checked start traps file/loads: 'made the processor trap'
checked load block file/loads: 'changed which signals are blocked'
checked load stdout file/loads: 'it wrote to stdout'
checked start daemon file/loads: 'it started another process'
expect test -z "$(pgrep -f "^$TENON plugins check ./deed.so")"
checked start timer file/loads: "it set the process's timer"
checked load limit file/loads: 'it changed the limits of the process'
checked stop exit file/stops: 'called exit\(\)'
checked load leave file/loads: 'did not end within 2 s'
if ! sanitized; then
    checked end exit file/ends: 'was to end with status 77, and ended with 0'
    checked end hang file/ends: 'did not end within 2 s'
fi

case_ "a report is JSON, whatever is in it"
deed load shout "$TENON" plugins check ./deed.so --only file --json
expect_rc 1
expect_out 'it printed: \?\? \[31mloud'
expect_plain
! command -v python3 >/dev/null || expect python3 -m json.tool "$test_folder/out" /dev/null

for signal in INT HUP KILL; do
    case_ "ended by SIG$signal, nothing is left"
    ATTACK_WHEN=load ATTACK_DEED=hang setsid "$TENON" plugins check ./deed.so --seconds 30 >/dev/null 2>&1 &
    for i in $(seq 100); do [ -n "$(ls place)" ] && break; sleep 0.05; done
    expect test -n "$(ls place)"
    kill -$signal $!
    [ $signal = INT ] && kill -TERM $!           # a shell lets what it starts in the background ignore that one
    wait $! 2>/dev/null
    for i in $(seq 100); do
        [ -z "$(ls place; pgrep -f "^$TENON plugins check ./deed.so")" ] && break
        sleep 0.05
    done
    expect test -z "$(ls place)"
    expect test -z "$(pgrep -f "^$TENON plugins check ./deed.so")"
done
unset TMPDIR

# --- lists
lists()                                         # lists N STATUS TEXT [SETTING...]
{
    local n=$1 status=$2 text=$3
    shift 3
    case_ "lists $n"
    build lists "$n"
    sed 's/^name = adamw/name = lists/' tiny.ini >lists.ini
    run "$TENON" train lists.ini plugins.path=./lists.so checkpoint.dir=untouched2 "$@"
    expect_rc "$status"
    expect_err "$text"
    expect_err_lines 1
    expect_plain
    expect_no_file untouched2
}
lists 1 2 'lists\.so: tenon\.optimizer/1: "" is no key of an option'
lists 2 2 'lists\.so: tenon\.optimizer/1: "a\.b \[train\]" is no key of an option'
lists 3 2 'its option t has a name that every update has'
sanitized || lists 4 2 'lists\.so crashed \(segmentation fault, SIGSEGV\) while it was loaded'
lists 5 2 'its option beta has the range 1\.5 to 1'
lists 6 2 'its option beta is there twice'
lists 7 2 '"\.\./m" is no name of a slot'
lists 8 2 '"w" is no name of a slot'
lists 9 2 'beta is an option and a slot'
lists 10 2 'its slot m has the dtype 4, which is no floating type'
lists 11 2 'its slot m is there twice'
lists 12 1 'optimizer lists: for these options, its slot m is there twice'
lists 13 1 "optimizer lists: expression .*no name 'nosuch'"
lists 14 2 'lists\.so: tenon\.kernels/1: "ex pr" is no name of an operation'
lists 16 2 'the kind of device "cpu " is none'

# --- answers
answers()                                       # answers N STATUS TEXT [LINES]
{
    case_ "answers $1"
    build answers "$1"
    rm -rf answered
    run "$TENON" train tiny.ini plugins.path=./answers.so backend.device=cpu backend.kernels=answers,cpu,ref checkpoint.dir=answered
    expect_rc "$2"
    [ -z "$3" ] || expect_err "$3"
    [ -z "$3" ] || expect_err_lines 1
    expect_plain
    expect test -z "$(ls -d answered/step-* 2>/dev/null | grep -v step-00000003)"
}
answers 1 1 'answers\.so: open gives status 3, which it has not'
answers 2 1 'answers\.so: open succeeds and gives nothing'
answers 3 0 ''
expect_out 'device cpu \(A{63}\),'
answers 4 0 ''
expect_out 'device cpu \(a  \[31mred chip\),'
answers 5 1 'answers\.so: info gives status 5'
answers 6 1 'answers\.so: alloc succeeds and gives nothing'
answers 7 1 'answers\.so: alloc failed with status -4 and gives no reason'
answers 8 1 'answers\.so: sync failed with status -8 and gives no reason'
answers 9 1 'answers\.so: sync gives status 1, which it has not'
answers 10 1 'answers: prepare of expr gives status 7, which it has not'
answers 11 1 'kernel plugin answers wants 18446744073709551615 bytes of workspace for expr'
answers 12 1 'answers: launch of expr gives status 1, which it has not'
answers 13 1 'answers: launch of expr failed with status -1 and gives no reason'
answers 14 1 'answers\.so: called exit\(\) at \+0x'
sanitized || answers 15 139 'crashed \(segmentation fault, SIGSEGV\), in the code of no plugin'

silent()                                        # silent N TEXT
{
    case_ "silent $1"
    build silent "$1"
    run "$TENON" verify tiny.ini --ranks 2 plugins.path=./silent.so backend.comm=silent parallel.dp=2 train.micro_batch=2 \
        backend.timeout=5
    expect_rc 1
    expect_err "$2"
    expect_plain
}
if [ -e "$top_builddir/plugins/ddp/.libs/ddp.so" ] && [ -e "$top_builddir/plugins/dir/.libs/dir.so" ]; then
    silent 1 'silent\.so: open succeeds and gives nothing'
    silent 2 'silent\.so: open failed with status -1 and gives no reason'
    silent 3 'silent\.so: group gives status 4, which it has not'
    silent 4 'communicator silent: \./silent\.so: start succeeds and gives nothing'
    silent 5 'communicator silent: \./silent\.so: wait failed with status -5 and gives no reason'
    silent 6 'communicator silent: the fabric melts'
fi

# --- the graph
build random
case_ "random calls: none"
run "$TENON" plan tiny.ini --world 2 parallel.dp=2 plugins.dp=random plugins.path=./random.so
expect_rc 0
for seed in $(seq 1 64); do
    case_ "random calls, seed $seed"
    run env ATTACK_SEED=$seed "$TENON" plan tiny.ini --world 2 parallel.dp=2 plugins.dp=random plugins.path=./random.so
    expect test $rc = 0 -o $rc = 1 -o $rc = 2
    [ $rc = 0 ] || expect_err '^tenon: .*(random|optimizer)'
    expect_plain
done
