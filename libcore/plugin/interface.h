/* interface.h - the interfaces that this host knows, and how a plugin's table becomes ours.
 *
 * A plugin's table may be older (shorter) or newer (longer) than ours. It is copied to our size: what it
 * lacks is 0, and what we do not know must be 0, since a field that says something must not be ignored. */
#ifndef TN_PLUGIN_INTERFACE_H
#define TN_PLUGIN_INTERFACE_H
#include "plugin/elf.h"

#define TN_MAX_STRUCT 4096u /* no table is larger; more is a lie that would be read */

struct tn_member {
    const char *name;
    uint32_t offset, reserved0;
};

struct tn_interface_type {
    const char *id, *what;             /* what: "a communicator" */
    uint32_t size;                     /* of our struct */
    uint32_t probe;                    /* offset of probe; 0: it has none */
    uint32_t kind;                     /* offset of the one device kind, as text; 0: none */
    uint32_t kinds;                    /* offset of a list of device kinds; 0: none */
    const struct tn_member *mandatory; /* ends with {NULL} */
    const struct tn_member *one_of;    /* at least one of these; ends with {NULL}; may be NULL */
};

/* NULL where this host does not know the id: such an interface is ignored. */
const struct tn_interface_type *tn_interface_type(const char *id);
/* All that are known, ends with .id == NULL. */
extern const struct tn_interface_type tn_interface_types[];

/* Copies theirs, whatever its size, to the size bytes at ours. what names it in why, which gets the cause. */
tn_status tn_struct_take(const char *what, const void *theirs, uint32_t size, void *ours, char *why);

/* As above, and checks the mandatory members by name. ours has type->size bytes. */
tn_status tn_interface_take(const struct tn_interface_type *type, const void *theirs, void *ours, char *why);

/* The kinds of device of a table in our size, as "cpu" or "cpu, cuda"; "" where it has none. */
void tn_interface_kinds(const struct tn_interface_type *type, const void *table, char *out, size_t room);
#endif
