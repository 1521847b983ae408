#!/bin/bash
# groups.sh - parameter groups: optimizer.lr_scale and optimizer.no_decay act on the parameters that their patterns fit and on no
# others, the strongest pattern is the last, and a run that goes on has the same groups.
. "$(dirname "$0")/../support/lib.sh"
. "$top_srcdir/tests/support/runs.sh"
golden=$top_srcdir/tests/golden
wte=transformer.wte.weight
fc=transformer.h.1.mlp.c_fc.weight
norm=transformer.ln_f.weight

# moved CASE NAME SETTING...: by how much the parameter changes in one update, at most
moved()
{
    local case=$1 name=$2

    shift 2
    run "$TENON" step --case "$golden/$case.safetensors" --steps 1 --out out.safetensors --observe "$name" optimizer.lr=1e-3 train.grad_clip=0 "$@"
    awk '/^after the update/ { print $5 }' <<<"$out"
}

plain_wte=$(moved sgd $wte) plain_fc=$(moved sgd $fc)
case_ "a factor of the learning rate"
expect near 0.25 "$(awk "BEGIN { print $(moved sgd $wte 'optimizer.lr_scale=*wte*=0.25') / $plain_wte }")" 1e-4
expect test "$(moved sgd $fc 'optimizer.lr_scale=*wte*=0.25')" = "$plain_fc"
expect test "$(moved sgd $wte 'optimizer.lr_scale=*wte*=0')" = 0

case_ "the last pattern that fits counts"
expect near 2 "$(awk "BEGIN { print $(moved sgd $fc 'optimizer.lr_scale=*=0.5,*.mlp.*=2') / $plain_fc }")" 1e-3
expect near 0.5 "$(awk "BEGIN { print $(moved sgd $wte 'optimizer.lr_scale=*=0.5,*.mlp.*=2') / $plain_wte }")" 1e-3

# Of AdamW lr·decay·w is one part of the change: a decay of 1 is seen, in tensors of two dims alone.
case_ "decay, and parameters that are exempt"
for decay in 0 1; do
    for name in $wte $fc $norm; do
        eval "${name//./_}_$decay=$(moved bias $name optimizer.weight_decay=$decay)"
    done
done
changed() { local a=${1//./_}_0 b=${1//./_}_1; [ "${!a}" != "${!b}" ]; }
expect changed $wte
expect changed $fc
expect test "$transformer_ln_f_weight_0" = "$transformer_ln_f_weight_1"
expect test "$(moved bias $fc optimizer.weight_decay=1 'optimizer.no_decay=*.mlp.*')" = "$transformer_h_1_mlp_c_fc_weight_0"
expect test "$(moved bias $wte optimizer.weight_decay=1 'optimizer.no_decay=*.mlp.*')" = "$transformer_wte_weight_1"

case_ "mistakes"
moved bias $wte 'optimizer.lr_scale=*wtf*=0.1' >/dev/null
run "$TENON" plan --world 1 model.vocab_size=20 model.n_layer=1 'optimizer.lr_scale=*wtf*=0.1'
expect_rc 2
expect_err_lines
expect_err 'optimizer\.lr_scale.*no parameter is named like "\*wtf\*"; one is named transformer\.'
run "$TENON" plan --world 1 model.vocab_size=20 model.n_layer=1 'optimizer.lr_scale=*wte*=fast'
expect_rc 2
expect_err 'is not NAME=FACTOR'
run "$TENON" plan --world 1 model.vocab_size=20 model.n_layer=1 'optimizer.no_decay=*wtf*'
expect_rc 2
expect_err 'optimizer\.no_decay.*no parameter is named like'

case_ "a run that goes on has the same groups"
make_tiny
for more in "" "optimizer.lr_scale=*wte*=0.1" "optimizer.no_decay=*.mlp.*"; do
    rm -rf straight again
    train straight train.steps=4 $more
    train again train.steps=2 $more
    train again train.steps=4 $more
    same_checkpoint straight again 4
    losses straight >"losses.${#more}"
done
expect test "$(sort -u losses.* | wc -l)" -gt 8 # three curves
train again train.steps=5 "optimizer.lr_scale=*wte*=0.2"
expect_out 'changed since then: .*optimizer\.lr_scale not set -> \*wte\*=0\.2, optimizer\.no_decay \*\.mlp\.\* -> not set'
