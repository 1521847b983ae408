/* test_elf.c - the check before dlopen: sentences for what is wrong, and no file that brings it down.
 *
 * The files are those of tests/abi/hostile, changed byte by byte in memory (memfd), so nothing is loaded. */
#include <check.h>
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/elf.h"

static unsigned char *image;                     /* of good.so */
static size_t size;
static char memory[64];                          /* path of the memfd */
static int fd;
static struct tn_card card;
static char why[TN_WHY_SIZE];

static const char *built(const char *name)
{
    static char path[4096];
    const char *top = getenv("top_builddir");

    snprintf(path, sizeof path, "%s/tests/abi/hostile/%s", top ? top : ".", name);
    return path;
}

static void setup(void)
{
    FILE *f = fopen(built("good.so"), "rb");

    ck_assert_msg(f != NULL, "no %s; make check builds it", built("good.so"));
    fseek(f, 0, SEEK_END);
    size = (size_t)ftell(f);
    rewind(f);
    image = malloc(size);
    ck_assert_uint_eq(fread(image, 1, size, f), size);
    fclose(f);
    fd = memfd_create("plugin", 0);
    ck_assert_int_ge(fd, 0);
    fchmod(fd, 0600);                            /* a memfd is writable by everybody else */
    snprintf(memory, sizeof memory, "/proc/self/fd/%d", fd);
}

static void teardown(void)
{
    close(fd);
    free(image);
}

static tn_status check_bytes(const unsigned char *bytes, size_t n)
{
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    ck_assert_int_eq(pwrite(fd, bytes, n, 0), (ssize_t)n);
    return tn_elf_check(memory, &card, why);
}

/* Refused, and the sentence has the file's name and the cause. */
static void refused(tn_status s, const char *file, const char *cause)
{
    ck_assert_msg(s < 0, "accepted, expected: %s", cause);
    ck_assert_msg(strstr(why, file) && strstr(why, cause), "\"%s\" lacks \"%s\" or \"%s\"", why, file, cause);
    ck_assert(!strchr(why, '\n') && !strchr(why, '\033'));
}

static void refused_built(const char *file, const char *cause)
{
    refused(tn_elf_check(built(file), &card, why), file, cause);
}

START_TEST(reads_the_card)
{
    ck_assert_int_eq(tn_elf_check(built("good.so"), &card, why), TN_OK);
    ck_assert_str_eq(card.note.name, "good");
    ck_assert_str_eq(card.note.version, "1.2");
    ck_assert(tn_card_provides(&card, "tenon.bootstrap/1"));
    ck_assert(!tn_card_provides(&card, "tenon.bootstrap"));
    ck_assert(!tn_card_provides(&card, "bootstrap/1"));
    ck_assert(card.inode != 0);
    ck_assert_int_eq(check_bytes(image, size), TN_OK);
}
END_TEST

START_TEST(finds_the_second_id)
{
    ck_assert_int_eq(tn_elf_check(built("promise.so"), &card, why), TN_OK);
    ck_assert(tn_card_provides(&card, "tenon.comm/1"));
}
END_TEST

START_TEST(refuses_what_is_no_plugin)
{
    char dir[] = "/tmp/test_elf.XXXXXX", path[64];

    ck_assert_ptr_nonnull(mkdtemp(dir));
    refused(tn_elf_check("/nowhere/x.so", &card, why), "/nowhere/x.so", "No such file");
    refused(tn_elf_check(dir, &card, why), dir, "not a regular file");
    snprintf(path, sizeof path, "%s/fifo", dir);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    refused(tn_elf_check(path, &card, why), path, "not a regular file");
    unlink(path);
    rmdir(dir);
    refused(check_bytes((const unsigned char *)"", 0), memory, "no ELF magic");
    refused(check_bytes((const unsigned char *)"hello, I am a text\n", 19), memory, "no ELF magic");
    refused_built("nonote.so", "no Tenon note");
}
END_TEST

START_TEST(refuses_what_everybody_may_write)
{
    check_bytes(image, size);
    fchmod(fd, 0602);
    refused(tn_elf_check(memory, &card, why), memory, "written by everybody");
}
END_TEST

START_TEST(refuses_other_machines)
{
    Elf64_Ehdr *e = (Elf64_Ehdr *)image;

    e->e_machine ^= 1;
    refused(check_bytes(image, size), memory, "another machine");
    e->e_machine ^= 1;
    image[EI_CLASS] = ELFCLASS32;
    refused(check_bytes(image, size), memory, "another machine");
    image[EI_CLASS] = ELFCLASS64;
    image[EI_DATA] ^= 3;
    refused(check_bytes(image, size), memory, "another machine");
    image[EI_DATA] ^= 3;
    e->e_type = ET_REL;
    refused(check_bytes(image, size), memory, "not a shared object");
}
END_TEST

START_TEST(refuses_what_does_not_fit)
{
    refused_built("future.so", "speaks ABI 8 to 9, this host speaks 1 to 1");
    refused_built("processor.so", "needs CPU level 9");
    refused_built("badname.so", " [2Jbad");
}
END_TEST

