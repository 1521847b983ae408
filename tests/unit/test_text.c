/* test_text.c - graphs as text: written, read back, checked while reading, and never a crash. */
#include "../pass/build.h"

static char *dump(struct tn_graph *g)
{
    return tn_graph_dump(g, g->arena, NULL);
}

static struct tn_graph *read_well(const char *text)
{
    struct tn_graph *g = tn_graph_read(text);

    ck_assert_msg(g != NULL, "%s", tn_error_text());
    return g;
}

/* --- there and back */

static void same_again(void *ctx, const char *step, struct tn_graph *g)
{
    char *text = dump(g);
    struct tn_graph *h = tn_graph_read(text);
    uint32_t *steps = ctx;

    ck_assert_msg(h != NULL, "after %s: %s", step, tn_error_text());
    ck_assert_str_eq(dump(h), text);
    ck_assert_uint_eq(h->n_param, g->n_param);
    ck_assert_uint_eq(h->n_task, g->n_task);
    for (struct tn_value *v = g->params, *w = h->params; v; v = v->next, w = w->next) {
        ck_assert_uint_eq(v->param->number, w->param->number);
        ck_assert_uint_eq(v->param->decay, w->param->decay);
        ck_assert_uint_eq(v->param->n_state, w->param->n_state);
    }
    tn_graph_free(h);
    ++*steps;
}

static const char *const layouts[] = {
    "",
    "tp=2",
    "tp=2 sp=1 dropout=0.1",
    "dp=2 zero=1",
    "dp=2 zero=2",
    "dp=2 zero=3",
    "cp=2",
    "cp=4 zigzag=1",
    "pp=2",
    "pp=2 schedule=interleaved layers=5",
    "tp=2 sp=1 cp=2 zigzag=1 dp=2 zero=3 pp=2",
    "untied=1 clip=0",
    "llama=1",
    "experts=3",
    "experts=5 dp=2 ep=2 tp=2 sp=1 pp=2 zero=3",
    "llama=1 untied=1 tp=2 sp=1 cp=2 zigzag=1 dp=2 zero=3 pp=2",
};

START_TEST(there_and_back)
{
    uint32_t steps = 0;
    struct tn_graph *g = model_of(layouts[_i]);

    ck_assert_int_eq(run_steps(g, layouts[_i], same_again, &steps), TN_OK);
    ck_assert_uint_ge(steps, 3);
    tn_graph_free(g);
}
END_TEST

/* Everything that the text can say, as the writer says it. */
static const char everything[] =
    "mesh dp=2 ep=1 pp=2 cp=3 tp=1\n"
    "symbols lr \"2t\"\n"
    "param %0 wte f32[vocab=65 embed=4] {pp:@0} file=[65 4] init=normal(0.02)\n"
    "param %1 \"odd name\\\"\\\\\\x09ü\" f32[embed=4] {dp:F} file=[4] init=one decay=1 lr_scale=0.1\n"
    "param %2 b f32[embed=4] file=[2 2] init=zero decay=0 lr_scale=3e+20\n"
    "param %3 wte f32[vocab=65 embed=4] {pp:@1} file=[65 4] init=normal(0.02) twin=%0\n"
    "input %4 tokens i32[batch=4 seq=12] {dp:S(batch) cp:S(seq zigzag)} micro\n"
    "input %5 scale f32[]\n"
    "positions %6 i32[seq=12] {cp:S(seq zigzag rot=2)}\n"
    "state %7 m of %1 bf16[embed=4] {dp:F}\n"
    "prologue \"\":\n"
    "  %8 f32[] = expr(%5) f=\"a*0.1 + 1e-6\" limit=inf low=-inf odd=nan whole=2.0 third=0.3333333333333333 "
    "count=-3 flag=yes number=\"2\" "
    "none=[] some=[a \"b c\"]\n"
    "forward embed:\n"
    "  %9 f32[batch=4 seq=12 embed=4] {dp:S(batch) pp:@0 cp:S(seq zigzag)} = embed(%0, %4) role=tok_embed\n"
    "forward block0:\n"
    "  %10 f32[batch=4 seq=12 embed=4] {dp:S(batch) pp:@1 cp:S(seq zigzag)} = move(%9) axis=pp from=@0 "
    "to=@1\n"
    "  %11 f32[batch=4 seq=12 embed=4] {dp:S(batch) pp:@1 cp:S(seq zigzag)}, %12 f32[batch=4 seq=12] "
    "{dp:S(batch) pp:@1 cp:S(seq zigzag)}, "
    "%13 f32[batch=4 seq=12] {dp:S(batch) pp:@1 cp:S(seq zigzag)} = layernorm(%10, %2) eps=1e-05\n"
    "  %14 i32[seq=12] {cp:S(seq zigzag rot=1)} = ring(%6) axis=cp shift=2\n"
    "  %15 f32[] {dp:P pp:@1 cp:P} = sum(%11) out=[]\n"
    "backward block0:\n"
    "  %16 f32[embed=4] {dp:F} = expr(%1, %5) role=grad f=\"a*b\"\n"
    "after optimizer:\n"
    "  %17 bf16[embed=4] {dp:F} = cast(%16) to=2\n"
    "  assign(%7, %17)\n"
    "output loss = %15\n"
    "output \"of all\" = %8 whole\n"
    "output \"of positions\" = %14\n"
    "grad %1 = %16\n"
    "task rank=0 forward micro=0 stage=0\n"
    "task rank=1 backward micro=3 stage=1\n";

