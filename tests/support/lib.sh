# lib.sh - for shell tests: run a command, then say what must hold of it.
#
#   . "$(dirname "$0")/../support/lib.sh"
#   case_ "an unknown key"
#   run "$TENON" config bad.ini
#   expect_rc 2; expect_err 'bad.ini:3: .*lerning_rate'; expect_no_file out
#
# The test runs in an empty folder that vanishes afterwards. A failed expectation is printed with what the command
# did and the test goes on, to fail at its end; so does a test that expects nothing. Every command has a limit of
# RUN_SECONDS (60), so a hang is a failure. `make check` sets TENON, top_srcdir and top_builddir; by hand, set TENON
# or have the tree built in ./build.
set -u
export LC_ALL=C.UTF-8
: "${top_srcdir:=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}"
: "${top_builddir:=$top_srcdir/build}"
: "${TENON:=$top_builddir/apps/tenon/tenon}"
export TENON top_srcdir top_builddir
unset TENON_PLUGIN_PATH

expected=0 failed=0 case_name="" command="" rc=0
out="" err=""

test_folder=$(mktemp -d "${TMPDIR:-/tmp}/tenon-test.XXXXXX") || exit 99
tmp=$test_folder/work                   # what the test sees; stdout and stderr lie beside it
mkdir "$tmp" && cd "$tmp" || exit 99

finish()
{
    local status=$?

    cd /
    chmod -R u+w "$test_folder" 2>/dev/null
    rm -rf "$test_folder"
    [ $status -eq 0 ] || exit $status
    [ $expected -gt 0 ] || { echo "the test expected nothing"; exit 1; }
    [ $failed -eq 0 ] || exit 1
    echo "$expected expectations met"
}
trap finish EXIT

# What the following expectations are about.
case_()
{
    case_name=$*
}

# The reason why this test cannot be done here.
skip()
{
    echo "skipped: $*"
    exit 77
}

fail()
{
    failed=$((failed + 1))
    printf '%s: %s\n' "${case_name:-test}" "$*"
    [ -z "$command" ] || printf '  command: %s\n  exit:    %s\n' "$command" "$rc"
    [ -z "$out" ] || printf '%s\n' "$out" | tail -n 30 | sed 's/^/  stdout:  /'
    [ -z "$err" ] || printf '%s\n' "$err" | tail -n 30 | sed 's/^/  stderr:  /'
}

# Runs a command with no input; leaves rc, out and err. 124 is the time limit, 128+N a signal.
run()
{
    command=$*
    timeout -k 5 "${RUN_SECONDS:-60}" "$@" </dev/null >"$test_folder/out" 2>"$test_folder/err"
    rc=$?
    out=$(tr -d '\0' <"$test_folder/out")
    err=$(tr -d '\0' <"$test_folder/err")
}

expect()                                # expect CONDITION... : a command that must succeed
{
    expected=$((expected + 1))
    "$@" || fail "does not hold: $*"
}

expect_rc()
{
    expected=$((expected + 1))
    [ "$rc" = "$1" ] || fail "exit status $rc, expected $1"
}

expect_out()                            # extended regular expression, somewhere in stdout
{
    expected=$((expected + 1))
    grep -Eq -- "$1" <<<"$out" || fail "stdout has no /$1/"
}

expect_err()
{
    expected=$((expected + 1))
    grep -Eq -- "$1" <<<"$err" || fail "stderr has no /$1/"
}

expect_not_out()
{
    expected=$((expected + 1))
    ! grep -Eq -- "$1" <<<"$out" || fail "stdout has /$1/"
}

expect_not_err()
{
    expected=$((expected + 1))
    ! grep -Eq -- "$1" <<<"$err" || fail "stderr has /$1/"
}

# One clear sentence: stderr is this many lines (1 if left out).
expect_err_lines()
{
    expected=$((expected + 1))
    [ "$(printf '%s' "${err:+$err$'\n'}" | wc -l)" = "${1:-1}" ] || fail "stderr is not ${1:-1} line(s)"
}

expect_file()
{
    expected=$((expected + 1))
    [ -e "$1" ] || fail "there is no $1"
}

expect_no_file()
{
    expected=$((expected + 1))
    [ ! -e "$1" ] || fail "there is a $1"
}

expect_same()                           # two files, byte for byte
{
    expected=$((expected + 1))
    cmp -s "$1" "$2" || fail "$1 and $2 differ"
}
