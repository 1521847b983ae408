/* test_fake.c - does the fake runtime keep CUDA's rules, and say what breaks them? Each case runs in a
 * process of its own, which the fake ends with 0, 97 or 98; what it must say is in the table. Orders are
 * tried with many seeds. */
#include "fake.h"
#include <sys/wait.h>
#include <unistd.h>

static cudaStream_t a, b;
static cudaEvent_t event, other;
static char *device, *more;
static int wrong;

#define MUST(call, result)                                                                                   \
    do {                                                                                                     \
        const int got_ = (int)(call);                                                                        \
        if (got_ != (int)(result))                                                                           \
            printf("line %d: %s is %d, not %d\n", __LINE__, #call, got_, (int)(result)), wrong = 1;          \
    } while (0)

static void begin(void)
{
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), 0);
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), 0);
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), 0);
    MUST(cudaEventCreateWithFlags(&other, cudaEventDisableTiming), 0);
    MUST(cudaMalloc((void **)&device, 1000), 0);
    MUST(cudaMalloc((void **)&more, 1000), 0);
}

static void end(void)
{
    cudaStreamDestroy(a), cudaStreamDestroy(b);
    cudaEventDestroy(event), cudaEventDestroy(other);
    cudaFree(device), cudaFree(more);
}

static int first_byte(const char *of)
{
    char byte = 0;

    MUST(cudaMemcpyAsync(&byte, of, 1, cudaMemcpyDeviceToHost, a), 0);
    return byte;
}

/* --- orders: the answer is the exit status, 10 or 11 */
static int without_event(void)
{
    MUST(cudaMemsetAsync(device, 10, 1000, a), 0);
    MUST(cudaMemsetAsync(device, 11, 1000, b), 0);
    MUST(cudaDeviceSynchronize(), 0);
    return first_byte(device);
}

static int with_event(void)
{
    MUST(cudaMemsetAsync(device, 10, 1000, a), 0);
    MUST(cudaEventRecord(event, a), 0);
    MUST(cudaStreamWaitEvent(b, event, 0), 0);
    MUST(cudaMemsetAsync(device, 11, 1000, b), 0);
    MUST(cudaDeviceSynchronize(), 0);
    return first_byte(device);
}

static int blocking_streams(void) /* each waits for the stream NULL */
{
    cudaStream_t s;

    MUST(cudaStreamCreate(&s), 0);
    MUST(cudaMemsetAsync(device, 10, 1000, NULL), 0);
    MUST(cudaMemsetAsync(device, 11, 1000, s), 0);
    MUST(cudaMemsetAsync(more, 12, 1000, NULL), 0);
    MUST(cudaStreamSynchronize(NULL), 0);
    MUST(cudaStreamDestroy(s), 0);
    return first_byte(device);
}

static int copies(char *from) /* is its source taken late? */
{
    *from = 10;
    MUST(cudaMemcpyAsync(device, from, 1, cudaMemcpyHostToDevice, a), 0);
    *from = 11;
    MUST(cudaStreamSynchronize(a), 0);
    return first_byte(device);
}

static int pageable(void)
{
    char from;

    return copies(&from);
}

static int page_locked(void)
{
    char *from;
    int is;

    MUST(cudaMallocHost((void **)&from, 1), 0);
    is = copies(from);
    MUST(cudaFreeHost(from), 0);
    return is;
}

/* a forks to b, and is joined, if join says so; then replayed twice. */
static int record(int join)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;

    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), 0);
    MUST(cudaMemsetAsync(device, 10, 1000, a), 0);
    MUST(cudaEventRecord(event, a), 0);
    MUST(cudaStreamWaitEvent(b, event, 0), 0);
    MUST(cudaMemcpyAsync(more, device, 1000, cudaMemcpyDeviceToDevice, b), 0);
    if (join) {
        MUST(cudaEventRecord(other, b), 0);
        MUST(cudaStreamWaitEvent(a, other, 0), 0);
        MUST(cudaMemsetAsync(device, 11, 1000, a), 0);
    }
    MUST(cudaStreamEndCapture(a, &graph), join ? 0 : cudaErrorStreamCaptureUnjoined);
    if (!graph)
        return 0;
    MUST(cudaGraphInstantiate(&exec, graph, 0), 0);
    MUST(cudaMemsetAsync(more, 12, 1000, a), 0);
    for (int i = 0; i < 2; i++)
        MUST(cudaGraphLaunch(exec, a), 0);
    MUST(cudaStreamSynchronize(a), 0);
    MUST(cudaGraphDestroy(graph), 0);
    MUST(cudaGraphExecDestroy(exec), 0);
    return first_byte(device) == 11 ? first_byte(more) : 0;
}

