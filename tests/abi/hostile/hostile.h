/* hostile.h - the pieces of a plugin, one by one, so that each file here can get one of them wrong. */
#ifndef HOSTILE_H
#define HOSTILE_H
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <tenon/bootstrap.h>

#define SAY(SCORE)                                                                                           \
    static tn_status probe(uint32_t *score, char *why, uint64_t why_size)                                    \
    {                                                                                                        \
        *score = SCORE;                                                                                      \
        snprintf(why, why_size, "score %d", SCORE);                                                          \
        return TN_OK;                                                                                        \
    }

__attribute__((unused)) static tn_status locate(struct tn_place *out)
{
    out->size = 1;
    return TN_OK;
}

#define TABLE \
    static const struct tn_bootstrap table = {.struct_size = sizeof table, .probe = probe, .locate = locate};

#define NOTE(NAME, LOW, HIGH, CPU, PROVIDES)                                                                 \
    __attribute__((section(".note.tenon"), used, aligned(4))) static const struct tn_note_record note = {    \
        6, sizeof(struct tn_note), TN_NOTE_TYPE, "Tenon",                                                    \
        {sizeof(struct tn_note), LOW, HIGH, CPU, NAME, "1", PROVIDES}};

#define ENTRY(NAME, TABLE_)                                                                                  \
    static const struct tn_interface interfaces[] = {{TN_BOOTSTRAP_ID, TABLE_}, {NULL, NULL}};               \
    static const struct tn_plugin plugin = {sizeof plugin, 0, NAME, "1", "a test", interfaces, NULL, NULL};  \
    TN_EXPORT const struct tn_plugin *tn_plugin_entry(const struct tn_host *host);                           \
    const struct tn_plugin *tn_plugin_entry(const struct tn_host *host)                                      \
    {                                                                                                        \
        tn_host = host;                                                                                      \
        return &plugin;                                                                                      \
    }
#endif
