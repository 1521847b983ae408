#!/bin/sh
# cuda.sh - what a step of GPT-2 should take on one GPU, from the plan: FLOPs and bytes of each launch, and two rates.
#
#   docs/cuda.sh [TENON]                      TENON: the program (default build/apps/tenon/tenon)
# No GPU is asked: the plan is made with the kernels of ref, which takes every operation that plugin cuda takes, so launches
# are the same. A launch takes the longer of FLOPs / rate and bytes / bandwidth, and 2 us. What a kernel moves beyond the
# plan's "each operand once" is added under "more", by the rules in docs/cuda.md.
tenon=${1:-build/apps/tenon/tenon}
src=$(cd "$(dirname "$0")/.." && pwd)

table() # TITLE FILE BATCH WIDTH GELU [SETTING...]
{
    title=$1 file=$2 batch=$3 width=$4 gelu=$5
    shift 5
    "$tenon" plan "$src/examples/$file" --world 1 --memory 141G --kernels backend.device=cpu backend.kernels=ref backend.dtype=bf16 model.bias=true \
        train.global_batch="$batch" train.micro_batch="$batch" model.gelu="$gelu" "$@" |
        awk -v title="$title" -v batch="$batch" -v width="$width" -v gelu="$gelu" '
        BEGIN { gemm = 790e12; memory = 4.3e12; forward = 300e12; backward = 220e12; own = 5e12; launch = 2e-6; vocab = 50264
                tokens = batch * 1024 }
        /^FLOPs by formula/ { formula = $4 }
        /^total/ { total = $2 " " $3 }
        listed && /^(prologue|forward|backward|after|update) / {
            role = substr($0, 41, 14); op = substr($0, 56, 14); sub(/ +$/, "", role); sub(/ +$/, "", op)
            split(substr($0, 80), n, " "); nodes = n[1]; times = n[2]; flops = n[3] * 1e6 * times; bytes = n[4] * 1e6 * times
            rate = gemm; more = 0; by = "own kernel"; key = op
            if (op == "einsum") by = "cuBLASLt"
            if (op == "einsum" && role == "mlp_fc" && nodes == 3) {
                key = "einsum, bias and gelu"
                if (gelu == "erf") { more = 2 * tokens * 4 * width * 2; by = "cuBLASLt, then a program" }
            }
            else if (op == "einsum" && role == "mlp_out" && /^backward/ && nodes == 3) {
                more = (gelu == "erf" ? 4 : 2) * tokens * 4 * width * 2; key = "einsum, gelu and its derivative"; by = "cuBLASLt, then a program" }
            if (op == "head_train") { more = tokens * vocab * 6; by = "cuBLASLt and own kernel" }
            if (op == "attention") { rate = forward; by = "cuDNN" }
            if (op == "attn_bwd") { rate = backward; by = "cuDNN" }
            if (op == "expr") by = "program (NVRTC)"
            if (op !~ /einsum|head_train|attention|attn_bwd/) flops_time = 0; else flops_time = flops / rate
            t = flops_time > bytes / memory ? flops_time : bytes / memory
            t += more / memory + times * launch
            if (op == "attention" || op == "attn_bwd") slow += flops / own - t
            if (!(key in time)) order[++kinds] = key
            time[key] += t; f[key] += flops; b[key] += bytes; m[key] += more; c[key] += times; who[key] = by; all += t
        }
        /^list  / { listed = 1 }
        END {
            printf "\n**%s**, gelu as %s, batch %d, %s of memory planned\n\n", title, gelu, batch, total
            print "| operation | by | launches | TFLOP | GB | more GB | ms |"
            print "|---|---|---:|---:|---:|---:|---:|"
            for (i = 1; i <= kinds; i++)
                for (j = i + 1; j <= kinds; j++)
                    if (time[order[j]] > time[order[i]]) { t = order[i]; order[i] = order[j]; order[j] = t }
            for (i = 1; i <= kinds; i++) {
                k = order[i]
                printf "| %s | %s | %d | %.2f | %.2f | %.2f | %.2f |\n", k, who[k], c[k], f[k] / 1e12, b[k] / 1e9, m[k] / 1e9, time[k] * 1e3
            }
            printf "\nA step of %d tokens: %.1f ms, %.0f tokens/s; 6N + 6LCT is %.3g FLOP, so **%.0f %% of 790 TFLOP/s** (%.0f %% of 989). ",
                tokens, all * 1e3, tokens / all, formula, 100 * formula / all / gemm, 100 * formula / all / 989e12
            printf "Matrix products and attention alone would be %.0f %%. ", 100 * formula / ((f["einsum"] + f["einsum, bias and gelu"] + f["einsum, gelu and its derivative"] + f["head_train"]) / gemm + (f["attention"] / forward + f["attn_bwd"] / backward)) / gemm
            printf "With the own attention kernel in place of cuDNN (at 5 TFLOP/s) %.0f ms, %.0f %%.\n", (all + slow) * 1e3, 100 * formula / (all + slow) / gemm
        }'
}

table "GPT-2 124M" gpt2-124m.ini 64 768 erf
table "GPT-2 1558M" gpt2-1558m.ini 16 1600 erf
table "GPT-2 124M" gpt2-124m.ini 64 768 tanh
table "GPT-2 1558M" gpt2-1558m.ini 16 1600 tanh
