/* status.h - what went wrong, said once, and what goes on, said to stderr.
 *
 * A function that fails returns a tn_status and records one sentence for its thread (tn_error of tenon/abi.h
 * works in the core as in a plugin, since both go through the host table defined here). Whoever ends the
 * program prints tn_error_text() and exits with tn_exit_code(). The last error of a thread wins: so who only
 * passes a status on says nothing. */
#ifndef TN_BASE_STATUS_H
#define TN_BASE_STATUS_H
#include <tenon/abi.h>

/* What plugins see of the host. `interface` and `graph` are set by plugin/ and pass/ when they start. The
 * pointer tn_host is one per module: an executable beside a shared libtenon sets its own to this table. */
extern struct tn_host tn_host_table;

/* The last error of the calling thread: "" and TN_OK if there is none. The text is borrowed until the next
 * error of this thread; at log level debug it ends with " (file:line)". */
const char *tn_error_text(void);
tn_status tn_error_status(void);
void tn_error_clear(void);
/* Somebody else says the last error of this thread, another rank for one: who ends the program is silent. */
void tn_error_hush(void);
int tn_error_is_hushed(void);

/* As tn_error, for texts of any length that are ready, such as the list of all problems of a configuration.
 */
tn_status tn_error_long_at(const char *file, int32_t line, tn_status code, const char *text);
#define tn_error_long(code, text) tn_error_long_at(__FILE__, __LINE__, code, text)

/* What a function of somebody else's returned, where 0 and errors are all there is: a positive status is an error, and
 * an error without a sentence gets one. who: a file, a plugin. */
tn_status tn_status_of(const char *who, const char *function, tn_status status);

/* 0 for success, 2 where the user's words or files are to blame, 1 for every other failure. */
int tn_exit_code(tn_status status);

#define TN_LOG_ERROR 0u
#define TN_LOG_WARNING 1u
#define TN_LOG_INFO 2u
#define TN_LOG_DEBUG 3u

/* One message to stderr, every line of it behind "tenon: " (warnings: "tenon: warning: "), in one write, so
 * that the lines of several ranks do not mix. Any thread. */
__attribute__((format(printf, 2, 3))) void tn_log(uint32_t level, const char *fmt, ...);

/* What is shown: this level and those before it. Until it is set, the environment variable TENON_LOG (error,
 * warning, info or debug) decides, and without one info. */
void tn_log_level(uint32_t level);
int tn_log_shows(uint32_t level);
#endif
