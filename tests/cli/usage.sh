#!/bin/bash
# usage.sh - the command line: help from the tables, arguments that are refused in words, tenon config.
. "$(dirname "$0")/../support/lib.sh"

case_ "help and version"
for arguments in --help -h help; do
    run "$TENON" $arguments
    expect_rc 0
    expect_out '^  config  +Prints the resolved configuration'
    expect_out '^  help  '
done
run "$TENON" --version
expect_rc 0
expect_out '^tenon [0-9]+\.[0-9]+\.[0-9]+ '
run "$TENON"
expect_rc 2
expect_err '^usage: tenon COMMAND'

case_ "every command of the overview explains itself, both ways the same"
for name in $("$TENON" --help | sed -n 's/^  \([a-z]\{1,\}\) .*/\1/p'); do
    run "$TENON" help "$name"
    expect_rc 0
    expect_out "^usage: tenon $name"
    first=$out
    run "$TENON" "$name" --help
    expect_rc 0
    expect [ "$out" = "$first" ]
done

case_ "the keys"
run "$TENON" help keys
expect_rc 0
expect_out '^\[optimizer\]'
expect_out '^  lr  .*a number from 0 to 1000000'
expect_out 'schedule|1f1b'
run "$TENON" help keys schedule
expect_out '^  warmup'
expect_not_out '^\[train\]'
run "$TENON" help keys modle
expect_rc 2
expect_err_lines 1
expect_err 'no section modle; did you mean model\?'

case_ "the manual page"
run "$TENON" help --man
expect_rc 0
expect_out '^\.TH TENON 1'
expect_out '^\\fBwarmup\\fR'
expect_out '^\.SS config'
if command -v groff >/dev/null; then
    printf '%s\n' "$out" >tenon.1
    run groff -man -Tutf8 -ww tenon.1
    expect_rc 0
    expect [ -z "$err" ]
    expect_out "A failure while running"
fi

case_ "what is no command"
run "$TENON" confg
expect_rc 2
expect_err_lines 1
expect_err 'unknown command confg; did you mean tenon config\?'
run "$TENON" --nothing
expect_rc 2
expect_err 'unknown option --nothing'
run "$TENON" help nothing
expect_rc 2
expect_err_lines 1
expect_err 'unknown command nothing; there are prepare, train, .* probe, verify, .* and help'
run "$TENON" help trian
expect_err 'did you mean tenon train\?'
run "$TENON" help schedule
expect_rc 2
expect_err 'help schedule: it is no command, but a section of the configuration: tenon help keys schedule'
run "$TENON" help optimiser.lr
expect_rc 2
expect_err 'the key optimizer\.lr is explained by tenon help keys optimizer'

# argument, what the message must have
refused()
{
    case_ "argument $1"
    run "$TENON" config "$1"
    expect_rc 2
    expect_err_lines 1
    expect_err "$2"
    expect [ -z "$out" ]
}
refused lr=3e-4 'lr=3e-4: expected section\.key=value; did you mean optimizer\.lr\?'
refused --lr '--lr;.*section\.key=value.*optimizer\.lr=VALUE\?'
refused --lr= '--lr=;.*optimizer\.lr=VALUE\?'
refused --lr=3e-4=x 'optimizer\.lr=3e-4=x\?'
refused --LR=1 'optimizer\.lr=1\?'
refused --optimizer.lr=1 'did you mean optimizer\.lr=1\?'
refused --hepl 'did you mean --help\?'
refused -x 'unknown option -x'
refused optimizer.lr=3,0e-4 'optimizer\.lr = 3,0e-4: expected a number from 0 to 1000000'
refused optimizer.lr= 'optimizer\.lr is empty'
refused optimizer.LR=1 'unknown key optimizer\.LR; did you mean optimizer\.lr\?'
refused train.stpes=1 'unknown key train\.stpes; did you mean train\.steps\?'
refused none.ini 'cannot read none\.ini: No such file'
refused . 'cannot read \.: it is a folder'

case_ "too many arguments"
run "$TENON" config a.ini b.ini
expect_rc 2
expect_err 'one argument too many: b\.ini; usage: tenon config'
run "$TENON" help --man=x
expect_rc 2
expect_err '--man takes no value'

case_ "every problem of a file at once, with its line"
printf '[train]\nstepz = 1\n  seed = x\n[model]\nn_layer = 1\nn_layer = 2\n' >bad.ini
run "$TENON" config bad.ini optimizer.lr=nan
expect_rc 2
expect_err_lines 4
expect_err 'bad\.ini:2: unknown key train\.stepz; did you mean train\.steps\?'
expect_err 'bad\.ini:3: train\.seed = x: '
expect_err 'bad\.ini:6: model\.n_layer again; it is on line 5'
expect_err 'command line: optimizer\.lr = nan: '

case_ "what is printed says where it is from, and is a configuration itself"
printf '[train]\nsteps = 7\n' >run.ini
run "$TENON" config run.ini train.seed=5
expect_rc 0
expect_out '^steps = 7 ; run\.ini:2$'
expect_out '^seed = 5 ; command line$'
expect_out '^n_layer = 12 ; default$'
expect_out '^; n_kv_head is not set: n_head$'
expect_out '^dir = runs/run ; derived$'
cp "$test_folder/out" full.ini
run "$TENON" config full.ini
expect_rc 0
expect_out '^steps = 7 ; full\.ini:'
expect_same <(sed 's/ ;.*//; /^; /d' full.ini) <(printf '%s\n' "$out" | sed 's/ ;.*//; /^; /d')

case_ "an output that cannot be written is a failure"
run sh -c '"$TENON" config >/dev/full'
expect_rc 1
expect_err 'cannot write the output: No space left'

# A descriptor that the caller closed is free for the next file: what is printed must not end up there.
case_ "closed streams"
. "$top_srcdir/tests/support/runs.sh"
make_tiny
run sh -c '"$TENON" config >&-'
expect_rc 1
expect_err 'cannot write the output'
train open train.steps=3
for closed in '>&-' '<&- >&- 2>&-'; do
    run sh -c "\"\$TENON\" train tiny.ini checkpoint.dir=closed train.steps=3 $closed"
    expect_rc 1
    same_checkpoint open closed 3
    expect test "$(losses open)" = "$(losses closed)"
    expect test "$(wc -l <closed/metrics.jsonl)" = 3
    expect test "$(wc -l <closed/.lock)" = 1
    rm -r closed
done
