/* ini.c - INI text through inih, with its traps closed.
 *
 * inih, as distributions build it, takes an indented line for more of the value above, cuts lines at 200
 * bytes and reads their tails as new lines, cuts names of sections at 50, ends the file at a NUL, passes
 * duplicates and forgets what stands behind a section's bracket; it also does not say on which line a value
 * was. So each line is looked at here first, and inih gets one key line at a time, under its section's
 * header, only if none of this can happen. What it must then do is call back exactly once; anything else is a
 * problem of that line. */
#include "base/ini.h"

#include <ctype.h>
#include <ini.h>

struct scan {
    struct tn_arena *arena;
    struct tn_names *names;
    struct tn_ini *out;
    uint32_t line;
    const char *section; /* interned; NULL: none yet; "": one that was not understood */
};

__attribute__((format(printf, 2, 3))) static void problem(struct scan *s, const char *fmt, ...)
{
    struct tn_ini *o = s->out;
    const char *text;
    va_list ap;

    va_start(ap, fmt);
    text = tn_text_list(s->arena, fmt, ap);
    va_end(ap);
    o->problem = tn_alloc_grow(s->arena, o->problem, o->problems, sizeof *o->problem);
    o->problem[o->problems++] = (struct tn_ini_problem){s->line, text};
}

/* --- bytes */

/* Length of the UTF-8 character at text, 0 if it is none: no overlong form, surrogate or value past U+10FFFF.
 */
static size_t utf8_length(const unsigned char *text, size_t bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = text[0] < 0x80   ? 1
               : text[0] < 0xc0 ? 0
               : text[0] < 0xe0 ? 2
               : text[0] < 0xf0 ? 3
               : text[0] < 0xf8 ? 4
                                : 0;
    uint32_t c = n < 2 ? text[0] : text[0] & (0x7fu >> n);

    if (!n || n > bytes)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (text[i] & 0x3f);
    }
    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

const char *tn_ini_bad_bytes(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;

    for (size_t i = 0, n; i < bytes; i += n) {
        if (!at[i])
            return "a NUL byte";
        if (at[i] == '\r')
            return "a carriage return";
        if ((at[i] < 0x20 && at[i] != '\t') || at[i] == 0x7f)
            return "a control character";
        n = utf8_length(at + i, bytes - i);
        if (!n)
            return "bytes that are not UTF-8";
    }
    return NULL;
}

static int blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Without the blanks at both ends. */
static void trim(const char **text, size_t *bytes)
{
    while (*bytes && blank(**text))
        ++*text, --*bytes;
    while (*bytes && blank((*text)[*bytes - 1]))
        --*bytes;
}

/* --- sections */

/* NULL, or why this is no name of a section. */
static const char *section_wrong(const char *name, size_t bytes)
{
    if (!bytes)
        return "a section without a name";
    if (bytes > TN_INI_NAME)
        return "a section's name of more than 49 characters";
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i]))
            return "a section's name has letters, digits, '_', '-' and '.' only";
    return NULL;
}

static void section_line(struct scan *s, const char *text, size_t bytes)
{
    const char *end = memchr(text, ']', bytes), *name = text + 1, *rest = end ? end + 1 : NULL;
    size_t n = end ? (size_t)(end - name) : 0, more = end ? (size_t)(text + bytes - rest) : 0;
    struct tn_ini *o = s->out;
    const char *wrong;

    s->section = "";
    if (!end) {
        problem(s, "a section begins with [ but has no ]");
        return;
    }
    trim(&name, &n);
    trim(&rest, &more);
    wrong = section_wrong(name, n);
    if (!wrong && more && *rest != ';' && *rest != '#')
        wrong = "only a comment may follow a section's ]";
    if (wrong) {
        problem(s, "%s", wrong);
        return;
    }
    s->section = tn_intern_bytes(s->names, name, n);
    for (size_t i = 0; i < o->sections; i++)
        if (o->section[i].section == s->section) {
            problem(s, "section [%s] again; it began on line %u, put all its keys there", s->section,
                    o->section[i].line);
            return;
        }
    o->section = tn_alloc_grow(s->arena, o->section, o->sections, sizeof *o->section);
    o->section[o->sections++] = (struct tn_ini_entry){s->section, NULL, NULL, s->line};
}

