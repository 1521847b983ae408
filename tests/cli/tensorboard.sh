#!/bin/bash
# tensorboard.sh - train.tensorboard: the events have what metrics.jsonl has, each step once, also after a resume.
#
# The bytes are known to tests/unit/test_events. Where $TENON_TENSORBOARD is a Python that has the package tensorboard, its own
# reader reads them too.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
make_tiny

# count RUN TAG: records that have it
count()
{
    grep -aoE "[^a-z_]$2[^a-z_]" "$1/events.out.tfevents.tenon" | wc -l
}

# same_count RUN: as many numbers as in metrics.jsonl
same_count()
{
    local key

    for key in loss lr grad_norm tokens_per_second val_loss; do
        expect test "$(count "$1" $key)" = "$(grep -c "\"$key\":" "$1/metrics.jsonl")"
    done
    expect test "$(count "$1" loss)" -gt 0
    [ -z "${TENON_TENSORBOARD:-}" ] || expect "$TENON_TENSORBOARD" - "$1" <<'END'
import glob, json, math, sys
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
lines = [json.loads(l) for l in open(sys.argv[1] + "/metrics.jsonl")]
want = {(l["step"], k): l[k] for l in lines for k in ("loss", "lr", "grad_norm", "tokens_per_second", "val_loss") if k in l}
got = {}
for e in EventFileLoader(sys.argv[1] + "/events.out.tfevents.tenon").Load():
    for v in e.summary.value:
        assert (e.step, v.tag) not in got, (e.step, v.tag)
        got[e.step, v.tag] = v.tensor.float_val[0] if v.HasField("tensor") else v.simple_value
assert got.keys() == want.keys(), (sorted(got.keys() ^ want.keys()))
for k in want:
    assert math.isclose(got[k], want[k], rel_tol=1e-6), (k, got[k], want[k])
print(len(got), "numbers")
END
}

case_ "none unless asked for"
train none train.steps=2
expect_no_file none/events.out.tfevents.tenon

case_ "one run"
train one train.tensorboard=yes train.steps=6 train.eval_interval=3
same_count one
expect test "$(count one loss)" = 6
expect test "$(count one val_loss)" = 3

case_ "it goes on"
train one train.tensorboard=yes train.steps=9 train.eval_interval=3
same_count one
expect test "$(count one loss)" = 9

case_ "from an older checkpoint: what is beyond is written anew"
train two train.tensorboard=yes train.steps=8 checkpoint.interval=4
rm -r "two/$(step_name 8)"
train two train.tensorboard=yes train.steps=6 checkpoint.interval=4
expect_err 'events\.out\.tfevents\.tenon: dropped [0-9]+ bytes that are beyond step 4'
same_count two
expect test "$(count two loss)" = 6

case_ "a run that begins afresh"
train two train.tensorboard=yes train.steps=2 checkpoint.resume=none
same_count two
expect test "$(count two loss)" = 2
