/* test_config_fuzz.c - 20 000 damaged configurations: each is accepted or refused in words, never a signal.
 *
 * Damage is drawn from Philox, so every run sees the same files. What is checked besides: a refusal has a
 * text whose lines name a place; an accepted configuration has only values that fit; and no key or value is
 * made up, which is how a cut line would show. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/config.h"
#include "base/ini.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/value.h"

#define ROUNDS 20000
#define MOST 4096

static const char *const seeds[] = {
    "; a run\n[model]\narch = gpt2\nn_layer = 4\nn_embd=128\nbias = no\n\n[train]\nsteps = 20 ; few\nseed : "
    "7\n"
    "[optimizer]\nname = adamw\nlr = 1e-3\n[schedule]\nname = cosine\nwarmup = 10\n[parallel]\ntp = 2\nsp = "
    "yes\n",
    "\xef\xbb\xbf[data]\r\ndir = /data/sh\xc3\xa4kespeare\r\n  order = shuffle\r\n[backend]\r\nkernels = "
    "cpu, ref\r\n",
    "[plugins]\npath = "
    "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:"
    "/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n[checkpoint]"
    "\nkeep = 2\n",
};
static const char *const scraps[] = {"[",     "]",  "=",    ";",         " ;",       "#",
                                     "\n",    "\r", "\n\n", "[train]\n", "\nlr = ",  "nan",
                                     "1e999", "-",  "\t",   " ",         "\xff\xfe", "\xef\xbb\xbf",
                                     "0x",    "\"", ",,",   "train.",    "%s%n",     "\xc3"};
static uint64_t drawn;

static size_t below(size_t n)
{
    return (size_t)tn_random_below(2024, 0, 0, drawn++, n);
}

static void splice(char *text, size_t *bytes, size_t at, size_t cut, const char *add, size_t n)
{
    if (cut > *bytes - at)
        cut = *bytes - at;
    if (*bytes - cut + n > MOST)
        return;
    memmove(text + at + n, text + at + cut, *bytes - at - cut);
    memcpy(text + at, add, n);
    *bytes += n - cut;
}

static void damage(char *text, size_t *bytes)
{
    size_t at = below(*bytes + 1), from;
    char c = (char)below(256), run[256];

    switch (below(6)) {
    case 0: splice(text, bytes, at, 1, &c, 1); break;
    case 1: splice(text, bytes, at, below(20), "", 0); break;
    case 2: splice(text, bytes, at, 0, &c, 1); break;
    case 3:
        from = below(sizeof scraps / sizeof *scraps);
        splice(text, bytes, at, 0, scraps[from], strlen(scraps[from]));
        break;
    case 4:
        memset(run, 'a' + (int)below(26), sizeof run);
        splice(text, bytes, at, 0, run, below(sizeof run));
        break;
    default:                                     /* a piece once more, elsewhere */
        from = below(*bytes + 1);
        size_t n = below(100) < *bytes - from ? below(*bytes - from + 1) % 100 : 0;
        memcpy(run, text + from, n);
        splice(text, bytes, at, 0, run, n);
    }
}

__attribute__((noreturn)) static void broken(const char *what, const char *text, size_t bytes)
{
    fprintf(stderr, "%s\n--- the configuration:\n", what);
    fwrite(text, 1, bytes, stderr);
    exit(1);
}

/* Line number `line`, its length in *bytes. */
static const char *line_find(const char *text, size_t all, uint32_t line, size_t *bytes)
{
    const char *end;

    for (; --line; all -= (size_t)(end + 1 - text), text = end + 1)
        end = memchr(text, '\n', all);
    end = memchr(text, '\n', all);
    *bytes = end ? (size_t)(end - text) : all;
    return text;
}

/* The key begins its line, and behind the value the line ends or a comment begins: nothing was cut. */
static int entry_is_whole(const struct tn_ini_entry *e, const char *text, size_t bytes)
{
    const char *value = line_find(text, bytes, e->line, &bytes), *end = value + bytes;

    while (value < end && strchr(" \t", *value))
        value++;
    if ((size_t)(end - value) < strlen(e->key) || memcmp(value, e->key, strlen(e->key)))
        return 0;
    for (; (value = memmem(value, (size_t)(end - value), e->value, strlen(e->value))); value++) {
        const char *after = value + strlen(e->value);
        while (after < end && strchr(" \t\r", *after))
            after++;
        if (after == end || *after == ';')
            return 1;
        if (value == end)
            return 0;
    }
    return 0;
}

static void check_entries(const char *text, size_t bytes)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_ini ini;

    tn_ini_parse(arena, text, bytes, &ini);
    for (size_t i = 0; i < ini.entries; i++)
        if (!entry_is_whole(&ini.entry[i], text, bytes) ||
            !memmem(text, bytes, ini.entry[i].section, strlen(ini.entry[i].section)))
            broken("a key or value that is not so in the file", text, bytes);
    tn_arena_free(arena);
}

/* 1 if it was accepted. */
static int check_config(const char *path, const char *text, size_t bytes)
{
    char argument[64], *arguments[] = {argument};
    struct tn_config *c;
    struct tn_config_entry e;
    int accepted;

    snprintf(argument, sizeof argument, "%.*s", (int)below(20), text + below(bytes ? bytes : 1));
    if (tn_config_open(path, below(4) == 0, arguments, &c) != TN_OK)
        broken(tn_error_text(), text, bytes);
    accepted = tn_config_check(c) == TN_OK;
    if (!accepted && (tn_error_status() != TN_ERR_CONFIG || (strncmp(tn_error_text(), path, strlen(path)) &&
                                                             strncmp(tn_error_text(), "command line: ", 14))))
        broken("a refusal without a place", text, bytes);
    for (size_t i = 0; tn_config_at(c, i, &e); i++)
        if (e.value && !tn_value_fits(e.key, e.value, NULL, 0))
            broken("a value that does not fit", text, bytes);
    tn_config_free(c);
    return accepted;
}

int main(void)
{
    int fd = memfd_create("config", 0), accepted = 0;
    char path[64], text[MOST + 256];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int round = 0; round < ROUNDS; round++) {
        const char *seed = seeds[below(sizeof seeds / sizeof *seeds)];
        size_t bytes = strlen(seed);
        memcpy(text, seed, bytes);
        for (size_t n = below(8); n; n--)
            damage(text, &bytes);
        if (ftruncate(fd, 0) || pwrite(fd, text, bytes, 0) != (ssize_t)bytes)
            broken("cannot write the file", text, bytes);
        text[bytes] = 0;
        check_entries(text, bytes);
        accepted += check_config(path, text, bytes);
    }
    printf("%d of %d accepted\n", accepted, ROUNDS);
    return accepted < ROUNDS / 20 || accepted > ROUNDS * 19 / 20; /* the damage is neither nothing nor all */
}
