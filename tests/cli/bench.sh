#!/bin/bash
# bench.sh - tenon bench: that its report is whole and adds up. How fast anything is, is not judged here.
. "$(dirname "$0")/../support/lib.sh"

# number KEY: of a JSON report in out, one key a line; nothing if it is not there.
number()
{
    sed -n "s/^ *\"$1\": \([-0-9.e+]*\),\{0,1\}$/\1/p" <<<"$out" | head -n 1
}

positive()
{
    local key value

    for key; do
        value=$(number "$key")
        expected=$((expected + 1))
        awk -v x="$value" 'BEGIN { exit x == "" || x + 0 <= 0 }' || fail "$key is '$value', not a positive number"
    done
}

# sum KEY FROM TO: of all values of that key is between the two.
sum()
{
    expected=$((expected + 1))
    sed -n "s/^ *\"$1\": \([-0-9.e+]*\),\{0,1\}$/\1/p" <<<"$out" |
        awk -v from="$2" -v to="$3" '{ s += $1 } END { exit !(s >= from && s <= to) }' || fail "$1 does not add up"
}

parses()
{
    if type -P python3 >/dev/null; then
        expect python3 -c 'import json, sys; json.load(sys.stdin)' <<<"$out"
    else
        expect awk '{ gsub(/[^{}]/, ""); for (i = 1; i <= length($0); i++) d += substr($0, i, 1) == "{" ? 1 : -1 }
                    END { exit d != 0 }' <<<"$out"
    fi
}

small="model.vocab_size=40 model.n_layer=2 model.n_head=2 model.n_embd=32 model.block_size=16 train.global_batch=4
    train.micro_batch=2 model.bias=no backend.threads=2"

case_ "W1, for people"
run "$TENON" bench --workload W1 --steps 3 --warmup 1 --no-rates
expect_rc 0
expect_out '^W1 tenon threads [0-9]+: step [0-9.]+ ms  [0-9]+ tok/s  [0-9.]+ GFLOP/s  peak RSS [0-9]+ MB$'
expect_out '4 layers, 4 heads, width 128, vocabulary 65; 804096 parameters$'
expect_out '^update +12 sequences of 64 tokens, 1 x 12$'
expect_out '^phases +data [0-9.]+, forward [0-9.]+, backward [0-9.]+, optimizer [0-9.]+, other '
# 6 x 795904 + 6 x 4 x 128 x 64 for each of 768 tokens
expect_out '^model FLOPs +3\.819e\+09 '
expect_err_lines 0

# Resident after the launches: most of the arena, and not much more than the plan has (a third and 12 MB: sanitizers
# and libraries want pages too).
case_ "memory by launch, planned and measured"
run "$TENON" bench --workload W1 --steps 1 --warmup 1 --no-rates --memory-timeline
expect_rc 0
expect_out '^ +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +#+ +backward block3 '
expect awk '
    /^at most/ { planned = $3 }
    /^measured at most/ { good = $4 > 0.9 * planned && $4 < 1.3 * $(NF - 4) + 12 }
    END { exit !good || planned < 5 }' <<<"$out"

case_ "W1, for programs"
run "$TENON" bench --workload W1 --steps 3 --json --ops
expect_rc 0
parses
positive step_ms step_min_ms step_max_ms tokens_per_second gflops model_flops parameters peak_rss_mb \
    forward backward optimizer data planned_bytes arena_bytes rss_bytes peak_rss_bytes total_ms plugins_ms plan_ms \
    weights_ms first_update_ms square_gflops step_gflops share_of_square share_of_step memory_gbytes_per_second \
    nodes_ms first_loss last_loss
expect [ "$(number parameters)" = 804096 ]
expect [ "$(number tokens)" = 768 ]
expect [ "$(sed -n '/"steps_ms"/,/\]/p' <<<"$out" | grep -c '^ *[0-9]')" = 3 ]
sum share 0.999 1.001
expect [ "$(grep -c '"role": "attn_qkv"' <<<"$out")" = 3 ]   # forward, by the input, by the weight: 4 layers each
expect [ "$(grep -A 6 '"role": "attn_qkv"' <<<"$out" | grep -c '"launches": 4,')" = 3 ]
expect awk -v a="$(number step_min_ms)" -v b="$(number step_ms)" -v c="$(number step_max_ms)" \
    'BEGIN { exit !(a <= b && b <= c) }'

