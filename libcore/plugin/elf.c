/* elf.c - the check before dlopen: see elf.h.
 *
 * Order of the questions: a path that can be shown; a regular file that others cannot write; whole; a shared object for this machine;
 * with a Tenon note; of a level and CPU that fit; without a second OpenMP runtime. The first "no" is the
 * sentence. Everything is read at most once and in bounded pieces. */
#include "plugin/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/plain.h"

#if defined __x86_64__
#define MACHINE EM_X86_64
#elif defined __aarch64__
#define MACHINE EM_AARCH64
#elif defined __riscv && __riscv_xlen == 64
#define MACHINE EM_RISCV
#elif defined __powerpc64__
#define MACHINE EM_PPC64
#else
#error "add the ELF machine number of this processor"
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ORDER ELFDATA2LSB
#else
#define ORDER ELFDATA2MSB
#endif

#define MAX_HEADERS 256u /* program headers; a usual plugin has about 10 */
#define MAX_PIECE 65536u /* bytes of a note or dynamic segment; usually below 1000 */

struct reader {
    const char *path;
    int fd;
    uint32_t headers;
    uint64_t size; /* of the file */
    Elf64_Phdr header[MAX_HEADERS];
    unsigned char piece[MAX_PIECE];
    struct tn_card *card;
    char *why;
};

__attribute__((format(printf, 3, 4))) static tn_status refuse(const struct reader *r, tn_status code,
                                                              const char *fmt, ...)
{
    int k = snprintf(r->why, TN_WHY_SIZE, "%s: ", r->path);
    va_list ap;

    if (k < 0 || k >= TN_WHY_SIZE - 80)
        k = snprintf(r->why, TN_WHY_SIZE, "...%s: ", r->path + strlen(r->path) - 200);
    va_start(ap, fmt);
    vsnprintf(r->why + k, TN_WHY_SIZE - (size_t)k, fmt, ap);
    va_end(ap);
    tn_plain(r->why, 0);
    return code;
}

/* No sum that could wrap. */
static int within(const struct reader *r, uint64_t offset, uint64_t bytes)
{
    return offset <= r->size && bytes <= r->size - offset;
}

static tn_status fetch(const struct reader *r, uint64_t offset, void *to, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t k = pread(r->fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return refuse(r, TN_ERR_IO, "cannot be read: %s", strerror(errno));
        if (k == 0)
            return refuse(r, TN_ERR_INPUT, "became shorter while it was read");
        done += (size_t)k;
    }
    return TN_OK;
}

static tn_status open_file(struct reader *r)
{
    struct stat st;

    if (!tn_is_plain(r->path, 0))
        return refuse(r, TN_ERR_INPUT, "has characters in its path that cannot be shown, so it is not loaded");
    /* O_NONBLOCK: a fifo with a plugin's name must not hold us */
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (r->fd < 0)
        return refuse(r, TN_ERR_IO, "cannot be opened: %s", strerror(errno));
    if (fstat(r->fd, &st))
        return refuse(r, TN_ERR_IO, "cannot be examined: %s", strerror(errno));
    r->card->device = (uint64_t)st.st_dev;
    r->card->inode = (uint64_t)st.st_ino;
    if (!S_ISREG(st.st_mode))
        return refuse(r, TN_ERR_INPUT, "is not a regular file");
    if (st.st_mode & S_IWOTH)
        return refuse(r, TN_ERR_INPUT,
                      "may be written by everybody, so it is not loaded; chmod o-w makes it safe");
    r->size = (uint64_t)st.st_size;
    return TN_OK;
}

static tn_status check_header(const struct reader *r, Elf64_Ehdr *e)
{
    size_t bytes = r->size < sizeof *e ? (size_t)r->size : sizeof *e;
    tn_status s;

    memset(e, 0, sizeof *e);
    if ((s = fetch(r, 0, e, bytes)) < 0)
        return s;
    if (memcmp(e->e_ident, ELFMAG, SELFMAG))
        return refuse(r, TN_ERR_INPUT, "is not a shared object (no ELF magic)");
    if (bytes < sizeof *e)
        return refuse(r, TN_ERR_INPUT, "is truncated: %llu bytes are less than an ELF header",
                      (unsigned long long)r->size);
    if (e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_ident[EI_DATA] != ORDER || e->e_machine != MACHINE)
        return refuse(
            r, TN_ERR_INPUT,
            "is for another machine (ELF class %u, byte order %u, machine %u; this host has %u, %u, %u)",
            e->e_ident[EI_CLASS], e->e_ident[EI_DATA], e->e_machine, ELFCLASS64, ORDER, MACHINE);
    if (e->e_type != ET_DYN)
        return refuse(r, TN_ERR_INPUT, "is not a shared object (ELF type %u instead of %u)", e->e_type,
                      ET_DYN);
    if (e->e_version != EV_CURRENT || e->e_ident[EI_VERSION] != EV_CURRENT)
        return refuse(r, TN_ERR_INPUT, "has ELF version %u instead of %u", e->e_version, EV_CURRENT);
    if (e->e_phentsize != sizeof(Elf64_Phdr) || !e->e_phnum || e->e_phnum > MAX_HEADERS)
        return refuse(r, TN_ERR_INPUT, "is damaged: %u program headers of %u bytes", e->e_phnum,
                      e->e_phentsize);
    if (!within(r, e->e_phoff, (uint64_t)e->e_phnum * sizeof(Elf64_Phdr)) ||
        (e->e_shoff && !within(r, e->e_shoff, (uint64_t)e->e_shnum * e->e_shentsize)))
        return refuse(r, TN_ERR_INPUT, "is truncated: its headers lie beyond its end at byte %llu",
                      (unsigned long long)r->size);
    return TN_OK;
}