START_TEST(everything_is_said)
{
    struct tn_graph *g = read_well(everything);

    ck_assert_str_eq(dump(g), everything);
    ck_assert_ptr_eq(g->last_param->param->twin, g->params->param);
    ck_assert_uint_eq(g->last_param->param->number, 0);
    ck_assert_str_eq(g->params->next->name, "odd name\"\\\tü");
    ck_assert(g->params->next->param->lr_scale == 0.1);
    ck_assert_ptr_eq(g->states->param, g->params->next->param);
    ck_assert_uint_eq(g->task[1].micro, 3);
    tn_graph_free(g);
}
END_TEST

/* Tables of angles are told apart by all that makes them, and by where they are. */
static const char angles[] = "mesh dp=1 ep=1 pp=2 cp=1 tp=1\n"
                             "positions %0 f32[posn=12 head_dim=4] {pp:@0} rotary theta=1e+04\n"
                             "positions %1 f32[posn=12 head_dim=4] {pp:@1} rotary theta=1e+04\n"
                             "positions %2 f32[posn=12 head_dim=4] {pp:@1} rotary theta=5e+02\n"
                             "positions %3 f32[posn=12 head_dim=4] {pp:@1} rotary theta=5e+02 linear factor=2.0\n"
                             "positions %4 f32[posn=12 head_dim=4] {pp:@1} rotary theta=5e+02 llama3 factor=2.0 low=1.0 high=4.5 "
                             "original=8192.0\n"
                             "output a = %0\n"
                             "output b = %4\n";

START_TEST(rotary_positions)
{
    static const char *const odd[][2] = {
        {"positions %0 f32[posn=12 head_dim=3] rotary theta=1.0", "an even size"},
        {"positions %0 f32[posn=12] rotary theta=1.0", "two dims"},
        {"positions %0 i32[posn=12 head_dim=4] rotary theta=1.0", "are f32"},
        {"positions %0 f32[posn=12 head_dim=4]", "are i32"},
        {"positions %0 f32[posn=12 head_dim=4] rotary", "theta="},
        {"positions %0 f32[posn=12 head_dim=4] rotary theta=1.0 llama3 factor=2.0", "low="},
        {"positions %0 f32[a=2 b=4] rotary theta=1.0\npositions %1 f32[a=2 b=4] rotary theta=1.0", "exist already"},
    };
    struct tn_graph *g = read_well(angles);

    ck_assert_str_eq(dump(g), angles);
    tn_graph_free(g);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char text[200];

        snprintf(text, sizeof text, "mesh tp=2\n%s\n", odd[i][0]);
        ck_assert_msg(!tn_graph_read(text), "%s", odd[i][0]);
        ck_assert_msg(strstr(tn_error_text(), odd[i][1]) != NULL, "%s: %s", odd[i][0], tn_error_text());
    }
}
END_TEST

