/* events.h - RUN/events.out.tfevents.tenon: the numbers of metrics.jsonl once more, as TensorBoard reads them.
 *
 * The format is a row of records (TFRecord: length, checksum, data, checksum), each a protocol buffer Event with a time, a
 * step and scalars. A run that resumes from step s writes s + 1 again: what is beyond s, or cut short by a crash, is cut off
 * when the file is opened, in place, so that a TensorBoard that looks on keeps its file. No step is there twice. */
#ifndef TN_CKPT_EVENTS_H
#define TN_CKPT_EVENTS_H
#include <tenon/abi.h>

#define TN_EVENTS_NAME "events.out.tfevents.tenon"
#define TN_EVENTS_MOST 16                        /* scalars of one step */

struct tn_events;

struct tn_event_value {
    const char *tag;                             /* at most 100 bytes */
    double x;                                    /* kept in fp32; may be NaN */
};

/* Keeps the events whose step is at most last_step; -1 for a run that starts afresh. */
tn_status tn_events_open(const char *path, int64_t last_step, struct tn_events **out);
/* At most TN_EVENTS_MOST values. A record that does not fit on the disk leaves nothing of itself. */
tn_status tn_events_write(struct tn_events *e, int64_t step, const struct tn_event_value *v, uint32_t n);
void tn_events_close(struct tn_events *e);       /* NULL is fine */
#endif