/* Segments in the file, loadable ones in rising order and aligned as the loader wants them. */
static tn_status check_segments(const struct reader *r)
{
    uint64_t top = 0;
    int loads = 0, dynamic = 0;

    for (uint32_t i = 0; i < r->headers; i++) {
        const Elf64_Phdr *h = &r->header[i];
        if (h->p_type != PT_LOAD && h->p_type != PT_NOTE && h->p_type != PT_DYNAMIC)
            continue;
        if (!within(r, h->p_offset, h->p_filesz))
            return refuse(r, TN_ERR_INPUT, "is truncated: segment %u lies beyond its end at byte %llu", i,
                          (unsigned long long)r->size);
        dynamic += h->p_type == PT_DYNAMIC;
        if (h->p_type != PT_LOAD)
            continue;
        if (h->p_filesz > h->p_memsz || h->p_vaddr < top || h->p_memsz > (UINT64_MAX >> 17) ||
            h->p_vaddr > (UINT64_MAX >> 17) || h->p_align & (h->p_align - 1) ||
            (h->p_align && (h->p_vaddr - h->p_offset) % h->p_align))
            return refuse(r, TN_ERR_INPUT, "is damaged: segment %u cannot be mapped", i);
        top = h->p_vaddr + h->p_memsz;
        loads++;
    }
    if (!loads || dynamic != 1)
        return refuse(r, TN_ERR_INPUT, "is damaged: it has %d loadable and %d dynamic segments", loads,
                      dynamic);
    return TN_OK;
}

static int is_name(const char *s)
{
    return *s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_.-")];
}

static tn_status take_note(const struct reader *r, const unsigned char *desc, uint32_t bytes)
{
    struct tn_note *n = &r->card->note;
    uint32_t known = bytes < sizeof *n ? bytes : (uint32_t)sizeof *n;

    memset(n, 0, sizeof *n);
    memcpy(n, desc, known);
    tn_plain_field(n->name, sizeof n->name);
    tn_plain_field(n->version, sizeof n->version);
    tn_plain_field(n->provides, sizeof n->provides);
    if (n->note_size != bytes || bytes < offsetof(struct tn_note, provides))
        return refuse(r, TN_ERR_INPUT, "has a damaged Tenon note: %u bytes that claim to be %u", bytes,
                      n->note_size);
    for (uint32_t i = known; i < bytes; i++)
        if (desc[i])
            return refuse(r, TN_ERR_INPUT,
                          "has a Tenon note with a field at byte %u that this host does not know", i);
    if (!is_name(n->name))
        return refuse(r, TN_ERR_INPUT,
                      "has a Tenon note with the name \"%s\"; names are made of a-z 0-9 _ . -", n->name);
    return TN_OK;
}

/* One note segment: TN_OK and *found, or go on with the next. Lengths that do not fit end the segment. */
static tn_status read_notes(const struct reader *r, uint64_t n, int *found)
{
    const unsigned char *p = r->piece;

    while (n >= 12) {
        uint32_t word[3];
        memcpy(word, p, sizeof word);
        uint64_t desc = 12 + (((uint64_t)word[0] + 3) & ~3ull);
        uint64_t next = desc + (((uint64_t)word[1] + 3) & ~3ull);
        if (next > n)
            break;
        if (word[0] == 6 && word[2] == TN_NOTE_TYPE && !memcmp(p + 12, "Tenon", 6) && !*found) {
            *found = 1;
            tn_status s = take_note(r, p + desc, word[1]);
            if (s < 0)
                return s;
        }
        if (word[0] == 4 && word[2] == NT_GNU_BUILD_ID && !memcmp(p + 12, "GNU", 4))
            for (uint32_t i = 0; i < word[1] && i < 20; i++)
                snprintf(r->card->build_id + (size_t)2 * i, 3, "%02x", p[desc + i]);
        p += next;
        n -= next;
    }
    return TN_OK;
}

