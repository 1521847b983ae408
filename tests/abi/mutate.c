/* mutate.c - plugins with damaged headers, through the check before dlopen (libcore/plugin/elf.c).
 *
 *     mutate FILE SEED COUNT [FOLDER KEEP]
 *
 * Copies of FILE are changed in one to six places and checked, COUNT of them. Most places are whole fields of the ELF
 * header, the program headers, the notes and the dynamic section, set to what hurts: 0, 1, all ones, just inside and just
 * outside the file, a neighbour's value; some are bytes anywhere, some cut the file short. Each copy is accepted, or
 * refused with a sentence that begins with its name; mutated.sh builds this with ASan and UBSan, and whatever else happens
 * is their finding. With FOLDER, KEEP accepted and KEEP refused ones are left there as files, for the loader itself. */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "plugin/elf.h"

static unsigned char *image, *copy;
static size_t size;
static uint64_t state;

static uint64_t next(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

static void read_file(const char *path)
{
    FILE *f = fopen(path, "rb");

    if (!f || fseek(f, 0, SEEK_END) || (size = (size_t)ftell(f)) < sizeof(Elf64_Ehdr))
        exit(fprintf(stderr, "mutate: cannot read %s\n", path) ? 99 : 99);
    rewind(f);
    image = malloc(size), copy = malloc(size);
    if (!image || !copy || fread(image, 1, size, f) != size)
        exit(99);
    fclose(f);
}

/* --- where it hurts */

struct field {
    size_t at, bytes;
};

static const Elf64_Phdr *header(uint64_t i)
{
    return (const Elf64_Phdr *)(image + ((const Elf64_Ehdr *)image)->e_phoff) + i;
}

static struct field in_elf_header(void)
{
    static const struct field field[] = {{0, 4}, {4, 1}, {5, 1}, {6, 1}, {7, 1}, {16, 2}, {18, 2}, {20, 4}, {24, 8},
                                         {32, 8}, {40, 8}, {48, 4}, {52, 2}, {54, 2}, {56, 2}, {58, 2}, {60, 2}, {62, 2}};

    return field[next(sizeof field / sizeof *field)];
}

static struct field in_program_header(void)
{
    static const struct field field[] = {{0, 4}, {4, 4}, {8, 8}, {16, 8}, {24, 8}, {32, 8}, {40, 8}, {48, 8}};
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)image;
    struct field f = field[next(sizeof field / sizeof *field)];

    f.at += e->e_phoff + next(e->e_phnum) * sizeof(Elf64_Phdr);
    return f;
}

/* A word of one segment of this type. */
static struct field in_segment(uint32_t type, size_t bytes)
{
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)image;
    uint64_t i = next(e->e_phnum);

    for (uint64_t k = 0; k < e->e_phnum && header(i)->p_type != type; k++)
        i = (i + 1) % e->e_phnum;
    if (header(i)->p_filesz < bytes)
        return (struct field){0, 4};
    return (struct field){header(i)->p_offset + next(header(i)->p_filesz / bytes) * bytes, bytes};
}

static struct field somewhere(void)
{
    size_t bytes = (size_t)1 << next(4);

    return (struct field){next(size - bytes), bytes};
}

static uint64_t value(struct field f)
{
    uint64_t old = 0, other = 0;
    struct field g = in_program_header();

    memcpy(&old, copy + f.at, f.bytes);
    memcpy(&other, image + g.at, g.bytes);
    switch (next(12)) {
    case 0: return 0;
    case 1: return 1;
    case 2: return UINT64_MAX;
    case 3: return UINT64_MAX >> 1;
    case 4: return size;
    case 5: return size - 1;
    case 6: return UINT64_MAX - next(64);
    case 7: return old + 1;
    case 8: return old - 1;
    case 9: return old ^ UINT64_C(1) << next(8 * f.bytes);
    case 10: return other;
    default: return state;
    }
}

/* Returns the new size. */
static size_t mutate(void)
{
    memcpy(copy, image, size);
    for (uint64_t n = 1 + next(6); n--;) {
        uint64_t where = next(10), x;
        struct field f = where < 2   ? in_elf_header()
                         : where < 5 ? in_program_header()
                         : where < 7 ? in_segment(PT_NOTE, 4)
                         : where < 9 ? in_segment(PT_DYNAMIC, 8)
                                     : somewhere();

        x = value(f);
        memcpy(copy + f.at, &x, f.bytes);
    }
    return next(8) ? size : next(size);
}

/* --- all of them */

/* A copy that is still a plugin gets a name of its own, so that it is not refused for that. */
static void rename_note(size_t bytes, long i)
{
    unsigned char *owner = memmem(copy, bytes, "Tenon\0", 6);
    size_t at = owner ? (size_t)(owner - copy) + 8 + offsetof(struct tn_note, name) : 0;

    if (at && at + 32 <= bytes)
        snprintf((char *)copy + at, 32, "m%06ld", i);
}

static void keep(const char *folder, const char *kind, long i, size_t bytes)
{
    char path[4096];
    FILE *f;

    rename_note(bytes, i);
    snprintf(path, sizeof path, "%s/%s-%06ld.so", folder, kind, i);
    if (!(f = fopen(path, "wb")) || fwrite(copy, 1, bytes, f) != bytes || fclose(f))
        exit(99);
}

int main(int argc, char **argv)
{
    long count = argc > 3 ? atol(argv[3]) : 0, kept = argc > 5 ? atol(argv[5]) : 0, n[2] = {0, 0};
    int fd = memfd_create("plugin", 0);
    char path[64], why[TN_WHY_SIZE];
    struct tn_card card;

    if (count < 1 || fd < 0)
        return 99;
    read_file(argv[1]);
    state = strtoull(argv[2], NULL, 10) * 0x9E3779B97F4A7C15u + 1;
    fchmod(fd, 0600);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (long i = 0; i < count; i++) {
        size_t bytes = mutate();
        tn_status s;

        if (ftruncate(fd, 0) || pwrite(fd, copy, bytes, 0) != (ssize_t)bytes)
            return 99;
        s = tn_elf_check(path, &card, why);
        if (s < 0 ? strncmp(why, path, strlen(path)) || strlen(why) < strlen(path) + 8 || strpbrk(why, "\n\033") : *why) {
            printf("copy %ld: status %d, \"%s\"\n", i, s, why);
            return 1;
        }
        if (n[s < 0]++ < kept)
            keep(argv[4], s < 0 ? "refused" : "accepted", i, bytes);
    }
    printf("%ld copies, %ld accepted, %ld refused\n", count, n[0], n[1]);
    return n[0] < count / 100 || n[1] < count / 2; /* else it looks at nothing */
}
