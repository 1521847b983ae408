/* link.h - what carries streams between ranks that do not share memory: Gloo's TCP, MPI.
 *
 * One connection for each such rank, any number of streams over it, each with a tag that both sides chose
 * alike. A stream has a window of frames: who writes fills one and sends it, and may be ahead by a window;
 * who reads gives frames back by saying how many it has read. A link delivers in threads of its own, or when
 * it is polled; it says which. Functions take no limit and never wait for another rank. */
#ifndef TN_STREAMS_LINK_H
#define TN_STREAMS_LINK_H
#include <tenon/abi.h>

#ifdef __cplusplus
extern "C" {
#endif
struct tn_link;
struct tn_link_stream;

#define TN_LINK_CONTROL 512u /* bytes of a control message at most */

tn_status tn_link_stream_new(struct tn_link *t, uint32_t peer, uint64_t tag, struct tn_link_stream **out);
void tn_link_stream_free(struct tn_link_stream *s);
/* Not from two threads at once for a stream. */
uint8_t *tn_link_room(struct tn_link_stream *s, uint64_t *bytes);
void tn_link_wrote(struct tn_link_stream *s, uint64_t bytes);
void tn_link_flush(struct tn_link_stream *s);
uint8_t *tn_link_read(struct tn_link_stream *s, uint64_t *bytes);
void tn_link_took(struct tn_link_stream *s, uint64_t bytes);
/* A message outside of all streams; lost where the peer is. */
void tn_link_say(struct tn_link *t, uint32_t peer, uint32_t kind, const void *data, uint32_t bytes);
void tn_link_stop(struct tn_link *t);  /* tn_world_control is not called after it */
void tn_link_close(struct tn_link *t); /* stopped, and all streams freed */
/* A world has failed or never came about: nothing may wait for its ranks any more. Any thread, more than
 * once. */
void tn_link_failed(void);
/* Any thread, without the engine's lock. Where nothing is delivered without it, polls is 1. */
void tn_link_poll(struct tn_link *t);
extern const int tn_link_polls;
extern const char tn_link_kind[]; /* "TCP" */
#ifdef __cplusplus
}
#endif
#endif
