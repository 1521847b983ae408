/* stream.c - streams made of frames: a window of them may be unread, and the reader gives credit back.
 *
 * A credit travels in any frame that goes back, or in one of its own when half of the window was read. A
 * frame whose credit came has been received, so MPI is done with it as soon as it is asked; until then there
 * is no room. */
#include <stdlib.h>
#include "frames.h"

static int have_frames(struct tn_link_stream *s)
{
    for (uint32_t i = 0; i < TN_FRAME_WINDOW; i++)
        if (!(s->out[i] = tn_frame_new(TN_FRAME_PAYLOAD)))
            return 0;
    for (uint32_t i = 0; i < sizeof s->credit / sizeof *s->credit; i++)
        if (!(s->credit[i] = tn_frame_new(0)))
            return 0;
    return 1;
}

tn_status tn_link_stream_new(struct tn_link *l, uint32_t peer, uint64_t tag, struct tn_link_stream **out)
{
    struct tn_link_stream *s = *out = calloc(1, sizeof *s);
    struct tn_frame *f[TN_FRAME_WINDOW] = {NULL};
    int have = s != NULL;

    if (s) {
        s->peer = &l->peer[peer];
        s->tag = tag;
        tn_frames_init(&s->in);
        have = have_frames(s);
    }
    for (uint32_t i = 0; i < TN_FRAME_WINDOW; i++)
        have &= (f[i] = tn_frame_new(TN_FRAME_PAYLOAD)) != NULL;
    pthread_mutex_lock(&l->lock);
    for (uint32_t i = 0; i < TN_FRAME_WINDOW; i++)
        if (have)
            tn_frames_post(s->peer, f[i]);
        else
            tn_frame_free(f[i]);
    if (s) {
        s->next = s->peer->streams;
        s->peer->streams = s;
    }
    pthread_mutex_unlock(&l->lock);
    return have ? TN_OK : tn_error(TN_ERR_MEMORY, "mpi: no memory for a stream to rank %u", peer);
}

void tn_link_stream_free(struct tn_link_stream *s)
{
    struct tn_link *l = s->peer->link;
    struct tn_link_stream **at = &s->peer->streams;
    struct tn_frame *f;

    pthread_mutex_lock(&l->lock);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    for (uint32_t i = 0; i < TN_FRAME_WINDOW; i++)
        tn_frames_abandon(l, s->out[i]);
    for (uint32_t i = 0; i < sizeof s->credit / sizeof *s->credit; i++)
        tn_frames_abandon(l, s->credit[i]);
    while ((f = tn_frames_take(&s->in)))
        tn_frame_free(f);
    pthread_mutex_unlock(&l->lock);
    free(s);
}

uint8_t *tn_link_room(struct tn_link_stream *s, uint64_t *bytes)
{
    struct tn_link *l = s->peer->link;
    struct tn_frame *f = s->out[s->sent % TN_FRAME_WINDOW];
    int room;

    pthread_mutex_lock(&l->lock);
    room = s->sent - s->theirs < TN_FRAME_WINDOW && tn_frames_have_left(s->peer, f) && !s->peer->lost;
    pthread_mutex_unlock(&l->lock);
    *bytes = room ? TN_FRAME_PAYLOAD - s->filled : 0;
    return room ? (uint8_t *)(f->head + 1) + s->filled : NULL;
}

/* Lock held. */
static void send(struct tn_link_stream *s, struct tn_frame *f, uint32_t kind, uint64_t bytes)
{
    *f->head = (struct tn_frame_head){.bytes = (uint32_t)bytes, .kind = kind, .tag = s->tag, .read = s->read};
    s->told = s->read;
    if (!s->peer->lost)
        tn_frames_send(s->peer, f);
}

void tn_link_flush(struct tn_link_stream *s)
{
    struct tn_link *l = s->peer->link;

    if (!s->filled)
        return;
    pthread_mutex_lock(&l->lock);
    send(s, s->out[s->sent++ % TN_FRAME_WINDOW], TN_FRAME_DATA, s->filled);
    s->filled = 0;
    pthread_mutex_unlock(&l->lock);
}

void tn_link_wrote(struct tn_link_stream *s, uint64_t bytes)
{
    s->filled += bytes;
    if (s->filled == TN_FRAME_PAYLOAD)
        tn_link_flush(s);
}

uint8_t *tn_link_read(struct tn_link_stream *s, uint64_t *bytes)
{
    struct tn_link *l = s->peer->link;
    struct tn_frame *f;

    pthread_mutex_lock(&l->lock);
    f = s->in.first;
    pthread_mutex_unlock(&l->lock);
    *bytes = f ? f->head->bytes - s->at : 0;
    return f ? (uint8_t *)(f->head + 1) + s->at : NULL;
}

void tn_link_took(struct tn_link_stream *s, uint64_t bytes)
{
    struct tn_link *l = s->peer->link;
    struct tn_frame *credit;

    s->at += bytes;
    pthread_mutex_lock(&l->lock);
    if (s->in.first && s->at >= s->in.first->head->bytes) {
        tn_frames_post(s->peer, tn_frames_take(&s->in));
        s->at = 0;
        s->read++;
        credit = s->credit[s->turns % (sizeof s->credit / sizeof *s->credit)];
        if (s->read - s->told >= TN_FRAME_WINDOW / 2 && tn_frames_have_left(s->peer, credit)) {
            send(s, credit, TN_FRAME_CREDIT, 0);
            s->turns++;
        }
    }
    pthread_mutex_unlock(&l->lock);
}
