#!/bin/bash
# lib-test.sh - the shell library proves itself: each expectation that does not hold must fail its test.
cd "$(dirname "$0")" || exit 99
here=$PWD failed=0

# try STATUS TEXT: a test of this text, in a process of its own, ends with this status.
try()
{
    local got
    printf '. "%s/lib.sh"\n%s\n' "$here" "$2" | bash -s >/dev/null 2>&1
    got=$?
    [ $got = "$1" ] || { echo "exit $got instead of $1: $2"; failed=1; }
}

try 0 'run sh -c "echo abc; echo def >&2; exit 3"; expect_rc 3; expect_out "^a.c$"; expect_err def; expect_err_lines'
try 0 'run true; expect_no_file x; touch x; expect_file x; cp x y; expect_same x y; expect test -f x'
try 0 'run sh -c "echo a; echo b >&2"; expect_not_out b; expect_not_err a'
try 1 'run true'
try 1 'run false; expect_rc 0'
try 1 'run echo a; expect_out b'
try 1 'run echo a; expect_not_out a'
try 1 'run echo a; expect_err a'
try 1 'run sh -c "echo a >&2"; expect_not_err a'
try 1 'run sh -c "echo a >&2; echo b >&2"; expect_err_lines'
try 1 'run true; expect_err_lines'
try 1 'run true; expect_file x'
try 1 'touch x; expect_no_file x'
try 1 'echo a >x; echo b >y; expect_same x y'
try 1 'expect false'
try 1 'run false; expect_rc 0; expect_rc 1'
try 1 'RUN_SECONDS=0.2; run sleep 5; expect_rc 0'
try 0 'RUN_SECONDS=0.2; run sleep 5; expect_rc 124'
try 77 'skip "no reason"'
try 4 'run true; expect_rc 0; exit 4'
exit $failed
