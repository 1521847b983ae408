/* comm_cases.h - what the files of the cases of comm_values.c share. */
#ifndef TN_COMM_CASES_H
#define TN_COMM_CASES_H
#include "comm.h"

/* Element i of p must be this; NaN is NaN. */
void tn_comm_same(struct tn_rank *r, int line, uint32_t dtype, const void *p, uint64_t i, double expected);
#define expect(dtype, p, i, x) tn_comm_same(r, __LINE__, dtype, p, i, x)

/* comm_operations.c: all on c, of n ranks, me of them, with the first n_sizes sizes; there are TN_COMM_SIZES. */
#define TN_COMM_SIZES 7u
void tn_comm_everything(struct tn_rank *r, struct tn_comm *c, uint32_t me, uint32_t n, size_t n_sizes);

/* comm_values.c: the group of these ranks; NULL for one that is not in it. */
struct tn_comm *tn_comm_group(struct tn_rank *r, const uint32_t *ranks, uint32_t n);

/* comm_flight.c: cases */
void tn_comm_in_flight(struct tn_rank *r);
void tn_comm_sends_first(struct tn_rank *r);
void tn_comm_by_itself(struct tn_rank *r);
void tn_comm_secret(struct tn_rank *r);
void tn_comm_woken(struct tn_rank *r);
void tn_comm_threads(struct tn_rank *r);
#endif
