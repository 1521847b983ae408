/* frames.c - frames sent and received by MPI, nonblocking, whenever somebody polls.
 *
 * MPI moves nothing between calls, and its calls know no limit. So nothing here waits: receives are posted
 * ahead, sends are begun, and who drives the engine polls; limits are kept by those who wait for results. One
 * lock keeps MPI to one thread at a time, which is all it has to be built for. Frames with one tag from one
 * rank are matched in the order of their sending, so the first receive that was posted is the next frame.
 *
 * Frames of a world that has ended, or has failed, may still be in MPI's hands: their memory is not given
 * back. */
#include <stdlib.h>
#include "frames.h"

#define TAGS 30000 /* MPI promises 32767 */

/* --- frames and lists */

struct tn_frame *tn_frame_new(uint64_t payload)
{
    struct tn_frame *f = calloc(1, sizeof *f);
    uint64_t bytes = (sizeof *f->head + payload + TN_LINE - 1) / TN_LINE * TN_LINE;

    if (f && !(f->head = aligned_alloc(TN_LINE, bytes))) {
        free(f);
        return NULL;
    }
    return f;
}

void tn_frame_free(struct tn_frame *f)
{
    if (f)
        free(f->head);
    free(f);
}

void tn_frames_init(struct tn_frames *l)
{
    l->first = NULL;
    l->end = &l->first;
}

void tn_frames_put(struct tn_frames *l, struct tn_frame *f)
{
    f->next = NULL;
    *l->end = f;
    l->end = &f->next;
}

struct tn_frame *tn_frames_take(struct tn_frames *l)
{
    struct tn_frame *f = l->first;

    if (f && !(l->first = f->next))
        l->end = &l->first;
    return f;
}

/* --- MPI */

void tn_frames_lose(struct tn_link_peer *p)
{
    p->lost = 1;
    atomic_store(&p->link->world->peer[p->world].gone, 1);
}

void tn_frames_post(struct tn_link_peer *p, struct tn_frame *f)
{
    struct tn_link *l = p->link;
    int first = !p->posted.first;

    if (l->stopping || MPI_Irecv(f->head, (int)(sizeof *f->head + TN_FRAME_PAYLOAD), MPI_BYTE, p->rank,
                                 l->tag, l->mpi->comm, &f->request) != MPI_SUCCESS) {
        tn_frame_free(f);
        if (!l->stopping)
            tn_frames_lose(p);
        return;
    }
    tn_frames_put(&p->posted, f);
    if (first)
        l->first[p->world] = f->request;
}

void tn_frames_send(struct tn_link_peer *p, struct tn_frame *f)
{
    struct tn_link *l = p->link;

    f->sent = 1;
    if (MPI_Isend(f->head, (int)(sizeof *f->head + f->head->bytes), MPI_BYTE, p->rank, l->tag, l->mpi->comm,
                  &f->request) != MPI_SUCCESS) {
        f->sent = 0;
        tn_frames_lose(p);
    }
}

