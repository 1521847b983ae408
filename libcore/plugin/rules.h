/* rules.h - backend.debug: does every call happen on the thread and in the state that the headers say?
 *
 * Switched on before plugins are loaded, the host puts a watching function in front of each function of a plugin whose
 * header has a rule, in the host's own copy of the table, and in front of its own functions that plugins call. A rule
 * that is broken, by a plugin or by the host, ends the process with a sentence that names the file and, where it is the
 * plugin that called, the place in it. What is watched:
 *
 *     parallel, team        the main thread, the thread of an update, or inside a body
 *     barrier               inside the body of a team
 *     the graph's functions only while graphs are built; a call during or between updates is answered here
 *     prepare, open, alloc, queue   the main thread, not during an update
 *     launch                prepared, not released, on the main thread or that of an update; an error has a sentence, and
 *                           "declined" comes from prepare alone
 *     start, wait           a request is taken once, an error has a sentence and leaves no request
 *     tables                as they were when they were loaded, looked at after each update and when plugins are asked
 *
 * Otherwise nothing here is called and nothing is slower. */
#ifndef TN_PLUGIN_RULES_H
#define TN_PLUGIN_RULES_H
#include <tenon/abi.h>
struct tn_loaded;

/* From now on, for the life of the process. Main thread, before plugins are loaded; twice is once. */
void tn_rules_begin(void);
/* This thread is the main one of a rank, where ranks are threads of one process. */
void tn_rules_rank(void);
/* By the loader: the tables of p are replaced by watching ones. */
void tn_rules_watch(struct tn_loaded *p);
/* Graphs are about to be built, and kernels prepared. */
void tn_rules_build(void);
/* An update begins or has ended, on this thread. */
void tn_rules_step(int begins);
#endif
