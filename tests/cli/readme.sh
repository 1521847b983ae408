#!/bin/bash
# readme.sh - what README.md and docs show is true: their commands run, their files are those of the tree,
# their links lead somewhere.
#
# A block of a page is marked by the words behind its fence:
#
#   ```sh run                     commands, each block by one shell that stops at the first failure
#   ```ini file=NAME              the block is written to NAME first
#   ```c file=NAME same=PATH      so is this, and it must be the file PATH of the source tree
#   ```text out                   lines that the commands before it printed, numbers of values apart
#
# All pages share one folder and go in order, so a later one may use what README left. There, `tenon` is the
# program just built, ~ is the folder itself, and pkg-config knows the headers of the tree.
. "$(dirname "$0")/../support/lib.sh"
RUN_SECONDS=${RUN_SECONDS:-300}
unset MAKEFLAGS MFLAGS MAKELEVEL
pages="README.md docs/architecture.md docs/plugins.md docs/graph.md docs/decisions.md docs/failures.md docs/ops.md docs/abi.md"
command -v pkg-config >/dev/null || skip "no pkg-config"

mkdir bin pc blocks
printf '#!/bin/sh\nexec "%s" "$@"\n' "$TENON" >bin/tenon
set -- ${CC:-gcc}
printf '#!/bin/sh\nexec %s "$@"\n' "$(type -P "$1") ${*:2}" >bin/gcc
chmod +x bin/*
cat >pc/tenon.pc <<END
Name: tenon
Description: headers of the tree
Version: 0
Cflags: -I$top_srcdir/libcore/include
END
export PATH=$tmp/bin:$PATH PKG_CONFIG_PATH=$tmp/pc HOME=$tmp
seq 600 | sed 's/.*/The line of number & says what the next one does not: &?/' >input.txt

# cut_blocks PAGE: its marked blocks as blocks/N, what is said of each as "N LINE WORDS..." on stdout.
cut_blocks()
{
    rm -f blocks/*
    awk '/^```/ && !inside { inside = 1; words = substr($0, 4)
                             marked = words ~ /(^| )(run|out|file=[^ ]+)( |$)/
                             if (marked) print ++n, NR, words
                             next }
         /^```$/ { inside = 0; marked = 0; next }
         marked { print >("blocks/" n) }
         END { if (inside) print "0 0 unclosed" }' "$1"
}

# Numbers of values and the width of columns are not what a page promises.
plain()
{
    sed 's/%[0-9][0-9]*/%/g; s/  */ /g; s/^ //; s/ $//'
}

expect_printed()
{
    local line

    while read -r line; do
        expected=$((expected + 1))
        plain <<<"$out" | grep -qxF -- "$(plain <<<"$line")" || fail "not printed: $line"
    done <"$1"
}

word()                                  # word KEY WORDS...: the value of KEY=VALUE among the words
{
    local key=$1 w

    shift
    for w; do [ "${w#"$key="}" = "$w" ] || echo "${w#"$key="}"; done
}

commands=0
for page in $pages; do
    cut_blocks "$top_srcdir/$page" >list
    while read -r n at words; do
        case_ "$page:$at: $words"
        expect test "$n" != 0
        case " $words " in
        *" run "*)
            run bash -euo pipefail "blocks/$n"
            expect_rc 0
            commands=$((commands + $(grep -c . "blocks/$n")))
            ;;
        *" out "*) expect_printed "blocks/$n" ;;
        *)
            name=$(word file $words) same=$(word same $words)
            cp "blocks/$n" "$name"
            [ -z "$same" ] || expect_same "$name" "$top_srcdir/$same"
            ;;
        esac
    done <list
done
command="" out="" err=""
case_ "the pages do have commands"
expect test $commands -ge 15

case_ "what they left"
expect_file runs/mine/step-00000020/state.json
expect_file runs/mine/step-00000040/state.json
expect test "$(grep -c '"loss"' runs/mine/metrics.jsonl)" = 40
expect_file runs/halving/step-00000010/state.json
expect_file runs/signsgd/step-00000010/state.json

# A link to a file is relative to its page; what stands behind # is a heading, in small letters with dashes.
case_ "links"
for page in $pages; do
    for link in $(grep -o '](\([^)]*\))' "$top_srcdir/$page" | sed 's/^](//; s/)$//'); do
        case $link in *://*) continue ;; esac
        file=$top_srcdir/$page
        [ -z "${link%%#*}" ] || file=$(dirname "$file")/${link%%#*}
        expect test -e "$file"
        [ "${link#*#}" != "$link" ] || continue
        headings=$(sed -n 's/^##* //p' "$file" | tr 'A-Z ' 'a-z-' | tr -dc 'a-z0-9_\n-')
        expect grep -qxF -- "${link#*#}" <<<"$headings"
    done
done
