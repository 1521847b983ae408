/* say.c - what the fakes say, the lock, the order's random numbers, the faults that a test plants, the end.
 *
 * What the variables TENON_FAKE_* mean is in README.md. A planted fault is the program's, not the fake's: the fake
 * does what it would do if the program had erred. */
#include "fake.h"
#include <pthread.h>
#include <stdarg.h>
#include <unistd.h>

static pthread_mutex_t lock;
static uint64_t random_state, seed;
static uint32_t blamed, library_objects;
static pid_t process;
static _Thread_local cudaError_t last;
struct tn_fake_counts tn_fake_counts;

struct tn_fake_counts *tn_fake_count(void)
{
    return &tn_fake_counts;
}

void tn_fake_library_object(int more)
{
    library_objects += (uint32_t)more;
}

void tn_fake_lock(void)
{
    pthread_mutex_lock(&lock);
}

void tn_fake_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static void say(const char *format, va_list ap)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "fake: ");

    n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, ap);
    n = n < (int)sizeof text - 1 ? n : (int)sizeof text - 2;
    text[n++] = '\n';
    if (write(2, text, (size_t)n) < 0)
        return;
}

void tn_fake_blame(const char *format, ...)
{
    va_list ap;

    blamed++;
    va_start(ap, format);
    say(format, ap);
    va_end(ap);
}

void tn_fake_die(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    say(format, ap);
    va_end(ap);
    _exit(98);
}

cudaError_t tn_fake_error(cudaError_t e, const char *format, ...)
{
    va_list ap;

    blamed++;
    va_start(ap, format);
    say(format, ap);
    va_end(ap);
    return tn_fake_last(e);
}

cudaError_t tn_fake_last(cudaError_t e)
{
    if (e)
        last = e;
    return e;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = last;

    last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

uint64_t tn_fake_seed(void)
{
    return seed;
}

uint32_t tn_fake_draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}

static long number(const char *variable, long otherwise)
{
    const char *text = getenv(variable);

    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

int tn_fake_tracing(void)
{
    static int asked, is;

    if (!asked)
        is = (int)number("TENON_FAKE_TRACE", 0), asked = 1;
    return is;
}

int tn_fake_planted(const char *name)
{
    static uint64_t calls;
    const char *fault = getenv("TENON_FAKE_FAULT");
    const size_t n = strlen(name);
    uint64_t at;
    char *end;

    if (!fault || strncmp(fault, name, n) || fault[n] != ':' ||
        number("TENON_FAKE_RANK", 0) != number("RANK", 0))
        return 0;
    at = strtoull(fault + n + 1, &end, 10);
    return ++calls == at || (*end == '+' && calls > at);
}

/* Runs in exit, after all handlers of the program: nothing of it is open any more. */
static void at_end(int status, void *unused)
{
    uint32_t memory = tn_fake_memory_leaks(), graphs = tn_fake_graph_leaks(), streams, events;
    const struct tn_fake_counts *c = &tn_fake_counts;

    (void)unused;
    if (getpid() != process)
        return; /* a probe's child */
    tn_fake_queue_leaks(&streams, &events);
    if (number("TENON_FAKE_SUMMARY", 0))
        fprintf(stderr,
                "fake: seed %ld, %llu launches, %llu products, %llu copies, %llu fills, %llu waits, %llu "
                "collectives, "
                "%llu replays, %llu questions\n",
                number("TENON_FAKE_SEED", 0), (unsigned long long)c->launches,
                (unsigned long long)c->products, (unsigned long long)c->copies, (unsigned long long)c->fills,
                (unsigned long long)c->waits, (unsigned long long)c->collectives,
                (unsigned long long)c->replays, (unsigned long long)c->questions);
    if (status)
        return; /* who fails need not tidy up */
    if (memory || streams || events || graphs || library_objects)
        tn_fake_blame("leaked: %u allocations, %u streams, %u events, %u graphs, %u communicators", memory,
                      streams, events, graphs, library_objects);
    if (blamed)
        _exit(97);
}

__attribute__((constructor)) static void begin(void)
{
    pthread_mutexattr_t a;

    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &a);
    pthread_mutexattr_destroy(&a);
    seed = (uint64_t)number("TENON_FAKE_SEED", 0);
    random_state = (seed * 64 + (uint64_t)number("RANK", 0)) * 0x9e3779b97f4a7c15u + 1;
    process = getpid();
    on_exit(at_end, NULL);
}
