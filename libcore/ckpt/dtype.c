/* dtype.c - see dtype.h. */
#include "ckpt/dtype.h"

static const struct {
    const char *name;
    uint32_t code, bytes;
} dtypes[] = {
    {"F32", TN_F32, 4}, {"F64", TN_F64, 8}, {"BF16", TN_BF16, 2}, {"F16", TN_F16, 2},
    {"I32", TN_I32, 4}, {"I64", TN_I64, 8}, {"U8", TN_U8, 1},
    {"I8", TN_FILE_I8, 1}, {"I16", TN_FILE_I16, 2}, {"U16", TN_FILE_U16, 2}, {"U32", TN_FILE_U32, 4},
    {"U64", TN_FILE_U64, 8}, {"BOOL", TN_FILE_BOOL, 1},
};
#define DTYPES (sizeof dtypes / sizeof dtypes[0])

const char *tn_file_dtype_name(uint32_t dtype)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (dtypes[i].code == dtype)
            return dtypes[i].name;
    return NULL;
}

uint32_t tn_file_dtype_bytes(uint32_t dtype)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (dtypes[i].code == dtype)
            return dtypes[i].bytes;
    return 0;
}

uint32_t tn_file_dtype_find(const char *name)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (!strcmp(dtypes[i].name, name))
            return dtypes[i].code;
    return 0;
}