static int joined(void)
{
    return record(1);
}

/* --- faults */
static void unjoined(void)
{
    record(0);
}

static void isolation(void)
{
    cudaGraph_t graph;

    MUST(cudaEventRecord(event, b), 0);
    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), 0);
    MUST(cudaStreamWaitEvent(a, event, 0), cudaErrorStreamCaptureIsolation);
    MUST(cudaMemsetAsync(device, 0, 1, a), cudaErrorStreamCaptureInvalidated);
    MUST(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
}

static void recorded_event(void)
{
    cudaGraph_t graph;

    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed), 0);
    MUST(cudaEventRecord(event, a), 0);
    MUST(cudaStreamEndCapture(a, &graph), 0);
    MUST(cudaGraphDestroy(graph), 0);
    MUST(cudaEventQuery(event), cudaErrorCapturedEvent);
}

static void legacy(void)
{
    cudaStream_t s;
    cudaGraph_t graph;

    MUST(cudaStreamCreate(&s), 0);
    MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), 0);
    MUST(cudaMemsetAsync(device, 0, 1, NULL), cudaErrorStreamCaptureImplicit);
    MUST(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    MUST(cudaStreamDestroy(s), 0);
}

static void pageable_recorded(void)
{
    cudaGraph_t graph;
    char byte = 0;

    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed), 0);
    MUST(cudaMemcpyAsync(device, &byte, 1, cudaMemcpyHostToDevice, a), cudaErrorStreamCaptureUnsupported);
    MUST(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
}

static void allocates(void)
{
    cudaGraph_t graph;
    void *p;

    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), 0);
    MUST(cudaMalloc(&p, 1), cudaErrorStreamCaptureUnsupported);
    MUST(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
}

static void asks_early(void)
{
    MUST(cudaMemsetAsync(device, 0, 1, a), 0);
    MUST(cudaEventRecord(event, b), 0);
    for (int i = 0; i < 100; i++)
        MUST(cudaMemsetAsync(more, 0, 1, b), 0);
    MUST(cudaEventRecord(event, b), 0);
    MUST(cudaEventQuery(event), cudaErrorNotReady);
    MUST(cudaGetLastError(), cudaErrorNotReady); /* and so the next launch seems to have failed */
    MUST(cudaGetLastError(), 0);
    MUST(cudaEventSynchronize(event), 0);
    MUST(cudaEventQuery(event), 0);
}

static void host_reads(void)
{
    MUST(device[0], 0);
}

static void reach(void *where)
{
    *(char *)where = 1;
}

static void past_the_end(void) /* within the alignment: found by what was filled */
{
    MUST(cudaLaunchHostFunc(a, reach, device + 1000), 0);
    MUST(cudaStreamSynchronize(a), 0);
}

static void far_past_the_end(void) /* beyond it: by the page */
{
    MUST(cudaLaunchHostFunc(a, reach, device + 1024), 0);
    MUST(cudaStreamSynchronize(a), 0);
}

static void freed(void)
{
    MUST(cudaFree(more), 0);
    MUST(cudaLaunchHostFunc(a, reach, more), 0);
    MUST(cudaStreamSynchronize(a), 0);
}

static void freed_twice(void)
{
    void *p;

    MUST(cudaMalloc(&p, 10), 0);
    MUST(cudaFree(p), 0);
    MUST(cudaFree(p), cudaErrorInvalidValue);
}

static void wrong_way(void)
{
    char bytes[10];

    MUST(cudaMemcpyAsync(bytes, device, 10, cudaMemcpyHostToDevice, a), cudaErrorInvalidValue);
}

static void too_long(void)
{
    MUST(cudaMemsetAsync(device + 1, 0, 1000, a), cudaErrorInvalidValue);
}

static void wrong_device(void)
{
    MUST(cudaSetDevice(1), 0);
    MUST(cudaMemsetAsync(device, 0, 1, a), cudaErrorInvalidValue);
    MUST(cudaEventRecord(event, NULL), cudaErrorInvalidResourceHandle);
    MUST(cudaSetDevice(99), cudaErrorInvalidDevice);
    MUST(cudaSetDevice(0), 0);
}

static void gone_stream(void)
{
    cudaStream_t s;

    MUST(cudaStreamCreate(&s), 0);
    MUST(cudaStreamDestroy(s), 0);
    MUST(cudaMemsetAsync(device, 0, 1, s), cudaErrorInvalidResourceHandle);
}

static void leaks(void)
{
    void *p;

    MUST(cudaMalloc(&p, 10), 0);
    MUST(cudaEventCreate(&event), 0);
}

