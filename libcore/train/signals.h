/* signals.h - what SIGTERM, SIGINT and SIGUSR1 mean to a run: save, and go or stay.
 *
 * Handlers only note that a signal came; the loop asks between two updates, so that no update is cut and
 * nothing is saved from the middle of one. Who presses Ctrl-C twice does not want to wait: the second SIGINT
 * ends the process at once, and the checkpoints on the disk are what they were. A file that grows beyond a
 * limit of the system is a failed write, not the end (SIGXFSZ is ignored). Main thread. */
#ifndef TN_TRAIN_SIGNALS_H
#define TN_TRAIN_SIGNALS_H

void tn_signals_catch(void);
void tn_signals_release(void);                   /* as it was before */

/* SIGTERM or SIGINT if one of them came, else 0; stays. */
int tn_signals_stop(void);
/* 1 if SIGUSR1 came since the last call. */
int tn_signals_save(void);
#endif
