/* blame.h - which plugin a crash came from.
 *
 * While a plugin is loaded and asked the guard stands around it (guard.h). Later it computes and sends for hours, and what
 * crashes there, or throws an exception that nobody catches, ends the program by a signal. Then at least one sentence
 * says whose code it was: the file and the place in it, which addr2line turns into a line. The signal still ends the
 * process, as its parent and a debugger expect. What calls exit() there has ended a run that was not at its end, with a
 * status that may look like success: it becomes 1, with the same sentence. */
#ifndef TN_PLUGIN_BLAME_H
#define TN_PLUGIN_BLAME_H

/* Handlers for signals that nobody else handles: a sanitizer's stay. For the program; main thread, before plugins. */
void tn_blame_begin(void);
/* What is called from here on may exit. */
void tn_blame_end(void);
/* This file was loaded: a handle of dlopen. Main thread. */
void tn_blame_add(const char *path, void *handle);
#endif