static const struct {
    const char *name;
    int (*run)(void);
    int least, most; /* of the answers with all seeds; both must be seen */
} orders[] = {
    {"two streams without an event", without_event, 10, 11},
    {"two streams with an event", with_event, 11, 11},
    {"blocking streams", blocking_streams, 11, 11},
    {"a pageable source", pageable, 10, 10},
    {"a page-locked source", page_locked, 10, 11},
    {"recorded on two streams", joined, 10, 10},
};
static const struct {
    const char *name;
    void (*run)(void);
    int status;
    const char *says;
} faults[] = {
    {"work that is not joined", unjoined, 97, "work of another stream that joined is not waited for"},
    {"an event from outside of a recording", isolation, 97, "an event that was recorded outside of it"},
    {"an event of a graph is asked for", recorded_event, 97, "was last recorded in a graph"},
    {"the legacy stream beside a recording", legacy, 97, "the legacy stream would wait for it"},
    {"a pageable copy is recorded", pageable_recorded, 97, "pageable memory while a stream is recorded"},
    {"an allocation while recording", allocates, 97, "cudaMalloc while a stream is recorded"},
    {"not ready counts as an error", asks_early, 0, ""},
    {"the host reads the device's memory", host_reads, 98, "the host touches memory of a device"},
    {"a byte past the end", past_the_end, 98, "0 bytes past the end of an allocation of 1000 bytes"},
    {"a page past the end", far_past_the_end, 98, "24 bytes past the end of an allocation of 1000 bytes"},
    {"memory that was freed", freed, 98, "allocation of 1000 bytes that was freed"},
    {"memory that is freed twice", freed_twice, 97, "cudaFree: "},
    {"a copy in the wrong direction", wrong_way, 97, "is memory of the host"},
    {"a fill that is too long", too_long, 97, "go 1 bytes past the end"},
    {"another device's stream and memory", wrong_device, 97, "is memory of device 0, not of device 1"},
    {"a stream that was destroyed", gone_stream, 97, "is no stream, or no more"},
    {"what is left", leaks, 97, "leaked: 1 allocations, 0 streams, 1 events"},
};

/* Runs this program for case number i of a list; what it says is in text. */
static int child(const char *list, size_t i, unsigned seed, char *text, size_t size)
{
    int ends[2], status = 0;
    size_t n = 0;
    pid_t pid;
    char number[20], order[20];

    snprintf(number, sizeof number, "%zu", i), snprintf(order, sizeof order, "%u", seed);
    if (pipe(ends) || (pid = fork()) < 0)
        exit(1);
    if (!pid) {
        dup2(ends[1], 1), dup2(ends[1], 2), close(ends[0]);
        setenv("TENON_FAKE_SEED", order, 1);
        execl("/proc/self/exe", "test_fake", list, number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t k; n + 1 < size && (k = read(ends[0], text + n, size - 1 - n)) > 0;)
        n += (size_t)k;
    text[n] = 0;
    close(ends[0]);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int try_order(size_t i)
{
    static char text[1 << 16];
    int least = 255, most = 0;

    for (unsigned seed = 0; seed < 24; seed++) {
        const int answer = child("order", i, seed, text, sizeof text);

        if (*text)
            printf("%s: %s\n", orders[i].name, text);
        least = answer < least ? answer : least, most = answer > most ? answer : most;
    }
    if (least == orders[i].least && most == orders[i].most)
        return 0;
    printf("%s: answers from %d to %d, not from %d to %d\n", orders[i].name, least, most, orders[i].least,
           orders[i].most);
    return 1;
}

static int try_fault(size_t i)
{
    static char text[1 << 16];
    const int status = child("fault", i, 0, text, sizeof text);

    if (status == faults[i].status && strstr(text, faults[i].says) && !strstr(text, "line "))
        return 0;
    printf("%s: status %d, not %d and \"%s\": %s\n", faults[i].name, status, faults[i].status, faults[i].says,
           text);
    return 1;
}

int main(int argc, char **argv)
{
    int failed = 0, answer = 0;

    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc > 2) {
        const size_t i = strtoul(argv[2], NULL, 10);

        begin();
        if (!strcmp(argv[1], "order"))
            answer = orders[i].run();
        else
            faults[i].run();
        end();
        if (answer)
            _exit(wrong ? 1 : answer); /* an answer is no failure, and hides none: it was said */
        return wrong;
    }
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        failed += try_order(i);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        failed += try_fault(i);
    printf("%zu orders with 24 seeds each, %zu faults, %d failed\n", sizeof orders / sizeof *orders,
           sizeof faults / sizeof *faults, failed);
    return failed != 0;
}
