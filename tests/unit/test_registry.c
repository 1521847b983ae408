/* test_registry.c - loading, probing and choosing plugins, among them those that do everything wrong.
 *
 * Check runs each test in a process of its own, so what one loads no other sees. What ends its process is run
 * in a child whose stderr and exit status are looked at. Directories are made of links to tests/abi/hostile. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tenon/bootstrap.h>
#include <unistd.h>

#include "base/pool.h"
#include "base/status.h"
#include "plugin/guard.h"
#include "plugin/host.h"
#include "plugin/registry.h"

static char room[64];                            /* a temporary directory */

static const char *built(const char *name)
{
    static char path[4096];
    const char *top = getenv("top_builddir");

    snprintf(path, sizeof path, "%s/tests/abi/hostile/%s.so", top ? top : ".", name);
    return path;
}

static void setup(void)
{
    strcpy(room, "/tmp/test_registry.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(room));
    ck_assert_msg(access(built("good"), R_OK) == 0, "no %s; make check builds it", built("good"));
}

static void teardown(void)
{
    char command[100];

    snprintf(command, sizeof command, "rm -rf %s", room);
    ck_assert_int_eq(system(command), 0);
}

/* room/dir/as.so is a link to the built plugin; returns room/dir. */
static const char *put(const char *dir, const char *name, const char *as)
{
    static char path[2][512];
    static int turn;
    char link[1024], *out = path[turn ^= 1];

    snprintf(out, 512, "%s/%s", room, dir);
    mkdir(out, 0700);
    snprintf(link, sizeof link, "%s/%s.so", out, as);
    ck_assert_int_eq(symlink(built(name), link), 0);
    return out;
}

static void says(const char *text, const char *a, const char *b)
{
    ck_assert_msg(strstr(text, a) != NULL, "\"%s\" lacks \"%s\"", text, a);
    ck_assert_msg(strstr(text, b) != NULL, "\"%s\" lacks \"%s\"", text, b);
}

/* --- loading */
static void refused(const char *name, const char *cause)
{
    const struct tn_loaded *p;
    char file[64];

    snprintf(file, sizeof file, "/%s.so", name);
    ck_assert_msg(tn_plugin_open(built(name), &p) < 0, "%s was loaded", name);
    ck_assert_ptr_null(p);
    says(tn_error_text(), file, cause);
    ck_assert_msg(tn_plugin_open(built(name), &p) < 0, "%s was loaded when asked again", name);
    says(tn_error_text(), file, cause);
}

static const struct tn_bootstrap *loaded(const char *name)
{
    const struct tn_loaded *p;
    tn_status s = tn_plugin_open(built(name), &p);

    ck_assert_msg(s >= 0, "%s: %s", name, tn_error_text());
    const struct tn_bootstrap *b = tn_plugin_table(p, TN_BOOTSTRAP_ID);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_eq(tn_plugin_owner(b), p);
    return b;
}

START_TEST(loads_once_by_any_name)
{
    const struct tn_loaded *a, *b, *c;
    char hard[5000];
    const char *dir = put("d", "good", "link");
    char soft[600];

    snprintf(soft, sizeof soft, "%s/link.so", dir);
    ck_assert_int_eq(tn_plugin_open(built("good"), &a), TN_OK);
    ck_assert_int_eq(tn_plugin_open(soft, &b), TN_OK);
    ck_assert_ptr_eq(a, b);
    snprintf(hard, sizeof hard, "%s-hard.so", built("good"));
    unlink(hard);
    ck_assert_int_eq(link(built("good"), hard), 0);
    tn_status s = tn_plugin_open(hard, &c);
    unlink(hard);
    ck_assert_int_eq(s, TN_OK);
    ck_assert_ptr_eq(a, c);
    ck_assert_ptr_eq(tn_plugin_each(NULL), a);
    ck_assert_ptr_null(tn_plugin_each(a));
}
END_TEST

START_TEST(refuses_a_taken_name)
{
    loaded("good");
    refused("same", "a plugin named good is already loaded from");
    says(tn_error_text(), "good.so", "same.so");
}
END_TEST

static const struct { const char *name, *cause; } wrong[] = {
    {"nonote", "no Tenon note"},
    {"noentry", "does not export tn_plugin_entry"},
    {"promise", "promises tenon.comm/1"},
    {"alias", "calls itself elias, but its note says alias"},
    {"badname", "made of a-z"},
    {"future", "speaks ABI 8 to 9, this host speaks 1 to 1"},
    {"processor", "needs CPU level 9"},
    {"missing", "tenon.bootstrap/1 lacks the mandatory locate"},
    {"notable", "tenon.bootstrap/1 is NULL"},
    {"size0", "struct_size of tenon.bootstrap/1 is 0"},
    {"sizehuge", "struct_size of tenon.bootstrap/1 is 4294967295"},
    {"tail", "says something at byte 48"},
    {"endless", "without an end"},
    {"nothing", "returned nothing"},
    {"nostart", "could not start: the licence server is asleep"},
    {"undefined", "undefined symbol: tn_nowhere"},
};
#define WRONG ((int)(sizeof wrong / sizeof *wrong))

START_TEST(refuses_with_file_and_cause)
{
    refused(wrong[_i].name, wrong[_i].cause);
    ck_assert_ptr_nonnull(loaded("good"));       /* and nobody else suffers */
}
END_TEST

START_TEST(refuses_all_and_loads_good)
{
    for (int i = 0; i < WRONG; i++)
        refused(wrong[i].name, wrong[i].cause);
    ck_assert_ptr_nonnull(loaded("good"));
    ck_assert_ptr_nonnull(loaded("better"));
}
END_TEST

START_TEST(takes_tables_of_other_sizes)
{
    const struct tn_bootstrap *older = loaded("older"), *newer = loaded("newer"), *more = loaded("unknown");

    ck_assert_uint_eq(older->struct_size, sizeof *older);
    ck_assert_ptr_nonnull(older->locate);
    ck_assert_ptr_null(older->publish);          /* not what lies behind its table */
    ck_assert_ptr_null(older->leave);
    ck_assert_uint_eq(newer->struct_size, sizeof *newer);
    ck_assert_ptr_nonnull(newer->locate);
    ck_assert_ptr_nonnull(more->locate);
    ck_assert_ptr_null(tn_plugin_table(tn_plugin_owner(more), "tenon.teleport/7"));
}
END_TEST

/* --- what ends the process */
static void open_one(const char *name)
{
    const struct tn_loaded *p;

    tn_plugin_open(built(name), &p);
}

static void wait_for_ever(const char *name)
{
    tn_guard_begin(name, "while it was loaded", 1);
    for (;;)
        pause();
}

static void order(const char *name)
{
    static const char *const text = "order2 meets the host";

    tn_host_provide(name, &text);
    open_one("order");
    open_one("order2");
    tn_plugins_close();
    tn_plugins_close();
}

/* Runs body in a child; its stderr comes back, and its exit status. */
static int in_child(void (*body)(const char *), const char *name, char *text, size_t bytes)
{
    int fd[2], status;
    size_t n = 0;
    ssize_t k;

    ck_assert_int_eq(pipe(fd), 0);
    pid_t pid = fork();
    if (!pid) {
        dup2(fd[1], STDERR_FILENO);
        close(fd[0]);
        close(fd[1]);
        body(name);
        _exit(0);
    }
    close(fd[1]);
    while ((k = read(fd[0], text + n, bytes - 1 - n)) > 0)
        n += (size_t)k;
    text[n] = 0;
    close(fd[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static const struct { const char *name, *here, *probed; } deadly[] = {
    {"crash", "crashed (segmentation fault, SIGSEGV) while it was loaded", "crashed while it was loaded"},
    {"overflow", "crashed (segmentation fault, SIGSEGV) while it was loaded", "crashed while it was loaded"},
    {"aborts", "gave up (abort, SIGABRT: what an exception does that nobody catches) while it was loaded", "crashed while it was loaded"},
    {"exits", "called exit() while it was loaded", "called exit()"},
};

START_TEST(names_who_ends_the_process)
{
    char text[4096], file[64];

    snprintf(file, sizeof file, "/%s.so", deadly[_i].name);
    ck_assert_int_eq(in_child(open_one, deadly[_i].name, text, sizeof text), 2);
    says(text, file, deadly[_i].here);
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
}
END_TEST

START_TEST(names_who_does_not_return)
{
    char text[4096];

    ck_assert_int_eq(in_child(wait_for_ever, "/x/slow.so", text, sizeof text), 2);
    says(text, "/x/slow.so", "did not return in time while it was loaded");
}
END_TEST

/* After a load the handlers are as before: a crash of our own is not a plugin's. */
static void crash_later(const char *name)
{
    open_one(name);
    raise(SIGSEGV);
}

static void exit_later(const char *name)
{
    open_one(name);
    exit(7);
}

START_TEST(guards_the_load_only)
{
    char text[4096];

    signal(SIGSEGV, SIG_DFL);
    ck_assert_int_eq(in_child(crash_later, "good", text, sizeof text), 128 + SIGSEGV);
    ck_assert_ptr_null(strstr(text, "good"));
    ck_assert_int_eq(in_child(exit_later, "good", text, sizeof text), 7);
    ck_assert_ptr_null(strstr(text, "good"));
}
END_TEST

START_TEST(stops_in_reverse_order)
{
    char text[4096];
    const char *a, *b, *c, *d;

    ck_assert_int_eq(in_child(order, "test.ability/1", text, sizeof text), 0);
    a = strstr(text, "order starts");
    b = strstr(text, "order2 meets the host");
    c = strstr(text, "order2 stops");
    d = strstr(text, "order stops");
    ck_assert_msg(a && b && c && d && a < b && b < c && c < d, "%s", text);
    ck_assert_ptr_null(strstr(d + strlen("order stops"), "stops"));
}
END_TEST

START_TEST(provides_an_ability_once)
{
    static const int table = 1;

    ck_assert_int_eq(tn_host_provide("test.a/1", &table), TN_OK);
    ck_assert_int_lt(tn_host_provide("test.a/1", &table), 0);
    ck_assert_ptr_eq(tn_host_interface("test.a/1"), &table);
    ck_assert_ptr_null(tn_host_interface("test.b/1"));
    ck_assert_ptr_null(tn_host_interface(NULL));
}
END_TEST

/* --- probing */
START_TEST(probes_what_is_sound)
{
    struct tn_probe p;

    ck_assert_int_eq(tn_plugin_probe(built("good"), &p), TN_OK);
    ck_assert_int_eq(p.status, TN_OK);
    ck_assert_str_eq(p.about, "a good one");
    const struct tn_offer *o = tn_probe_offer(&p, TN_BOOTSTRAP_ID);
    ck_assert_ptr_nonnull(o);
    ck_assert_uint_eq(o->score, 5);
    ck_assert_str_eq(o->why, "score 5");
    ck_assert_ptr_null(tn_plugin_each(NULL));    /* nothing came into this process */
}
END_TEST

START_TEST(probes_what_is_deadly)
{
    struct tn_probe p;

    ck_assert_int_eq(tn_plugin_probe(built(deadly[_i].name), &p), TN_OK);
    ck_assert_int_lt(p.status, 0);
    says(p.why, deadly[_i].name, deadly[_i].probed);
}
END_TEST

START_TEST(probes_what_hangs_and_what_crashes_late)
{
    struct tn_probe p;

    ck_assert_int_eq(tn_plugin_probe(built("hang"), &p), TN_OK);
    says(p.why, "/hang.so", "did not answer within 2 s");
    ck_assert_int_eq(tn_plugin_probe(built("probecrash"), &p), TN_OK);
    says(p.why, "/probecrash.so", "crashed while it was loaded and asked");
    ck_assert_int_eq(tn_plugin_probe(built("missing"), &p), TN_OK);
    says(p.why, "/missing.so", "lacks the mandatory locate");
}
END_TEST

static void probe_noise(const char *name)
{
    struct tn_probe p;
    int null = open("/dev/null", O_WRONLY);

    dup2(STDERR_FILENO, STDOUT_FILENO);          /* the pipe; now stderr goes elsewhere, and noise after it */
    dup2(null, STDERR_FILENO);
    tn_plugin_probe(built(name), &p);
    printf("%s", tn_probe_offer(&p, TN_BOOTSTRAP_ID)->why);
    fflush(stdout);
}

START_TEST(keeps_noise_out)
{
    char text[4096];

    ck_assert_int_eq(in_child(probe_noise, "prints", text, sizeof text), 0);
    ck_assert_str_eq(text, "two lines [2J");
}
END_TEST

START_TEST(does_not_fork_beside_threads)
{
    struct tn_probe p;

    ck_assert_int_eq(tn_pool_start(2), TN_OK);
    ck_assert_int_lt(tn_plugin_probe(built("good"), &p), 0);
    says(tn_error_text(), "good.so", "cannot be probed any more");
    tn_pool_stop();
    ck_assert_int_eq(tn_plugin_probe(built("good"), &p), TN_OK);
}
END_TEST

/* --- the registry */
static struct tn_registry *registry(const char *const *dirs, uint32_t n)
{
    struct tn_registry *r = NULL;
    tn_status s = tn_registry_open_only(dirs, n, &r);

    ck_assert_msg(s >= 0, "%s", tn_error_text());
    return r;
}

static const char *all_of_them(void)
{
    const char *dir = NULL;

    for (int i = 0; i < WRONG; i++)
        put("d", wrong[i].name, wrong[i].name);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        put("d", deadly[i].name, deadly[i].name);
    put("d", "absent", "absent");
    put("d", "good", "good");
    put("d", "better", "better");
    put("d", "equal", "equal");
    dir = put("d", "same", "same");
    return dir;
}

START_TEST(chooses_the_best_among_the_worst)
{
    const char *dir = all_of_them();
    struct tn_registry *r = registry(&dir, 1);
    const void *table;

    ck_assert_msg(tn_registry_best(r, "backend.bootstrap", TN_BOOTSTRAP_ID, NULL, NULL, &table) >= 0, "%s", tn_error_text());
    ck_assert_str_eq(tn_plugin_owner(table)->card.note.name, "better");      /* equal has its score: by name */
    ck_assert_ptr_null(tn_plugin_each(tn_plugin_owner(table)));              /* and nothing else was loaded */
    ck_assert_msg(tn_registry_get(r, "backend.bootstrap", "good", TN_BOOTSTRAP_ID, &table) >= 0, "%s", tn_error_text());
    tn_registry_close(r);
    uint32_t score = 0;                          /* tables outlive the registry */
    char why[64];
    ck_assert_int_eq(((const struct tn_bootstrap *)table)->probe(&score, why, sizeof why), TN_OK);
    ck_assert_uint_eq(score, 5);
}
END_TEST

static const char *not_better(void *arg, const struct tn_candidate *c, const struct tn_offer *o)
{
    (void)arg;
    return o->score == 9 && !strcmp(c->card.note.name, "better") ? "too good" : NULL;
}

static const char *nobody(void *arg, const struct tn_candidate *c, const struct tn_offer *o)
{
    (void)c;
    (void)o;
    return arg;
}

START_TEST(filters_and_lists_reasons)
{
    const char *dir = all_of_them();
    struct tn_registry *r = registry(&dir, 1);
    const void *table;

    ck_assert_int_ge(tn_registry_best(r, "k", TN_BOOTSTRAP_ID, not_better, NULL, &table), 0);
    ck_assert_str_eq(tn_plugin_owner(table)->card.note.name, "equal");
    ck_assert_int_eq(tn_registry_best(r, "backend.bootstrap", TN_BOOTSTRAP_ID, nobody, (void *)"not today", &table),
                     TN_ERR_CONFIG);
    ck_assert_ptr_null(table);
    says(tn_error_text(), "backend.bootstrap: no plugin here is a bootstrap that can be used", "good: not today");
    says(tn_error_text(), "crash: ", "crashed while it was loaded");
    says(tn_error_text(), "missing: ", "lacks the mandatory locate");
    tn_registry_close(r);
}
END_TEST

START_TEST(says_why_none_is_usable)
{
    const char *dir = put("d", "absent", "absent");
    struct tn_registry *r = registry(&dir, 1);
    const void *table;

    ck_assert_int_eq(tn_registry_best(r, "k", TN_BOOTSTRAP_ID, NULL, NULL, &table), TN_ERR_CONFIG);
    says(tn_error_text(), "absent: no such network card", "k: no plugin here");
    ck_assert_int_eq(tn_registry_best(r, "k", "tenon.comm/1", NULL, NULL, &table), TN_ERR_CONFIG);
    says(tn_error_text(), "k: no plugin here is a communicator", dir);
    ck_assert_int_eq(tn_registry_get(r, "k", "absent", TN_BOOTSTRAP_ID, &table), TN_ERR_CONFIG);
    says(tn_error_text(), "k = absent: not usable here", "no such network card");
    tn_registry_close(r);
}
END_TEST

START_TEST(explains_names_that_fail)
{
    const char *dir = all_of_them();
    struct tn_registry *r = registry(&dir, 1);
    const void *table;

    ck_assert_int_eq(tn_registry_get(r, "run.ini:7: b.x", "goot", TN_BOOTSTRAP_ID, &table), TN_ERR_CONFIG);
    ck_assert_ptr_null(table);
    says(tn_error_text(), "run.ini:7: b.x = goot: there is no such plugin, did you mean good?", dir);
    says(tn_error_text(), "absent, ", "better, ");
    ck_assert_int_eq(tn_registry_get(r, "b.x", "good", "tenon.comm/1", &table), TN_ERR_CONFIG);
    says(tn_error_text(), "good.so provides tenon.bootstrap/1, not tenon.comm/1", "for a communicator there are: promise");
    ck_assert_int_eq(tn_registry_get(r, "b.x", "future", TN_BOOTSTRAP_ID, &table), TN_ERR_INPUT);
    says(tn_error_text(), "b.x = future: ", "speaks ABI 8 to 9");
    ck_assert_int_eq(tn_registry_get(r, "b.x", "missing", TN_BOOTSTRAP_ID, &table), TN_ERR_INPUT);
    says(tn_error_text(), "b.x = missing: ", "lacks the mandatory locate");
    ck_assert_int_lt(tn_registry_get(r, "b.x", "good", "tenon.teleport/7", &table), 0);
    says(tn_error_text(), "b.x = good", "knows no interface tenon.teleport/7");
    tn_registry_close(r);
}
END_TEST

START_TEST(takes_the_first_of_a_name)
{
    const char *a = put("a", "future", "future"), *b = put("b", "good", "zzz");
    const char *dirs[2] = {a, b};
    struct tn_registry *r;
    const struct tn_candidate *c, *second;

    put("a", "good", "good");                    /* the same file as b/zzz: listed once */
    put("b", "same", "aaa");
    r = registry(dirs, 2);
    c = tn_registry_each(r, NULL);
    ck_assert_str_eq(c->file, "future.so");
    ck_assert_int_lt(c->status, 0);
    c = tn_registry_each(r, c);
    ck_assert_str_eq(c->file, "good.so");
    ck_assert_int_eq(c->status, TN_OK);
    second = tn_registry_each(r, c);
    ck_assert_str_eq(second->file, "aaa.so");
    ck_assert_int_lt(second->status, 0);
    says(second->why, "the name good is already taken by", c->path);
    ck_assert_ptr_null(tn_registry_each(r, second));
    tn_registry_close(r);
}
END_TEST

START_TEST(finds_in_stated_places_only)
{
    struct tn_registry *r = NULL;
    char path[600], home[600];
    const char *a = put("a", "good", "good");

    setenv("TENON_PLUGIN_PATH", a, 1);
    snprintf(path, sizeof path, "%s/b", room);
    put("b", "better", "better");
    snprintf(home, sizeof home, "mkdir -p %s/h/.local/lib/tenon/plugins", room);
    ck_assert_int_eq(system(home), 0);
    put("h/.local/lib/tenon/plugins", "equal", "equal");
    snprintf(home, sizeof home, "%s/h", room);
    setenv("HOME", home, 1);
    ck_assert_int_eq(chdir(put("c", "order", "order")), 0);
    ck_assert_int_ge(tn_registry_open(path, &r), 0);
    const struct tn_candidate *c = tn_registry_each(r, NULL);
    ck_assert_str_eq(c->card.note.name, "better");
    ck_assert_str_eq(c->place->said_by, "plugins.path");
    c = tn_registry_each(r, c);
    ck_assert_str_eq(c->card.note.name, "good");
    ck_assert_str_eq(c->place->said_by, "TENON_PLUGIN_PATH");
    c = tn_registry_each(r, c);
    ck_assert_str_eq(c->card.note.name, "equal");
    ck_assert_str_eq(c->place->said_by, "user");
    while ((c = tn_registry_each(r, c))) {       /* this program runs from the build tree */
        ck_assert_str_eq(c->place->said_by, "build tree");
        ck_assert_str_ne(c->card.note.name, "order");
    }
    tn_registry_close(r);
    setenv("TENON_PLUGIN_PATH", ".:", 1);        /* the working directory, in two ways */
    ck_assert_int_ge(tn_registry_open(NULL, &r), 0);
    for (c = NULL; (c = tn_registry_each(r, c));)
        ck_assert_str_ne(c->card.note.name, "order");
    tn_registry_close(r);
    ck_assert_int_eq(tn_registry_open("/no/such/place", &r), TN_ERR_CONFIG);
    says(tn_error_text(), "plugins.path: /no/such/place", "No such file");
    ck_assert_ptr_null(r);
    snprintf(path, sizeof path, "%s/better.so", put("b", "good", "good2"));
    ck_assert_int_ge(tn_registry_open(path, &r), 0);     /* one file */
    ck_assert_str_eq(tn_registry_each(r, NULL)->card.note.name, "better");
    tn_registry_close(r);
}
END_TEST

/* --- devices and kernels */
static struct tn_registry *compute(void)
{
    const char *dir = NULL;
    static const char *const names[] = {"kslow", "kfast", "kother", "knone", "crash", "good"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        dir = put("k", names[i], names[i]);
    return registry(&dir, 1);
}

static const char *name_of(const void *table)
{
    return tn_plugin_owner(table)->card.note.name;
}

START_TEST(orders_by_score_then_name)
{
    ck_assert_int_lt(tn_registry_order(2, "zeta", 1, "alpha"), 0);
    ck_assert_int_gt(tn_registry_order(1, "ref", 2, "zeta"), 0);
    ck_assert_int_lt(tn_registry_order(5, "alpha", 5, "zeta"), 0);
    ck_assert_int_gt(tn_registry_order(5, "zeta", 5, "ref"), 0);
    ck_assert_int_lt(tn_registry_order(6, "ref", 5, "alpha"), 0);
}
END_TEST

START_TEST(chooses_a_device_by_kind)
{
    struct tn_registry *r = compute();
    const struct tn_device_api *d;

    ck_assert_msg(tn_registry_device(r, "backend.device", "cpu", &d) >= 0, "%s", tn_error_text());
    ck_assert_str_eq(name_of(d), "kslow");
    ck_assert_int_eq(tn_registry_device(r, "run.ini:3: backend.device", "cuda", &d), TN_ERR_CONFIG);
    ck_assert_ptr_null(d);
    says(tn_error_text(), "run.ini:3: backend.device = cuda: no plugin here is a device", "kother: is for the device toaster");
    tn_registry_close(r);
}
END_TEST

START_TEST(chooses_kernels_by_score)
{
    struct tn_registry *r = compute();
    const struct tn_kernels *k[TN_MAX_KERNELS];
    uint32_t n;

    ck_assert_msg(tn_registry_kernels(r, "backend.kernels", NULL, "cpu", k, &n) >= 0, "%s", tn_error_text());
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(name_of(k[0]), "kfast");
    ck_assert_str_eq(name_of(k[1]), "kslow");
    ck_assert_int_eq(tn_registry_kernels(r, "backend.kernels", NULL, "cuda", k, &n), TN_ERR_CONFIG);
    ck_assert_uint_eq(n, 0);
    says(tn_error_text(), "backend.kernels (for the device cuda): no plugin", "kfast: is for the device cpu");
    tn_registry_close(r);
}
END_TEST

START_TEST(takes_kernels_in_the_order_of_their_names)
{
    struct tn_registry *r = compute();
    const struct tn_kernels *k[TN_MAX_KERNELS];
    uint32_t n;

    ck_assert_msg(tn_registry_kernels(r, "b.k", " kslow,kfast ", "cpu", k, &n) >= 0, "%s", tn_error_text());
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(name_of(k[0]), "kslow");
    ck_assert_str_eq(name_of(k[1]), "kfast");
    ck_assert_int_eq(tn_registry_kernels(r, "b.k", "kslow, kother", "cpu", k, &n), TN_ERR_CONFIG);
    says(tn_error_text(), "b.k = kother: these kernels work on the device toaster", "backend.device is cpu");
    ck_assert_int_eq(tn_registry_kernels(r, "b.k", "kslow, kslow", "cpu", k, &n), TN_ERR_CONFIG);
    says(tn_error_text(), "b.k", "names kslow twice");
    ck_assert_int_eq(tn_registry_kernels(r, "b.k", " , ", "cpu", k, &n), TN_ERR_CONFIG);
    says(tn_error_text(), "b.k is empty", "kfast");
    ck_assert_int_eq(tn_registry_kernels(r, "b.k", "kfast, knone", "cpu", k, &n), TN_ERR_CONFIG);
    says(tn_error_text(), "b.k = knone: not usable here", "score 0");
    ck_assert_int_eq(tn_registry_kernels(r, "b.k", "kfats", "cpu", k, &n), TN_ERR_CONFIG);
    says(tn_error_text(), "b.k = kfats: there is no such plugin", "did you mean kfast?");
    ck_assert_int_eq(tn_registry_kernels(r, "b.k", "good", "cpu", k, &n), TN_ERR_CONFIG);
    says(tn_error_text(), "good.so provides tenon.bootstrap/1, not tenon.kernels/1", "for kernels there are: ");
    tn_registry_close(r);
}
END_TEST

START_TEST(lists_every_answer)
{
    const char *dir = all_of_them();
    struct tn_registry *r = registry(&dir, 1);
    const struct tn_probe *p;

    for (const struct tn_candidate *c = NULL; (c = tn_registry_each(r, c));) {
        ck_assert_int_ge(tn_registry_ask(r, c, &p), 0);
        ck_assert_msg(p->status >= 0 || strstr(p->why, c->file), "%s: %s", c->path, p->why);
        ck_assert_int_le(p->status, c->status);
    }
    tn_registry_close(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("registry");
    TCase *c = tcase_create("all");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, loads_once_by_any_name);
    tcase_add_test(c, refuses_a_taken_name);
    tcase_add_loop_test(c, refuses_with_file_and_cause, 0, WRONG);
    tcase_add_test(c, refuses_all_and_loads_good);
    tcase_add_test(c, takes_tables_of_other_sizes);
    tcase_add_loop_test(c, names_who_ends_the_process, 0, sizeof deadly / sizeof *deadly);
    tcase_add_test(c, names_who_does_not_return);
    tcase_add_test(c, guards_the_load_only);
    tcase_add_test(c, stops_in_reverse_order);
    tcase_add_test(c, provides_an_ability_once);
    tcase_add_test(c, probes_what_is_sound);
    tcase_add_loop_test(c, probes_what_is_deadly, 0, sizeof deadly / sizeof *deadly);
    tcase_add_test(c, probes_what_hangs_and_what_crashes_late);
    tcase_add_test(c, keeps_noise_out);
    tcase_add_test(c, does_not_fork_beside_threads);
    tcase_add_test(c, chooses_the_best_among_the_worst);
    tcase_add_test(c, filters_and_lists_reasons);
    tcase_add_test(c, says_why_none_is_usable);
    tcase_add_test(c, explains_names_that_fail);
    tcase_add_test(c, takes_the_first_of_a_name);
    tcase_add_test(c, finds_in_stated_places_only);
    tcase_add_test(c, orders_by_score_then_name);
    tcase_add_test(c, chooses_a_device_by_kind);
    tcase_add_test(c, chooses_kernels_by_score);
    tcase_add_test(c, takes_kernels_in_the_order_of_their_names);
    tcase_add_test(c, lists_every_answer);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
