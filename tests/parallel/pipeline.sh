#!/bin/bash
# pipeline.sh - what tenon plan says of a pipeline: stages, the order of each rank, pauses, memory; and what is refused.
. "$(dirname "$0")/../support/lib.sh"

cat >line.ini <<'END'
[model]
n_layer = 4
n_head = 2
n_embd = 32
vocab_size = 65
block_size = 16
[train]
global_batch = 8
micro_batch = 2
[parallel]
pp = 2
END

plan() { run "$TENON" plan line.ini "$@"; }

# has LINE: a line of the output, as it is but for spaces at its end.
has() { sed 's/ *$//' <<<"$out" | grep -qxF -e "$1" || { echo "$out"; false; }; }

# arena: bytes of it, of rank 0, in the table of ranks
arena() { awk '$NF == "0" && NF == 21 { k["B"] = 1; k["kB"] = 1e3; k["MB"] = 1e6; printf "%d", $14 * k[$15] }' <<<"$out"; }

case_ "a backward as soon as there can be one"
plan --schedule parallel.schedule=1f1b
expect_rc 0
expect has "rank 0   F0 F1 .. B0 F2 B1 F3 B2 .. B3"
expect has "rank 1   .. F0 B0 F1 B1 F2 B2 F3 B3 .."
expect_out '^bubble 20\.0 %'
expect_out '^stage 0 +rank 0 .*, 2 micro-batches in flight: embed block0-1$'
expect_out '^stage 1 +rank 1 .*, 1 micro-batch in flight: block2-3 head$'
few=$(arena)

case_ "all forwards first"
plan --schedule parallel.schedule=afab
expect_rc 0
expect has "rank 0   F0 F1 F2 F3 .. .. B0 B1 B2 B3"
expect has "rank 1   .. F0 F1 F2 F3 B0 B1 B2 B3 .."
expect_out '^bubble 20\.0 %'
expect_out '^stage 0 +rank 0 .*, 4 micro-batches in flight'
many=$(arena)
expect test "$few" -gt 0
expect test "$many" -gt $((few * 3 / 2))

case_ "a border of 1024 bytes, four times"
plan model.n_embd=16 model.block_size=8 model.tie_embeddings=no
expect_rc 0
expect_out '^move +pp +2 +norm +forward +fp32 +256 +4 +4096$'
expect_out '^all +4104$'
expect test "$(grep -c '^ *1 .* 4\.10 kB ' <<<"$out")" = 2

case_ "several stages on each rank"
plan --schedule parallel.schedule=interleaved
expect_rc 0
expect has "rank 0   F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 F3.0 B1.2 F2.2 B0.0 F3.2 B1.0 ..   B2.2 ..   B3.2 B2.0 B3.0"
expect has "rank 1   ..   F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 B3.3 B2.1 B3.1 .."
expect_out '^bubble 11\.1 %'

case_ "a dear head: a rank of its own"
plan --schedule parallel.pp=4 model.vocab_size=4096
expect_rc 0
expect_out '^stage 3 .*: head$'

case_ "stages as the user says"
plan --schedule parallel.stages=3,1
expect_rc 0
expect_out '^stage 0 .*: embed block0-2$'
plan parallel.stages=1,1
expect_rc 2
expect_err 'parallel\.stages = 1,1: there are 2 stages for 4 blocks'

case_ "micro-batches that do not fit"
plan parallel.schedule=interleaved train.global_batch=6
expect_rc 2
expect_err 'parallel\.schedule = interleaved .* an update has 3 of them .*: 2 or 4 would do'

case_ "more stages than parts"
plan parallel.pp=8
expect_rc 2
expect_err 'parallel\.pp = 8 makes 8 stages, and the model has only 6 parts'

case_ "one process"
run "$TENON" plan line.ini --schedule parallel.pp=1
expect_rc 0
expect_out '^bubble 0\.0 %'
