/* dnn.c - cuDNN, opened when the first attention for it is prepared; TENON_CUDA_DNN=0 does without.
 *
 * The plugin loads without the library, and without it attention is by the own kernel. cuDNN compiles its
 * kernels by NVRTC, and that looks for a part of its own by the loader's paths alone; so both are opened
 * here, by the path that this plugin knows its toolkit by, and then found. */
#include <dlfcn.h>
#include "dnn.h"

#define NAME(name) {#name, offsetof(struct tn_dnn_library, name)},

struct tn_dnn_library tn_dnn;
cudnnHandle_t tn_dnn_handle;                     /* to the end of the process */
static const struct {
    const char *name;
    size_t at;
} names[] = {TN_DNN_FUNCTIONS(NAME)};

void tn_dnn_say(cudnnStatus_t s, char *out, size_t size)
{
    char last[300] = "";

    tn_dnn.cudnnGetLastErrorString(last, sizeof last);
    snprintf(out, size, "%s%s%s", tn_dnn.cudnnGetErrorString(s), *last ? ": " : "", last);
}

/* Not here: then perhaps where cuDNN finds them. */
static void open_compiler(void)
{
    char name[48];

    snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", CUDART_VERSION / 1000,
             CUDART_VERSION / 10 % 100);
    (void)!dlopen(name, RTLD_NOW | RTLD_LOCAL);
    snprintf(name, sizeof name, "libnvrtc.so.%d", CUDART_VERSION / 1000);
    (void)!dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

const char *tn_dnn_load(void)
{
    char name[40];
    void *so;

    snprintf(name, sizeof name, "libcudnn.so.%d", CUDNN_MAJOR);
    open_compiler();
    if (!(so = dlopen(name, RTLD_NOW | RTLD_LOCAL)))
        return dlerror();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *f = dlsym(so, names[i].name);

        if (!f)
            return dlerror();
        memcpy((char *)&tn_dnn + names[i].at, &f, sizeof f);
    }
    return NULL;
}

static int open_now(void)
{
    const char *choice = getenv("TENON_CUDA_DNN"), *why;
    char text[400];
    cudnnStatus_t s;

    if (choice && !strcmp(choice, "0"))
        return 0;
    if (!(why = tn_dnn_load())) {
        if (!(s = tn_dnn.cudnnCreate(&tn_dnn_handle)))
            return 1;
        why = tn_dnn.cudnnGetErrorString(s);
    }
    snprintf(text, sizeof text, "cuda: without cuDNN, so attention is slow: %s", why);
    tn_host->log(1, text);
    return 0;
}

int tn_dnn_open(void)
{
    static int asked, is_open;

    if (!asked)
        asked = 1, is_open = open_now();
    return is_open;
}
