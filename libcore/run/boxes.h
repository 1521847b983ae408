/* boxes.h - copying boxes out of tensors and into them, with the kernels of the device.
 *
 * A collective wants its data in the order of ranks; a tensor that is cut along an inner dim, or in zig-zag, has it in
 * another. What has to be moved are boxes: ranges along each dim. Each is one `copy` kernel, prepared once, so that
 * packing works on any device that has kernels. */
#ifndef TN_RUN_BOXES_H
#define TN_RUN_BOXES_H
#include "plan/plan.h"

/* where a box lies: the operand of that number (inputs, then outputs), or the workspace */
#define TN_BOX_WORK UINT32_MAX

struct tn_box_side {
    uint32_t buffer;
    uint64_t offset;                             /* elements, of the tensor within the buffer */
    const int64_t *size;                         /* of the row-major tensor */
    int64_t start[TN_MAX_RANK];                  /* of the box in it */
};

struct tn_boxes;

/* kernels are borrowed. */
struct tn_boxes *tn_boxes_new(const struct tn_plan_kernels *kernels, uint32_t n_kernels);
void tn_boxes_free(struct tn_boxes *b);
/* A box of these sizes; an empty one is nothing. */
tn_status tn_boxes_add(struct tn_boxes *b, uint32_t dtype, uint32_t rank, const int64_t *box, const struct tn_box_side *from,
                       const struct tn_box_side *to);
/* Bytes that the copy kernels want for themselves. */
uint64_t tn_boxes_workspace(const struct tn_boxes *b);
/* All of them, in the order in which they were added. scratch: where in the workspace the kernels' own begins. */
tn_status tn_boxes_copy(const struct tn_boxes *b, const struct tn_launch *l, uint64_t scratch);
#endif
