/* comm_flight.c - cases of what is under way: several at once, sends before receives, progress, threads. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "comm_cases.h"

#ifndef SYS_memfd_secret
#define SYS_memfd_secret (-1)
#endif

void tn_comm_in_flight(struct tn_rank *r)
{
    enum { N = 40 };
    struct tn_request *q[N];
    int32_t *x[N];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            uint64_t count = i % 5 == 0 ? 200000 : (uint64_t)i;
            x[i] = malloc(200000 * sizeof(int32_t));
            for (uint64_t k = 0; k < count; k++)
                x[i][k] = (int32_t)(k + (uint64_t)i * r->rank);
            struct tn_transfer t = {i % 3 ? TN_ALL_REDUCE : TN_BROADCAST,
                                    TN_I32,
                                    TN_SUM,
                                    (uint32_t)i % r->size,
                                    x[i],
                                    x[i],
                                    count,
                                    NULL,
                                    NULL,
                                    (uint64_t)i + 1};
            must(r, r->api->start(r->world, &t, 1, NULL, &q[i]) == TN_OK);
        }
        for (int i = N - 1; i >= 0; i--) {
            uint64_t count = i % 5 == 0 ? 200000 : (uint64_t)i, n = r->size, root = (uint64_t)i % n;
            must(r, r->api->wait(q[i], r->limit) == TN_OK);
            for (uint64_t k = 0; k < count; k++)
                must(r, x[i][k] == (int32_t)(i % 3 ? k * n + (uint64_t)i * n * (n - 1) / 2
                                                   : k + (uint64_t)i * root));
            free(x[i]);
        }
    }
}

/* Each starts its send first, larger than any buffer between them, then its receive: no list, no deadlock. */
void tn_comm_sends_first(struct tn_rank *r)
{
    enum { COUNT = 1 << 20 };
    uint32_t next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
    double *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
    struct tn_transfer give = {TN_SEND, TN_F64, 0, next, x, NULL, COUNT, NULL, NULL, 0};
    struct tn_transfer take = {TN_RECV, TN_F64, 0, before, NULL, y, COUNT, NULL, NULL, 0};
    struct tn_request *a, *b;

    for (int i = 0; i < COUNT; i++)
        x[i] = i + r->rank;
    must(r, r->api->start(r->world, &give, 1, NULL, &a) == TN_OK);
    must(r, r->api->start(r->world, &take, 1, NULL, &b) == TN_OK);
    must(r, r->api->wait(b, r->limit) == TN_OK);
    must(r, r->api->wait(a, r->limit) == TN_OK);
    for (int i = 0; i < COUNT; i++)
        must(r, y[i] == i + before);
    free(x);
    free(y);
}

/* A large sum that all have started is done without another call; the few polls could not have done it. */
void tn_comm_by_itself(struct tn_rank *r)
{
    enum { COUNT = 1 << 22 };
    float *x = malloc(COUNT * sizeof *x);
    struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, x, x, COUNT, NULL, NULL, 0};
    const struct tn_transfer barrier = {.op = TN_BARRIER};
    struct tn_request *q;
    int polls = 0;

    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    must(r, tn_comm_do(r, r->world, &barrier, 1) == TN_OK);
    must(r, r->api->start(r->world, &t, 1, NULL, &q) == TN_OK);
    do {
        must(r, polls++ < 5);
        tn_comm_sleep(0.4);
    } while (r->api->wait(q, 0) == TN_DECLINED);
    must(r, x[0] == (float)r->size && x[COUNT - 1] == (float)r->size);
    free(x);
}

/* Memory that no other process can read, as page-locked memory of some drivers: one of from and to, or both.
 */
void tn_comm_secret(struct tn_rank *r)
{
    enum { COUNT = 600001 };
    const uint64_t bytes = COUNT * r->size * sizeof(float);
    const int fd = (int)syscall(SYS_memfd_secret, 0);
    float *hidden, *open = malloc(bytes);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) ||
        (hidden = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        return;
    for (int i = 0; i < 6; i++) {
        float *from = i % 3 == 1 ? open : hidden, *to = i % 3 == 2 ? open : hidden;
        struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, from, to, COUNT, NULL, NULL, 0};
        for (uint64_t k = 0; k < COUNT; k++)
            from[k] = (float)r->rank + 1;
        if (i > 2)
            t = (struct tn_transfer){TN_BROADCAST, TN_F32, 0, 1, from, to, COUNT, NULL, NULL, 0};
        must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
        for (uint64_t k = 0; k < COUNT; k++)
            must(r, to[k] == (float)(i > 2 ? 2 : r->size * (r->size + 1) / 2));
    }
    munmap(hidden, bytes);
    close(fd);
    free(open);
}

/* Who sleeps in a wait is woken when the data is there, not some time later. */
void tn_comm_woken(struct tn_rank *r)
{
    float x = 1;
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, &x, &x, 1, NULL, NULL, 0};
    int slow = 0;

    for (int i = 0; i < 40; i++) {
        if (r->rank == 1)
            tn_comm_sleep(0.004);
        double begin = tn_comm_now();
        must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
        slow += tn_comm_now() - begin > 0.012;
    }
    must(r, slow < 20);
}

/* Two threads wait at once, and a third polls. */
struct job {
    struct tn_rank *r;
    struct tn_comm *c;
    int polls;
};

static void *one_thread(void *arg)
{
    struct job *j = arg;
    struct tn_rank *r = j->r;

    for (int i = 0; i < 300; i++) {
        int64_t x[100];
        struct tn_transfer t = {TN_ALL_REDUCE, TN_I64, TN_SUM, 0, x, x, 100, NULL, NULL, (uint64_t)i + 1};
        struct tn_request *q;
        double begin = tn_comm_now();
        tn_status s;
        for (int k = 0; k < 100; k++)
            x[k] = i;
        must(r, r->api->start(j->c, &t, 1, NULL, &q) == TN_OK);
        while ((s = r->api->wait(q, j->polls ? 0 : r->limit)) == TN_DECLINED)
            must(r, tn_comm_now() - begin < r->limit);
        must(r, s == TN_OK && x[99] == (int64_t)i * r->size);
    }
    return NULL;
}

void tn_comm_threads(struct tn_rank *r)
{
    uint32_t all[8];
    struct job job[3] = {{r, r->world, 0}, {r, NULL, 0}, {r, NULL, 1}};
    pthread_t thread[3];

    for (uint32_t i = 0; i < r->size; i++)
        all[i] = i;
    job[1].c = tn_comm_group(r, all, r->size);
    job[2].c = tn_comm_group(r, all, r->size);
    for (int i = 0; i < 3; i++)
        pthread_create(&thread[i], NULL, one_thread, &job[i]);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    r->api->close(job[1].c);
    r->api->close(job[2].c);
}