/* --- keys */
struct heard {
    struct tn_arena *arena;
    char *key, *value;
    uint32_t calls;
};

static int hear(void *arg, const char *section, const char *key, const char *value)
{
    struct heard *h = arg;

    (void)section;
    h->calls++;
    h->key = tn_text(h->arena, "%s", key);
    h->value = tn_text(h->arena, "%s", value ? value : "");
    return 1;
}

/* NULL, or what the writer seems to have meant by a value that would not mean it. */
static const char *value_wrong(const char *value)
{
    size_t n = strlen(value);

    for (const char *c = value; (c = strchr(c, '#')); c++)
        if (c == value || blank(c[-1]))
            return "a comment behind a value begins with ;, not with #";
    if (n > 1 && (*value == '"' || *value == '\'') && value[n - 1] == *value)
        return "values are written without quotation marks";
    return NULL;
}

static void entry_add(struct scan *s, const char *key, const char *value)
{
    struct tn_ini *o = s->out;

    for (size_t i = 0; i < o->entries; i++)
        if (o->entry[i].section == s->section && o->entry[i].key == key) {
            problem(s, "%s.%s again; it is on line %u already", s->section, key, o->entry[i].line);
            return;
        }
    o->entry = tn_alloc_grow(s->arena, o->entry, o->entries, sizeof *o->entry);
    o->entry[o->entries++] = (struct tn_ini_entry){s->section, key, value, s->line};
}

static void key_line(struct scan *s, const char *text, size_t bytes)
{
    struct heard h = {.arena = s->arena};
    const char *wrong;

    if (!s->section) {
        problem(s, "a key before the first [section]");
        return;
    }
    if (!*s->section)                            /* which was reported */
        return;
    if (bytes > TN_INI_LINE) {
        problem(s,
                "the line has %zu characters, more than %d; shorten it, or give this key as an argument of "
                "the command",
                bytes, TN_INI_LINE);
        return;
    }
    char *fed = tn_text(s->arena, "[%s]\n%.*s\n", s->section, (int)bytes, text);
    if (ini_parse_string(fed, hear, &h) || h.calls != 1 || !*h.key) {
        problem(s, "expected key = value, found \"%.*s\"", (int)(bytes < 60 ? bytes : 60), text);
        return;
    }
    if (*h.value == ';')                         /* "key=;comment" */
        *h.value = 0;
    wrong = value_wrong(h.value);
    if (wrong)
        problem(s, "%s.%s: %s", s->section, h.key, wrong);
    else
        entry_add(s, tn_intern(s->names, h.key), h.value);
}

/* --- lines */
static void any_line(struct scan *s, const char *text, size_t bytes)
{
    const char *wrong;

    if (bytes && text[bytes - 1] == '\r')
        bytes--;
    trim(&text, &bytes);
    wrong = tn_ini_bad_bytes(text, bytes);
    if (wrong)
        problem(s, "%s in the line", wrong);
    else if (!bytes || *text == ';' || *text == '#')
        return;
    else if (*text == '[')
        section_line(s, text, bytes);
    else
        key_line(s, text, bytes);
}

void tn_ini_parse(struct tn_arena *arena, const char *text, size_t bytes, struct tn_ini *out)
{
    struct scan s = {.arena = arena, .names = tn_names_new(arena), .out = out};

    *out = (struct tn_ini){0};
    if (bytes >= 2 && (!memcmp(text, "\xff\xfe", 2) || !memcmp(text, "\xfe\xff", 2))) {
        s.line = 1;
        problem(&s, "the file is UTF-16; save it as UTF-8");
        return;
    }
    if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        text += 3, bytes -= 3;
    for (size_t n; bytes; text += n, bytes -= n) {
        const char *end = memchr(text, '\n', bytes);
        n = end ? (size_t)(end - text) + 1 : bytes;
        s.line++;
        any_line(&s, text, end ? n - 1 : n);
    }
}
