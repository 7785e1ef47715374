// test/fuzz/fuzz_tokenizer.c: any bytes at all as a tokenizer.json, and as a text. What is accepted as a tokenizer
// encodes that text, cut and whole, to ids that exist; what is not is ERR_DATA. A tokenizer that has everything encodes
// the bytes too.
#include "data/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

enum { ROOM = 1 << 14, LEVELS = 5, SEEDS = 8 };

static void expect(bool truth) {
    if (!truth) abort();
}

// --- tokenizers of each kind, small ----------------------------------------------------------------------------------

#define LEVEL(regex) "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":" regex "}"
#define SPLIT(numbers) \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}" numbers \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define BOTH(a, b) "{\"type\":\"Sequence\",\"pretokenizers\":[" a "," b "]}"

static const char *const steps[LEVELS] = {
    LEVEL("true"),
    BOTH(SPLIT("{1,3}"), LEVEL("false")),
    BOTH(SPLIT(""), LEVEL("false")),
    BOTH("{\"type\":\"Digits\",\"individual_digits\":true}", LEVEL("true")),
    BOTH("{\"type\":\"Digits\",\"individual_digits\":false}", SPLIT("") "," LEVEL("false")),
};

static const char added[] =
    "[{\"id\":260,\"content\":\"<|endoftext|>\",\"special\":true,\"normalized\":false},"
    "{\"id\":261,\"content\":\"<l>\",\"special\":true,\"lstrip\":true,\"rstrip\":true,\"normalized\":true},"
    "{\"id\":262,\"content\":\"an e\\u0301\",\"single_word\":true,\"normalized\":true},{\"id\":263,\"content\":\"<|\"}]";
static const char merges[] = "[[\"t\",\"h\"],\"th e\",[\"\\u0120\",\"t\"],[\"a\",\"a\"]]";
static const char template[] =
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"b\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\","
    "\"type_id\":0}}],\"special_tokens\":{\"b\":{\"id\":\"b\",\"ids\":[260],\"tokens\":[\"b\"]}}}";

// Of words: BERT's kind, and two of sentencepiece's, one of them with a double array that has 0xBD, e and 0xA0.
static const char charsmap[] =
    "AAQAAAAEAAAAAAAAAAAAAAQAAIACAACAAAAAgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABl"
    "hQEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAKCZAgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAvfECAAAAAAAAAAAAAAAAAMIEAwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABFACAAMQA=";
static const char bert[] =
    "{\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":true},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
    "\"added_tokens\":[{\"id\":1,\"content\":\"[CLS]\",\"special\":true}],\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\"},"
    "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",1],\"sep\":[\"[UNK]\",0]},"
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":9,"
    "\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"th\":2,\"the\":3,\"##a\":4,\"a\":5,\"##aa\":6,\".\":7,\"an\":8,\"e\":9,\"##1\":10,\"1\":11}}}";
static const char t5[] =
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"},"
    "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},"
    "\"content\":\"_\"}]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},"
    "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}]},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},"
    "\"added_tokens\":[{\"id\":0,\"content\":\"<l>\",\"special\":true}],\"model\":{\"type\":\"Unigram\",\"unk_id\":0,"
    "\"vocab\":[[\"<l>\",0],[\"_\",-2.5],[\"_th\",-3],[\"E\",-4.25],[\"a\",-3],[\"aa\",-5.5],[\"thE\",-6],[\"1\",-4]]}}";
static const char pieces[] =
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKD\"},{\"type\":\"StripAccents\"},{\"type\":\"Lowercase\"},"
    "{\"type\":\"Nmt\"},{\"type\":\"NFC\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"an\"},\"content\":\"n\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\",\"split\":true},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"},"
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,"
    "\"vocab\":[[\"<unk>\",0],[\"_\",-2],[\"_th\",-3],[\"e\",-4],[\"<0xFF>\",-9],[\"aa\",-5]]}}";

static size_t make_words(int k, char text[ROOM]) {
    if (k == LEVELS + 1) return (size_t)snprintf(text, ROOM, t5, charsmap);
    return (size_t)snprintf(text, ROOM, "%s", k == LEVELS ? bert : pieces);
}

