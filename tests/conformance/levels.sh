#!/bin/sh
# The kernels of plugin cpu at each level that one CPU has, compared with ref; and a level that there is not.
cd "${top_builddir:-.}" || exit 1
export top_builddir=.
status=77
[ -f plugins/cpu/.libs/cpu.so ] || exit $status
for level in v2 v3 v4; do
    # Without these levels, or below v2, there is nothing to compare.
    TENON_CPU_LEVEL=$level tests/conformance/test_cpu >levels.$$ 2>&1
    rc=$?
    grep -q 'TENON_CPU_LEVEL is' levels.$$ && rc=77
    [ $rc = 0 ] && status=0
    [ $rc = 0 ] || [ $rc = 77 ] || { echo "at level $level:"; tail -n 20 levels.$$; rm -f levels.$$; exit 1; }
    tail -n 1 levels.$$
done
TENON_CPU_LEVEL=v9 tests/conformance/test_cpu >levels.$$ 2>&1 && { echo 'v9 was taken for a level'; status=1; }
grep -q 'TENON_CPU_LEVEL is v9: the levels that this CPU runs are' levels.$$ || { tail -n 3 levels.$$; status=1; }
rm -f levels.$$
exit $status
