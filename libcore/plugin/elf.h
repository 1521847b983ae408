/* elf.h - what a file says about itself before any of it runs.
 *
 * dlopen runs constructors and dies with SIGBUS on a file that ends early, so nothing is handed to it that
 * was not read first. The check reads headers, notes and the list of needed libraries with pread: no map that
 * can be cut under it, no sum that can wrap, no allocation that the file decides. It says "whole, for this
 * machine, a plugin that this host speaks with", not "harmless": code that runs can do anything. */
#ifndef TN_PLUGIN_ELF_H
#define TN_PLUGIN_ELF_H
#include <tenon/abi.h>

#define TN_WHY_SIZE 512 /* room for one sentence */

/* A plugin's card: its note, made safe to print, and who the file is. */
struct tn_card {
    struct tn_note note; /* texts end with 0; the name is [a-z0-9_.-]+ */
    char build_id[41];   /* hexadecimal; "" where the linker wrote none */
    char pad[3];
    uint64_t device, inode; /* one file, whatever its names are */
};

/* TN_OK, or a negative status and one sentence with file and cause in why (of TN_WHY_SIZE bytes).
 * The card is filled as far as the file could be read, so that a refused file can be listed by name. */
tn_status tn_elf_check(const char *path, struct tn_card *card, char *why);

/* Does the list of ids in the note have this one? */
int tn_card_provides(const struct tn_card *card, const char *id);

/* Is a library of this name or path an OpenMP runtime? 1: libgomp, the one that may be here; 2: another; 0: none. */
int tn_openmp_runtime(const char *library);

/* The highest x86-64 level of this CPU, 1 to 4; 0 on other machines. */
uint32_t tn_cpu_level(void);
#endif
