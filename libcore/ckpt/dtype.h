/* dtype.h - the element types of files: safetensors' names, and bytes.
 *
 * Files may hold types that no kernel computes with. They have codes of their own, far from those
 * of abi.h. */
#ifndef TN_CKPT_DTYPE_H
#define TN_CKPT_DTYPE_H
#include <tenon/abi.h>

#define TN_FILE_I8 0x101u
#define TN_FILE_I16 0x102u
#define TN_FILE_U16 0x103u
#define TN_FILE_U32 0x104u
#define TN_FILE_U64 0x105u
#define TN_FILE_BOOL 0x106u

/* "F32"; NULL for a code that is none. */
const char *tn_file_dtype_name(uint32_t dtype);
/* Bytes of an element; 0 for a code that is none. */
uint32_t tn_file_dtype_bytes(uint32_t dtype);
/* 0 if there is no such name. */
uint32_t tn_file_dtype_find(const char *name);
#endif
