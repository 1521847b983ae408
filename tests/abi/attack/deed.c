/* deed.c - a bootstrap that works, and does one thing to its process: ATTACK_DEED, where ATTACK_WHEN says. One file for
 * all deeds, so that a test builds it once. */
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <tenon/bootstrap.h>

static void pause_for_ever(void)
{
    for (;;)
        pause();
}

/* Two forks: a process that nobody waits for, in no group of ours. */
static void daemonize(void)
{
    if (fork())
        return;
    setsid();
    if (!fork())
        sleep(60);
    _exit(0);
}

static void block_signals(void)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
}

static void close_streams(void)
{
    close(0), close(1), close(2);
}

static void leave_group(void)
{
    for (int i = 3; i < 256; i++)
        close(i);
    setpgid(0, getpgid(getppid()));
    pause_for_ever();
}

static void start_timer(void)
{
    const struct itimerval soon = {{0, 0}, {50, 0}};

    setitimer(ITIMER_REAL, &soon, NULL);
}

static void set_limit(void)
{
    const struct rlimit few = {100, 100};

    setrlimit(RLIMIT_NOFILE, &few);
}

static void say_much(void)
{
    tn_host->log(1, "a \033[31mred\xff\xc2\x9b" "5m line\nand another\rone");
}

/* As it ends the process: a failure shows what was printed last. */
static void shout(void)
{
    if (write(2, "\xff\xfe \033[31mloud\n", 14) == 14)
        exit(0);
}

static const struct {
    const char *name;
    void (*deed)(void);
} deeds[] = {
    {"block", block_signals}, {"close", close_streams}, {"daemon", daemonize}, {"hang", pause_for_ever},
    {"leave", leave_group},   {"limit", set_limit},     {"say", say_much},     {"shout", shout},
    {"timer", start_timer},
};

static void act(void)
{
    const char *deed = getenv("ATTACK_DEED");

    if (!deed)
        return;
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (!strcmp(deed, deeds[i].name))
            deeds[i].deed();
    if (!strcmp(deed, "umask"))
        umask(0777);
    if (!strcmp(deed, "chdir") && chdir("/"))
        abort();
    if (!strcmp(deed, "locale"))
        setlocale(LC_ALL, "C.UTF-8");
    if (!strcmp(deed, "rounding"))
        fesetround(FE_UPWARD);
    if (!strcmp(deed, "traps"))
        feenableexcept(FE_DIVBYZERO | FE_INVALID);
#ifdef __x86_64__
    if (!strcmp(deed, "denormals"))
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
    if (!strcmp(deed, "stdout") && write(1, "words\n", 6) < 0)
        abort();
    if (!strcmp(deed, "exit"))
        exit(0);
    if (!strcmp(deed, "group"))
        kill(0, SIGTERM);
}

static void at(const char *when)
{
    const char *wanted = getenv("ATTACK_WHEN");

    if (wanted && !strcmp(wanted, when))
        act();
}

__attribute__((constructor)) static void loaded(void)
{
    at("load");
}

__attribute__((destructor)) static void unloaded(void)
{
    at("end");
}

static tn_status start(void)
{
    at("start");
    return TN_OK;
}

static void stop(void)
{
    at("stop");
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    at("probe");
    *score = 5;
    snprintf(why, why_size, "a reason \033[2Jwith \xff in it");
    return TN_OK;
}

static tn_status locate(struct tn_place *out)
{
    at("locate");
    out->size = 1;
    return TN_OK;
}

static const struct tn_bootstrap table = {.struct_size = sizeof table, .probe = probe, .locate = locate};
TN_PLUGIN_("deed", "1", "an \033[1mattack", TN_BOOTSTRAP_ID, start, stop, {TN_BOOTSTRAP_ID, &table});
