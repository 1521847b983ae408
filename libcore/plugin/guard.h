/* guard.h - a sentence ready for plugin code that never comes back.
 *
 * A plugin asked for by name is loaded in this process. If its constructor crashes, calls exit or hangs, the
 * program is lost, but it ends with the name of the file and the cause. The signal handlers, the exit handler
 * and the alarm are there between begin and end only. _exit leaves no trace to hold on to, and what blocks the
 * alarm and hangs is not ended. What it changed of the process (process.h) is told and put back. Main thread. */
#ifndef TN_PLUGIN_GUARD_H
#define TN_PLUGIN_GUARD_H

#define TN_GUARD_SECONDS 60u /* for a start that talks to a device or a slow file system */

#define TN_GUARD_STOP_SECONDS 600u /* for an end that waits for other ranks */

/* doing: "while it was loaded". seconds 0: no alarm. Texts are copied. */
void tn_guard_begin(const char *path, const char *doing, unsigned seconds);
void tn_guard_end(void);

/* In a child of tn_plugin_probe: whoever forked it reports, so the guard says nothing and only sees to it
 * that exit() runs nobody's handlers. */
void tn_guard_mute(void);
int tn_guard_is_muted(void);
#define TN_GUARD_EXITED 86 /* exit status of a muted child whose plugin called exit */
#endif