/* Spaces, comments and other numbers do not matter; the writer has one way to say it. */
START_TEST(one_way_to_write)
{
    struct tn_graph *g =
        read_well("\n# a comment\nmesh tp=2\n  input   %70 x f32[ seq=4 ]{tp:S( seq )}\r\n\nforward u :\n"
                  "%3 f32[seq=4]{tp:S(seq)}=expr( %70 )f=\"a\"\noutput y=%3");

    ck_assert_str_eq(dump(g), "mesh dp=1 ep=1 pp=1 cp=1 tp=2\ninput %0 x f32[seq=4] {tp:S(seq)}\nforward u:\n"
                              "  %1 f32[seq=4] {tp:S(seq)} = expr(%0) f=a\noutput y = %1\n");
    tn_graph_free(g);
}
END_TEST

START_TEST(an_excerpt)
{
    struct tn_graph *g = finished("tp=2");
    char *text = tn_graph_dump(g, g->arena, "embed"), *all = dump(g);

    ck_assert_ptr_nonnull(strstr(text, "param %0 transformer.wte.weight"));
    ck_assert_ptr_nonnull(strstr(text, "forward embed:\n"));
    ck_assert_ptr_nonnull(strstr(text, "backward embed:\n"));
    ck_assert_ptr_null(strstr(text, "block0"));
    ck_assert_ptr_null(strstr(text, "mlp"));
    for (char *line = text; *line;
         line = strchr(line, '\n') + 1) { /* its lines and numbers are those of the whole */
        char *one = strndup(line, (size_t)(strchr(line, '\n') + 1 - line));

        ck_assert_msg(strstr(all, one) != NULL, "%s", one);
        free(one);
    }
    tn_graph_free(g);
}
END_TEST

/* --- errors */

#define HEAD                                                                                                 \
    "mesh tp=2\nparam %0 w f32[vocab=6 embed=4] {tp:S(vocab)} file=[6 4] init=zero\ninput %1 x i32[seq=4]\n"
#define EMBED "forward u:\n  %2 f32[seq=4 embed=4] {tp:P} = embed(%0, %1)\n"

