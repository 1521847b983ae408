/* rules.c - what a broken rule says, which thread this is, tables that stay as they are, and what the host calls: see
 * rules.h and rules_own.h. */
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
#include "plugin/load.h"
#include "plugin/rules_own.h"

static int on;
static pthread_t main_thread;
_Thread_local struct tn_rule_thread tn_rule_thread;

/* Where the call came from: "FILE+0x1234", for addr2line. */
static const char *place(const void *caller, char *out, size_t room)
{
    Dl_info i;

    if (!caller || !dladdr(caller, &i) || !i.dli_fname)
        snprintf(out, room, "somewhere");
    else
        snprintf(out, room, "%s+%#lx", i.dli_fname, (unsigned long)((const char *)caller - (const char *)i.dli_fbase));
    return out;
}

void tn_rule_broken(const void *caller, const char *fmt, ...)
{
    char text[600], where[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fflush(NULL);
    dprintf(STDERR_FILENO, "tenon: debug: %s (%s)\n", text, place(caller, where, sizeof where));
    _exit(1);
}

static int is_main(void)
{
    return tn_rule_thread.rank || pthread_equal(pthread_self(), main_thread);
}

int tn_rule_may_compute(void)
{
    return is_main() || tn_rule_thread.step || tn_rule_thread.body;
}

void tn_rule_before_steps(const char *path, const char *what)
{
    if (!is_main())
        tn_rule_broken(NULL, "%s: %s is called on a thread that is not the main one", path, what);
    if (tn_rule_thread.step)
        tn_rule_broken(NULL, "%s: %s is called during an update", path, what);
}

void tn_rule_says(const char *path, const char *what, tn_status s)
{
    if (s < 0 && !*tn_error_text())
        tn_rule_broken(NULL, "%s: %s failed with status %d and recorded no sentence", path, what, (int)s);
}

/* --- tables that stay as they are */

static struct {
    const char *path, *id;
    const void *table;                           /* the plugin's */
    uint32_t bytes;
    uint64_t sum;
} kept[64];
static uint32_t n_kept;

static uint64_t sum_of(const void *table, uint32_t bytes)
{
    const unsigned char *p = table;
    uint64_t h = 1469598103934665603u;

    for (uint32_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static void keep(const struct tn_loaded *p)
{
    for (const struct tn_interface *i = p->plugin.interfaces; i->id && n_kept < 64; i++) {
        uint32_t size;

        if (!tn_interface_type(i->id) || !i->table)
            continue;
        memcpy(&size, i->table, sizeof size);
        kept[n_kept].path = p->path, kept[n_kept].id = i->id, kept[n_kept].table = i->table, kept[n_kept].bytes = size;
        kept[n_kept++].sum = sum_of(i->table, size);
    }
}

static void look_at_tables(void)
{
    for (uint32_t i = 0; i < n_kept; i++)
        if (sum_of(kept[i].table, kept[i].bytes) != kept[i].sum)
            tn_rule_broken(NULL, "%s: its table of %s is not what it was when it was loaded", kept[i].path, kept[i].id);
}

/* --- what the host calls */

void tn_rules_begin(void)
{
    if (on)
        return;
    on = 1;
    main_thread = pthread_self();
    tn_rules_host();
}

void tn_rules_rank(void)
{
    tn_rule_thread.rank = 1;
}

void tn_rules_watch(struct tn_loaded *p)
{
    if (!on)
        return;
    keep(p);
    for (uint32_t i = 0; i < p->tables; i++) {
        const char *id = p->table[i].type->id;

        if (!strcmp(id, TN_KERNELS_ID))
            tn_rules_kernels(p->path, p->table[i].table);
        if (!strcmp(id, TN_DEVICE_ID))
            tn_rules_device(p->path, p->table[i].table);
        if (!strcmp(id, TN_COMM_ID))
            tn_rules_comm(p->path, p->table[i].table);
    }
}

void tn_rules_build(void)
{
    if (on)
        tn_rules_show_graph(1);
}

void tn_rules_step(int begins)
{
    if (!on)
        return;
    tn_rule_thread.step = begins;
    if (begins)
        tn_rules_show_graph(0);
    else
        look_at_tables();
}
