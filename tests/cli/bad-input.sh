#!/bin/bash
# bad-input.sh - what a user can get wrong about a run: exit status 2, one sentence that says what and where,
# and not a file made or changed.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
make_tiny
train good train.steps=6 checkpoint.interval=3 checkpoint.keep=0

# Everything below here, with contents: what a refused command must leave as it was.
state()
{
    find . -type f ! -name state.before ! -name state.after -exec sha256sum {} + | sort -k 2
    find . -type d | sort
}

# refused PATTERN COMMAND...: the sentence matches, it is the only line, nothing on stdout, nothing changed.
refused()
{
    local pattern=$1

    shift
    state >state.before
    run "$@"
    state >state.after
    expect_rc 2
    expect_err "$pattern"
    expect_err_lines "${lines:-1}"
    expect_not_out .
    expect_same state.before state.after
}

# bad_run PATTERN SETTING...: of tenon train into a new folder.
bad_run()
{
    local pattern=$1

    shift
    refused "$pattern" "$TENON" train tiny.ini checkpoint.dir=new "$@"
}

case_ "the configuration: all that is wrong in one go"
cat >bad.ini <<'END'
[model]
n_layer = 2
n_layr = 3
n_head = 2
n_head = 4
n_embd = wide
  bias = maybe
[train]
steps = -1
this is no key
END
printf 'grad_clip = %0300d\n' 1 >>bad.ini
lines=7 refused 'bad\.ini:3: .*n_layr.*n_layer' "$TENON" train bad.ini checkpoint.dir=new data.dir=data
for line in 3 5 6 7 9 10 11; do
    expect_err "bad\.ini:$line: "
done

case_ "settings"
bad_run 'train\.stps.*train\.steps' train.stps=3
bad_run 'optimizer\.lr' optimizer.lr=nan
bad_run 'optimizer\.lr' optimizer.lr=3,0e-4
bad_run 'optimizer\.momentum' optimizer.momentum=0.9
bad_run 'model\.n_head = 3 does not divide model\.n_embd = 16' model.n_head=3
bad_run 'train\.micro_batch' train.micro_batch=5
bad_run 'train\.seq_len.*block_size' train.seq_len=17
bad_run 'schedule\.min_lr.*optimizer\.lr' optimizer.lr=1e-4
bad_run 'optimizer\.name.*adamv' optimizer.name=adamv
bad_run 'kernels.*warp' backend.kernels=warp
bad_run 'model\.arch' model.arch=gpt3
bad_run 'model\.n_kv_head' model.n_kv_head=1
bad_run 'model\.n_expert = 3: it is a key of other architectures' model.n_expert=3
refused 'data\.dir is not set: name a folder' "$TENON" train checkpoint.dir=new
refused 'missing\.ini' "$TENON" train missing.ini

case_ "data"
bad_run 'data\.dir = nowhere: there is no such folder' data.dir=nowhere
bad_run 'vocab' model.vocab_size=5
# Without meta.json there is a notice before, that the files are taken for uint16.
mkdir short && cp data/tokenizer.json short
head -c 32 data/train.bin >short/train.bin
cp data/val.bin short/val.bin
lines=2 bad_run 'train\.bin has 16 tokens, seq_len 16 needs at least 17' data.dir=short model.vocab_size=100
cp data/train.bin short/train.bin
head -c 32 data/val.bin >short/val.bin
lines=2 bad_run 'val\.bin has 16 tokens, seq_len 16 needs at least 17' data.dir=short model.vocab_size=100
head -c 33 data/val.bin >short/val.bin
lines=2 bad_run 'val\.bin' data.dir=short model.vocab_size=100
: >short/val.bin
lines=2 bad_run 'val\.bin' data.dir=short model.vocab_size=100
cp data/val.bin short/val.bin
printf '\377\377' >>short/val.bin
lines=2 bad_run 'val\.bin.*65535' data.dir=short model.vocab_size=100
cp -r data other
printf '\3\0\4\0\5\0' | dd of=other/train.bin bs=1 seek=100 conv=notrunc 2>/dev/null
bad_run 'other/train\.bin is not the file that meta\.json' data.dir=other
rm -r other
lie()                                   # lie WORD OTHER PATTERN: in meta.json
{
    cp -r data lying
    sed -i "s/$1/$2/" lying/meta.json
    expect test "$(cmp data/meta.json lying/meta.json)"
    bad_run "$3" data.dir=lying
    rm -r lying
}
lie '"char"' '"byte"' 'lying/tokenizer\.json is not the tokenizer that meta\.json'
lie '"vocab_size": [0-9]*' '"vocab_size": 1000' 'lying/tokenizer\.json is not the tokenizer that meta\.json'
lie '"vocab_size": [0-9]*' '"vocab_size": 9999999999999' 'lying/meta\.json: "vocab_size".* up to 2147483647'
cp -r data other