// What can be found by mutation comes first, the long list of bytes last.
static size_t make_seed(int k, char text[ROOM]) {
    static const char *const words[] = {"th", "the", "\\u0120t", "aa"};
    int spare = 0x100;
    char *to = text;
    if (k >= LEVELS) return make_words(k, text);
    to += sprintf(
        to,
        "{\"normalizer\":%s,\"added_tokens\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,\"model\":{\"ignore_merges\":%s,\"merges\":%s,\"vocab\":{",
        k == 2 || k == 4 ? "{\"type\":\"NFC\"}" : "null", k == 3 ? "[]" : added, steps[k], k == 1 ? template : "null",
        k == 1 ? "true" : "false", merges);
    for (int i = 0; i < 4; i++) to += sprintf(to, "\"%s\":%d,", words[i], 256 + i);
    for (int b = 0; b < 256; b++) {
        bool itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        to += sprintf(to, itself && b < 0x7f && b != '"' && b != '\\' ? "\"%c\":%d%s" : "\"\\u%04x\":%d%s",
                      itself ? b : spare++, b, b < 255 ? "," : "}}}");
    }
    if (k == 3) text[strlen(text) - 1] = 0, strcat(text, ",\"truncation\":null}"), to = text + strlen(text);
    return (size_t)(to - text);
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    char text[ROOM];
    for (int k = 0; k < SEEDS; k++) seed(ctx, (const uint8_t *)text, make_seed(k, text));
    return 0;
}

// --- what must hold --------------------------------------------------------------------------------------------------

static void check_exact(const tokenizer *t, const int32_t *ids, int64_t count, const uint8_t *text, int64_t n) {
    const uint8_t *piece;
    int64_t bytes, at = 0;
    for (int64_t i = 0; i < count; i++) {
        expect(tokenizer_piece(t, ids[i], &piece, &bytes) == ERR_OK);
        expect(at + bytes <= n && memcmp(text + at, piece, (size_t)bytes) == 0);
        at += bytes;
    }
    expect(at == n);
}

// The text whole, and in two where it may be cut.
static void encode(encoder *e, const tokenizer *t, const uint8_t *text, int64_t n, int how) {
    const int32_t *ids;
    int64_t count, cut = tokenizer_cut(t, text, n, how), first;
    tokenizer_info about = tokenizer_about(t);
    expect(cut >= 0 && cut <= n);
    expect(encoder_encode(e, text, n, how, &ids, &count) == ERR_OK);
    for (int64_t i = 0; i < count; i++) expect(ids[i] >= 0 && ids[i] < about.vocab);
    if (about.exact && how == ENCODE_TEXT) check_exact(t, ids, count, text, n);
    if (cut == 0) return;
    int32_t *whole = malloc((size_t)count * sizeof *whole + 1);
    memcpy(whole, ids, (size_t)count * sizeof *ids);
    expect(encoder_encode(e, text, cut, how & ~ENCODE_END, &ids, &first) == ERR_OK);
    expect(first <= count && memcmp(whole, ids, (size_t)first * sizeof *ids) == 0);
    int64_t rest = count - first;
    expect(encoder_encode(e, text + cut, n - cut, how & ~ENCODE_BEGIN, &ids, &first) == ERR_OK);
    expect(first == rest && memcmp(whole + count - rest, ids, (size_t)first * sizeof *ids) == 0);
    free(whole);
}

static bool try_json(const uint8_t *json, size_t size, const uint8_t *text, size_t n) {
    static const char words[] =
        " the <l> an e\xcc\x81 an \xc3\xa9 th'S 12345 aaaa<|endoftext|><|\r\n \xff\xe4\xb8 \xe4\xb8\xad.\n";
    tokenizer *t;
    encoder *e;
    err_t rc = tokenizer_parse(&t, "fuzz", (const char *)json, (int64_t)size);
    expect(rc == ERR_OK || (rc == ERR_DATA && !t && strstr(err_last()->text, "fuzz: ")));
    if (rc != ERR_OK) return false;
    expect(encoder_open(&e, t) == ERR_OK);
    for (int how = ENCODE_TEXT; how <= (ENCODE_SPECIAL | ENCODE_TEMPLATE); how++) {
        encode(e, t, (const uint8_t *)words, sizeof words - 1, how);
        encode(e, t, text, (int64_t)n, how);
    }
    encoder_close(e);
    tokenizer_close(t);
    return true;
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    char json[ROOM];
    size_t most = size < 4096 ? size : 4096;
    int k = size ? data[size / 2] % SEEDS : 0;
    expect(try_json((const uint8_t *)json, make_seed(k, json), data + size - most, most));
    return try_json(data, size, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}
