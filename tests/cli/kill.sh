#!/bin/bash
# kill.sh - a process that dies at any moment costs the updates since its last checkpoint, and no more.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
make_tiny
steps=${KILL_STEPS:-400} kills=20
settings="train.steps=$steps schedule.steps=$steps train.log_interval=1000"
settings+=" checkpoint.interval=2 checkpoint.keep=2"

case_ "a run that is left alone"
train whole $settings

# The number of the newest checkpoint, in `step`.
newest()
{
    local all=(killed/step-*)

    step=${all[-1]#killed/step-}
    [ "$step" = "*" ] && step=0
    step=$((10#$step))
}

# A life ends some milliseconds after it has saved so many times, which may be never: at any moment of
# starting, loading, training or saving, and so early that twenty lives do not reach the end of the run.
RANDOM=${KILL_SEED:-$$}
case_ "SIGKILL at $kills random moments (KILL_SEED=${KILL_SEED:-$$})"
killed=0
for ((i = 0; i < kills; i++)); do
    newest
    goal=$((step + RANDOM % 5 * 2))
    "$TENON" train tiny.ini checkpoint.dir=killed $settings </dev/null >>killed.log 2>&1 &
    pid=$!
    for ((wait = 0; wait < 2500 && step < goal; wait++)); do
        sleep 0.002
        newest
    done
    sleep "0.00$((RANDOM % 10))"
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ $? = 137 ] && killed=$((killed + 1))
done
expect test $killed = $kills
expect_no_file killed/step-$(printf %08d $steps)
expect test "$(ls -d killed/step-* | wc -l)" -ge 1
run "$TENON" train tiny.ini checkpoint.dir=killed $settings
expect_rc 0
expect_out 'going on from killed/step-'
same_checkpoint whole killed $steps
expect test "$(losses whole)" = "$(losses killed)"
expect test -z "$(find killed -name '.step-*')"

# wait_for_step RUN: until the run has made some updates.
wait_for_step()
{
    local i

    for ((i = 0; i < 500; i++)); do
        [ "$(grep -c loss "$1/metrics.jsonl" 2>/dev/null)" -ge 3 ] 2>/dev/null && return
        sleep 0.02
    done
    fail "$1 makes no updates"
}

for signal in TERM INT HUP; do
    case_ "SIG$signal saves and ends well"
    for try in 1 2 3 4 5; do                    # a busy machine may give this shell no turn before the run has ended
        rm -rf $signal
        env --default-signal=$signal "$TENON" train tiny.ini checkpoint.dir=$signal $settings checkpoint.interval=0 \
            </dev/null >$signal.log 2>&1 &
        pid=$!
        wait_for_step $signal
        kill -$signal $pid
        wait $pid
        rc=$? command="kill -$signal"
        grep -q "step $steps/$steps" $signal.log || break
    done
    out=$(cat $signal.log) err=
    expect_rc 0
    expect_out "^SIG$signal.*: stopped at step [0-9]+ of $steps, saved"
    expect test "$(ls -d $signal/step-* | wc -l)" = 1
    run "$TENON" train tiny.ini checkpoint.dir=$signal $settings
    expect_rc 0
    same_checkpoint whole $signal $steps
done

case_ "nohup"
(trap '' HUP; exec "$TENON" train tiny.ini checkpoint.dir=nohup $settings checkpoint.interval=0) \
    </dev/null >nohup.log 2>&1 &
pid=$!
wait_for_step nohup
kill -HUP $pid
wait $pid
rc=$?
expect_rc 0
same_checkpoint whole nohup $steps

# The first line of many: what is lost is the output, not the run.
case_ "an output that nobody reads any more"
{ "$TENON" train tiny.ini checkpoint.dir=pipe $settings train.log_interval=1 checkpoint.interval=0 2>pipe.err
  echo $? >pipe.rc; } </dev/null | head -n 4 >/dev/null
expect test "$(cat pipe.rc)" = 1
expect grep -q 'cannot write the output' pipe.err
expect test "$(ls -d pipe/step-* | wc -l)" = 1
train pipe $settings
same_checkpoint whole pipe $steps

# A start that takes its time, over a gigabyte of token 0: there is no run directory yet.
case_ "SIGUSR1 while a run starts"
mkdir big
truncate -s 1G big/train.bin
cp data/val.bin big
"$TENON" train tiny.ini checkpoint.dir=early data.dir=big model.vocab_size=100 train.steps=3 checkpoint.keep=0 \
    </dev/null >early.log 2>&1 &
pid=$!
for ((i = 0; i < 2500; i++)); do                # until signal 10 is caught
    caught=$(sed -n 's/^SigCgt:[ \t]*//p' /proc/$pid/status 2>/dev/null)
    ((0x${caught:-0} & 0x200)) && break
    sleep 0.002
done
expect_no_file early
kill -USR1 $pid
wait $pid
rc=$? command="kill -USR1"
expect_rc 0
expect test "$(echo early/step-*)" = "early/step-00000001 early/step-00000003"
rm -r big

case_ "SIGUSR1 saves and goes on"
"$TENON" train tiny.ini checkpoint.dir=usr1 $settings checkpoint.interval=0 checkpoint.keep=0 \
    </dev/null >usr1.log 2>&1 &
pid=$!
wait_for_step usr1
kill -USR1 $pid
wait $pid
rc=$?
expect_rc 0
expect test "$(ls -d usr1/step-* | wc -l)" = 2
same_checkpoint whole usr1 $steps

case_ "one writer at a time"
"$TENON" train tiny.ini checkpoint.dir=busy $settings </dev/null >busy.log 2>&1 &
pid=$!
wait_for_step busy
run "$TENON" train tiny.ini checkpoint.dir=busy $settings
expect_rc 1
expect_err "busy is in use by process $pid"
kill $pid
wait $pid
