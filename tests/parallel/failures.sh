#!/bin/bash
# failures.sh - training on several processes, and what can happen to one of them: every survivor ends in time with a
# sentence that names it, or the run goes on; the checkpoints that there are stay whole, and a run goes on from them.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
. "$top_srcdir/tests/support/ranks.sh"
[ -e "$top_builddir/plugins/gloo/.libs/gloo.so" ] || skip "the plugin gloo is not built"
make_tiny
sed -i 's/^steps = 30$/steps = 100000/' tiny.ini         # the schedule's too, so that a longer run has the same curve
soon=12                                 # seconds, many for this machine; the limits below are of 1 to 2
common=(backend.threads=1 backend.comm=gloo train.global_batch=12 train.log_interval=1 checkpoint.keep=2)

ini=()                                  # by rank, where it is another one than tiny.ini

# start RANK SIZE VARIABLE=... -- ARGUMENT...: a rank of tenon train, in the background; pid.RANK is its process.
start()
{
    local rank=$1 size=$2 variables=()

    shift 2
    while [ "$1" != -- ]; do variables+=("$1"); shift; done
    shift
    (
        code=0
        env RANK="$rank" WORLD_SIZE="$size" MASTER_ADDR=127.0.0.1 MASTER_PORT=$ranks_port ${variables[@]+"${variables[@]}"} \
            bash -c 'echo $$ >"$0"; exec "$@"' "pid.$rank" "$TENON" train "${ini[$rank]-tiny.ini}" "${common[@]}" "$@" \
            </dev/null >"out.$rank" 2>"err.$rank" || code=$?
        echo "$code $(date +%s%N)" >"end.$rank"
    ) 2>/dev/null &
}

# all SIZE ARGUMENT...: all ranks in the background.
all()
{
    local size=$1 r

    shift
    fresh
    for ((r = 0; r < size; r++)); do start $r "$size" -- "$@"; done
}

fresh() { ranks_port=$((ranks_port + 20)); rm -f out.* err.* end.* pid.*; }

# until_ CONDITION...: waits, thirty seconds at the most, on a machine that does other things too.
until_()
{
    for ((i = 0; i < 600; i++)); do "$@" && return; sleep 0.05; done
    fail "never came: $*"
}

is_at() { grep -q "^step $1/" out.0 2>/dev/null; }
is_over() { local r; for r; do [ -s "end.$r" ] || return; done; }
signal() { struck=$(date +%s%N); kill "-$1" "$(cat "pid.$2")"; }

# ended CODE SECONDS RANK...: these end with this status, no later than so long after the signal; others are killed.
ended()
{
    local code=$1 limit=$2 r file

    shift 2
    until_ is_over "$@"
    for file in pid.*; do [ -s "end.${file#pid.}" ] || kill -KILL "$(cat "$file")" 2>/dev/null; done
    for r; do
        load "$r"
        expect_rc "$code"
        expect awk -v a="$(cut -d' ' -f2 "end.$r")" -v b="${struck:-0}" -v l="$limit" 'BEGIN { exit !(b == 0 || (a - b) / 1e9 < l) }'
    done
    wait
}

load() { rc=$(cut -d' ' -f1 "end.$1") out=$(cat "out.$1") err=$(cat "err.$1") command="rank $1"; }
says() { local r=$1; shift; load "$r"; for pattern; do expect_err "$pattern"; done; }
silent() { local r; for r; do load "$r"; expect_not_err '^tenon: (warning: )?[^g]'; done; }    # but for gloo's line

newest() { find "$1" -maxdepth 1 -name 'step-*' | sort | tail -n 1; }

