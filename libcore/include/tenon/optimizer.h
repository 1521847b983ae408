/* optimizer.h - state slots and an update, written once for every device.
 *
 * The update is text: statements over w (parameter), g (gradient, already clipped), the slots, the options by
 * their keys, lr (learning rate of this update, the group's scale included) and t (number of this update, from
 * 1). The host compiles it, evaluates what depends on no tensor once per step in double, and gives the rest to
 * the kernels as one expr node that follows the layout of the gradient. A name that is assigned hides the one
 * before. The last values of w and of every slot are the results. An option named weight_decay is 0 for
 * parameters that the model or the configuration exempts (fewer than two dims). docs/plugins.md has the language. A NaN in
 * g must come through to w, so that it is seen. */
#ifndef TENON_OPTIMIZER_H
#define TENON_OPTIMIZER_H
#include <tenon/abi.h>
struct tn_graph;
struct tn_value;

struct tn_slot {                                 /* like the parameter, 0 at start. Array element: frozen */
    const char *name;                            /* in the update, and in checkpoints */
    uint32_t dtype, reserved0;                   /* TN_F32; TN_BF16 or TN_F16: computed in fp32 and rounded when it is kept */
};

#define TN_OPTIMIZER_ID "tenon.optimizer/1"
struct tn_optimizer {
    uint32_t struct_size;
    uint32_t reserved0;
    const struct tn_option *options;             /* keys under optimizer.; ends with {0}; may be NULL */
    const struct tn_slot *slots;                 /* at most 8, ends with {0}; may be NULL */
    const char *update;                          /* NULL where choose or build says it */
    /* Options decide: value[i] is that of options[i]. Static texts; a momentum of 0 then needs no slot. May be
     * NULL. Main thread, before the graph is finished. */
    void (*choose)(const double *value, const struct tn_slot **slots, const char **update);
    /* Makes the nodes itself, with the functions of pass.h, for what is not element-wise; NULL otherwise. slot: one value
     * per slot. Main thread, once for each parameter; errors stick to g; all is borrowed for the call. w, grad (clipped)
     * and slots are as the gradient lies: whole, cut or in chunks; a sum over all of one is tn_convert'ed to TN_R. Ends with
     * an "assign" to w and to each slot that changes; the host stores what w becomes, wherever w is. tn_option gives
     * the optimizer's options, weight_decay 0 where the parameter is exempt, and as "lr_scale" the factor of its group,
     * which one that does not ask for it cannot have. lr and t are uniforms of its expressions. */
    void (*build)(struct tn_graph *g, struct tn_value *w, struct tn_value *grad, struct tn_value *const *slot);
};
#endif
