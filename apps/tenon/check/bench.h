/* bench.h - one problem on the bench: built from a line of text, run on buffers that catch mistakes.
 *
 * A case names an operation and writes its operands by one letter per dim:
 *
 *     size   "b3 t7 v17@5/40 s8~/20"   b: 3; v: 17 of 40, from index 5 on; s: 8 of 20, by a table of indices
 *     in     "btc oc+/co o?"           a word for each operand: its dims, "-" for none, then any of
 *                /co   order in memory, outermost first
 *                +     a view of something larger, at an odd address
 *                >     positive values
 *                ?     not read: the buffer is NULL
 *                !     a NaN in the middle
 *                ^     an infinity in the middle
 *                %     zeros of both signs, denormals, the largest, infinities, NaN among ordinary numbers
 *                =a    (output) the very buffer of input a
 *                :iN   int32 from -1 to N - 1
 *                :pN   int32 N, N + 1, ... along the first dim
 *                :h    bf16
 *                :f    fp16
 *     attr   "scale=0.25 causal=1 to=bf16"
 *     f      the program: "t0 = a*a; r0 = t0 + u0; r1 = max(a, b)", or one expression
 *
 * Buffers in host memory end at a page that may not be touched and begin after another one, or the other way
 * round; on a device with memory of its own, zones lie in front and behind that must stay as they were. What a
 * kernel has to write is NaN before, and what lies between the elements of a view must stay as it was. Inputs must
 * not change. After prepare, everything that was borrowed for it is overwritten. Every kernel is launched twice,
 * and the bits must be the same. */
#ifndef TN_BENCH_H
#define TN_BENCH_H
#include <tenon/bootstrap.h>
#include <tenon/device.h>
#include <tenon/kernels.h>

struct tn_bench_case {
    const char *op, *size, *in, *out, *attr, *f;
    uint32_t accumulate;
    double tolerance;                            /* 0: the usual one */
};

struct tn_bench;

struct tn_bench *tn_bench_new(const struct tn_bench_case *c, uint64_t seed);
void tn_bench_free(struct tn_bench *b);

/* A device with memory of its own, open, and one of its queues. */
struct tn_bench_device {
    const struct tn_device_api *api;
    struct tn_device *device;
    struct tn_queue *queue;
    double seconds;                              /* limit of a launch */
    uint32_t dtypes, reserved0;                  /* bit 1 << TN_F32, ... */
    const struct tn_device_capture *capture;     /* NULL: it records nothing */
};
void tn_bench_on(struct tn_bench *b, const struct tn_bench_device *d); /* borrowed; NULL: host memory, and no queue */
/* Buffers begin at the beginning of a page behind one that may not be touched; else they end at the end of one. */
void tn_bench_front(struct tn_bench *b);
/* While a kernel runs: what lies at this address that may not be touched; 0 if nothing of ours. */
int tn_bench_fault(const void *address, char *text, size_t room);

/* Fewer loops, where neighbours can be walked as one. Returns whether anything changed. */
int tn_bench_merge(struct tn_bench *b);

/* Operands are counted inputs first. Elements are counted row-major over the dims as written. */
int64_t tn_bench_count(const struct tn_bench *b, uint32_t operand);
uint32_t tn_bench_operands(const struct tn_bench *b, uint32_t *n_in);
double tn_bench_get(const struct tn_bench *b, uint32_t operand,
                    int64_t element); /* outputs: before the run */
void tn_bench_set(struct tn_bench *b, uint32_t operand, int64_t element, double value);
void tn_bench_set_dtype(struct tn_bench *b, uint32_t operand, uint32_t dtype); /* only to be declined */
void tn_bench_set_micro(struct tn_bench *b, uint32_t micro);
void tn_bench_set_uniform(struct tn_bench *b, uint32_t i, double value);
void tn_bench_set_key(struct tn_bench *b, uint64_t seed, uint32_t step);           /* dropout's uniform */

void tn_bench_once(struct tn_bench *b);           /* one launch, not two: for an oracle */
int tn_bench_declines(const struct tn_bench *b, const struct tn_kernels *k);
/* TN_OK, TN_DECLINED, or an error that tn_bench_error describes. */
tn_status tn_bench_run(struct tn_bench *b, const struct tn_kernels *k);
/* recorded.c: the same inside a recording, replayed with other numbers in the buffers; needs a device that records. */
tn_status tn_bench_run_recorded(struct tn_bench *b, const struct tn_kernels *k);
int tn_bench_extreme(const struct tn_bench *b);  /* are there operands with %? */
uint32_t tn_bench_dtypes(const struct tn_bench *b);          /* bit 1 << TN_F32, ... of its operands */
double tn_bench_result(const struct tn_bench *b, uint32_t output, int64_t element);
const char *tn_bench_error(const struct tn_bench *b);

/* host.c: the host's table for plugins that are loaded by path, and its threads */
const struct tn_plugin *tn_bench_plugin(const char *name);   /* NULL: was not built */
const void *tn_bench_interface(const struct tn_plugin *p, const char *id);
const struct tn_host *tn_bench_host(void);
void tn_bench_threads(uint32_t n);
void tn_bench_store(const struct tn_store *store);   /* what plugins get as the host's store */
const char *tn_bench_said(void);                 /* the last error that a plugin recorded */

/* program.c */
#define TN_BENCH_INSTR 128
struct tn_bench_program {
    struct tn_program p;
    struct tn_instr instr[TN_BENCH_INSTR];
    double constant[TN_BENCH_INSTR];
    uint16_t result[TN_MAX_OPERANDS];
};
void tn_bench_parse(const char *text, struct tn_bench_program *out);

/* For mistakes in a case: says what and ends the test. */
__attribute__((format(printf, 1, 2), noreturn)) void tn_bench_stop(const char *fmt, ...);
#endif
