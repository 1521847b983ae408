/* exports.c - see exports.h. Read from the plugin's own dynamic section, which the loader has just accepted. */
#include "plugin/exports.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

/* The loader has made addresses of these, on most machines: below the image's base they are still offsets. */
static const void *at(const struct link_map *map, ElfW(Addr) address)
{
    return (const void *)(address < map->l_addr ? map->l_addr + address : address);
}

/* Symbols in the table: the GNU hash says where chains begin, and a chain's last entry is odd. */
static uint32_t count_gnu(const uint32_t *hash)
{
    const uint32_t buckets = hash[0], first = hash[1], bloom = hash[2];
    const uint32_t *bucket = hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
    uint32_t last = 0;

    for (uint32_t b = 0; b < buckets; b++)
        last = bucket[b] > last ? bucket[b] : last;
    if (last < first)
        return first;                            /* nothing is defined */
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

static int is_own(const ElfW(Sym) *s, const char *name)
{
    static const char *const usual[] = {"_init", "_fini", "_edata", "_end", "tn_plugin_entry"};
    const int bind = s->st_info >> 4, sees = s->st_other & 3;

    if (s->st_shndx == SHN_UNDEF || bind == STB_LOCAL || sees == STV_HIDDEN || sees == STV_INTERNAL ||
        !strncmp(name, "__", 2))
        return 0;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!strcmp(name, usual[i]))
            return 0;
    return 1;
}

void tn_exports_count(void *handle, struct tn_exports *out)
{
    const ElfW(Sym) *symbol = NULL;
    const char *text = NULL;
    struct link_map *map;
    uint32_t n = 0;

    *out = (struct tn_exports){0};
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map))
        return;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
        switch (d->d_tag) {
        case DT_SYMTAB: symbol = at(map, d->d_un.d_ptr); break;
        case DT_STRTAB: text = at(map, d->d_un.d_ptr); break;
        case DT_GNU_HASH: n = count_gnu(at(map, d->d_un.d_ptr)); break;
        case DT_HASH: n = n ? n : ((const uint32_t *)at(map, d->d_un.d_ptr))[1]; break;
        }
    for (uint32_t i = 1; i < n && symbol && text; i++) {
        const char *name = text + symbol[i].st_name;

        if (!is_own(&symbol[i], name))
            continue;
        out->first = out->n++ ? out->first : name;
        if (symbol[i].st_info >> 4 == STB_GNU_UNIQUE)
            out->first_unique = out->unique++ ? out->first_unique : name;
    }
}