case_ "a checkpoint of something else"
cp -r good mine
again()
{
    local pattern=$1

    shift
    refused "$pattern" "$TENON" train tiny.ini checkpoint.dir=mine train.steps=9 "$@"
}
again 'checkpoint of another model: model\.n_layer is 2 there, 3 here' model.n_layer=3
again 'model\.n_head is 2 there, 4 here' model.n_head=4
again 'model\.bias is yes there, no here' model.bias=no
again 'optimizer\.name is adamw there, sgd here' optimizer.name=sgd
rm -r other
tr a-y b-z <text.txt >text2.txt
"$TENON" prepare --input text2.txt --out other --tokenizer char >/dev/null 2>&1
again 'another tokenizer' data.dir=other
rm -r other
tac text.txt >text2.txt
"$TENON" prepare --input text2.txt --out other --tokenizer char >/dev/null 2>&1
again 'trained on other data' data.dir=other

case_ "a damaged checkpoint"
newest=mine/step-00000006
model=$newest/model-00001-of-00001.safetensors
printf 'X' | dd of=$model bs=1 seek=3000 conv=notrunc 2>/dev/null
again 'model-00001-of-00001\.safetensors is damaged'
cp good/step-00000006/model* $newest
mv $newest/optimizer-00001-of-00001.safetensors aside
lines=2 again 'no complete checkpoint of step 6; there are: 3' checkpoint.resume=6
expect_err 'step-00000006 is not complete and is ignored'
mv aside $newest/optimizer-00001-of-00001.safetensors

case_ "a step that is not there"
again 'no complete checkpoint of step 5; there are: 3, 6' checkpoint.resume=5
again 'no complete checkpoint of step 4; there are: 3, 6' checkpoint.resume=mine/step-00000004
bad_run 'no complete checkpoint.* step 5' checkpoint.resume=5
bad_run 'checkpoint\.resume = nowhere' checkpoint.resume=nowhere
bad_run 'checkpoint\.resume = data' checkpoint.resume=data

case_ "a run directory that cannot be had"
echo file >taken
bad_run 'taken' checkpoint.dir=taken
bad_run 'taken' checkpoint.dir=taken/run
bad_run '/proc/nothing' checkpoint.dir=/proc/nothing/run
if [ "$(id -u)" != 0 ]; then
    mkdir locked && chmod a-w locked
    bad_run 'locked' checkpoint.dir=locked/run
    bad_run 'locked' checkpoint.dir=locked
fi

# A disk of 40 kB and one of none: in a mount of our own, where the system lets us.
case_ "a full disk"
mkdir disk
# shellcheck disable=SC2016
full='mount -t tmpfs -o size=40k tenon disk && "$TENON" train tiny.ini checkpoint.dir=disk/run
rc=$?
ls -A disk >left
exit $rc'
# shellcheck disable=SC2016
read_only='mount -t tmpfs -o size=4m,ro tenon disk && "$TENON" train tiny.ini checkpoint.dir=disk/run'
if unshare -rm sh -c 'mount -t tmpfs -o size=40k tenon disk' 2>/dev/null; then
    run unshare -rm sh -c "$full"
    expect_rc 2
    expect_err 'disk/run is on a disk with .* MB free, and one checkpoint takes .* MB'
    expect_err_lines
    expect test ! -s left
    run unshare -rm sh -c "${full/size=40k/size=4m,nr_inodes=2}"
    expect_rc 2
    expect_err 'disk/run.*No space left'
    expect_err_lines
    expect test ! -s left
    run unshare -rm sh -c "$read_only"
    expect_rc 2
    expect_err 'disk.*[Rr]ead-only'
    expect_err_lines
fi

case_ "an incomplete checkpoint is passed over with a notice"
cp -r good torn
rm torn/step-00000006/state.json
run "$TENON" train tiny.ini checkpoint.dir=torn train.steps=6
expect_rc 0
expect test "$(grep -c 'is not complete' <<<"$err")" = 1
expect_err 'torn/step-00000006 is not complete and is ignored'
expect_out 'going on from torn/step-00000003'
same_checkpoint good torn 6
