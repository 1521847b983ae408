/* near.c - Damerau and Levenshtein's distance, for "did you mean". */
#include "base/near.h"

#include <ctype.h>
#include <string.h>

#define LONGEST 63u                              /* letters that count */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

uint32_t tn_near_distance(const char *a, const char *b)
{
    uint32_t na = (uint32_t)strnlen(a, LONGEST), nb = (uint32_t)strnlen(b, LONGEST);
    uint32_t row[3][LONGEST + 1];                /* of the prefixes of a with i-2, i-1 and i letters */
    uint32_t *before = row[0], *last = row[1], *now = row[2];

    for (uint32_t j = 0; j <= nb; j++)
        last[j] = j;
    for (uint32_t i = 1; i <= na; i++) {
        now[0] = i;
        for (uint32_t j = 1; j <= nb; j++) {
            now[j] = least(last[j - 1] + !same(a[i - 1], b[j - 1]), least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                now[j] = least(now[j], before[j - 2] + 1);
        }
        uint32_t *spare = before;
        before = last, last = now, now = spare;
    }
    return last[nb];
}

/* Near is: about a third of the letters wrong, and not all of them. */
void tn_near_try(struct tn_near *near, const char *known)
{
    uint32_t distance = tn_near_distance(near->word, known), letters = (uint32_t)strnlen(near->word, LONGEST);
    uint32_t limit = letters >= 6 ? letters / 3 : letters >= 4 ? 2 : 1;

    if (distance <= limit && distance < strnlen(known, LONGEST) &&
        (!near->best || distance < near->distance)) {
        near->best = known;
        near->distance = distance;
    }
}
