// test/test_streamed.c: a sample on its way: which bytes are told when, and that the other ranks hear one sign of life
// for each token. The model follows a script: after each byte it knows one next byte, so that every token of the text
// is chosen here.
#include "test/support/run.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "trainer/session/restore.h"
#include "trainer/sample.h"

enum { EMBED = 32, MOST = 16 };

// --- a model that follows a script -----------------------------------------------------------------------------------

typedef struct rig {
    char *dir;
    config c;
    session x;
} rig;

static float *weights_of(rig *r, const char *name) {
    int i = model_find(r->x.net, name);
    assert_true(i >= 0);
    return r->x.state.w[i].data;
}

static void clear(rig *r, const char *name) {
    tensor *t = &r->x.state.w[model_find(r->x.net, name)];
    memset(t->data, 0, tensor_bytes(t));
}

// All tokens of the script differ. Token i is the vector of one 1 at i, layers add nothing, and the head turns that 1
// into token i + 1.
static void rig_open_ids(rig *r, const int32_t *id, int count, const char *more) {
    r->dir = make_dir();
    load_config(
        &r->c, r->dir,
        "[data]\nval =\n[device]\nthreads = 1\n[batch]\nglobal = 1\nmicro = 1\n[sample]\ntemperature = 0\n"
        "[model]\ntype = llama\nlayers = 1\nheads = 1\nembed = 32\nhidden = 8\ncontext = 4\nvocab = 256\ntied = no\n",
        more);
    OK(session_open(&r->x, &r->c, SESSION_INFERENCE, NULL));
    OK(session_init(&r->x));
    clear(r, "layers.0.self_attn.o_proj.weight"), clear(r, "layers.0.mlp.down_proj.weight");
    clear(r, "embed_tokens.weight"), clear(r, "lm_head.weight");
    for (int i = 0; i + 1 < count; i++) {
        weights_of(r, "embed_tokens.weight")[id[i] * EMBED + i] = 1;
        weights_of(r, "lm_head.weight")[id[i + 1] * EMBED + i] = 1;
    }
}

// Each byte is a token; 1 stands for a NUL.
static void rig_open(rig *r, const char *script, const char *more) {
    int32_t id[MOST] = {0};
    int n = (int)strlen(script);
    assert_true(n <= MOST);
    for (int i = 0; i < n; i++) id[i] = script[i] == 1 ? 0 : (uint8_t)script[i];
    rig_open_ids(r, id, n, more);
}

static void rig_close(rig *r) {
    session_close(&r->x);
    drop_dir(r->dir);
}

// --- what is told when -----------------------------------------------------------------------------------------------

typedef struct heard {
    char piece[MOST][32];
    int pieces;
} heard;

static void hear(void *ctx, int number, const char *bytes, size_t n) {
    heard *h = ctx;
    assert_int_equal(number, 0);
    assert_true(h->pieces < MOST && n < sizeof h->piece[0]);
    memcpy(h->piece[h->pieces++], bytes, n);
}

// The script's first byte is the prompt. pieces: what is told, call by call; the last call says that the text has
// ended.
static void expect_pieces(const char *script, const char *keys, const char *ended, const char *const *pieces) {
    rig r;
    heard h = {.pieces = 0};
    char prompt[] = {script[0], 0}, all[MOST * 32] = "";
    sample_text one = {.prompt = prompt};
    rig_open(&r, script, keys);
    double before = clock_now();
    OK(session_samples(&r.x, &one, 1, &(sample_listener){hear, &h}));
    assert_true(before <= one.first_s && one.first_s <= one.last_s && one.last_s <= clock_now());
    assert_true(one.tokens < 2 || one.first_s < one.last_s);
    assert_string_equal(one.ended, ended);
    for (int i = 0; pieces[i] || i < h.pieces; i++) {
        if (!pieces[i] || i >= h.pieces)
            fail_msg("script %s, %s: %d calls, call %d is \"%s\"", script, keys, h.pieces, i,
                     i < h.pieces ? h.piece[i] : "");
        if (strcmp(pieces[i], h.piece[i]) != 0)
            fail_msg("script %s, %s: call %d told \"%s\", expected \"%s\"", script, keys, i, h.piece[i], pieces[i]);
        strcat(all, h.piece[i]);
    }
    assert_string_equal(all, one.text);
    free(one.text);
    rig_close(&r);
}
#define EXPECT_PIECES(script, keys, ended, ...) \
    expect_pieces(script, keys, ended, (const char *const[]){__VA_ARGS__, NULL})