case_ "launches, for people"
run "$TENON" bench $small --steps 2 --ops
expect_rc 0
expect_out '^launches, one by one: '
expect_out ' cpu +forward +einsum.* attn_qkv +block0 \+1$'
expect_out '^ +[0-9.]+ +100\.00 '
expect_out '^products of the step, alone$'
lost=$(sed -n '/^launches/,/ 100\.00 /p' <<<"$out" | awk '$2 ~ /^[0-9.]+$/ && $2 != "100.00" { print $3 }')
expect [ -n "$lost" ]
expect [ "$lost" = "$(sort -rn <<<"$lost")" ]                     # worst first
expect awk '$2 ~ /^[0-9.]+$/ && NF > 8 { s += $2 } END { exit !(s > 99 && s < 101) }' \
    <<<"$(sed -n '/^launches/,/ 100\.00 /p' <<<"$out")"

case_ "a configuration; overrides are stronger than a workload"
printf '[model]\nvocab_size = 30\nn_layer = 1\nn_head = 1\nn_embd = 8\nblock_size = 8\n' >my.ini
run "$TENON" bench my.ini --steps 1 --json --no-rates model.n_layer=2
expect_rc 0
parses
expect_out '^ "workload": "my\.ini",$'
expect [ "$(number tokens)" = 96 ]
run "$TENON" bench --workload W1 --steps 1 --json --no-rates model.n_layer=1
expect [ "$(number parameters)" = $((128 * 65 + 64 * 128 + 12 * 128 * 128 + 3 * 128)) ]

case_ "kernels that are slow get a smaller square"
run "$TENON" bench $small --steps 1 --json backend.kernels=ref
expect_rc 0
positive square_side square_gflops step_gflops
expect_out '"square_kernel": "ref"'

case_ "two commands in turn"
cat >other <<'END'
echo turn >>turns
echo "other: step 1.0 ms  2000 tok/s  9 GFLOP/s"
END
chmod +x other
run "$TENON" bench $small --steps 2 --vs "sh ./other"
expect_rc 0
expect_out '^pair 3: tenon [0-9]+ tok/s, other 2000 tok/s, ratio [0-9.]+$'
expect_out '^other  2000 tok/s '
expect_out '^ratio  [0-9.]+ of tokens a second, median of 3 pairs'
expect [ "$(wc -l <turns)" = 3 ]
run "$TENON" bench $small --steps 1 --vs "echo 'step 3: 1.5k tok/s'; echo 9 tok/s; echo 2.5 k tok/s"
expect_out '^other  1500 tok/s '                                  # the median of what it says
run "$TENON" bench $small --steps 2 --json --pairs 4 --vs "echo '{\"tokens_per_second\": 500}'"
expect_rc 0
parses
expect [ "$(number pairs)" = 4 ]
positive ratio tokens_per_second other_peak_rss_mb
expect awk -v r="$(number ratio_min)" -v t="$(number ratio_max)" -v m="$(number ratio)" 'BEGIN { exit !(r <= m && m <= t) }'
expect awk -v x="$(number other_tokens_per_second)" 'BEGIN { exit x != 500 }'

case_ "the other command fails, says nothing, hangs"
run "$TENON" bench $small --steps 1 --vs "exit 3"
expect_rc 1
expect_err 'exit 3 failed with exit status 3$'
expect_err_lines
run "$TENON" bench $small --steps 1 --vs "echo 12 tokens"
expect_rc 2
expect_err 'printed neither a number before tok/s nor tokens_per_second; its output ends with: 12 tokens'
run "$TENON" bench $small --steps 1 --limit 3 --vs "(sleep 6; echo >late) & sleep 500; echo 1 tok/s"
expect_rc 1
expect_err 'was not done after 3 s \(--limit\) and was ended$'
sleep 4
expect_no_file late                                               # its children ended too

case_ "a trace"
run "$TENON" bench $small --steps 1 --no-rates --trace seen
expect_rc 0
expect_out '^trace of update 4, rank 0 computed longest: [0-9.e-]+ s, of them compute [0-9.e-]+ s$'
expect grep -q '"traceEvents":\[{"name":"update 4"' seen/trace-rank-0.json
run "$TENON" bench $small --steps 1 --no-rates --trace seen --json
expect_rc 0
parses

case_ "mistakes"
run "$TENON" bench --workload W1 --vs true --trace seen
expect_rc 2
expect_err '--vs compares whole updates, and --trace looks into one'
run "$TENON" bench
expect_rc 2
expect_err 'Give a configuration, or --workload'
run "$TENON" bench my.ini --workload W1
expect_rc 2
expect_err 'both say what to train'
run "$TENON" bench --workload W9
expect_rc 2
expect_err 'W1'
expect_err_lines
run "$TENON" bench --workload W1 model.n_head=3
expect_rc 2
expect_err 'model\.n_head = 3'
run "$TENON" bench model.n_layer=1
expect_rc 2
expect_err 'model\.vocab_size'
run "$TENON" bench --workload W1 --steps 0
expect_rc 2