# goes_on RUN ARGUMENT...: two updates more than there are; the curve is that of a run that nothing happened to.
goes_on()
{
    local run=$1 from steps
    shift

    from=$(newest "$run")
    expect [ -n "$from" ]
    steps=$((10#${from##*step-} + 2))
    ranks 3 "$TENON" train tiny.ini "${common[@]}" "checkpoint.dir=$run" train.micro_batch=4 train.steps=$steps "$@"
    expect_rc 0
    expect_out "going on from $from"
    expect [ -z "$(find "$run" -maxdepth 1 -name '.step-*')" ]
    rm -rf alone
    run "$TENON" train tiny.ini backend.threads=1 train.global_batch=12 checkpoint.dir=alone train.steps=$steps
    expect_rc 0
    paste <(losses alone) <(losses "$run") | tail -n 2 >curves
    expect awk '{ d = $2 - $4; if (d < 0) d = -d; if (NF != 4 || $1 != $3 || d > 1e-5 * $2) bad = 1 } END { exit bad || NR != 2 }' curves
}

case_ "a rank that is killed while it trains"
all 3 checkpoint.dir=killed train.micro_batch=4 parallel.zero=3 train.steps=100000 checkpoint.interval=5 backend.timeout=60
until_ is_at 12
signal KILL 1
ended 1 $soon 0 2
for r in 0 2; do says $r "^tenon: rank 1 of 3 \(host .*, process [0-9]+\) died.*; rank $r was in .*phase (step|save)"; done
goes_on killed parallel.zero=3

case_ "a rank that is stopped while it trains"
for whom in 2 0; do
    rm -rf stopped
    all 3 checkpoint.dir=stopped train.micro_batch=4 parallel.zero=1 train.steps=100000 checkpoint.interval=5 backend.timeout=1.5
    until_ is_at 12
    signal STOP $whom
    survivors=$(for r in 0 1 2; do [ $r = $whom ] || echo $r; done)
    ended 1 $soon $survivors
    for r in $survivors; do
        says "$r" "^tenon: rank $whom of 3 \(host .*, process [0-9]+\) does not answer, it is stopped or cut off; rank $r was in .*phase (step|save)"
    done
done
goes_on stopped

case_ "a rank that is asked to end: all end after the same update, saved"
all 3 checkpoint.dir=asked train.micro_batch=4 parallel.zero=2 train.steps=100000 checkpoint.interval=0
until_ is_at 5
signal TERM 1
ended 0 $soon 0 1 2
load 0
expect_out '^a signal to another rank: stopped at step [0-9]+ of 100000, saved; the same command goes on from here'
silent 1 2
goes_on asked

case_ "a rank that comes late"
unset struck
fresh
for r in 1 2; do start $r 3 -- checkpoint.dir=late train.micro_batch=4 train.steps=3; done
sleep 1
start 0 3 -- checkpoint.dir=late train.micro_batch=4 train.steps=3
ended 0 0 0 1 2

case_ "a rank that never comes"
fresh
struck=$(date +%s%N)
for r in 0 2; do start $r 3 -- checkpoint.dir=never backend.timeout=1; done
ended 1 $soon 0 2
for r in 0 2; do says $r 'rank 1 of 3 did not arrive within 1 s; rank 0 listens on 127\.0\.0\.1 port '; done
expect_no_file never

case_ "a configuration that cannot be read, everywhere or on one rank"
ini=(none.ini none.ini)
all 2 checkpoint.dir=wrong
ended 2 $soon 0 1
says 0 '^tenon: cannot read none\.ini: No such file'
silent 1
ini=([1]=none.ini)
all 2 checkpoint.dir=wrong
ended 2 $soon 0 1
says 0 '^tenon: rank 1 of 2 \(host .*, process [0-9]+\): cannot read none\.ini: No such file'
silent 1
ini=()

case_ "what is wrong on one rank before the start"
fresh
start 0 2 -- checkpoint.dir=wrong; start 1 2 -- checkpoint.dir=wrong optimizer.lr=2e-2
ended 2 $soon 0 1
says 0 'differ in their configuration' 'optimizer\.lr: rank 0 has 1e-2; rank 1 has 2e-2'
silent 1
fresh
start 0 2 -- checkpoint.dir=wrong; start 1 2 -- checkpoint.dir=wrong data.dir=nowhere
ended 2 $soon 0 1
says 0 '^tenon: rank 1 of 2 \(host .*, process [0-9]+\): .*nowhere'
silent 1
"$TENON" prepare --input tiny.ini --out other --tokenizer byte >/dev/null 2>&1
fresh
start 0 2 -- checkpoint.dir=wrong model.vocab_size=300; start 1 2 -- checkpoint.dir=wrong model.vocab_size=300 data.dir=other
ended 2 $soon 0 1
says 0 'the ranks differ in their files:' 'data: rank 0 has train=.*; rank 1 has train='
silent 1
cp "$top_builddir/plugins/adamw/.libs/adamw.so" other.so
if objcopy --remove-section .note.gnu.build-id other.so 2>/dev/null; then
    fresh
    start 0 2 -- checkpoint.dir=wrong; start 1 2 -- checkpoint.dir=wrong plugins.path="$PWD/other.so"
    ended 2 $soon 0 1
    says 0 'the ranks differ in their plugins' 'plugin adamw: rank 0 has version .*, build [0-9a-f]+; rank 1 has version .*, build without id'
    silent 1
fi
expect_no_file wrong

case_ "a rank that ends with an error of its own"
if (ulimit -v 1500000; "$TENON" --version >/dev/null 2>&1); then        # not under sanitizers
    fresh
    large=(checkpoint.dir=wrong model.n_embd=1024 model.n_layer=10 train.micro_batch=6 backend.timeout=60)
    struck=$(date +%s%N)
    start 0 2 -- "${large[@]}"
    (ulimit -v 1500000; start 1 2 -- "${large[@]}"; wait)               # 2 GB are needed
    ended 1 $soon 0 1
    says 1 '^tenon: no room for [0-9.]+ MiB of host memory'
    says 0 '^tenon: rank 1 of 2 \(host .*, process [0-9]+\) failed: no room for [0-9.]+ MiB of host memory.*; rank 0 was in phase (start|load|connect)'
    expect_no_file wrong
fi

case_ "addresses that contradict each other"
fresh
start 0 2 -- checkpoint.dir=wrong backend.timeout=1; start 1 2 MASTER_PORT=$((ranks_port + 7)) -- checkpoint.dir=wrong backend.timeout=1
ended 1 $soon 0 1
says 0 "rank 1 of 2 did not arrive within 1 s; rank 0 listens on 127\.0\.0\.1 port $ranks_port"
says 1 "rank 0 of 2 did not arrive within 1 s; last tried: 127\.0\.0\.1 port $((ranks_port + 7)): Connection refused"
fresh
start 0 2 -- checkpoint.dir=wrong backend.timeout=1; start 1 3 -- checkpoint.dir=wrong backend.timeout=1
until_ is_over 1
says 1 "the store at 127\.0\.0\.1 port $ranks_port does not take this process: rank 1 of 3 came to rank 0 of 2"
ended 1 $soon 0
expect_no_file wrong

case_ "a disk that is full on one rank"
if type -P prlimit >/dev/null; then
    unset struck
    all 3 checkpoint.dir=full train.micro_batch=4 parallel.zero=3 train.steps=100000 checkpoint.interval=5
    until_ is_at 7
    prlimit --pid "$(cat pid.1)" --fsize=8192:unlimited            # its part is larger
    until_ grep -q 'warning: step [0-9]* was not saved' err.0
    until_ grep -q 'warning: step [0-9]*5 was not saved' err.0
    says 0 '^tenon: warning: step [0-9]+ was not saved: rank 1 of 3 \(host .*, process [0-9]+\): cannot write .*step-.*File too large'
    silent 1 2
    prlimit --pid "$(cat pid.1)" --fsize=unlimited:unlimited
    rm -f out.0.seen; cp out.0 out.0.seen
    until_ eval '[ "$(grep -c "^saved" out.0)" -gt "$(grep -c "^saved" out.0.seen)" ]'
    unsaved=$(grep -c 'was not saved' err.0)
    prlimit --pid "$(cat pid.1)" --fsize=8192:unlimited
    until_ eval '[ "$(grep -c "was not saved" err.0)" -gt "$unsaved" ]'    # so the last state is not one that was saved before
    signal TERM 2
    ended 1 $soon 0 1 2
    says 0 '^tenon: the last state of the run, step [0-9]+, could not be saved: rank 1 of 3 \(host .*\): cannot write .*File too large'
    silent 1 2
    goes_on full parallel.zero=3
else
    echo "without prlimit: no disk is full"
fi
