/* apart.c - isle is what it says: the host faults on its addresses, it refuses the host's, and nothing is there before
 * somebody has waited for it. Without that the tests that run on it would prove nothing. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tenon/device.h>
#include <tenon/kernels.h>
#include "base/status.h"
#include "plugin/load.h"

static const struct tn_device_api *api;
static const struct tn_kernels *kernels;
static struct tn_device *device;
static struct tn_queue *queue;
static int failed;

#define HOLDS(x) ((x) ? (void)0 : (void)(failed++, printf("apart.c:%d: does not hold: %s (%s)\n", __LINE__, #x, tn_error_text())))

/* The signal that a process gets which touches the address. */
static int touched(const volatile char *at)
{
    int status = 0;
    pid_t pid = fork();

    if (!pid) {
        static char sink;

        signal(SIGSEGV, SIG_DFL);                /* a sanitizer would report it and exit */
        signal(SIGBUS, SIG_DFL);
        sink = *at;
        _exit(sink == 1 ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void addresses(void)
{
    char *p = NULL, *q = NULL, host[64] = {0};

    HOLDS(!api->alloc(device, 5000, (void **)&p) && !api->alloc(device, 1, (void **)&q));
    HOLDS(touched(p) && touched(p + 4999) && touched(q));
    HOLDS(!touched(host));
    HOLDS(api->copy(queue, host, host, 64, 1) < 0 && strstr(tn_error_text(), "memory of the host"));
    HOLDS(api->copy(queue, p, q, 1, 2) < 0);
    HOLDS(api->copy(queue, p + 8190, host, 64, 1) < 0); /* beyond the block */
    HOLDS(!api->copy(queue, p + 8, q, 1, 0) && !api->sync(queue, 10));
    api->free(device, q);
    HOLDS(api->copy(queue, p, q, 1, 0) < 0);            /* given back */
    HOLDS(api->alloc(device, UINT64_MAX, (void **)&q) == TN_ERR_MEMORY);
    api->free(device, p);
}

/* Two copies and a fill; host memory may change after the copy from it, and has nothing before the wait. */
static void order(void)
{
    char *p = NULL, from[16] = "before", to[16] = "nothing";

    HOLDS(!api->alloc(device, 16, (void **)&p));
    HOLDS(!api->copy(queue, p, from, 16, 1));
    memcpy(from, "after", 6);
    HOLDS(!api->fill(queue, p + 6, '!', 1));
    HOLDS(!api->copy(queue, to, p, 16, 2));
    usleep(20000);
    HOLDS(!strcmp(to, "nothing"));
    HOLDS(!api->sync(queue, 10));
    HOLDS(!memcmp(to, "before!", 7));
    api->free(device, p);
}

/* Memory of host_alloc is read when the copy is done, not before. */
static void locked(void)
{
    char *p = NULL, *from = NULL, to[8] = "";

    HOLDS(!api->alloc(device, 8, (void **)&p) && !api->host_alloc(device, 8, (void **)&from));
    memcpy(from, "early", 6);
    HOLDS(!api->copy(queue, p, from, 8, 1));
    memcpy(from, "late", 5);
    HOLDS(!api->copy(queue, to, p, 8, 2) && !api->sync(queue, 10) && !strcmp(to, "late"));
    api->host_free(device, from);
    api->free(device, p);
}

/* A second queue waits for the first, without anybody waiting for that. */
static void events(void)
{
    struct tn_queue *other;
    struct tn_event *e;
    char *p = NULL, to[8] = "";

    HOLDS(!api->alloc(device, 8, (void **)&p) && !api->queue(device, &other) && !api->event(device, &e));
    HOLDS(!api->copy(queue, p, "written", 8, 1) && !api->record(e, queue));
    HOLDS(!api->wait(other, e) && !api->copy(other, to, p, 8, 2) && !api->sync(other, 10));
    HOLDS(!strcmp(to, "written"));
    api->event_close(e);
    api->queue_close(other);
    api->free(device, p);
}

/* y = a of one element each. */
static void launches(void)
{
    const int64_t size[1] = {1}, stride[1] = {1}, zero[1] = {0};
    const char *const dim[1] = {"x"};
    struct tn_operand o = {.dtype = TN_F32, .rank = 1, .size = size, .stride = stride, .whole = size, .origin = zero, .dim = dim};
    struct tn_problem p = {.struct_size = sizeof p, .n_in = 1, .n_out = 1, .op = "copy", .in = &o, .out = &o};
    struct tn_kernel k = {.struct_size = sizeof k};
    float x = 3, y = 0;
    char *at = NULL;
    void *buffer[2];

    HOLDS(!kernels->prepare(&p, &k) && !api->alloc(device, 8, (void **)&at));
    struct tn_launch l = {.struct_size = sizeof l, .buffer = buffer, .queue = queue};
    buffer[0] = &x, buffer[1] = at;
    HOLDS(k.launch(k.state, &l) < 0 && strstr(tn_error_text(), "not memory of the device"));
    buffer[0] = at, buffer[1] = at + 4;
    HOLDS(!api->copy(queue, at, &x, 4, 1) && !k.launch(k.state, &l));
    buffer[0] = buffer[1] = NULL;                       /* the list is the caller's again */
    HOLDS(!api->copy(queue, &y, at + 4, 4, 2) && y == 0 && !api->sync(queue, 10) && y == 3);
    k.release(k.state);
    api->free(device, at);
}

int main(void)
{
    const char *top = getenv("top_builddir");
    const struct tn_loaded *plugin;
    char path[4096];

    snprintf(path, sizeof path, "%s/tests/isle/isle.so", top ? top : ".");
    if (tn_plugin_open(path, &plugin) < 0) {
        printf("%s\n", tn_error_text());
        return 99;
    }
    api = tn_plugin_table(plugin, TN_DEVICE_ID), kernels = tn_plugin_table(plugin, TN_KERNELS_ID);
    if (api->open(0, &device) || api->queue(device, &queue)) {
        printf("%s\n", tn_error_text());
        return 99;
    }
    addresses();
    order();
    locked();
    events();
    launches();
    api->queue_close(queue);
    api->close(device);
    tn_plugins_close();
    return failed != 0;
}
