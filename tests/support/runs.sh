# runs.sh - for shell tests that train, after lib.sh: a text, its tokens, a tiny model, what a run left.

[ -x "$TENON" ] || { echo "there is no program $TENON"; exit 99; }

# Leaves text.txt, data/ (characters) and tiny.ini here; a run of it takes a moment.
make_tiny()
{
    seq 1 400 | sed 's/.*/Line & of &&: all work and no play (& times) makes a dull model?/' >text.txt
    "$TENON" prepare --input text.txt --out data --tokenizer char >prepare.log 2>&1 ||
        fail "prepare: $(cat prepare.log)"
    cat >tiny.ini <<'END'
[model]
n_layer = 2
n_head = 2
n_embd = 16
block_size = 16
dropout = 0.1
[train]
global_batch = 8
micro_batch = 4
steps = 30
eval_interval = 0
eval_batches = 2
[data]
dir = data
[optimizer]
name = adamw
lr = 1e-2
[schedule]
name = cosine
warmup = 5
min_lr = 1e-3
steps = 30
[checkpoint]
interval = 0
[backend]
threads = 2
END
}

# train RUN [SETTING...]: must succeed.
train()
{
    local to=$1

    shift
    run "$TENON" train tiny.ini "checkpoint.dir=$to" "$@"
    expect_rc 0
}

# same_checkpoint A B STEP: model and optimizer, byte for byte, in as many files.
same_checkpoint()
{
    local step kind file

    step=$(step_name "$3")
    for kind in model optimizer; do
        expect test -e "$1/$step/$kind-00001-of-0000"*.safetensors
        for file in "$1/$step/$kind"-*.safetensors; do
            expect_same "$file" "$2/$step/${file##*/}"
        done
    done
}

step_name()
{
    printf 'step-%08d' "$1"
}

# losses RUN: "step loss" of every update.
losses()
{
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"
}

# metric RUN STEP KEY: its value, nothing if it is not there.
metric()
{
    sed -n "s/.*\"step\":$2,.*\"$3\":\([^,}]*\)[,}].*/\1/p" "$1/metrics.jsonl"
}

# near A B TOLERANCE: two numbers, the tolerance relative to the first.
near()
{
    awk -v a="$1" -v b="$2" -v t="$3" \
        'BEGIN { d = a - b; if (d < 0) d = -d; if (a < 0) a = -a; exit a == "" || b == "" || d > t * a }'
}
