/* card.c - questions to a card, and of what it is compared with: see elf.h. */
#include "plugin/elf.h"

int tn_card_provides(const struct tn_card *card, const char *id)
{
    size_t n = strlen(id);

    for (const char *p = card->note.provides; *p;) {
        size_t k = strcspn(p, " ");
        if (k == n && !memcmp(p, id, n))
            return 1;
        p += k + (p[k] == ' ');
    }
    return 0;
}

int tn_openmp_runtime(const char *library)
{
    static const char *const prefix[] = {"libgomp", "libomp.so", "libomp-", "libomp5", "libiomp"};
    const char *slash = strrchr(library, '/'), *name = slash ? slash + 1 : library;

    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (!strncmp(name, prefix[i], strlen(prefix[i])))
            return i ? 2 : 1;
    return 0;
}

uint32_t tn_cpu_level(void)
{
#if defined __x86_64__
    __builtin_cpu_init();
    if (!(__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") &&
          __builtin_cpu_supports("popcnt")))
        return 1;
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
          __builtin_cpu_supports("bmi2")))
        return 2;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl")
               ? 4
               : 3;
#else
    return 0;
#endif
}
