/* abi.h - what every plugin and the host agree on.
 *
 * A plugin is one .so with one exported function, tn_plugin_entry, and one ELF note. The note is read from
 * the file before anything of it runs; the function returns a const table of interfaces by string id.
 * Growth: a struct that crosses begins with struct_size and grows at its end only; 0 in a field that the
 * other side does not know means "as before". Elements of arrays never grow (the stride would change):
 * they carry a type code instead. Values passed by value never grow either.
 * A level (TN_ABI) names one state of all tables; a level never takes anything away. */
#ifndef TENON_ABI_H
#define TENON_ABI_H
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TN_ABI 1                     /* level of these headers */

#ifndef TN_ABI_TARGET
/* The lowest level of host that the plugin must run on: -DTN_ABI_TARGET=N. What is newer than N is then not declared, so a
 * use of it does not compile. */
#define TN_ABI_TARGET TN_ABI
#endif

#ifndef TN_ABI_MIN
/* Set lower, -DTN_ABI_MIN=N, the plugin runs on hosts from N on too, and asks TN_HAS before each use of what is newer. */
#define TN_ABI_MIN TN_ABI_TARGET
#endif
#if TN_ABI_TARGET > TN_ABI
#error "TN_ABI_TARGET is newer than these headers"
#endif

#ifdef __cplusplus
/* For what is seen from outside: C linkage, where the file is C++. */
#define TN_C extern "C"
#else
#define TN_C
#endif
#define TN_EXPORT TN_C __attribute__((visibility("default")))

/* status: >= 0 is success. Fixed width, since enums have none. */
typedef int32_t tn_status;
#define TN_OK            0
#define TN_DECLINED      1           /* "not mine": no error, nothing recorded */
#define TN_ERR          (-1)             /* anything that has no code of its own */
#define TN_ERR_SHAPE    (-2)             /* sizes, counts or dtypes do not fit each other */
#define TN_ERR_LAYOUT   (-3)             /* layouts do not */
#define TN_ERR_MEMORY   (-4)             /* of the host or of a device */
#define TN_ERR_TIMEOUT  (-5)             /* a wait has reached its limit */
#define TN_ERR_CONFIG   (-6)             /* the user's words: configuration or command line */
#define TN_ERR_INPUT    (-7)             /* the user's files: data, weights, checkpoints, plugins */
#define TN_ERR_IO       (-8)             /* the system: disk, memory map, permission */
#define TN_ERR_NUMBER   (-9)             /* a value that is not finite */

/* dtypes: IEEE 754 binary32; the upper half of one; binary16; signed 32 bits; binary64; signed 64 bits; unsigned 8.
 * In memory as the machine has them. */
#define TN_F32 1u
#define TN_BF16 2u
#define TN_F16 3u
#define TN_I32 4u
#define TN_F64 5u
#define TN_I64 6u
#define TN_U8 7u

/* An interface: id is frozen once released, table begins with uint32_t struct_size. */
struct tn_interface {
    const char *id;
    const void *table;
};

/* What the entry returns. Static. */
struct tn_plugin {
    uint32_t struct_size;
    uint32_t reserved0;
    const char *name, *version, *about;          /* static, UTF-8 */
    const struct tn_interface *interfaces;       /* ends with {NULL, NULL} */
    tn_status (*start)(void);                    /* may be NULL; main thread, once, before any other call */
    void (*stop)(void);                          /* may be NULL; main thread, reverse order of start */
};

/* An option of a plugin: the host parses, checks and documents it. Array element: frozen. */
struct tn_option {
    const char *key, *preset, *help;             /* preset is the default, as in the INI file */
    double low, high;                            /* inclusive; both 0: text */
};

/* An attribute. Array element: frozen at 24 bytes; grows by type codes. */
struct tn_attr {
    const char *key;                             /* as docs/ops.md names it */
    uint32_t type;                               /* TN_ATTR_* */
    uint32_t count;                              /* entries of names */
    union { int64_t i; double f; const char *s; const char *const *names; } as;
};
#define TN_ATTR_INT 1u
#define TN_ATTR_FLOAT 2u
#define TN_ATTR_TEXT 3u
#define TN_ATTR_NAMES 4u

struct tn_graph_api;
/* The host's side: tn_host in the plugin, from the entry on. Append-only; every function may be called from any thread
 * and in any state unless it says otherwise, and none of them fails. */
struct tn_host {
    uint32_t struct_size;
    uint32_t abi;                                /* level of the host */
    /* Keeps one sentence, the last one of this thread, for whoever gets the negative status: called by tn_error. text is
     * UTF-8 without a newline, copied; file and line say where in the plugin. */
    void (*error)(tn_status code, const char *text, const char *file, int32_t line);
    /* A line for the user: level 0 error, 1 warning, 2 info, 3 debug; copied. Not from launch, where time counts. */
    void (*log)(uint32_t level, const char *text);
    /* An ability of the host by its id (TN_STORE_ID), NULL if this host has none or it is not there yet. A table that
     * begins with struct_size; static. */
    const void *(*interface)(const char *id);
    /* The process has one set of threads, the host's. parallel cuts 0..n into ranges of at least grain and
     * returns when all are done. Called from inside a body, it runs it on the calling thread alone. How n is cut
     * depends on the number of threads: a sum whose bits must not, fixes its own blocks. Executor's thread. */
    void (*parallel)(int64_t n, int64_t grain, void (*body)(void *arg, int64_t lo, int64_t hi), void *arg);
    /* Runs body once on every thread at the same time, so that barrier may be called inside, and returns when all are
     * done. From inside a body: on the calling thread alone, as thread 0 of 1. Executor's thread. */
    void (*team)(void (*body)(void *arg, uint32_t thread, uint32_t threads), void *arg);
    void (*barrier)(void);                       /* all threads of the team come here before one goes on; in a body only */
    uint32_t (*threads)(void);                   /* how many team will have; the same in the whole run */
    const struct tn_graph_api *graph;            /* NULL outside of graph building */
};

