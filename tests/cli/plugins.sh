#!/bin/bash
# plugins.sh - tenon plugins: the list and the explanation, with sound, absent and broken plugins beside each other.
. "$(dirname "$0")/../support/lib.sh"

bad=$top_builddir/tests/abi/hostile
[ -e "$bad/good.so" ] || skip "make check builds $bad"
export HOME=$tmp
mkdir some
for name in good better absent crash hang exits future missing nonote same; do
    cp "$bad/$name.so" some/
done
cp "$bad/good.so" some/open.so
chmod o+w some/open.so

case_ "the list"
run "$TENON" plugins plugins.path=some
expect_rc 0
expect_out '^NAME +VERSION +PROVIDES +FILE +STATE$'
expect_out '^good +1\.2 +bootstrap +some/good\.so +ready$'
expect_out '^absent +1 +bootstrap +some/absent\.so +not usable here: no such network card$'
expect_out '^crash .* some/crash\.so +refused: crashed while it was loaded'
expect_out '^hang .* some/hang\.so +refused: did not answer within 2 s'
expect_out '^exits .* some/exits\.so +refused: called exit'
expect_out '^future .* refused: speaks ABI 8 to 9, this host speaks 1 to 1'
expect_out '^missing .* refused: tenon\.bootstrap/1 lacks the mandatory locate$'
expect_out '^- +- +- +some/nonote\.so +refused: has no Tenon note'
expect_out '^good .* some/same\.so +refused: the name good is already taken by some/good\.so$'
expect_out '^- .* some/open\.so +refused: may be written by everybody'
expect_err_lines 0

case_ "the explanation"
run "$TENON" plugins --explain plugins.path=some
expect_rc 0
expect_out '^  plugins\.path +some$'
expect_out '^  better +9 +score 9$'
expect_out '^  absent +0 +not usable: no such network card$'
expect [ "$(grep -n '^  better ' <<<"$out" | cut -d: -f1)" -lt "$(grep -n '^  good ' <<<"$out" | cut -d: -f1)" ]
expect_out '^Refused:$'
expect_out '^  some/crash\.so$'

case_ "plugins.path of a file"
printf '[plugins]\npath = some/good.so\n' >a.ini
run "$TENON" plugins a.ini
expect_rc 0
expect_out '^good '
expect_not_out '^better '

case_ "never the working directory"
cp some/good.so .
run "$TENON" plugins
expect_rc 0
expect_not_out '^good '

# Whoever sends a checkpoint or a case does not choose the code that runs here.
case_ "places named by data"
. "$top_srcdir/tests/support/runs.sh"
make_tiny
train run train.steps=1
sed -i 's|"config": {|&"plugins.path": "some-that-is-not-there", |' run/step-00000001/state.json
expect grep -q some-that run/step-00000001/state.json
run "$TENON" sample run --tokens 3
expect_rc 0
run "$TENON" sample run --tokens 3 plugins.path=some-that-is-not-there
expect_rc 2
expect_err 'plugins\.path: some-that-is-not-there cannot be read'
LC_ALL=C sed 's/\\"model\.dropout\\":/\\"plugins.path\\" :/' "$top_srcdir/tests/golden/odd.safetensors" >case.safetensors
run "$TENON" step --case case.safetensors --out out.safetensors
expect_rc 2
expect_err 'case\.safetensors: "ini" has plugins\.path, which only a configuration or the command line may set'
expect_err_lines 1
expect_no_file out.safetensors

case_ "a place that is not there"
run "$TENON" plugins plugins.path=nowhere
expect_rc 2
expect_err 'plugins\.path: nowhere cannot be read: No such file'
expect_err_lines 1

case_ "a relative place in the environment"
export TENON_PLUGIN_PATH=some
run "$TENON" plugins
expect_rc 0
expect_not_out '^good '
expect_err 'TENON_PLUGIN_PATH: some is not an absolute path'

case_ "no such option"
run "$TENON" plugins --explian
expect_rc 2
expect_err 'explain'
