/* twin.c - see twin.h. The compiler is that of the build (CXX and its flags come by the command line). */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
#include "conform.h"
#include "twin.h"

#define MOST 400

static struct {
    char *name, *source;
} all[MOST];
uint32_t tn_test_twin_programs, tn_test_twin_launches;
static void *object;

static tn_status collect(const char *source, const char *name, void **out)
{
    for (uint32_t i = 0; i < tn_test_twin_programs; i++)
        if (!strcmp(all[i].name, name)) {
            if (strcmp(all[i].source, source))
                printf("two programs are called %s\n", name), exit(1);
            return TN_DECLINED;
        }
    if (tn_test_twin_programs == MOST)
        printf("more than %d programs\n", MOST), exit(1);
    all[tn_test_twin_programs].name = strdup(name), all[tn_test_twin_programs++].source = strdup(source);
    *out = NULL;
    return TN_DECLINED;
}

void tn_test_twin_collect(tn_status (*prepare)(const struct tn_problem *p, struct tn_kernel *out))
{
    static const struct tn_cuda_compiler collector = {.make = collect};
    const struct tn_kernels asked = {.struct_size = sizeof asked, .device = "cpu", .ops = tn_cuda_ops, .prepare = prepare};

    tn_cuda_compiler = &collector;
    for (const struct tn_bench_case *c = tn_conform_cases; c->op; c++)
        for (int merged = 0; merged < 2; merged++) {
            struct tn_bench *b = tn_bench_new(c, 1);

            if (!merged || tn_bench_merge(b))
                (void)tn_bench_declines(b, &asked);
            tn_bench_free(b);
        }
    tn_cuda_compiler = NULL;
}

void tn_test_twin_each(void (*f)(const char *source, const char *name))
{
    for (uint32_t i = 0; i < tn_test_twin_programs; i++)
        f(all[i].source, all[i].name);
}

/* The sources without what they have in common, and for each a way to launch it. */
static int write_all(const char *path)
{
    static const char mark[] = "extern \"C\" __global__";
    FILE *f = fopen(path, "w");

    for (uint32_t i = 0; f && i < tn_test_twin_programs; i++) {
        const char *kernel = strstr(all[i].source, mark);

        if (!i)
            fprintf(f, "%.*s", (int)(kernel - all[i].source), all[i].source);
        fprintf(f, "%s\nextern \"C\" void launch_%s(uint32_t grid, const tn_pass *k)\n"
                   "{\n    (void)TN_LAUNCH(%s, grid, %uu, 0, *k);\n}\n",
                kernel, all[i].name, all[i].name, TN_CUDA_PASS_THREADS);
    }
    return f && !fclose(f);
}

int tn_test_twin_build(void)
{
    char folder[] = "/tmp/tenon-twin-XXXXXX", cpp[64], so[64], command[2000];
    int ok;

    if (!tn_test_twin_programs || !mkdtemp(folder))
        return 0;
    snprintf(cpp, sizeof cpp, "%s/all.cpp", folder), snprintf(so, sizeof so, "%s/all.so", folder);
    snprintf(command, sizeof command, "%s -shared -fPIC -o %s %s", TN_TEST_CXX, so, cpp);
    ok = write_all(cpp) && !system(command) && (object = dlopen(so, RTLD_NOW | RTLD_LOCAL));
    if (!ok)
        printf("%s\n%s\n", command, dlerror());
    unlink(cpp), unlink(so), rmdir(folder);
    return ok;
}

static tn_status make(const char *source, const char *name, void **out)
{
    char symbol[80];

    (void)source;
    snprintf(symbol, sizeof symbol, "launch_%s", name);
    *out = dlsym(object, symbol);
    return *out ? TN_OK : TN_DECLINED;
}

static tn_status launch(void *kernel, uint32_t grid, const struct tn_cuda_pass *pass, struct tn_queue *q)
{
    void (*run)(uint32_t grid, const struct tn_cuda_pass *k);

    (void)q;
    memcpy(&run, &kernel, sizeof run);
    run(grid, pass);
    tn_test_twin_launches++;
    return TN_OK;
}

const struct tn_cuda_compiler tn_test_twin = {.make = make, .launch = launch};
