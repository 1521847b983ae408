/* metrics.h - RUN/metrics.jsonl: one JSON object a line, each line written at once.
 *
 * A run that resumes from step s writes s + 1 again, so lines beyond s are dropped when the file is opened;
 * so are lines that a crash cut short. Whatever the history, no step is there twice. */
#ifndef TN_CKPT_METRICS_H
#define TN_CKPT_METRICS_H
#include <jansson.h>
#include <tenon/abi.h>

struct tn_metrics;

/* Keeps the lines whose "step" is at most last_step; -1 for a run that starts afresh. */
tn_status tn_metrics_open(const char *path, int64_t last_step, struct tn_metrics **out);
/* Borrows line. A line that does not fit on the disk leaves nothing of itself. */
tn_status tn_metrics_write(struct tn_metrics *m, const json_t *line);
void tn_metrics_close(struct tn_metrics *m);     /* NULL is fine */
#endif
