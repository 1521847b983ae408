# templates.awk - writes files as a table in C: awk -f templates.awk FILE... >templates.c
#
# One string for each line, so that no literal is longer than C promises. A file is known by what its path has
# behind "templates/".
function close_file() { if (n) print "    NULL,\n};" }
BEGIN { print "/* Written by templates.awk. */\n#include <stddef.h>\n#include \"apps/tenon/templates.h\"\n" }
FNR == 1 {
    close_file()
    name[++n] = FILENAME
    sub(/.*templates\//, "", name[n])
    printf "static const char *const file%d[] = { /* %s */\n", n, name[n]
}
{
    gsub(/\\/, "&&")
    gsub(/"/, "\\\\&")
    gsub(/\t/, "\\\\t")
    gsub(/\?\?/, "?\\\\?")
    printf "    \"%s\\n\",\n", $0
}
END {
    close_file()
    print "\nconst struct template_file template_files[] = {"
    for (i = 1; i <= n; i++)
        printf "    {\"%s\", file%d},\n", name[i], i
    print "    {NULL, NULL},\n};"
}
