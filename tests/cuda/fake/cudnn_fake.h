/* cudnn_fake.h - the fake cuDNN's inside: descriptors, and graphs as they are computed. */
#ifndef TN_FAKE_CUDNN_H
#define TN_FAKE_CUDNN_H
#include <cudnn.h>
#include <stdint.h>

#define TN_FAKE_OPERATIONS 64

struct tn_fake_descriptor;

/* The value of an attribute as it was set; NULL: it was not, or with another type. */
const void *tn_fake_get(const struct tn_fake_descriptor *d, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t *n);
/* The descriptor that an attribute has; NULL: none, or one that is gone. */
const struct tn_fake_descriptor *tn_fake_under(const struct tn_fake_descriptor *d,
                                               cudnnBackendAttributeName_t name);
cudnnBackendDescriptorType_t tn_fake_type(const struct tn_fake_descriptor *d);
/* Says what is wrong, for cudnnGetLastErrorString; returns s. */
__attribute__((format(printf, 2, 3))) cudnnStatus_t tn_fake_wrong(cudnnStatus_t s, const char *format, ...);

/* --- cudnn_graph.c */
/* What an operation's descriptor or a tensor's must be when it is finalized. */
cudnnStatus_t tn_fake_check_tensor(const struct tn_fake_descriptor *d);
cudnnStatus_t tn_fake_check_operation(const struct tn_fake_descriptor *d);
/* Every value between operations is made once, before it is used. */
cudnnStatus_t tn_fake_check_graph(const struct tn_fake_descriptor *graph);
/* Largest number of elements of a value between operations. */
int64_t tn_fake_largest(const struct tn_fake_descriptor *graph);

struct tn_fake_binding {                         /* addresses by the tensors' numbers */
    int64_t n, id[32];
    void *at[32];
    int64_t bytes[32];                           /* from there to the last element; 0: on the host */
    float number[32];                            /* of what is given by value, as it was when it was given */
};
/* NULL if every tensor has an address, at a multiple of 16 bytes; else what is wrong. Takes the numbers by
 * value. */
const char *tn_fake_check_binding(const struct tn_fake_descriptor *graph, struct tn_fake_binding *b);
void tn_fake_compute(const struct tn_fake_descriptor *graph, const struct tn_fake_binding *b);
#endif
