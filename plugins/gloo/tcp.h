/* tcp.h - streams over Gloo's TCP pairs, for C.
 *
 * One pair for each remote rank, one thread that waits for its frames, any number of streams over it, each
 * with a tag that both sides chose alike. A stream has a window of frames: who writes fills one and sends it,
 * and may be ahead by a window; who reads gives frames back by saying how many it has read. No exception
 * leaves. */
#ifndef TN_GLOO_TCP_H
#define TN_GLOO_TCP_H
#include <tenon/abi.h>

#ifdef __cplusplus
extern "C" {
#endif
struct tn_tcp;
struct tn_tcp_stream;

struct tn_tcp_user { /* called in the threads that wait for frames */
    void *arg;
    void (*arrived)(void *arg); /* bytes to read, room to write */
    void (*control)(void *arg, uint32_t peer, uint32_t kind, const void *data, uint32_t bytes);
    void (*lost)(void *arg, uint32_t peer);
};

#define TN_TCP_ADDRESS 256u /* bytes that an address takes at most */
#define TN_TCP_CONTROL 512u /* bytes of a control message at most */

tn_status tn_tcp_open(const char *address, uint32_t rank, uint32_t size, double seconds,
                      const struct tn_tcp_user *user, struct tn_tcp **out);
/* This rank's end of the pair with a peer, for the peer to connect to. */
tn_status tn_tcp_listen(struct tn_tcp *t, uint32_t peer, void *address, uint32_t *bytes);
tn_status tn_tcp_connect(struct tn_tcp *t, uint32_t peer, const void *address, uint32_t bytes);
tn_status tn_tcp_stream_new(struct tn_tcp *t, uint32_t peer, uint64_t tag, struct tn_tcp_stream **out);
void tn_tcp_stream_free(struct tn_tcp_stream *s);
/* Not from two threads at once for a stream. */
uint8_t *tn_tcp_room(struct tn_tcp_stream *s, uint64_t *bytes);
void tn_tcp_wrote(struct tn_tcp_stream *s, uint64_t bytes);
void tn_tcp_flush(struct tn_tcp_stream *s);
uint8_t *tn_tcp_read(struct tn_tcp_stream *s, uint64_t *bytes);
void tn_tcp_took(struct tn_tcp_stream *s, uint64_t bytes);
/* A message outside of all streams; lost where the peer is. */
void tn_tcp_say(struct tn_tcp *t, uint32_t peer, uint32_t kind, const void *data, uint32_t bytes);
void tn_tcp_stop(struct tn_tcp *t);  /* no call of the user after it */
void tn_tcp_close(struct tn_tcp *t); /* stopped, and all streams freed */
#ifdef __cplusplus
}
#endif
#endif