int tn_frames_have_left(struct tn_link_peer *p, struct tn_frame *f)
{
    int done = 1;

    if (f->sent && MPI_Test(&f->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        tn_frames_lose(p);
    if (done)
        f->sent = 0;
    return done;
}

void tn_frames_abandon(struct tn_link *l, struct tn_frame *f)
{
    if (!f)
        return;
    f->next = l->leaving;
    l->leaving = f;
}

static void free_left(struct tn_link *l)
{
    for (struct tn_frame **at = &l->leaving; *at;) {
        struct tn_frame *f = *at;
        int done = 1;
        if (f->sent && MPI_Test(&f->request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        tn_frame_free(f);
    }
}

/* --- what arrives */

static struct tn_link_stream *find(struct tn_link_peer *p, uint64_t tag)
{
    struct tn_link_stream *s = p->streams;

    while (s && s->tag != tag)
        s = s->next;
    return s;
}

/* To whom it is for; in its place another one is posted, or the same again. */
static void deliver(struct tn_link_peer *p, struct tn_frame *f)
{
    struct tn_link_stream *s;

    if (f->head->bytes > TN_FRAME_PAYLOAD) {
        tn_frame_free(f);
        tn_frames_lose(p);
        return;
    }
    if (f->head->kind < TN_FRAME_DATA) {
        tn_frames_put(&p->heard, f);
        return;
    }
    s = find(p, f->head->tag);
    if (s)
        s->theirs = f->head->read;
    if (s && f->head->kind == TN_FRAME_DATA)
        tn_frames_put(&s->in, f); /* posted again when it was read */
    else
        tn_frames_post(p, f);
}

/* The first frame of this rank is there. */
static void arrived(struct tn_link_peer *p)
{
    struct tn_frame *f = tn_frames_take(&p->posted);

    p->link->first[p->world] = p->posted.first ? p->posted.first->request : MPI_REQUEST_NULL;
    if (f)
        deliver(p, f);
}

static void test(struct tn_link *l)
{
    int n = 0;

    do {
        int code = MPI_Testsome((int)l->world->size, l->first, &n, l->done, MPI_STATUSES_IGNORE);
        if (code != MPI_SUCCESS && n == MPI_UNDEFINED)
            return;
        if (code != MPI_SUCCESS) /* of which rank is not known, so whoever waits finds out */
            n = 0;
        for (int i = 0; i < n; i++)
            arrived(&l->peer[l->done[i]]);
    } while (n > 0);
    if (l->leaving)
        free_left(l);
}

/* Messages are given on without the lock: who hears one may answer it. */
static void give_on(struct tn_link_peer *p)
{
    struct tn_link *l = p->link;
    struct tn_frame *f;

    while ((f = tn_frames_take(&p->heard))) {
        pthread_mutex_unlock(&l->lock);
        tn_world_control(l->world, p->world, f->head->kind, f->head + 1, f->head->bytes);
        pthread_mutex_lock(&l->lock);
        tn_frames_post(p, f);
    }
}

const int tn_link_polls = 1;

void tn_link_poll(struct tn_link *l)
{
    if (pthread_mutex_trylock(&l->lock)) /* whoever has it, polls or moves */
        return;
    if (!l->stopping) {
        test(l);
        for (uint32_t p = 0; p < l->world->size; p++)
            if (l->peer[p].heard.first)
                give_on(&l->peer[p]);
    }
    pthread_mutex_unlock(&l->lock);
}

/* --- the link */

static struct tn_link *link_new(struct tn_world *w, const struct tn_mpi *mpi)
{
    struct tn_link *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    l->world = w;
    l->mpi = mpi;
    l->tag = (int32_t)(w->instance % TAGS);
    pthread_mutex_init(&l->lock, NULL);
    l->peer = calloc(w->size, sizeof *l->peer);
    l->first = calloc(w->size, sizeof *l->first);
    l->done = calloc(w->size, sizeof *l->done);
    if (!l->peer || !l->first || !l->done) {
        tn_link_close(l);
        return NULL;
    }
    for (uint32_t p = 0; p < w->size; p++) {
        l->peer[p].link = l;
        l->peer[p].world = p;
        l->peer[p].rank = -1;
        l->first[p] = MPI_REQUEST_NULL;
        tn_frames_init(&l->peer[p].posted);
        tn_frames_init(&l->peer[p].heard);
    }
    return l;
}

tn_status tn_frames_open(struct tn_world *w, const struct tn_mpi *mpi, const int32_t *rank,
                         struct tn_link **out)
{
    struct tn_link *l = *out = link_new(w, mpi);

    for (uint32_t p = 0; l && p < w->size; p++) {
        l->peer[p].rank = rank[p];
        for (uint32_t i = 0; rank[p] >= 0 && i < TN_FRAME_SPARE; i++) {
            struct tn_frame *f = tn_frame_new(TN_FRAME_PAYLOAD);
            if (!f)
                return tn_error(TN_ERR_MEMORY, "mpi: no memory for frames of %u ranks", w->size);
            pthread_mutex_lock(&l->lock);
            tn_frames_post(&l->peer[p], f);
            pthread_mutex_unlock(&l->lock);
        }
    }
    return l ? TN_OK : tn_error(TN_ERR_MEMORY, "mpi: no memory for a link to %u ranks", w->size);
}

void tn_link_say(struct tn_link *l, uint32_t peer, uint32_t kind, const void *data, uint32_t bytes)
{
    struct tn_link_peer *p = &l->peer[peer];
    struct tn_frame *f = bytes > TN_LINK_CONTROL || p->rank < 0 ? NULL : tn_frame_new(bytes);

    if (!f)
        return;
    *f->head = (struct tn_frame_head){.bytes = bytes, .kind = kind};
    memcpy(f->head + 1, data, bytes);
    pthread_mutex_lock(&l->lock);
    if (!l->stopping && !p->lost)
        tn_frames_send(p, f);
    tn_frames_abandon(l, f);
    pthread_mutex_unlock(&l->lock);
}

/* Receives are taken back. One that MPI does not give back keeps its memory. */
static void take_back(struct tn_frames *posted)
{
    struct tn_frame *f;

    while ((f = tn_frames_take(posted))) {
        int done = 0;
        if (f->request != MPI_REQUEST_NULL) {
            MPI_Cancel(&f->request);
            MPI_Test(&f->request, &done, MPI_STATUS_IGNORE);
        }
        if (done)
            tn_frame_free(f);
    }
}

void tn_link_stop(struct tn_link *l)
{
    pthread_mutex_lock(&l->lock);
    l->stopping = 1;
    for (uint32_t p = 0; p < l->world->size; p++)
        take_back(&l->peer[p].posted);
    pthread_mutex_unlock(&l->lock);
}

void tn_link_close(struct tn_link *l)
{
    struct tn_frame *f;

    for (uint32_t p = 0; l->peer && p < l->world->size; p++)
        while ((f = tn_frames_take(&l->peer[p].heard)))
            tn_frame_free(f);
    if (l->leaving)
        free_left(l);
    pthread_mutex_destroy(&l->lock);
    free(l->peer);
    free(l->first);
    free(l->done);
    free(l);
}
