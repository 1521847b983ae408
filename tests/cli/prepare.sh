#!/bin/bash
# prepare.sh - tenon prepare: what it writes, and what it refuses without writing anything.
. "$(dirname "$0")/../support/lib.sh"

# Lines of a to w, a blank and a newline: 25 symbols, a little less than 1 000 characters
for ((i = 0; i < 40; i++)); do
    echo "abcdefghijklmnopqrstuvw " | cut -c$((i % 3 + 1))-24
    printf '%s' "${i//[0-9]/x}"
done | tr -d 'x' | head -c 1000 >text.txt
size=$(wc -c <text.txt)
train=$((size * 9 / 10))

case_ "a text"
run "$TENON" prepare --input text.txt --out data/x
expect_rc 0
expect_out "^data/x: 25 symbols \\(char\\), $train training and $((size - train)) validation tokens\$"
expect [ -z "$err" ]
expect [ "$(ls -A data/x | tr '\n' ' ')" = "meta.json tokenizer.json train.bin val.bin " ]
expect [ "$(wc -c <data/x/train.bin)" -eq $((2 * train)) ]
expect [ "$(ls -A data)" = x ]

case_ "the same again"
cp -r data/x before
run "$TENON" prepare --input=text.txt --out=data/x --tokenizer=char
expect_rc 0
expect_out '^data/x is already prepared: 25 symbols'
for f in meta.json tokenizer.json train.bin val.bin; do
    expect_same before/$f data/x/$f
done

case_ "another text in the same place"
tac text.txt >other.txt
run "$TENON" prepare --input other.txt --out data/x
expect_rc 2
expect_err_lines 1
expect_err 'data/x/train\.bin is there already and is not what other\.txt gives; .*--force'
expect_same before/train.bin data/x/train.bin
run "$TENON" prepare --input other.txt --out data/x --force
expect_rc 0
expect_out '^data/x: 25 symbols'
expect [ "$(cksum <before/train.bin)" != "$(cksum <data/x/train.bin)" ]

case_ "bytes"
head -c 3000 "$TENON" >any.bin
run "$TENON" prepare --input any.bin --out b --tokenizer byte --val-fraction 0.5
expect_rc 0
expect_out '^b: 256 symbols \(byte\), 1500 training and 1500 validation tokens$'
run "$TENON" prepare --input any.bin --out c
expect_rc 2
expect_err 'any\.bin is not valid UTF-8 at byte .*--tokenizer byte'
expect_no_file c

# arguments, what the message must have; nothing may be there afterwards
refused()
{
    local words=$1
    shift
    case_ "prepare $*"
    run "$TENON" prepare "$@"
    expect_rc 2
    expect_err_lines 1
    expect_err "$words"
    expect [ -z "$out" ]
    expect_no_file new
}
: >empty.txt
printf 'ten chars!' >short.txt
mkdir folder
refused 'empty\.txt is empty' --input empty.txt --out new
refused 'short\.txt is too short: 9 characters for training and 1 for validation' --input short.txt --out new
refused 'none\.txt: No such file' --input none.txt --out new
refused 'folder is a directory' --input folder --out new
refused 'text\.txt is there and is no directory' --input text.txt --out text.txt
refused '--input is missing' --out new
refused '--out is missing' --input text.txt
refused 'tokenizer bpe needs --vocab-size' --input text.txt --out new --tokenizer bpe
refused 'tokenizer.*bpe9' --input text.txt --out new --tokenizer bpe9
refused 'val-fraction' --input text.txt --out new --val-fraction 1
refused 'val-fraction' --input text.txt --out new --val-fraction nan
refused 'text\.txt.*Not a directory' --input text.txt --out text.txt/x
refused 'surplus' --input text.txt --out new surplus

case_ "a disk that is full"
(
    ulimit -f 1
    "$TENON" prepare --input text.txt --out new >/dev/null 2>full.err
    echo $? >full.rc
)
expect [ "$(cat full.rc)" = 1 ]
expect grep -q 'File too large' full.err
expect_no_file new
expect [ -z "$(ls -d new* 2>/dev/null)" ]
