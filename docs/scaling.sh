#!/bin/sh
# scaling.sh - how tokens a second fall with the length of the sequence and the width of the model, against what the
# machine's matrix products would allow: docs/scaling.svg.
#
# usage: docs/scaling.sh [OUT.svg]          (TENON: the program; nothing else should run; about ten minutes on two cores)
#
# Left: 6 layers, 384 wide, 4096 tokens an update, T 64 to 4096. Right: 4 layers, T 256, 1024 tokens, 64 to 1600 wide.
# The line is the roofline: the rate of a product of 2048 x 2048 x 2048 in the same run, divided by the FLOPs of a token.
# SCALING_POINTS=FILE keeps, or takes, the numbers: "t|width X tokens/s roofline".
set -e
out=${1:-scaling.svg}
tenon=${TENON:-tenon}
points=${SCALING_POINTS:-$(mktemp)}

point() # NAME X SETTING...
{
    name=$1 x=$2
    shift 2
    "$tenon" bench model.vocab_size=65 model.bias=false optimizer.name=adamw train.grad_clip=1 "$@" --steps 5 --warmup 1 --json |
        awk -v name="$name" -v x="$x" '
            { gsub(/[",]/, "") }
            $1 == "tokens:" { tokens = $2 }
            $1 == "tokens_per_second:" { rate = $2 }
            $1 == "model_flops:" { flops = $2 }
            $1 == "square_gflops:" { peak = $2 }
            END { print name, x, rate, peak*1e9/(flops/tokens) }' | tee -a "$points"
}

if [ ! -s "$points" ]; then
    for t in 64 128 256 512 1024 2048 4096; do
        point t $t model.n_layer=6 model.n_head=6 model.n_embd=384 model.block_size=$t train.seq_len=$t \
            train.global_batch=$((4096 / t)) train.micro_batch=$((4096 / t))
    done
    for width in 64 128 256 384 512 768 1024 1280 1600; do
        point width $width model.n_layer=4 model.n_head=$((width / 64)) model.n_embd=$width model.block_size=256 train.seq_len=256 \
            train.global_batch=4 train.micro_batch=4
    done
fi

awk '
    function log10(v) { return log(v)/log(10) }
    function place_x(n, v) { return left[n] + 300*(log(v) - low[n])/(high[n] - low[n]) }
    function place_y(v) { return 290 - 240*(log10(v) - bottom)/(top - bottom) }
    {
        n = $1; i = ++count[n]; x[n, i] = $2; y[n, i] = $3; roof[n, i] = $4
        if (i == 1) low[n] = log($2)
        high[n] = log($2)
        for (k = 3; k <= 4; k++) {
            if (!top || log10($k) > top) top = log10($k)
            if (!bottom || log10($k) < bottom) bottom = log10($k)
        }
    }
    END {
        left["t"] = 60; left["width"] = 430
        title["t"] = "tokens/s by length of the sequence"; title["width"] = "tokens/s by width of the model"
        bottom = int(bottom); top = int(top) + 1
        print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 340\" font-family=\"sans-serif\" font-size=\"11\">"
        print "<rect width=\"760\" height=\"340\" fill=\"white\"/>"
        for (n in title) {
            printf "<text x=\"%g\" y=\"30\" font-size=\"13\">%s</text>\n", left[n], title[n]
            for (e = bottom; e <= top; e++)
                printf "<path d=\"M%g %.1fh300\" stroke=\"#ddd\"/><text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">10^%d</text>\n",
                       left[n], place_y(10^e), left[n] - 6, place_y(10^e) + 4, e
            line = roofline = ""
            for (i = 1; i <= count[n]; i++) {
                at = place_x(n, x[n, i])
                line = line (i > 1 ? "L" : "M") sprintf("%.1f %.1f", at, place_y(y[n, i]))
                roofline = roofline (i > 1 ? "L" : "M") sprintf("%.1f %.1f", at, place_y(roof[n, i]))
                printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#06c\"/>\n", at, place_y(y[n, i])
                printf "<text x=\"%.1f\" y=\"308\" text-anchor=\"middle\">%d</text>\n", at, x[n, i]
                printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#06c\">%d%%</text>\n",
                       at, place_y(y[n, i]) + 18, 100*y[n, i]/roof[n, i] + 0.5
            }
            printf "<path d=\"%s\" fill=\"none\" stroke=\"#06c\" stroke-width=\"1.5\"/>\n", line
            printf "<path d=\"%s\" fill=\"none\" stroke=\"#999\" stroke-dasharray=\"5 3\"/>\n", roofline
        }
        print "<text x=\"60\" y=\"330\">points: measured, with their share of the roofline; dashed: roofline, the rate of large matrix products over the FLOPs of a token</text>"
        print "</svg>"
    }' "$points" > "$out"