static const struct {
    const char *text, *says;
} wrong[] = {
    {"", "line 1, column 1: a graph begins with the line \"mesh\""},
    {"input %0 x f32[]\n", "line 1, column 1: \"mesh\" is expected"},
    {"mesh tq=2\n", "line 1, column 6: there is no such axis"},
    {"mesh tp=0\n", "line 1, column 9: the size of an axis must be within 1 and"},
    {"mesh tp=two\n", "line 1, column 9: the size of an axis is expected here, a whole number"},
    {"mesh dp=100000 tp=100000\n", "line 1, column 25: more than"},
    {"mesh\nnonsense\n", "line 2, column 1: there is no operation nonsense"},
    {"mesh\nexpr() f=a\n", "line 2, column 1: a node stands below a line such as"},
    {"mesh\ninput %0 x f33[]\n", "line 2, column 12: there is no dtype f33"},
    {"mesh\ninput %0 x f32[seq=0]\n", "line 2, column 20: the size must be within 1"},
    {"mesh\ninput %0 x f32[seq=99999999999999999999]\n", "line 2, column 20: the size must be within"},
    {"mesh\ninput %0 x f32[a=4000000000 b=4000000000]\n",
     "line 2, column 12: x has more elements than can be counted"},
    {"mesh\ninput %0 x f32[a=1 a=1]\n", "line 2, column 12: x has dim a twice"},
    {"mesh\ninput %0 x f32[a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1]\n", "column 48: more than 8 dims"},
    {"mesh\ninput %0 x f32[a=1\n", "line 2, column 19: a dim is expected here"},
    {"mesh\ninput %0 \"x f32[]\n", "line 2, column 10: the quoted text does not end in this line"},
    {"mesh\ninput %0 \"\\n\" f32[]\n", "line 2, column 10: a quoted text knows"},
    {"mesh\ninput %0 \"\\x00\" f32[]\n", "line 2, column 10: a quoted text knows"},
    {"mesh\ninput %99999999 x f32[]\n", "line 2, column 8: the number of a value must be within 0 and"},
    {"mesh\ninput %0 x f32[]\ninput %0 y f32[]\n", "line 3, column 7: %0 is defined a second time"},
    {"mesh\ninput %0 x f32[] macro\n", "line 2, column 18: the line should end here"},
    {"mesh\ninput %0 x f32[a=2] {tp:S(a)}\n", "line 2, column 22: axis tp has size 1"},
    {"mesh tp=2\ninput %0 x f32[a=2] {tp:S(b)}\n",
     "line 2, column 12: layout of %0 x on axis tp: it has no dim b that could be cut"},
    {"mesh tp=2\ninput %0 x f32[a=2] {tp:Q}\n", "line 2, column 25: a layout is expected here"},
    {"mesh tp=2\ninput %0 x f32[a=2] {tp:?}\n", "layout of %0 x on axis tp"},
    {"mesh\nparam %0 w f32[a=6] file=[5] init=zero\n",
     "line 2, column 29: the file's shape has 5 elements, the parameter 6"},
    {"mesh\nparam %0 w f32[a=6] file=[6] init=two\n", "line 2, column 35: \"zero\" is expected here"},
    {"mesh\nparam %0 w f32[a=6] file=[6] init=normal(x)\n",
     "line 2, column 42: the standard deviation is expected here, a number"},
    {"mesh\nparam %0 w f32[a=6] file=[6] init=zero twin=%0\n",
     "a copy is that of a parameter that is no copy"},
    {"mesh\nparam %0 w i32[a=6] file=[6] init=zero\n", "line 2, column 12: parameters are f32"},
    {"mesh\npositions %0 f32[a=6]\n", "line 2, column 14: positions are i32"},
    {"mesh\npositions %0 i32[a=6]\npositions %1 i32[a=6]\n",
     "line 3, column 14: these positions exist already"},
    {"mesh\ninput %0 x f32[]\nstate %1 m of %0 f32[]\n", "line 3, column 17: a state belongs to a parameter"},
    {HEAD "forward u:\n  %2 f32[seq=4 embed=4] {tp:P} = embed(%0, %7)\n",
     "line 5, column 44: %7 is not defined above"},
    {HEAD "forward u:\n  %2 f32[seq=4 embed=4] {tp:P} = embed(%0)\n",
     "line 5, column 34: embed (role , unit u): wrong number of inputs"},
    {HEAD "forward u:\n  %2 f32[seq=4 embed=4] {tp:P} = embed(%0, %1) to=1 to=2\n",
     "line 5, column 53: attribute to is given twice"},
    {HEAD "forward u:\n  %2 f32[seq=4 embed=5] {tp:P} = embed(%0, %1)\n",
     "line 5, column 6: embed gives a value of another shape here: f32[seq=4 embed=4] {tp:P}"},
    {HEAD "forward u:\n  %2 f32[seq=4 embed=4] = embed(%0, %1)\n",
     "line 5, column 6: embed gives layout P on axis tp here, the line says R"},
    {HEAD "forward u:\n  embed(%0, %1)\n", "line 5, column 1: embed gives 1 values here, the line has 0"},
    {HEAD EMBED "  %3 f32[seq=4 embed=4] {tp:P} = expr(%2) f=\"exp(a)\"\n",
     "line 6, column 34: node 2 expr (role , unit u) does not fit on axis tp"},
    {HEAD EMBED "  %3 f32[seq=4 embed=4] = all_reduce(%2) axis=tp from=S(seq) to=R\n",
     "it takes S(seq), not P"},
    {HEAD EMBED "  %3 f32[seq=4 embed=4] = all_reduce(%2) axis=xx from=P to=R\n", "\"xx\" is no axis"},
    {HEAD EMBED "  %3 f32[seq=4 embed=4] {tp:P} = expr(%2) f=\"a +\"\n", "expression \"a +\""},
    {HEAD EMBED "prologue u:\n", "line 6, column 1: prologue comes before forward"},
    {HEAD EMBED "output loss = %2\noutput loss = %2\n", "line 7, column 17: output loss is given twice"},
    {HEAD EMBED "grad %0 = %2\n",
     "line 6, column 1: %2 embed cannot be the gradient of %0 w: their shapes differ"},
    {HEAD EMBED "grad %1 = %2\n", "that is no parameter"},
    {HEAD "task rank=0 sideways micro=0 stage=0\n", "line 4, column 13: \"backward\" is expected here"},
};

START_TEST(errors_name_the_place)
{
    tn_error_clear();
    ck_assert_ptr_null(tn_graph_read(wrong[_i].text));
    ck_assert_msg(strstr(tn_error_text(), wrong[_i].says) != NULL, "%s\n  gives: %s\n  not:   %s",
                  wrong[_i].text, tn_error_text(), wrong[_i].says);
    ck_assert_int_eq(tn_error_status(), TN_ERR_INPUT);
}
END_TEST

