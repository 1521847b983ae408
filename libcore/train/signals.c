/* signals.c - see signals.h. */
#include "train/signals.h"

#include <signal.h>
#include <unistd.h>

#define EXIT_INTERRUPTED 130                     /* as a shell says it: 128 + SIGINT */

static const int caught[] = {SIGTERM, SIGINT, SIGUSR1};
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

void tn_signals_catch(void)
{
    struct sigaction a = {.sa_handler = handle, .sa_flags = SA_RESTART};

    stop = save = 0;
    sigemptyset(&a.sa_mask);
    for (unsigned i = 0; i < CAUGHT; i++)
        sigaction(caught[i], &a, &before[i]);
    a.sa_handler = SIG_IGN;
    sigaction(SIGXFSZ, &a, &before_limit);
}

void tn_signals_release(void)
{
    for (unsigned i = 0; i < CAUGHT; i++)
        sigaction(caught[i], &before[i], NULL);
    sigaction(SIGXFSZ, &before_limit, NULL);
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
