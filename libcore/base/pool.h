/* pool.h - the one set of threads of the process.
 *
 * Started once, after plugins were probed in child processes (a child of fork has no threads but the one that
 * forked). Until then, and from inside a body, everything runs on the caller alone, so code need not ask. The
 * executor's thread is thread 0 of the team; the other threads wait for work, first awake for some
 * microseconds (between two kernels of a step), then asleep. The four functions are the host table's; see
 * tenon/abi.h. */
#ifndef TN_BASE_POOL_H
#define TN_BASE_POOL_H
#include <tenon/abi.h>

/* threads counts the caller; 0: tn_cpus(). Main thread; an error if already started. */
tn_status tn_pool_start(uint32_t threads);
void tn_pool_stop(void);                         /* by the thread that started it; fine if not started */

/* Ranges begin at multiples of grain and are as even as that allows; there is at most one a thread. */
void tn_pool_parallel(int64_t n, int64_t grain, void (*body)(void *arg, int64_t lo, int64_t hi), void *arg);
void tn_pool_team(void (*body)(void *arg, uint32_t thread, uint32_t threads), void *arg);
void tn_pool_barrier(void);
uint32_t tn_pool_threads(void);

/* How many CPUs this process may use: of the affinity mask and of the quotas of its control groups the least.
 */
uint32_t tn_cpus(void);
#endif