static tn_status find_note(struct reader *r)
{
    int found = 0;
    tn_status s;

    for (uint32_t i = 0; i < r->headers; i++) {
        const Elf64_Phdr *h = &r->header[i];
        if (h->p_type != PT_NOTE || h->p_filesz > MAX_PIECE)
            continue;
        if ((s = fetch(r, h->p_offset, r->piece, h->p_filesz)) < 0 ||
            (s = read_notes(r, h->p_filesz, &found)) < 0)
            return s;
    }
    if (!found)
        return refuse(r, TN_ERR_INPUT, "has no Tenon note, so it is not a Tenon plugin");
    return TN_OK;
}

static tn_status check_fit(const struct reader *r)
{
    const struct tn_note *n = &r->card->note;
    uint32_t here = tn_cpu_level();

    if (n->abi_min > TN_ABI || n->abi_max < 1 || n->abi_min > n->abi_max)
        return refuse(r, TN_ERR_INPUT,
                      "speaks ABI %u to %u, this host speaks 1 to %u; rebuild it with this host's headers",
                      n->abi_min, n->abi_max, TN_ABI);
    if (n->cpu > here)
        return refuse(r, TN_ERR_INPUT, "needs CPU level %u (x86-64-v%u), this CPU has level %u", n->cpu,
                      n->cpu, here);
    return TN_OK;
}

/* Offset in the file of an address of the image; 0 where it has none. */
static uint64_t file_offset(const struct reader *r, uint64_t address)
{
    for (uint32_t i = 0; i < r->headers; i++) {
        const Elf64_Phdr *h = &r->header[i];
        if (h->p_type == PT_LOAD && address >= h->p_vaddr && address - h->p_vaddr < h->p_filesz)
            return h->p_offset + (address - h->p_vaddr);
    }
    return 0;
}

/* The dynamic segment into r->piece. *n: entries in front of DT_NULL; *strings: where their names lie in the file. Both are
 * 0 before. */
static tn_status fetch_dynamic(struct reader *r, size_t *n, uint64_t *strings)
{
    const Elf64_Phdr *h = r->header;
    Elf64_Dyn d;
    tn_status s;

    while (h->p_type != PT_DYNAMIC) /* check_segments counted one */
        h++;
    if (h->p_filesz > MAX_PIECE)
        return refuse(r, TN_ERR_INPUT, "is damaged: a dynamic segment of %llu bytes",
                      (unsigned long long)h->p_filesz);
    if ((s = fetch(r, h->p_offset, r->piece, h->p_filesz)) < 0)
        return s;
    for (; *n < h->p_filesz / sizeof d; ++*n) {
        memcpy(&d, r->piece + *n * sizeof d, sizeof d);
        if (d.d_tag == DT_NULL)
            break;
        if (d.d_tag == DT_STRTAB)
            *strings = file_offset(r, d.d_un.d_ptr);
    }
    return *strings ? TN_OK
                    : refuse(r, TN_ERR_INPUT, "is damaged: its dynamic segment has no table of strings");
}

/* One thread runtime per process; a transitive need shows only after dlopen, which looks again. */
static tn_status check_needed(struct reader *r)
{
    uint64_t strings = 0;
    size_t n = 0;
    tn_status s = fetch_dynamic(r, &n, &strings);

    for (size_t i = 0; i < n && s >= 0; i++) {
        char name[128] = "";
        Elf64_Dyn d;

        memcpy(&d, r->piece + i * sizeof d, sizeof d);
        if (d.d_tag != DT_NEEDED)
            continue;
        if (d.d_un.d_val >= r->size - strings)
            return refuse(r, TN_ERR_INPUT, "is damaged: the name of a needed library lies beyond its end");
        uint64_t at = strings + d.d_un.d_val, left = r->size - at;
        s = fetch(r, at, name, left < sizeof name - 1 ? left : sizeof name - 1);
        tn_plain_field(name, sizeof name);
        if (s >= 0 && tn_openmp_runtime(name) > 1)
            return refuse(
                r, TN_ERR_INPUT,
                "brings a second OpenMP runtime (%s); link it with libgomp or use the host's threads", name);
    }
    return s;
}

static tn_status check(struct reader *r)
{
    Elf64_Ehdr e;
    tn_status s;

    if ((s = open_file(r)) < 0 || (s = check_header(r, &e)) < 0)
        return s;
    r->headers = e.e_phnum;
    if ((s = fetch(r, e.e_phoff, r->header, r->headers * sizeof *r->header)) < 0 ||
        (s = check_segments(r)) < 0 || (s = find_note(r)) < 0 || (s = check_fit(r)) < 0)
        return s;
    return check_needed(r);
}

tn_status tn_elf_check(const char *path, struct tn_card *card, char *why)
{
    struct reader *r = malloc(sizeof *r);
    tn_status s;

    memset(card, 0, sizeof *card);
    *why = 0;
    if (!r) {
        snprintf(why, TN_WHY_SIZE, "no memory to read a plugin");
        return TN_ERR_MEMORY;
    }
    r->path = path;
    r->fd = -1;
    r->card = card;
    r->why = why;
    s = check(r);
    if (r->fd >= 0)
        close(r->fd);
    free(r);
    return s;
}
