/* host.c - the bench's host where there is a core: its threads, its errors. tests/conformance/host.c is the one
 * without. */
#include "base/pool.h"
#include "base/status.h"
#include "bench.h"
#include "suite.h"

void tn_bench_stop(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

void tn_bench_threads(uint32_t n)
{
    if (tn_pool_threads() == n)
        return;
    tn_pool_stop();
    if (n > 1 && tn_pool_start(n) < 0)
        tn_bench_stop("%s", tn_error_text());
}

const char *tn_bench_said(void)
{
    return check_said();
}
