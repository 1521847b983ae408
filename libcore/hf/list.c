/* list.c - problems that are told together. */
#include "base/status.h"
#include "hf/family.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINES 12u

void hf_list_add(struct hf_list *l, const char *fmt, ...)
{
    size_t at = strlen(l->text);
    va_list ap;

    if (l->all++ >= LINES || at + 8 >= sizeof l->text)
        return;
    l->lines++;
    at += (size_t)snprintf(l->text + at, sizeof l->text - at, "\n  ");
    va_start(ap, fmt);
    vsnprintf(l->text + at, sizeof l->text - at, fmt, ap);
    va_end(ap);
}

tn_status hf_list_end(struct hf_list *l, const char *fmt, ...)
{
    char head[600], text[sizeof l->text + 700];
    va_list ap;

    if (!l->all)
        return TN_OK;
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    if (l->all > l->lines)
        snprintf(text, sizeof text, "%s%s\n  and %u more", head, l->text, l->all - l->lines);
    else
        snprintf(text, sizeof text, "%s%s", head, l->text);
    return tn_error_long(TN_ERR_INPUT, text);
}
