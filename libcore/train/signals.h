/* signals.h - what signals mean to a run: save, and go or stay.
 *
 * Handlers only note that a signal came; the loop asks between two updates, so that no update is cut and
 * nothing is saved from the middle of one. SIGTERM, SIGINT, SIGHUP and SIGPIPE end the run, the last two unless
 * they were ignored (nohup). Who presses Ctrl-C twice does not want to wait: the second SIGINT ends the process
 * at once, and the checkpoints on the disk are what they were. A file that grows beyond a limit of the system
 * is a failed write, not the end (SIGXFSZ is ignored).
 *
 * While a run starts there is nothing to save and the signals that end it do so at once; SIGUSR1, which asks
 * for a checkpoint and no more, must not, and is kept for the first update. Main thread. */
#ifndef TN_TRAIN_SIGNALS_H
#define TN_TRAIN_SIGNALS_H

void tn_signals_begin(void);                     /* SIGUSR1 */
void tn_signals_catch(void);                     /* the others */
void tn_signals_release(void);                   /* as it was before, the others */
void tn_signals_end(void);                       /* SIGUSR1 */

/* The signal that ends the run if one came, else 0; stays. */
int tn_signals_stop(void);
const char *tn_signals_name(int sig);
/* 1 if SIGUSR1 came since the last call. */
int tn_signals_save(void);
#endif