// A character of two, three or four bytes, each a token, is told as a whole.
static void characters_are_told_whole(void **state) {
    (void)state;
    static const char script[] = "a\xF0\x9F\x98\x80\xC3\xA9\xE2\x82\xAC"
                                 "b";
    EXPECT_PIECES(script, "[sample]\ntokens = 10\n", "length", "\xF0\x9F\x98\x80", "\xC3\xA9", "\xE2\x82\xAC", "b");
    EXPECT_PIECES(script, "[sample]\ntokens = 9\n", "length", "\xF0\x9F\x98\x80", "\xC3\xA9", "\xE2\x82\xAC");
    EXPECT_PIECES(script, "[sample]\ntokens = 3\n", "length", "\xF0\x9F\x98");  // the end: nothing follows
    EXPECT_PIECES(script, "[sample]\ntokens = 1\n", "length", "\xF0");
}

// What began a character and did not go on is told with what came instead.
static void what_is_no_character_is_told_too(void **state) {
    (void)state;
    EXPECT_PIECES("a\xF0\x9F!cd", "[sample]\ntokens = 5\n", "length", "\xF0\x9F!", "c", "d");
    EXPECT_PIECES("a\xE2\xC3\xA9"
                  "d",
                  "[sample]\ntokens = 4\n", "length", "\xE2", "\xC3\xA9", "d");
    EXPECT_PIECES("a\x80\xBF\xFF"
                  "d",
                  "[sample]\ntokens = 4\n", "length", "\x80", "\xBF", "\xFF", "d");
}

// A NUL would end the text where it is a C string: it is written as what is no character.
static void a_nul_is_told_as_no_character(void **state) {
    (void)state;
    EXPECT_PIECES("a\1b", "[sample]\ntokens = 2\n", "length", "\xEF\xBF\xBD", "b");
    EXPECT_PIECES("ab\1", "[sample]\ntokens = 2\n", "length", "b", "\xEF\xBF\xBD");
}

static int32_t token_of(const tokenizer *t, char letter) {
    const uint8_t *piece;
    int64_t n;
    int32_t id = 0;
    while (tokenizer_piece(t, id, &piece, &n) != ERR_OK || n != 1 || *piece != (uint8_t)letter) id++;
    return id;
}

// The token that ends texts ends this one, and is not in it; the one that begins them is a token like others.
static void the_end_of_a_text_ends_it(void **state) {
    (void)state;
#define WORDS "test/golden/tokenizer/llama3.json"
    enum { BEGIN = 602, END = 603 };
    tokenizer *t;
    rig r;
    heard h = {.pieces = 0};
    sample_text one = {.prompt = "x"};
    OK(tokenizer_open(&t, WORDS));
    int32_t script[] = {token_of(t, 'x'), token_of(t, 't'), BEGIN, token_of(t, 'e'), END, token_of(t, 'h')};
    rig_open_ids(&r, script, 6, "[model]\nvocab = 1000\n[sample]\ntokens = 5\ntokenizer = " WORDS "\n");
    OK(session_samples(&r.x, &one, 1, &(sample_listener){hear, &h}));
    assert_string_equal(one.ended, "end of text");
    assert_string_equal(one.text, "t<|begin_of_text|>e");
    assert_int_equal(one.tokens, 4);
    assert_int_equal(h.pieces, 4);
    assert_string_equal(h.piece[3], "");
    free(one.text);
    tokenizer_close(t);
    rig_close(&r);
}

