/* blame.c - see blame.h.
 *
 * Which addresses are a plugin's is noted when it is loaded, so the handler only compares, copies and writes. Frames come
 * from backtrace, called once before since its first call loads a library; the innermost one that is a plugin's is
 * named. What a plugin called may be at fault, or what it was called with: the sentence says no more than it knows. */
#include "plugin/blame.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_PLUGINS 64
#define MOST_FRAMES 128

static const struct {
    int number;
    const char *text;
} signals[] = {
    {SIGSEGV, "segmentation fault, SIGSEGV"},
    {SIGBUS, "bus error, SIGBUS"},
    {SIGILL, "illegal instruction, SIGILL: perhaps one that this CPU does not have"},
    {SIGFPE, "arithmetic error, SIGFPE"},
    {SIGABRT, "abort, SIGABRT: what an exception does that nobody catches"},
};
#define SIGNALS (sizeof signals / sizeof *signals)

static struct {
    char path[300];
    uintptr_t base, end;
} plugin[MOST_PLUGINS];
static int n_plugin;
static char stack[65536];
static pid_t process;                            /* that this is for: not one that was forked since */
static volatile sig_atomic_t over;

static size_t put(char *text, size_t at, const char *more)
{
    size_t n = strlen(more);

    memcpy(text + at, more, n);
    return at + n;
}

static size_t put_hex(char *text, size_t at, uintptr_t x)
{
    int shift = 60;

    while (shift && !(x >> shift & 15))
        shift -= 4;
    for (; shift >= 0; shift -= 4)
        text[at++] = "0123456789abcdef"[x >> shift & 15];
    return at;
}

static int owner(uintptr_t at)
{
    for (int i = 0; i < n_plugin; i++)
        if (at >= plugin[i].base && at < plugin[i].end)
            return i;
    return -1;
}

/* who -1: nobody's code is on the stack, as where a plugin gave an address that is none. */
static void say(const char *what, int who, uintptr_t at)
{
    char text[700];
    size_t n = put(text, 0, "tenon: ");

    if (who >= 0) {
        n = put(text, n, plugin[who].path);
        n = put(text, n, ": ");
    }
    n = put(text, n, what);
    if (who >= 0) {
        n = put(text, n, " at +0x");
        n = put_hex(text, n, at - plugin[who].base);
        n = put(text, n, " of it, or in what it called there\n");
    } else
        n = put(text, n, ", in the code of no plugin\n");
    if (write(STDERR_FILENO, text, n) < 0)
        return;
}

/* The innermost frame that is a plugin's. */
static int find_owner(uintptr_t *at)
{
    void *frame[MOST_FRAMES];
    int n = backtrace(frame, MOST_FRAMES), who = -1;

    for (int i = 0; i < n && who < 0; i++)
        *at = (uintptr_t)frame[i], who = owner(*at);
    return who;
}

/* Looking for frames from an address that is none crashes in its turn. */
static void on_second(int number)
{
    say("crashed (segmentation fault, SIGSEGV)", -1, 0);
    signal(number, SIG_DFL);
    raise(number);
}

/* The action is the default again (SA_RESETHAND): returning repeats the instruction, and abort raises once more. */
static void on_signal(int number)
{
    uintptr_t at = 0;
    char what[120] = "crashed (";
    size_t k = 0;
    int who;

    signal(SIGSEGV, on_second);
    who = n_plugin ? find_owner(&at) : -1;
    signal(SIGSEGV, SIG_DFL);
    while (k + 1 < SIGNALS && signals[k].number != number)
        k++;
    what[put(what, put(what, strlen(what), signals[k].text), ")")] = 0;
    if (n_plugin)
        say(what, who, at);
    raise(number);
}

/* A status that looks like success, from the middle of a run. Exits of our own have no plugin on the stack. */
static void on_exit_called(void)
{
    uintptr_t at = 0;
    int who;

    if (over || getpid() != process || !n_plugin || (who = find_owner(&at)) < 0)
        return;
    say("called exit()", who, at);
    _exit(1);
}

void tn_blame_begin(void)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_ONSTACK | SA_NODEFER}, old;
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};

    process = getpid();
    atexit(on_exit_called);
    at_quick_exit(on_exit_called);
    sigaltstack(&own, NULL);
    for (size_t i = 0; i < SIGNALS; i++)
        if (!sigaction(signals[i].number, NULL, &old) && old.sa_handler == SIG_DFL)
            sigaction(signals[i].number, &a, NULL);
}

void tn_blame_end(void)
{
    over = 1;
}

static int note_range(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct link_map *map = arg;

    (void)size;
    if (info->dlpi_addr != map->l_addr || strcmp(info->dlpi_name, map->l_name))
        return 0;
    plugin[n_plugin].base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;

        if (info->dlpi_phdr[i].p_type == PT_LOAD && end > plugin[n_plugin].end)
            plugin[n_plugin].end = end;
    }
    return 1;
}

void tn_blame_add(const char *path, void *handle)
{
    struct link_map *map;
    void *frame[1];

    if (n_plugin == MOST_PLUGINS || dlinfo(handle, RTLD_DI_LINKMAP, &map))
        return;
    if (!n_plugin)
        backtrace(frame, 1);                     /* loads what it needs */
    snprintf(plugin[n_plugin].path, sizeof plugin[0].path, "%s", path);
    n_plugin += dl_iterate_phdr(note_range, map);
}
