/* part.h - a part of a tensor in a file, and where it belongs.
 *
 * A rank that saves what it holds writes a tensor of which it has only a part as one row of numbers, in the
 * order in which it holds them, under the tensor's name. The file's metadata says under "part.NAME" where
 * they belong:
 *
 *     {"shape": [256, 64], "of": [4, 64, 64], "at": [[[0, 2]], [[0, 64]], [[0, 16], [48, 64]]], "chunk": [0,
 * 2048]}
 *
 * shape is that of the whole tensor in files, of its dims in the graph. at has for each of those dims the
 * ranges, first and end, whose product the part is a chunk of: [first, count] of it in row-major order.
 * Nothing of it says which rank or mesh wrote it, so any other can read it. */
#ifndef TENON_TRAIN_PART_H
#define TENON_TRAIN_PART_H
#include "graph/graph.h"

/* Does a rank that holds l of v hold all of it, in order? */
int tn_part_is_whole(const struct tn_value *v, const struct tn_local *l);
/* Owned (free); NULL after tn_error. rank, shape: of the whole tensor in files. */
char *tn_part_text(const struct tn_value *v, const struct tn_local *l, uint32_t rank, const int64_t *shape);
/* What such a text says, of a part with this many elements. TN_ERR_INPUT where it does not fit v. In the
 * arena. */
tn_status tn_part_read(const char *text, const struct tn_value *v, uint32_t rank, const int64_t *shape,
                       int64_t count, struct tn_arena *arena, struct tn_local *out);
#endif