// What may begin a text to stop at waits too: the longer of the two.
static void beginnings_of_stops_wait(void **state) {
    (void)state;
    static const char script[] = "axyz\xF0\x9F\x98\x80q";
    EXPECT_PIECES(script, "[sample]\ntokens = 8\nstop = xyq\n", "length", "xyz", "\xF0\x9F\x98\x80", "q");
    EXPECT_PIECES(script, "[sample]\ntokens = 8\nstop = yz|zq\n", "stop", "x", "");
    EXPECT_PIECES(script, "[sample]\ntokens = 8\nstop = \"z\xF0\x9F\x98\x80q\"\n", "stop", "x", "y", "");
    EXPECT_PIECES(script, "[sample]\ntokens = 8\nstop = \"z\xF0\x9F\x98\x80r|\x98\x80r\"\n", "length", "x", "y",
                  "z\xF0\x9F\x98\x80q");
    // a z may begin the first, and yz is the second
    EXPECT_PIECES(script, "[sample]\ntokens = 8\nstop = zQQ|yz\n", "stop", "x", "");
    EXPECT_PIECES("axyzw", "[sample]\ntokens = 4\nstop = zQ|yzQ|xyzQ\n", "length", "xyzw");
    EXPECT_PIECES("axyzw", "[sample]\ntokens = 4\nstop = xyzQ|yzQ|zQ\n", "length", "xyzw");
    EXPECT_PIECES(script, "[sample]\ntokens = 2\nstop = xyz\n", "length", "xy");  // the end: no stop can follow
}

// Every character, its beginnings, and what comes after it.
static void beginnings_of_characters(void **state) {
    (void)state;
    for (uint32_t c = 1; c <= 0x10FFFF; c++) {
        char s[8] = "x";
        int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        for (int i = n - 1, rest = (int)c; i >= 0; i--, rest >>= 6)
            s[1 + i] = (char)(n == 1 ? rest : i ? 0x80 | (rest & 0x3F) : rest | (0xF00 >> n & 0xFF));
        if (utf8_length((unsigned char *)s + 1) != n) fail_msg("U+%04X has %d bytes", c, n);
        for (int k = 1; k <= n; k++) {
            size_t want = k < n ? (size_t)k : 0;
            if (utf8_begun(s, 1 + (size_t)k) != want || utf8_begun(s + 1, (size_t)k) != want)
                fail_msg("%d of the %d bytes of U+%04X", k, n, c);
        }
        s[1 + n] = 'y';
        assert_int_equal(utf8_begun(s, 2 + (size_t)n), 0);
    }
    assert_int_equal(utf8_begun("", 0), 0);
}

// The bytes of a code point as n of them: more than it needs, or what is no character, where c and n do not fit.
static void encode_as(char s[8], uint32_t c, int n) {
    static const int first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    memset(s, 0, 8);
    for (int i = n - 1; i >= 0; i--, c >>= 6)
        s[i] = (char)(n == 1 ? (int)c : i ? 0x80 | (int)(c & 0x3F) : first[n] | (int)c);
}

// A character has one encoding, the shortest; and surrogates and what lies beyond the last code point have none.
static void no_character_has_two_encodings(void **state) {
    (void)state;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}, most[] = {0, 0x7F, 0x7FF, 0xFFFF, 0x1FFFFF};
    for (int n = 2; n <= 4; n++)
        for (uint32_t c = 0; c <= most[n]; c++) {
            char s[8];
            encode_as(s, c, n);
            bool is = c >= least[n] && c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
            if (utf8_length((unsigned char *)s) != (is ? n : 0))
                fail_msg("U+%04X in %d bytes: %d", c, n, utf8_length((unsigned char *)s));
        }
    for (int b = 0; b < 256; b++)
        assert_int_equal(utf8_length((unsigned char[]){(unsigned char)b, 'x', 0, 0}), b < 0x80 ? 1 : 0);
    for (int b = 0xF5; b < 256; b++)
        assert_int_equal(utf8_length((unsigned char[]){(unsigned char)b, 0x80, 0x80, 0x80}), 0);
}

