/* device_own.h - what the tests of a device share: device.c has what it says of itself, memory and copies, queues.c order, limits
 * and recordings. All is looked at through copies to the host, so a device with memory of its own is checked like any other. */
#ifndef TN_CHECK_DEVICE_H
#define TN_CHECK_DEVICE_H
#include "bench.h"
#include "suite.h"

#define CHECK_SECONDS 30.0

struct check_dev {
    struct check_run *r;
    const struct tn_device_api *api;
    struct tn_device *d;
    struct tn_queue *q;
    struct tn_device_info info;
};

/* Open, with a queue. These fail the test where the call fails. */
struct check_dev check_dev_open(struct check_run *r);
void *check_dev_get(struct check_dev *v, uint64_t bytes);
void check_dev_copy(struct check_dev *v, struct tn_queue *q, void *to, const void *from, uint64_t bytes, uint32_t way);
void check_dev_fill(struct check_dev *v, struct tn_queue *q, void *to, uint32_t byte, uint64_t bytes);
void check_dev_settle(struct check_dev *v, struct tn_queue *q);
/* What lies there must be this. */
void check_dev_expect(struct check_dev *v, const void *at, const unsigned char *want, uint64_t bytes, const char *what);

/* queues.c */
void check_list_queues(struct check_list *l);
#endif
