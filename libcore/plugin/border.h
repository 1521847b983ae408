/* border.h - functions in front of a plugin's, that believe less than the host does.
 *
 * The host goes on wherever a status is 0, and shows the sentence of an error. So a status that a function does not have,
 * an error without a sentence and a success without a result become errors here, with the file and the function, at the
 * place where they cross. backend.debug (rules.h) asks for more, and ends the process. */
#ifndef TN_PLUGIN_BORDER_H
#define TN_PLUGIN_BORDER_H
#include "plugin/load.h"

/* Changes the functions in p's tables, which are the host's copies. More than 8 plugins of a kind are believed. */
void tn_border_put(struct tn_loaded *p);
#endif