/* --- any text at all: a graph that can be written again, or an error; nothing else */

static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % below);
}

/* Begin and length of a piece of text: a word, a value, or a single other character. */
static size_t piece(const char *text, size_t at, size_t *length)
{
    size_t n = strlen(text);

    while (at && (isalnum(text[at - 1]) || text[at - 1] == '_' || text[at - 1] == '%'))
        at--;
    for (*length = 0; at + *length < n && (isalnum(text[at + *length]) || text[at + *length] == '_' ||
                                           (!*length && text[at] == '%'));)
        ++*length;
    if (!*length)
        *length = 1;
    return at;
}

static void swap_in(char **text, size_t at, size_t length, const char *now, size_t now_length)
{
    char *made;

    ck_assert_int_ge(asprintf(&made, "%.*s%.*s%s", (int)at, *text, (int)now_length, now, *text + at + length),
                     0);
    free(*text);
    *text = made;
}

static const char *other(void)
{
    static const char *const words[] = {"0",
                                        "1",
                                        "-1",
                                        "7",
                                        "%0",
                                        "%9",
                                        "%3",
                                        "4294967296",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "nan",
                                        "inf",
                                        "1e999",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        "(",
                                        ")",
                                        ",",
                                        "=",
                                        "\"",
                                        "\n",
                                        "@0",
                                        "@1",
                                        "S(seq)",
                                        "R",
                                        "P",
                                        "F",
                                        "V",
                                        "Pmax",
                                        "?",
                                        "f32[]",
                                        "seq",
                                        "embed",
                                        "vocab",
                                        "forward",
                                        "after",
                                        "rot=1",
                                        "tp",
                                        "cp",
                                        "micro",
                                        "a + b",
                                        ""};
    uint32_t i = draw(120);

    return i < 70 && tn_op_at(i) ? tn_op_at(i)->name : words[draw(sizeof words / sizeof *words)];
}

static void mutate(char **text)
{
    size_t n = strlen(*text), at = draw((uint32_t)n), from = draw((uint32_t)n), length, from_length;
    const char *word = other();
    char byte = (char)(1 + draw(255));

    at = piece(*text, at, &length);
    from = piece(*text, from, &from_length);
    switch (draw(6)) {
    case 0: swap_in(text, at, length, word, strlen(word)); break;
    case 1: swap_in(text, at, 0, word, strlen(word)); break;
    case 2: {
        char *copy = strndup(*text + from, from_length);

        swap_in(text, at, length, copy, strlen(copy));
        free(copy);
        break;
    }
    case 3: swap_in(text, at, 1, &byte, 1); break;
    case 4: swap_in(text, at, length, "", 0); break;
    default: {                                   /* a line less */
        size_t end = at + strcspn(*text + at, "\n");

        while (at && (*text)[at - 1] != '\n')
            at--;
        swap_in(text, at, end - at, "", 0);
    }
    }
}

START_TEST(no_text_crashes)
{
    struct tn_graph *g = model_of(_i ? "tp=2 pp=2 layers=1" : "layers=1");
    char *base = NULL;
    uint32_t read = 0;

    ck_assert_int_eq(run_steps(g, _i ? "tp=2 pp=2 layers=1" : "layers=1", NULL, NULL), TN_OK);
    base = strdup(_i < 2 ? dump(g) : everything);
    tn_graph_free(g);
    seed = 17 + (uint64_t)_i;
    for (uint32_t k = 0; k < 7000; k++) {
        char *text = strdup(base);
        struct tn_graph *h;

        for (uint32_t m = 1 + draw(3); m--;)
            if (*text)
                mutate(&text);
        tn_error_clear();
        h = tn_graph_read(text);
        if (h) {
            struct tn_graph *again;
            char *said = dump(h);

            again = tn_graph_read(said);
            ck_assert_msg(again != NULL, "%s\n%s\n%s", text, said, tn_error_text());
            ck_assert_str_eq(dump(again), said);
            tn_graph_free(again);
            tn_graph_free(h);
            read++;
        } else
            ck_assert_ptr_nonnull(strstr(tn_error_text(), "graph text, line "));
        free(text);
    }
    free(base);
    ck_assert_uint_gt(read, 0);
}
END_TEST

