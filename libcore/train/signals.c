/* signals.c - see signals.h. */
#include "train/signals.h"

#include <signal.h>
#include <unistd.h>

#define EXIT_INTERRUPTED 130                     /* as a shell says it: 128 + SIGINT */

/* The first is for the whole run, the others only from when there is something to save. */
static const int caught[] = {SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGPIPE};
#define CAUGHT (sizeof caught / sizeof *caught)
static struct sigaction before[CAUGHT], before_limit;
static volatile sig_atomic_t stop, save;

static void handle(int sig)
{
    if (sig == SIGUSR1)
        save = 1;
    else if (sig == SIGINT && stop == SIGINT)
        _exit(EXIT_INTERRUPTED);
    else
        stop = sig;
}

static void catch_one(unsigned i)
{
    struct sigaction a = {.sa_handler = handle, .sa_flags = SA_RESTART};

    sigemptyset(&a.sa_mask);
    sigaction(caught[i], NULL, &before[i]);
    if ((caught[i] == SIGHUP || caught[i] == SIGPIPE) && before[i].sa_handler == SIG_IGN)
        return;                                  /* nohup */
    sigaction(caught[i], &a, NULL);
}

void tn_signals_begin(void)
{
    stop = save = 0;
    catch_one(0);
}

void tn_signals_catch(void)
{
    struct sigaction a = {.sa_handler = SIG_IGN};

    for (unsigned i = 1; i < CAUGHT; i++)
        catch_one(i);
    sigemptyset(&a.sa_mask);
    sigaction(SIGXFSZ, &a, &before_limit);
}

void tn_signals_release(void)
{
    for (unsigned i = 1; i < CAUGHT; i++)
        sigaction(caught[i], &before[i], NULL);
    sigaction(SIGXFSZ, &before_limit, NULL);
}

void tn_signals_end(void)
{
    sigaction(caught[0], &before[0], NULL);
}

const char *tn_signals_name(int sig)
{
    switch (sig) {
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP, the terminal is gone";
    case SIGPIPE: return "SIGPIPE, nobody reads the output";
    default: return "SIGTERM";
    }
}

int tn_signals_stop(void)
{
    return stop;
}

int tn_signals_save(void)
{
    int was = save;

    save = 0;
    return was;
}
