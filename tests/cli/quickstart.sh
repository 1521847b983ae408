#!/bin/bash
# quickstart.sh - the script's command line, and that README and configure name the packages which it installs.
. "$(dirname "$0")/../support/lib.sh"
quickstart=$top_srcdir/quickstart

case_ "help"
run "$quickstart" help
expect_rc 0
expect_out '^usage: ./quickstart \[TEXT\]'
expect_out './quickstart check'

case_ "a text that is not there: nothing is installed or built"
run "$quickstart" nothing.txt
expect_rc 2
expect_err_lines 1
expect_err 'nothing\.txt'
expect_not_out 'installing|building'

case_ "a folder as text"
mkdir folder
run "$quickstart" folder
expect_rc 2
expect_err 'folder is not a file'

case_ "two texts"
echo text >one.txt
run "$quickstart" one.txt one.txt
expect_rc 2
expect_err 'one text only'

case_ "an unknown option, an argument too many"
run "$quickstart" --chek
expect_rc 2
expect_err 'unknown option --chek'
run "$quickstart" check now
expect_rc 2
expect_err 'check takes no argument'

# The script's list of packages is the one that README gives.
case_ "packages in README"
packages=$(sed -n '/^packages="/,/^"/s/^    \([a-z0-9-]*\) .*/\1/p' "$quickstart")
expect test "$(wc -w <<<"$packages")" -ge 10
readme=$(sed -n '/^apt-get install/,/[^\\]$/p' "$top_srcdir/README.md")
for package in $packages; do
    expect grep -qw -- "$package" <<<"$readme"
done
