/* vocabulary.h - model.vocab_size where the configuration leaves it open: that of the data. */
#ifndef TENON_VOCABULARY_H
#define TENON_VOCABULARY_H
#include "base/config.h"

/* Reads the data's meta.json, if there is something to settle. */
tn_status vocabulary_settle(struct tn_config *c);
#endif
