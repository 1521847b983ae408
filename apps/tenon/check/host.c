/* host.c - the bench's host where there is a core: its threads, its errors. tests/conformance/host.c is the one
 * without. */
#include "base/pool.h"
#include "base/status.h"
#include "bench.h"
#include "plugin/host.h"
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
    return tn_error_text();
}

void tn_bench_store(const struct tn_store *store)
{
    if (!tn_host_interface(TN_STORE_ID) && tn_host_provide(TN_STORE_ID, store) < 0)
        tn_bench_stop("%s", tn_error_text());
}

/* By its path. */
const struct tn_plugin *tn_bench_plugin(const char *path)
{
    const struct tn_loaded *p;

    if (tn_plugin_open(path, &p) < 0)
        tn_bench_stop("%s", tn_error_text());
    return &p->plugin;
}

const void *tn_bench_interface(const struct tn_plugin *p, const char *id)
{
    return tn_plugin_table((const struct tn_loaded *)(const void *)((const char *)p - offsetof(struct tn_loaded, plugin)), id);
}