/* --- expected texts: of one process, and of each strategy once finished */

static char *file_text(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;

    if (!f)
        return NULL;
    if (getdelim(&text, &room, '\0', f) < 0)
        text[0] = 0;
    fclose(f);
    return text;
}

static void compare_file(const char *name, struct tn_graph *g)
{
    const char *top = getenv("top_srcdir");
    char *path = tn_text(g->arena, "%s/tests/pass/%s.txt", top ? top : ".", name), *now = dump(g), *expected;

    if (getenv("TENON_REGENERATE")) {
        FILE *f = fopen(path, "w");

        ck_assert_msg(f != NULL, "%s cannot be written", path);
        ck_assert_int_ge(fputs(now, f), 0);
        ck_assert_int_eq(fclose(f), 0);
    }
    expected = file_text(path);
    ck_assert_msg(expected != NULL, "%s is missing: run the test with TENON_REGENERATE=1", path);
    for (size_t at = 0, line = 1; expected[at] || now[at]; line += expected[at++] == '\n')
        if (expected[at] != now[at]) {
            while (at && now[at - 1] != '\n')
                at--;
            ck_abort_msg("%s, line %zu: expected\n%.*s\nnow\n%.*s\nTENON_REGENERATE=1 writes it anew", path,
                         line, (int)strcspn(expected + at, "\n"), expected + at, (int)strcspn(now + at, "\n"),
                         now + at);
        }
    free(expected);
}

static void compare_step(void *ctx, const char *step, struct tn_graph *g)
{
    compare_file(tn_text(g->arena, "%s-%s", (const char *)ctx, step), g);
}

START_TEST(expected_steps)
{
    struct tn_graph *g = model_of("");

    ck_assert_int_eq(run_steps(g, "", compare_step, "single"), TN_OK);
    tn_graph_free(g);
}
END_TEST

static const struct {
    const char *name, *words;
} expected[] = {
    {"tp", "tp=2"},           {"tp-sp", "tp=2 sp=1"},         {"ddp", "dp=2"}, {"zero2", "dp=2 zero=2"},
    {"zero3", "dp=2 zero=3"}, {"cp-zigzag", "cp=2 zigzag=1"}, {"pp", "pp=2"}, {"zero1", "dp=2 zero=1"},
    {"ddp-every", "dp=2 sync_every=1"}, {"cp-gather", "cp=2 ring=0"}, {"hybrid", "dp=2 ep=2 zero=3"},
    {"llama", "llama=1 untied=1"}, {"llama-groups", "llama=1 untied=1 keys=1 tp=4 sp=1"},
    {"experts", "experts=4 dp=2 ep=2 layers=1"},
};

/* The example of docs/graph.md is what the writer writes. */
START_TEST(the_documented_example)
{
    const char *top = getenv("top_srcdir");
    char path[4096], *page, *text, *end;
    struct tn_graph *g;

    snprintf(path, sizeof path, "%s/docs/graph.md", top ? top : ".");
    page = file_text(path);
    ck_assert_msg(page != NULL, "%s is missing", path);
    text = strstr(page, "```\nmesh ");
    ck_assert_ptr_nonnull(text);
    text += 4;
    end = strstr(text, "```");
    ck_assert_ptr_nonnull(end);
    *end = 0;
    g = read_well(text);
    ck_assert_str_eq(dump(g), text);
    tn_graph_free(g);
    free(page);
}
END_TEST

START_TEST(expected_strategies)
{
    struct tn_graph *g = finished(expected[_i].words);

    compare_file(expected[_i].name, g);
    tn_graph_free(g);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void)
{
    Suite *s = suite_create("text");
    TCase *c = tcase_create("text");
    SRunner *r = srunner_create(s);
    int failed;

    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, there_and_back, 0, COUNT(layouts));
    tcase_add_test(c, everything_is_said);
    tcase_add_test(c, rotary_positions);
    tcase_add_test(c, one_way_to_write);
    tcase_add_test(c, an_excerpt);
    tcase_add_loop_test(c, errors_name_the_place, 0, COUNT(wrong));
    tcase_add_loop_test(c, no_text_crashes, 0, 3);
    tcase_add_test(c, expected_steps);
    tcase_add_test(c, the_documented_example);
    tcase_add_loop_test(c, expected_strategies, 0, COUNT(expected));
    suite_add_tcase(s, c);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