/* A file that ends anywhere before its end is not whole: its last bytes are section headers. */
START_TEST(refuses_every_truncation)
{
    for (size_t n = 0; n < size; n += n < 1024 ? 1 : 61)
        refused(check_bytes(image, n), memory, n < 4 ? "ELF" : "is truncated");
    refused(check_bytes(image, size - 1), memory, "is truncated");
}
END_TEST

/* Offsets so large that offset + length wraps to something small. */
START_TEST(refuses_sums_that_wrap)
{
    Elf64_Ehdr *e = (Elf64_Ehdr *)image;
    Elf64_Phdr *h = (Elf64_Phdr *)(image + e->e_phoff);
    uint64_t kept = e->e_phoff;

    e->e_phoff = UINT64_MAX - 64;
    refused(check_bytes(image, size), memory, "is truncated");
    e->e_phoff = kept;
    for (int i = 0; i < e->e_phnum; i++) {
        uint64_t offset = h[i].p_offset, bytes = h[i].p_filesz;
        if (h[i].p_type != PT_LOAD && h[i].p_type != PT_NOTE && h[i].p_type != PT_DYNAMIC)
            continue;
        h[i].p_offset = UINT64_MAX - 7;
        h[i].p_filesz = 64;
        refused(check_bytes(image, size), memory, "is truncated");
        h[i].p_offset = offset;
        h[i].p_filesz = bytes;
    }
    ck_assert_int_eq(check_bytes(image, size), TN_OK);
}
END_TEST

/* libm becomes libomp, in the table of strings. */
START_TEST(refuses_a_second_openmp)
{
    unsigned char *name = memmem(image, size, "libm.so.6", 10);

    ck_assert_ptr_nonnull(name);
    memcpy(name, "libomp.so", 9);
    refused(check_bytes(image, size), memory, "second OpenMP runtime (libomp.so)");
    memcpy(name, "libompi.s", 9);                /* a part of OpenMPI is no OpenMP */
    ck_assert_int_eq(check_bytes(image, size), TN_OK);
}
END_TEST

/* Notes: the record is found by its owner, so its fields can be set one by one. */
START_TEST(refuses_damaged_notes)
{
    unsigned char *owner = memmem(image, size, "Tenon\0", 6);
    struct tn_note_record *r = (struct tn_note_record *)(owner - offsetof(struct tn_note_record, owner));

    ck_assert_ptr_nonnull(owner);
    r->desc.note_size = 7;
    refused(check_bytes(image, size), memory, "damaged Tenon note");
    r->desc.note_size = sizeof r->desc;
    r->descsz = UINT32_MAX;
    refused(check_bytes(image, size), memory, "no Tenon note");
    r->descsz = sizeof r->desc;
    memset(r->desc.name, 'a', sizeof r->desc.name);
    ck_assert_int_eq(check_bytes(image, size), TN_OK);
    ck_assert_uint_eq(strlen(card.note.name), sizeof card.note.name - 1);
    memset(r->desc.name, 0, sizeof r->desc.name);
    refused(check_bytes(image, size), memory, "the name \"\"");
}
END_TEST

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* 20000 copies with some bytes changed, mostly in headers, notes and the dynamic segment, a quarter of them cut:
 * success or a sentence, never a signal (Check would report it). */
START_TEST(survives_mutations)
{
    unsigned char *copy = malloc(size);
    int accepted = 0, turned_down = 0;
    unsigned char *note = memmem(image, size, "Tenon\0", 6);
    size_t at_note = (size_t)(note - image), at_dynamic = size / 2;
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)image;

    for (int i = 0; i < e->e_phnum; i++)
        if (((const Elf64_Phdr *)(image + e->e_phoff))[i].p_type == PT_DYNAMIC)
            at_dynamic = ((const Elf64_Phdr *)(image + e->e_phoff))[i].p_offset;
    for (int i = 0; i < 20000; i++) {
        static const unsigned char edge[] = {0, 1, 0x7f, 0x80, 0xff};
        size_t n = next() % 4 ? size : next() % size, base[4] = {0, at_note - 16, at_dynamic, next() % size};
        memcpy(copy, image, size);
        for (uint64_t k = 1 + next() % 8; k--;) {
            size_t at = base[next() % 4] + next() % 512;
            copy[at % size] = next() % 2 ? (unsigned char)next() : edge[next() % sizeof edge];
        }
        tn_status s = check_bytes(copy, n);
        accepted += s >= 0;
        turned_down += s < 0;
        ck_assert_msg(s >= 0 ? !*why : strlen(why) > strlen(memory), "mutation %d: status %d, \"%s\"", i, s, why);
    }
    ck_assert_msg(accepted > 100 && turned_down > 5000, "%d accepted, %d refused", accepted, turned_down);
    free(copy);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("elf");
    TCase *c = tcase_create("check");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, reads_the_card);
    tcase_add_test(c, finds_the_second_id);
    tcase_add_test(c, refuses_what_is_no_plugin);
    tcase_add_test(c, refuses_what_everybody_may_write);
    tcase_add_test(c, refuses_other_machines);
    tcase_add_test(c, refuses_what_does_not_fit);
    tcase_add_test(c, refuses_every_truncation);
    tcase_add_test(c, refuses_sums_that_wrap);
    tcase_add_test(c, refuses_a_second_openmp);
    tcase_add_test(c, refuses_damaged_notes);
    tcase_add_test(c, survives_mutations);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
