# reference.awk - the public headers as pages: awk -f reference.awk -v form=man|html|check [-v docs=DIR] HEADER
#
# man: one page of section 3, html: one section of the reference, check: a line for each function or member that has
# no comment, nothing where all have. A header is: its opening comment, then, each with the comment right above it,
# structs, functions and runs of defines. Members have a comment above or behind; the one above holds for the data
# members that follow without a blank line, while a function needs its own. Of a macro of several lines only the first is
# shown: what it is called with. docs: where the documents are installed.

function troff(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); sub(/^[.']/, "\\\\\\&&", s); return s }
function html(s) { gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); return s }
function trim(s) { sub(/^[ \t]+/, "", s); sub(/[ \t]+$/, "", s); return s }

# Lines of a comment, between the marks: paragraphs, and what is indented as it stands.
function text(s,    line, n, i, code, t) {
    n = split(s, line, "\n")
    if (form == "html") printf "<p>"
    for (i = 1; i <= n; i++) {
        t = line[i]
        if (t ~ /^    / && !code && (i == 1 || trim(line[i - 1]) == "")) { code = 1; print form == "man" ? ".PP\n.nf\n.RS" : "</p><pre>" }
        else if (code && t !~ /^ / && trim(t) != "") { code = 0; print form == "man" ? ".RE\n.fi" : "</pre><p>" }
        if (code) print form == "man" ? troff(t) : html(t)
        else if (trim(t) == "") print form == "man" ? ".PP" : "</p><p>"
        else print form == "man" ? troff(trim(t)) : html(trim(t))
    }
    if (code) print form == "man" ? ".RE\n.fi" : "</pre>"
    else if (form == "html") print "</p>"
}
function heading(s) { print form == "man" ? ".SH " toupper(troff(s)) : "<h3>" html(s) "</h3>" }
# A declaration, in several lines, and what is said of it.
function item(declaration, says,    line, n, i) {
    n = split(declaration, line, "\n")
    if (form == "man") {
        print ".PP\n.nf"
        for (i = 1; i <= n; i++) print "\\fB" troff(line[i]) "\\fR"
        print ".fi"
        if (says != "") { print ".RS 4"; text(says); print ".RE" }
    } else {
        n = (state == "struct" ? struct_name "." : "") name_of(declaration)
        print "<dt" (n != "" && !(n in named) ? " id=\"" n "\"" : "") "><pre>" html(declaration) "</pre></dt><dd>"
        named[n] = 1
        if (says != "") text(says)
        print "</dd>"
    }
}
function missing(what) { if (form == "check") print FILENAME ":" FNR ": " what " has no comment" }
function plain(s) { gsub(/\/\*|\*\//, "", s); sub(/^ \* ?/, "", s); sub(/^ \*$/, "", s); return s }

# What is between the marks of a comment that begins in this line, and whether it ends in it.
function comment_begin(s) { said = plain(s); sub(/^ /, "", said); in_comment = s !~ /\*\// }
function comment_more(s,    t) { t = s; sub(/^[ \t]*\* ?/, "", t); sub(/\*\/.*/, "", t); if (t !~ /^    /) sub(/^[ \t]+/, "", t)
                                 said = said "\n" t; in_comment = s !~ /\*\// }
# The name of what is declared: a member, or a function.
function name_of(s,    t) {
    t = s
    if (match(t, /\(\*[a-z_0-9]+\)/)) return substr(t, RSTART + 2, RLENGTH - 3)
    sub(/[ ]*\(.*/, "", t); sub(/\[.*/, "", t); sub(/;.*/, "", t); sub(/,.*/, "", t)
    match(t, /[A-Za-z_0-9]+$/)
    return substr(t, RSTART, RLENGTH)
}

function member_end(    name, fn) {
    name = name_of(member); fn = member ~ /\(\*/
    if (name !~ /^(struct_size|reserved[0-9]*)$/ && behind == "" && above == "" && !(struct_says ~ /wrappers below/) &&
        (fn || (group == "" && !match(struct_says, name))))
        missing(struct_name "." name)
    if (form != "check") item(trim(member), above != "" && behind != "" ? above "\n\n" behind : above behind)
    if (above != "") group = above
    else if (behind != "" && group == "") group = ""
    above = behind = member = ""
}

FNR == 1 { state = "title"; header = FILENAME; sub(/.*\//, "", header); page = header; sub(/\.h$/, "", page) }

# --- the opening comment
state == "title" {
    if (/^\/\*/) {
        summary = $0; sub(/^\/\* [a-z_]*\.h - /, "", summary)
        said = ""; first = summary
        if (summary !~ /\*\//) { state = "opening"; next }
        sub(/ *\*\//, "", first); state = "top"
    } else next
    opening_done = 1
}
state == "opening" {
    t = $0; done = t ~ /\*\//; sub(/^ \* ?/, "", t); sub(/ *\*\/.*/, "", t)
    said = said "\n" t
    if (!done) next
    state = "top"; opening_done = 1
}
opening_done {
    opening_done = 0
    whole = first said
    sub(/^for authors: /, "", whole)
    title = whole                                # the first sentence; the rest is the description
    if (match(whole, /[.]([ \n]|$)/)) { title = substr(whole, 1, RSTART - 1); whole = substr(whole, RSTART + 1) }
    gsub(/\n/, " ", title); sub(/^[ \n]+/, "", whole)
    if (form == "man") {
        print ".\\\" Written by reference.awk from " header ".\n.TH TENON-" toupper(page) " 3 \"\" \"tenon " version "\" \"Plugins of Tenon\""
        print ".SH NAME\ntenon\\-" troff(page) " \\- " troff(title) "\n.SH SYNOPSIS\n.nf\n\\fB#include <tenon/" header ">\\fR\n.fi"
        if (whole != "") { print ".SH DESCRIPTION"; text(whole) }
        print ".SH DECLARATIONS"
    } else if (form == "html") {
        print "<h2 id=\"" page "\">tenon/" header ": " html(title) "</h2>"
        if (whole != "") text(whole)
        print "<dl>"
    }
    said = ""
    next
}

# --- inside of a struct
state == "struct" {
    if (in_comment) {
        comment_more($0)
        if (!in_comment) { if (tail) { behind = trim(said); tail = 0; member_end() } else above = said }
        next
    }
    if (/^}/) { state = "top"; said = ""; next }
    if (/^[ \t]*$/) { group = ""; next }
    if (/^[ \t]*\/\*/) {
        comment_begin(trim($0))
        if (!in_comment) above = trim(said)
        group = ""
        next
    }
    declared = $0; tail = 0
    if (match(declared, /\/\*/)) {
        comment_begin(trim(substr(declared, RSTART)))
        declared = substr(declared, 1, RSTART - 1)
        tail = 1
    }
    member = member (member == "" ? "" : "\n") trim(declared)
    if (declared ~ /;[ \t]*$/ && !in_comment) { if (tail) behind = trim(said); tail = 0; member_end() }
    else if (!in_comment && tail) { behind = trim(said); tail = 0 }
    next
}

# --- the rest
body { if (/^}/) { body = 0; signature = "" } next }
in_comment { comment_more($0); next }
/^\/\* ---/ { t = plain($0); sub(/^[ -]+/, "", t); if (form != "check") { if (form == "html") print "</dl>"; heading(trim(t)); if (form == "html") print "<dl>" } said = ""; next }
/^\/\*/ { comment_begin($0); said = trim(said); next }
/^[ \t]*$/ { if (defines != "") { if (form != "check") item(defines, defines_says); defines = "" } said = ""; next }
/^#(if|ifdef|ifndef|else|endif|include|error|pragma)/ || /^extern "C"/ || (/^}/ && state == "top") { said = ""; next }
/^#define TENON_/ || /^#define TN_(C|EXPORT|KIT|CALL|G|.*_)$/ { next }
/^#define/ || continued {
    t = $0; c = t ~ /\\$/; sub(/[ \t]*\\$/, "", t)
    if (continued) { continued = c; next }
    if (said != "") { if (defines != "" && form != "check") item(defines, defines_says); if (defines != "") defines = ""; defines_says = said; said = "" }
    else if (defines == "") defines_says = ""
    defines = defines (defines == "" ? "" : "\n") t
    continued = c
    next
}
/^struct [a-z_]+ {/ {
    if (defines != "") { if (form != "check") item(defines, defines_says); defines = "" }
    struct_name = $2; struct_says = said
    t = $0
    if (match(t, /\/\*/)) { struct_says = struct_says (struct_says == "" ? "" : "\n\n") plain(substr(t, RSTART)); }
    if (form == "man") { print ".SS struct " troff(struct_name); if (struct_says != "") text(struct_says) }
    else if (form == "html") { print "</dl><h4 id=\"" struct_name "\">struct " struct_name "</h4>"; if (struct_says != "") text(struct_says); print "<dl>" }
    state = "struct"; said = group = above = behind = member = ""; in_comment = 0
    if (match(t, /\/\*/) && t !~ /\*\//) in_comment = 1
    next
}
/^(TN_CALL|TN_KIT|static|typedef|__attribute__)/ || signature != "" {
    t = $0; sub(/__attribute__\(\(unused\)\) /, "", t)
    if (/^__attribute__\(\(format/ || /^__attribute__\(\(weak/ || /^__attribute__\(\(section/) next
    sub(/^(TN_CALL|TN_KIT) /, "", t); sub(/^static inline /, "", t); sub(/^static /, "", t)
    one_line = t ~ /{.*}$/
    sub(/ *{.*/, "", t)
    if (t != "") signature = signature (signature == "" ? "" : "\n") t
    if (one_line || $0 ~ /^{/ || signature ~ /;/) {
        if (said == "" && signature !~ /typedef/) missing(name_of(signature))
        if (form != "check") item(signature, said)
        said = ""
        if (!one_line && signature !~ /;/) body = 1; else signature = ""
    }
    next
}
{ said = "" }
END {
    if (defines != "" && form != "check") item(defines, defines_says)
    if (form == "html") print "</dl>"
    if (form == "man") {
        print ".SH SEE ALSO\n.BR tenon (1),"
        n = split("abi device kernels comm optimizer pass gradients bootstrap kit_number kit_nest kit_device kit_comm philox", other, " ")
        for (i = 1; i <= n; i++) if (other[i] != page) print ".BR tenon\\-" other[i] " (3)" (i < n ? "," : "")
        if (docs != "") print ".PP\n" troff(docs) ": plugins.md, how plugins are written; ops.md, what each operation computes; abi.md, what stays."
    }
}
