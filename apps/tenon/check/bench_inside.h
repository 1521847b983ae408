/* bench_inside.h - a problem on the bench as its own files see it. */
#ifndef TN_BENCH_INSIDE_H
#define TN_BENCH_INSIDE_H
#include "bench.h"
#include "number.h"

#define MAX_LOOPS (2 * TN_MAX_RANK + 1)
#define MAX_ATTR 12
#define POISON 0xff                              /* as bytes: NaN in every floating dtype, -1 in int32 */

#define ZONE 4096u                               /* bytes in front of and behind a buffer on a device */

/* Memory between two pages that may not be touched; ends at the second one, but for the alignment, or begins at
 * the first one. */
struct tn_guarded {
    char *map, *data;
    size_t mapped, bytes;
};

struct operand {
    struct tn_guarded memory;
    size_t skip;                                 /* bytes before the first element */
    int64_t count;
    double *value, *result;                      /* by element: before the run, after it (outputs) */
    char *before;                                /* inputs: the bytes, to find changes */
    int alias;                                   /* of the input of this number, -1: none */
    int unread, positive, nan, infinite, extreme;
    int64_t limit, first; /* int32: below limit, or counting from first if limit is 0 */
};

/* What prepare may look at: lost after it, so in one piece. */
struct described {
    struct tn_operand operand[TN_MAX_OPERANDS];
    int64_t size[TN_MAX_OPERANDS][TN_MAX_RANK], stride[TN_MAX_OPERANDS][TN_MAX_RANK];
    int64_t whole[TN_MAX_OPERANDS][TN_MAX_RANK], origin[TN_MAX_OPERANDS][TN_MAX_RANK];
    const int64_t *index[TN_MAX_OPERANDS][TN_MAX_RANK];
    const char *dim[TN_MAX_OPERANDS][TN_MAX_RANK];
    int64_t table[26][64];                       /* of dims cut by a table */
    struct tn_loop loop[MAX_LOOPS];
    struct tn_attr attr[MAX_ATTR];
    char attr_text[256];
    struct tn_bench_program program;
};

struct tn_bench {
    struct tn_problem p;
    struct described d;
    const struct tn_bench_case *c;
    struct operand x[TN_MAX_OPERANDS];
    struct {
        int64_t size, whole, origin;
        int by_table;
    } dim[26];
    uint32_t n, micro;
    int front, once;
    const struct tn_bench_device *device;
    void *block[TN_MAX_OPERANDS + 2];            /* on the device, zones included; then workspace and uniform */
    uint64_t random;
    float uniform[16];
    uint32_t key[4];
    char error[700];
};

/* memory.c */
struct tn_guarded tn_guarded_new(size_t bytes);
void tn_guarded_free(struct tn_guarded *g);
void tn_guarded_front(struct tn_guarded *g);
/* What is no longer as it was: -1 in front of the data, 1 behind it, 0 nothing. */
int tn_guarded_overrun(const struct tn_guarded *g);

/* remote.c: the buffers of a bench on its device, in step with those in host memory. b->error says what failed. */
tn_status tn_remote_open(struct tn_bench *b, const struct tn_guarded *work);
tn_status tn_remote_push(struct tn_bench *b, const struct tn_guarded *work);
tn_status tn_remote_pull(struct tn_bench *b, const struct tn_guarded *work);
void tn_remote_close(struct tn_bench *b);
char *tn_remote_data(const struct tn_bench *b, uint32_t i);  /* of operand i, of the workspace, of the uniform */

/* launch.c: everything poisoned, then what is there before a run. */
void tn_bench_reset(struct tn_bench *b);
/* With the description gone, which prepare only borrowed. to_end: waits for the device. */
tn_status tn_bench_launch(struct tn_bench *b, const struct tn_kernel *k, const struct tn_guarded *work, int to_end);
/* Takes the results and looks for what should not have been written; b->error says it. */
tn_status tn_bench_inspect(struct tn_bench *b);

/* bench.c: where element e of an operand lies */
char *tn_bench_place(const struct tn_bench *b, uint32_t operand, int64_t e);
#endif