/* Set by the entry, one per plugin, never seen outside: hidden and weak, so no file has to define it. */
#ifdef __cplusplus
extern "C" {                                     /* without braces extern "C" would only declare it */
#endif
__attribute__((weak, visibility("hidden"))) const struct tn_host *tn_host;
#ifdef __cplusplus
}
#endif

/* Records one sentence and returns code. Formats here: no va_list and no variadic call crosses. */
__attribute__((format(printf, 4, 5), unused))
static tn_status tn_error_at(const char *file, int32_t line, tn_status code, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (tn_host)
        tn_host->error(code, text, file, line);
    return code;
}
#define tn_error(code, ...) tn_error_at(__FILE__, __LINE__, code, __VA_ARGS__)

/* Is this member within what the other side gave us? */
#define TN_HAS(table, member) \
    ((table)->struct_size >= offsetof(__typeof__(*(table)), member) + sizeof (table)->member)

/* The note. Every field is 4-aligned: an 8-aligned one would put padding in front of desc. Frozen. */
struct tn_note {
    uint32_t note_size;                          /* sizeof(struct tn_note) */
    uint32_t abi_min, abi_max;                   /* levels of hosts that it runs on */
    uint32_t cpu;                                /* needed CPU level: 0 any, 2..4 = x86-64-v2..v4 */
    char name[32], version[16];                  /* of the plugin; UTF-8, 0 behind */
    char provides[128];                          /* interface ids, separated by spaces */
};
/* The note as it lies in the section .note.tenon. */
struct tn_note_record {
    uint32_t namesz, descsz, type;               /* as ELF has them: 6, sizeof desc, TN_NOTE_TYPE */
    char owner[8];                               /* "Tenon" */
    struct tn_note desc;                         /* what it says */
};
#define TN_NOTE_TYPE 0x7e01u

#ifndef TN_CPU
/* The CPU level that the code of the plugin needs: -DTN_CPU=3 with -march=x86-64-v3. 0: any. */
#define TN_CPU 0
#endif

/* The note and the entry of a plugin with any number of interfaces: once, in one file of it.
 * NAME, VERSION, ABOUT: literals; NAME of a-z 0-9 _ . - and at most 31 characters, VERSION at most 15. PROVIDES: the ids
 * with spaces between, at most 127 characters; START, STOP: as in struct tn_plugin. Behind them {ID, &table}, ... */
#define TN_PLUGIN_(NAME, VERSION, ABOUT, PROVIDES, START, STOP, ...)                                         \
    __attribute__((section(".note.tenon"), used, aligned(4)))                                                \
    static const struct tn_note_record tn_note_ = {8 - 2, sizeof(struct tn_note), TN_NOTE_TYPE, "Tenon",     \
        {sizeof(struct tn_note), TN_ABI_MIN, TN_ABI, TN_CPU, NAME, VERSION, PROVIDES}};                   \
    static const struct tn_interface tn_interfaces_[] = {__VA_ARGS__, {NULL, NULL}};                         \
    static const struct tn_plugin tn_plugin_ = {sizeof(struct tn_plugin), 0, NAME, VERSION, ABOUT,           \
        tn_interfaces_, START, STOP};                                                                        \
    TN_EXPORT const struct tn_plugin *tn_plugin_entry(const struct tn_host *host);                           \
    const struct tn_plugin *tn_plugin_entry(const struct tn_host *host)                                      \
    {                                                                                                        \
        tn_host = host;                                                                                      \
        return &tn_plugin_;                                                                                  \
    }                                                                                                        \
    _Static_assert_(sizeof(struct tn_note_record) == 20 + sizeof(struct tn_note));                           \
    _Static_assert_(sizeof(NAME) <= 32 && sizeof(VERSION) <= 16 && sizeof(PROVIDES) <= 128)
#ifdef __cplusplus
#define _Static_assert_(x) static_assert(x, #x)
#else
#define _Static_assert_(x) _Static_assert(x, #x)
#endif
/* A plugin with one interface: TN_PLUGIN("mine", "0.1", "what it is", TN_OPTIMIZER_ID, &table); */
#define TN_PLUGIN(NAME, VERSION, ABOUT, ID, TABLE) \
    TN_PLUGIN_(NAME, VERSION, ABOUT, ID, NULL, NULL, {ID, TABLE})
/* A plugin with two: a device and its kernels. */
#define TN_PLUGIN2(NAME, VERSION, ABOUT, ID1, TABLE1, ID2, TABLE2) \
    TN_PLUGIN_(NAME, VERSION, ABOUT, ID1 " " ID2, NULL, NULL, {ID1, TABLE1}, {ID2, TABLE2})
#endif
