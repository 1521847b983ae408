/* status.c - errors per thread, the log, and the host table that shows both to plugins.
 *
 * A short error text lives in thread storage, so recording one needs no memory; a long one (a configuration
 * may have a hundred problems) goes to the heap and is freed when its thread ends. If even that memory is not
 * to be had, the text is cut rather than lost. */
#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "base/plain.h"
#include "base/pool.h"

struct record {
    tn_status status;
    int hushed;
    char *text;                                  /* own below or heap, owned; NULL: no error */
    char own[768];
};
static _Thread_local struct record last;
static pthread_key_t heap_key;                   /* its destructor frees the heap text of an ending thread */
static pthread_once_t heap_once = PTHREAD_ONCE_INIT;
static _Atomic uint32_t shown = UINT32_MAX;      /* UINT32_MAX: not decided yet */

static void host_error(tn_status code, const char *text, const char *file, int32_t line);
static void host_log(uint32_t level, const char *text);

struct tn_host tn_host_table = {
    .struct_size = sizeof tn_host_table,
    .abi = TN_ABI,
    .error = host_error,
    .log = host_log,
    .parallel = tn_pool_parallel,
    .team = tn_pool_team,
    .barrier = tn_pool_barrier,
    .threads = tn_pool_threads,
};

/* Every object has the weak tn_host of abi.h, so an initialised one here might lose to another at link time.
 */
__attribute__((constructor)) static void host_set(void)
{
    tn_host = &tn_host_table;
}

/* --- errors */
static void heap_key_make(void)
{
    pthread_key_create(&heap_key, free);
}

static void text_drop(void)
{
    if (last.text && last.text != last.own) {
        pthread_setspecific(heap_key, NULL);
        free(last.text);
    }
    last.text = NULL;
}

tn_status tn_error_long_at(const char *file, int32_t line, tn_status code, const char *text)
{
    char where[256] = "", *place = last.own;
    size_t bytes;

    if (file && tn_log_shows(TN_LOG_DEBUG))
        snprintf(where, sizeof where, " (%s:%d)", file, (int)line);
    bytes = strlen(text) + strlen(where) + 1;
    if (bytes > sizeof last.own) {
        pthread_once(&heap_once, heap_key_make);
        place = malloc(bytes);
        if (!place)
            place = last.own, bytes = sizeof last.own;
    }
    /* text may be the text of the last error itself, so the old one goes only after the copy */
    char *old = last.text;
    if (place != last.own) {
        snprintf(place, bytes, "%s%s", text, where);
        pthread_setspecific(heap_key, place);
        if (old && old != last.own)
            free(old);
    } else {
        char copy[sizeof last.own];
        snprintf(copy, sizeof copy, "%s%s", text, where);
        text_drop();
        memcpy(last.own, copy, sizeof copy);
    }
    last.text = place;
    last.status = code;
    last.hushed = 0;
    return code;
}

static void host_error(tn_status code, const char *text, const char *file, int32_t line)
{
    tn_error_long_at(file, line, code, text ? text : "");
}

const char *tn_error_text(void)
{
    return last.text ? last.text : "";
}

tn_status tn_error_status(void)
{
    return last.text ? last.status : TN_OK;
}

void tn_error_clear(void)
{
    text_drop();
    last.status = TN_OK;
    last.hushed = 0;
}

void tn_error_hush(void)
{
    last.hushed = last.text != NULL;
}

int tn_error_is_hushed(void)
{
    return last.hushed;
}

tn_status tn_status_of(const char *who, const char *function, tn_status status)
{
    if (status > 0)
        return tn_error(TN_ERR, "%.300s: %s gives status %d, which it has not", who, function, (int)status);
    if (status < 0 && !*tn_error_text())
        return tn_error(status, "%.300s: %s failed with status %d and gives no reason", who, function, (int)status);
    return status;
}

int tn_exit_code(tn_status status)
{
    if (status >= 0)
        return 0;
    return status == TN_ERR_CONFIG || status == TN_ERR_INPUT ? 2 : 1;
}

/* --- log */
static const char *const level_name[] = {"error", "warning", "info", "debug"};
static const char *const level_prefix[] = {"tenon: ", "tenon: warning: ", "tenon: ", "tenon: debug: "};
#define LEVELS (sizeof level_name / sizeof level_name[0])

static uint32_t level_from_environment(void)
{
    const char *text = getenv("TENON_LOG");

    if (!text || !*text)
        return TN_LOG_INFO;
    for (uint32_t i = 0; i < LEVELS; i++)
        if (!strcasecmp(text, level_name[i]))
            return i;
    fprintf(stderr, "tenon: warning: TENON_LOG=%s is none of error, warning, info, debug; info is used\n",
            text);
    return TN_LOG_INFO;
}

void tn_log_level(uint32_t level)
{
    atomic_store(&shown, level < LEVELS ? level : TN_LOG_DEBUG);
}

int tn_log_shows(uint32_t level)
{
    uint32_t now = atomic_load(&shown), undecided = UINT32_MAX;

    if (now == UINT32_MAX) {
        now = level_from_environment();
        if (!atomic_compare_exchange_strong(&shown, &undecided, now))
            now = undecided;
    }
    return level <= now;
}

/* Prefixes every line and writes all of them at once: errors, too, come here to be shown. */
static void host_log(uint32_t level, const char *text)
{
    const char *prefix = level_prefix[level < LEVELS ? level : TN_LOG_DEBUG];
    size_t lines = 1, at = 0;
    char *out;

    if (!tn_log_shows(level) || !text)
        return;
    for (const char *s = text; *s; s++)
        lines += *s == '\n';
    out = malloc(strlen(text) + lines * (strlen(prefix) + 1) + 1);
    if (!out)
        return;
    while (*text) {
        size_t n = strcspn(text, "\n");
        at += (size_t)sprintf(out + at, "%s%.*s\n", prefix, (int)n, text);
        text += n + (text[n] == '\n');
    }
    tn_plain(out, 1);                            /* a part of it may be a plugin's, or a file's name */
    fflush(stdout);                              /* what was printed before comes before */
    for (size_t done = 0; done < at;) {
        ssize_t n = write(STDERR_FILENO, out + done, at - done);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    free(out);
}

void tn_log(uint32_t level, const char *fmt, ...)
{
    va_list ap;
    char *text;
    int n;

    if (!tn_log_shows(level))
        return;
    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    host_log(level, text);
    free(text);
}
