/* nonote - exports the entry, has no note */
#include "hostile.h"

SAY(50)
TABLE
ENTRY("nonote", &table)
