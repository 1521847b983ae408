/* read.c - one variable as text or number. */
#include "env.h"

#include <stdlib.h>

const char *env_text(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

tn_status env_number(const char *name, uint32_t low, uint32_t high, uint32_t *out)
{
    const char *text = env_text(name);
    uint64_t n = 0;

    *out = 0;
    if (!text)
        return tn_error(TN_ERR_CONFIG, "env: %s is not set, though its launcher sets it", name);
    if (strspn(text, "0123456789") != strlen(text) || strlen(text) > 10)
        return tn_error(TN_ERR_CONFIG, "env: %s is \"%.40s\", which is no number", name, text);
    for (const char *c = text; *c; c++)
        n = n * 10 + (uint64_t)(*c - '0');
    if (n < low || n > high)
        return tn_error(TN_ERR_CONFIG, "env: %s is %s, it must be from %u to %u", name, text, low, high);
    *out = (uint32_t)n;
    return TN_OK;
}
