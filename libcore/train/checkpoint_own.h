/* checkpoint_own.h - a checkpoint that is being written, for the two files that write it. */
#ifndef TENON_TRAIN_CHECKPOINT_OWN_H
#define TENON_TRAIN_CHECKPOINT_OWN_H
#include "ckpt/save.h"
#include "train/checkpoint.h"

struct saving {
    struct tn_session *session;
    const char *run;               /* its folder, as this rank names it */
    int together;                  /* each rank writes what it owns */
    struct tn_save *save;          /* of rank 0; NULL elsewhere, and once it is published */
    void *buffer;                  /* for one tensor */
    uint32_t *number[2], files[2]; /* of parameters and of slots: see checkpoint_parts.c */
    struct tn_arena *arena;
};

#define SAVING_NAME 64 /* bytes of a file's name */

/* "model-00002-of-00003.safetensors" */
void saving_name(int slots, uint32_t number, uint32_t of, char *out);
/* checkpoint_parts.c: all ranks write their files into the folder of rank 0, which is told of them. */
tn_status saving_parts(struct saving *x);
/* The name of the file that has tensor i; 0: it is in parts, and the name is that of the first of them. */
int saving_home(struct saving *x, uint32_t i, char *out);
#endif