// Of all characters a terminal is shown each as it is, but for those that it would obey.
static void each_character_is_shown_or_not(void **state) {
    (void)state;
    static const struct {
        uint32_t first, last;
    } obeyed[] = {{0x01, 0x08},     {0x0B, 0x1F},     {0x7F, 0x9F},      {0x61C, 0x61C},   {0x200B, 0x200B},
                  {0x200E, 0x200F}, {0x2028, 0x2029}, {0x202A, 0x202E},  {0x2060, 0x2064}, {0x2065, 0x206F},
                  {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};
    for (uint32_t c = 1; c <= 0x10FFFF; c++) {
        char s[8], to[16];
        bool hidden = false;
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        encode_as(s, c, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        for (size_t i = 0; i < sizeof obeyed / sizeof *obeyed; i++)
            hidden = hidden || (c >= obeyed[i].first && c <= obeyed[i].last);
        utf8_printable(to, sizeof to, s);
        if (strcmp(to, hidden ? "?" : s) != 0) fail_msg("U+%04X is shown as \"%s\"", c, to);
    }
}

// What a terminal is shown of text of any bytes, and what a log has of it.
static void expect_safe(const char *text, const char *shown, const char *logged) {
    char to[64];
    utf8_printable(to, sizeof to, text);
    assert_string_equal(to, shown);
    utf8_replace(to, text);
    assert_string_equal(to, logged);
}

static void text_of_any_bytes_is_made_safe(void **state) {
    (void)state;
#define BAD "\xEF\xBF\xBD"
    expect_safe("a\tb\n\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80~", "a\tb\n\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80~",
                "a\tb\n\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80~");
    expect_safe("\x1B[2J\x7F\r", "?[2J??", "\x1B[2J\x7F\r");
    expect_safe("\xC2\x80x\xC2\x9Bx\xC2\x9Fx\xC2\xA0x", "?x?x?x\xC2\xA0x", "\xC2\x80x\xC2\x9Bx\xC2\x9Fx\xC2\xA0x");
    expect_safe("a\xFFz\x80\x81z\xC3", "a?z??z?", "a" BAD "z" BAD BAD "z" BAD);
    expect_safe("\xE2\x82x\xF0\x9F\x98y\xC0\xAF", "??x???y??", BAD BAD "x" BAD BAD BAD "y" BAD BAD);
    expect_safe("\xED\xA0\x80\xF4\x90\x80\x80", "???????", BAD BAD BAD BAD BAD BAD BAD);
    char to[10];
    for (size_t room = 6; room <= sizeof to; room++) {  // a character is shown whole or not at all
        utf8_printable(to, room, "\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF0\x9F\x98\x80");
        assert_true(strlen(to) < room && strlen(to) % 4 == 0);
    }
}

// --- signs of life ---------------------------------------------------------------------------------------------------

// Another rank that only counts what it hears.
typedef struct listener {
    comm head;
    int64_t heard;
} listener;

static err_t count_sign(comm *c, void *data, size_t bytes, int root, stream *s) {
    (void)data, (void)s;
    assert_true(bytes == 1 && root == 0);
    assert_string_equal(c->phase.what, "sample");
    ((listener *)c)->heard++;
    return ERR_OK;
}

// Each rank counts on exactly as many as there may be tokens: one more or fewer, and ranks would be in different calls.
static void expect_signs(const char *keys, const char *prompt, const char *ended, int64_t tokens) {
    static const comm_table table = {.broadcast = count_sign};
    listener other = {.head = {.table = &table, .world = 2}};
    rig r;
    rig_open(&r, "axyz\xF0\x9F\x98\x80q", keys);
    comm *alone = r.x.ranks;
    other.head.host = &other.head;
    r.x.ranks = &other.head;
    sample_text one = {.prompt = prompt};
    err_t rc = session_samples(&r.x, &one, 1, NULL);
    assert_int_equal(rc == ERR_OK, ended != NULL);
    if (ended) assert_string_equal(one.ended, ended);
    assert_int_equal(other.heard, tokens);
    free(one.text);
    other.heard = 0;
    OK(session_await_sample(&r.x));
    assert_int_equal(other.heard, tokens);
    r.x.ranks = alone;
    rig_close(&r);
}

static void a_sign_of_life_for_each_token(void **state) {
    (void)state;
    expect_signs("[sample]\ntokens = 8\n", "a", "length", 8);
    expect_signs("[sample]\ntokens = 1\n", "a", "length", 1);
    expect_signs("[sample]\ntokens = 8\nstop = z\n", "a", "stop", 8);
    expect_signs("[sample]\ntokens = 7\n[model]\nvocab = 255\n", "a\xFF", NULL, 7);  // no token could be made
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_told_whole),      cmocka_unit_test(what_is_no_character_is_told_too),
        cmocka_unit_test(a_nul_is_told_as_no_character),  cmocka_unit_test(the_end_of_a_text_ends_it),
        cmocka_unit_test(beginnings_of_stops_wait),       cmocka_unit_test(text_of_any_bytes_is_made_safe),
        cmocka_unit_test(no_character_has_two_encodings), cmocka_unit_test(each_character_is_shown_or_not),
        cmocka_unit_test(beginnings_of_characters),       cmocka_unit_test(a_sign_of_life_for_each_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
