/* model_config.h - from the keys of [model] to a model's configuration. */
#ifndef TENON_TRAIN_MODEL_CONFIG_H
#define TENON_TRAIN_MODEL_CONFIG_H
#include "base/config.h"
#include "model/model.h"

/* Borrows texts of c. */
void tn_model_read(const struct tn_config *c, struct tn_model_config *out);
/* Keys that the architecture has no use for are problems of c, never ignored; so is an architecture that is not here. */
void tn_model_reach(struct tn_config *c);
#endif
