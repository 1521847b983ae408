/* isle.h - a device that the host cannot reach, and just enough kernels to train: what its files share.
 *
 * isle proves that nothing in the core takes a device for host memory, or a launch for done. Its addresses are
 * reserved and have no memory behind them: who reads one on the host faults. The memory lies elsewhere in the
 * process, at a fixed distance that only this plugin knows (sea.c). What is put on a queue is run later by a
 * thread of the queue's own, and as late as it may: when somebody waits for it (queue.c). Its kernels are the base
 * operations alone, in fp32 (kernel.c, nest.c, table.c); the core takes the others apart.
 *
 * With -DREEF the same sources make reef, which has more than must be: attention (attention.c), which a ring needs, and
 * recording (record.c). tests/abi/broken/stream.c is reef once more, with a communicator for its memory. */
#ifndef ISLE_H
#define ISLE_H
#include <tenon/device.h>
#include <tenon/kernels.h>

#ifdef REEF
#define ISLE "reef"
#else
#define ISLE "isle"
#endif

/* sea.c: the address space; one for the process. bytes below are those of the whole space. */
#define ISLE_BYTES (UINT64_C(1) << 34)
tn_status isle_sea_open(void);                   /* counted; any thread */
void isle_sea_close(void);
tn_status isle_sea_take(uint64_t bytes, void **out);
void isle_sea_give(void *address);
uint64_t isle_sea_used(void);
int isle_is_ours(const void *address, uint64_t bytes);           /* all of them within one block */
void *isle_here(const void *address);            /* where the memory of a device's address lies; NULL stays NULL */

/* queue.c: work in order, later. */
struct isle_job {
    struct isle_job *next;
    void (*run)(struct isle_job *job);           /* the queue's thread; must not free it */
};
void isle_put(struct tn_queue *q, struct isle_job *job);         /* takes job, made by malloc */
void isle_go(struct tn_queue *q);                /* what is on it now is run, though nobody waits */
extern const struct tn_device_api isle_device;
/* From here on, what this thread puts on q goes to the list, in order, until it is called with NULL. Not run. */
void isle_divert(struct tn_queue *q, struct isle_job **list);
extern const struct tn_device_capture isle_capture;          /* record.c */

extern const struct tn_kernels isle_kernels;
/* kernel.c: what every kernel has. State and everything behind it are one block, made by malloc. */
#define ISLE_OPERANDS TN_MAX_OPERANDS
struct isle_call;
struct isle_kernel {
    void (*run)(const struct isle_kernel *k, const struct isle_call *c);
    uint32_t n_operand;
};
struct isle_call {                               /* addresses here, not the device's */
    void *buffer[ISLE_OPERANDS];
    void *workspace;
    const void *uniform;
    uint32_t micro;
};

/* One prepare for each family. On success the kernel is owned by the caller; workspace in bytes, else 0. */
tn_status isle_nest(const struct tn_problem *p, struct isle_kernel **out, uint64_t *workspace);
tn_status isle_dropout(const struct tn_problem *p, struct isle_kernel **out, uint64_t *workspace);
tn_status isle_attention(const struct tn_problem *p, struct isle_kernel **out, uint64_t *workspace);
tn_status isle_table(const struct tn_problem *p, struct isle_kernel **out, uint64_t *workspace);
#endif
