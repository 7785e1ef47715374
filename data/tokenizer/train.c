// data/tokenizer/train.c: of all pairs of neighbours in all pieces the most frequent becomes a token, again and again.
// Ids are given to special tokens, then to bytes in the order of the characters that stand for them, then to merges. Of
// equally frequent pairs that with smaller ids comes first. What a merge makes may be a token already: then it keeps
// its id.
//
// A heap has the pairs with their counts when they were put in. A pair that comes up and has another count by now goes
// back with it: counts of pairs that are in the heap only fall. Each entry knows the pieces in which the pair stands,
// so that a merge looks at no others.
#include "data/tokenizer/train.h"
#include "data/tokenizer/inside.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

// --- texts by number -------------------------------------------------------------------------------------------------

typedef struct lexeme {
    int64_t at, bytes;
    uint64_t hash;
    int64_t count;
} lexeme;

// Different strings of bytes, numbered as they come.
typedef struct lexicon {
    bytes text;
    struct {
        lexeme *at;
        int64_t n, room;
    } list;
    int32_t *slot;  // (slots): number, -1: free
    int64_t slots;
} lexicon;

static uint64_t hash_text(const uint8_t *s, int64_t n) {
    uint64_t h = (uint64_t)n, part;
    for (; n >= 8; s += 8, n -= 8) memcpy(&part, s, 8), h = hash_mix(h, part);
    part = 0;
    if (n) memcpy(&part, s, (size_t)n);
    return hash_mix(h, part);
}

static err_t lexicon_grow(lexicon *l) {
    int64_t slots = l->slots ? 2 * l->slots : 1024;
    int32_t *slot = malloc((size_t)slots * sizeof *slot);
    if (!slot) return err_set(ERR_INTERNAL, "no memory for %lld pieces of text", (long long)slots);
    memset(slot, 0xFF, (size_t)slots * sizeof *slot);
    for (int64_t i = 0; i < l->list.n; i++) {
        uint64_t h = l->list.at[i].hash & (uint64_t)(slots - 1);
        while (slot[h] >= 0) h = (h + 1) & (uint64_t)(slots - 1);
        slot[h] = (int32_t)i;
    }
    free(l->slot);
    l->slot = slot;
    l->slots = slots;
    return ERR_OK;
}

// The number of a string, which is taken in if it is new.
static err_t lexicon_take(lexicon *l, const uint8_t *s, int64_t n, int32_t *number) {
    if (2 * l->list.n >= l->slots) TRY(lexicon_grow(l));
    uint64_t hash = hash_text(s, n), mask = (uint64_t)(l->slots - 1), h = hash & mask;
    for (; l->slot[h] >= 0; h = (h + 1) & mask) {
        const lexeme *x = &l->list.at[l->slot[h]];
        if (x->hash == hash && x->bytes == n && memcmp(l->text.at + x->at, s, (size_t)n) == 0)
            return *number = l->slot[h], ERR_OK;
    }
    if (l->list.n == INT32_MAX) return err_set(ERR_DATA, "more than 2^31 different pieces of text");
    ROOM_FOR(&l->text, l->text.n + n + 1);
    ROOM_FOR(&l->list, l->list.n + 1);
    memcpy(l->text.at + l->text.n, s, (size_t)n);
    l->list.at[l->list.n] = (lexeme){l->text.n, n, hash, 0};
    l->text.n += n;
    *number = l->slot[h] = (int32_t)l->list.n++;
    return ERR_OK;
}

static void lexicon_free(lexicon *l) {
    free(l->text.at);
    free(l->list.at);
    free(l->slot);
}

// --- what is counted -------------------------------------------------------------------------------------------------

typedef struct kind {
    const char *name;
    bool nfc;
    split_digits digits;
    split_pattern pattern;
    const char *special[3];
    int first;  // this one of them is put before a text; -1: none
} kind;

static const kind kinds[] = {
    {"gpt2", false, DIGITS_ANY, SPLIT_GPT2, {"<|endoftext|>"}, -1},
    {"llama3", false, DIGITS_ANY, SPLIT_LLAMA3, {"<|begin_of_text|>", "<|end_of_text|>"}, 0},
    {"qwen2", true, DIGITS_ANY, SPLIT_QWEN2, {"<|endoftext|>"}, -1},
    {"smollm", false, DIGITS_EACH, SPLIT_GPT2, {"<|endoftext|>"}, -1},
};

typedef struct places {
    int32_t *at;  // numbers of pieces, rising
    int64_t n, room;
} places;

typedef struct counted {
    uint64_t pair;  // left << 32 | right; UINT64_MAX: free
    int64_t count;
    int32_t fresh;  // which list of new places; -1: none
} counted;

typedef struct candidate {
    int64_t count;
    uint64_t pair;
    places in;
} candidate;

struct bpe_trainer {
    const kind *kind;
    int64_t vocab;
    uint8_t *table;
    nfc_pairs pairs;
    nfc_points points;
    bytes normal;
    lexicon pieces, tokens;
    int32_t *symbol;  // of all pieces, one after the other; a piece gets shorter where it is
    int32_t *length;  // (pieces): symbols that are left
    counted *count;   // hashed, (slots)
    int64_t slots, used;
    struct {
        places *at;
        int64_t n, room;
    } fresh;  // of pairs that came up since the last merge
    struct {
        uint64_t *at;
        int64_t n, room;
    } fresh_pair;
    struct {
        candidate *at;
        int64_t n, room;
    } heap;
    struct {
        uint64_t *at;
        int64_t n, room;
    } merges;
};

err_t bpe_trainer_open(bpe_trainer **out, const char *name, int64_t vocab) {
    const kind *k = NULL;
    int64_t least = 256;
    *out = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(name, kinds[i].name) == 0) k = &kinds[i];
    if (!k) return err_set(ERR_USAGE, "%s: no such kind of tokenizer; expected gpt2, llama3, qwen2 or smollm", name);
    for (int i = 0; i < 3; i++) least += k->special[i] != NULL;
    if (vocab < least || vocab > VOCAB_MOST)
        return err_set(ERR_USAGE,
                       "a vocabulary of %lld tokens: expected %lld to %d, for bytes and special tokens and more",
                       (long long)vocab, (long long)least, VOCAB_MOST);
    bpe_trainer *b = calloc(1, sizeof *b);
    if (!b || !(b->table = unicode_table())) {
        free(b);
        return err_set(ERR_INTERNAL, "no memory to train a tokenizer");
    }
    b->kind = k;
    b->vocab = vocab;
    nfc_fill(&b->pairs);
    *out = b;
    return ERR_OK;
}

void bpe_trainer_close(bpe_trainer *b) {
    if (!b) return;
    lexicon_free(&b->pieces);
    lexicon_free(&b->tokens);
    for (int64_t i = 0; i < b->fresh.n; i++) free(b->fresh.at[i].at);
    for (int64_t i = 0; i < b->heap.n; i++) free(b->heap.at[i].in.at);
    free(b->fresh.at);
    free(b->fresh_pair.at);
    free(b->heap.at);
    free(b->merges.at);
    free(b->count);
    free(b->symbol);
    free(b->length);
    free(b->normal.at);
    free(b->points.at);
    free(b->table);
    free(b);
}

err_t bpe_trainer_feed(bpe_trainer *b, const void *from, int64_t n) {
    const uint8_t *text = from;
    int32_t number;
    if (b->kind->nfc && nfc_clean(b->table, text, n) < n) {
        TRY(nfc_apply(&b->pairs, b->table, text, n, &b->points, &b->normal));
        text = b->normal.at, n = b->normal.n;
    }
    while (n > 0) {
        int64_t part = split_digit_piece(b->table, b->kind->digits, text, n);
        n -= part;
        while (part > 0) {
            int64_t piece = split_piece(b->table, b->kind->pattern, text, part);
            if (piece > INT32_MAX)
                return err_set(ERR_DATA, "a piece of %lld bytes, expected less than 2^31", (long long)piece);
            TRY(lexicon_take(&b->pieces, text, piece, &number));
            b->pieces.list.at[number].count++;
            text += piece;
            part -= piece;
        }
    }
    return ERR_OK;
}

// --- counts of pairs -------------------------------------------------------------------------------------------------

static counted *find_count(counted *count, int64_t slots, uint64_t pair) {
    uint64_t mask = (uint64_t)(slots - 1), h = hash_mix(pair, 0) & mask;
    while (count[h].pair != pair && count[h].pair != UINT64_MAX) h = (h + 1) & mask;
    return &count[h];
}

static err_t grow_counts(bpe_trainer *b) {
    int64_t slots = b->slots ? 2 * b->slots : 4096;
    counted *count = malloc((size_t)slots * sizeof *count);
    if (!count) return err_set(ERR_INTERNAL, "no memory for counts of %lld pairs", (long long)slots);
    for (int64_t i = 0; i < slots; i++) count[i] = (counted){UINT64_MAX, 0, -1};
    for (int64_t i = 0; i < b->slots; i++)
        if (b->count[i].pair != UINT64_MAX) *find_count(count, slots, b->count[i].pair) = b->count[i];
    free(b->count);
    b->count = count;
    b->slots = slots;
    return ERR_OK;
}

static uint64_t pair_of(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

// `more` occurrences of a pair; if they are new, they are in this piece.
static err_t add_count(bpe_trainer *b, uint64_t pair, int64_t more, int32_t piece) {
    if (2 * b->used >= b->slots) TRY(grow_counts(b));
    counted *c = find_count(b->count, b->slots, pair);
    if (c->pair == UINT64_MAX) c->pair = pair, b->used++;
    c->count += more;
    if (more < 0) return ERR_OK;
    if (c->fresh < 0) {
        ROOM_FOR(&b->fresh, b->fresh.n + 1);
        ROOM_FOR(&b->fresh_pair, b->fresh.n + 1);
        b->fresh_pair.at[b->fresh.n] = pair;
        c->fresh = (int32_t)b->fresh.n;
        b->fresh.at[b->fresh.n++] = (places){0};
    }
    places *in = &b->fresh.at[c->fresh];
    if (in->n && in->at[in->n - 1] == piece) return ERR_OK;
    ROOM_FOR(in, in->n + 1);
    in->at[in->n++] = piece;
    return ERR_OK;
}

// --- the heap --------------------------------------------------------------------------------------------------------

static bool before(const candidate *a, const candidate *b) {
    return a->count != b->count ? a->count > b->count : a->pair < b->pair;
}

static err_t push(bpe_trainer *b, candidate c) {
    ROOM_FOR(&b->heap, b->heap.n + 1);
    candidate *heap = b->heap.at;
    int64_t i = b->heap.n++;
    for (; i > 0 && before(&c, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
    return ERR_OK;
}

static candidate pop(bpe_trainer *b) {
    candidate *heap = b->heap.at, first = heap[0], last = heap[--b->heap.n];
    int64_t i = 0, n = b->heap.n;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &last)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return first;
}

// Pairs that came up become candidates.
static err_t push_fresh(bpe_trainer *b) {
    for (int64_t i = 0; i < b->fresh.n; i++) {
        counted *c = find_count(b->count, b->slots, b->fresh_pair.at[i]);
        candidate new = {c->count, c->pair, b->fresh.at[i]};
        c->fresh = -1;
        if (c->count > 0) TRY(push(b, new));
        else free(new.in.at);
        b->fresh.at[i] = (places){0};
    }
    b->fresh.n = 0;
    return ERR_OK;
}

// --- merging ---------------------------------------------------------------------------------------------------------

// Every place in one piece where left and right stand side by side, from left to right.
static err_t merge_piece(bpe_trainer *b, int32_t piece, int32_t left, int32_t right, int32_t id) {
    const lexeme *x = &b->pieces.list.at[piece];
    int32_t *s = b->symbol + x->at, n = b->length[piece], kept = 0;
    for (int32_t i = 0; i < n; i++) {
        if (s[i] != left || i + 1 == n || s[i + 1] != right) {
            s[kept++] = s[i];
            continue;
        }
        if (kept > 0) {
            TRY(add_count(b, pair_of(s[kept - 1], left), -x->count, piece));
            TRY(add_count(b, pair_of(s[kept - 1], id), x->count, piece));
        }
        i++;
        if (i + 1 < n) {
            TRY(add_count(b, pair_of(right, s[i + 1]), -x->count, piece));
            TRY(add_count(b, pair_of(id, s[i + 1]), x->count, piece));
        }
        s[kept++] = id;
    }
    b->length[piece] = kept;
    return ERR_OK;
}

static err_t merge(bpe_trainer *b, const candidate *c) {
    int32_t left = (int32_t)(c->pair >> 32), right = (int32_t)c->pair, id;
    const lexeme l = b->tokens.list.at[left], r = b->tokens.list.at[right];
    ROOM_FOR(&b->normal, l.bytes + r.bytes + 1);
    memcpy(b->normal.at, b->tokens.text.at + l.at, (size_t)l.bytes);
    memcpy(b->normal.at + l.bytes, b->tokens.text.at + r.at, (size_t)r.bytes);
    TRY(lexicon_take(&b->tokens, b->normal.at, l.bytes + r.bytes, &id));
    ROOM_FOR(&b->merges, b->merges.n + 1);
    b->merges.at[b->merges.n++] = c->pair;
    for (int64_t i = 0; i < c->in.n; i++) TRY(merge_piece(b, c->in.at[i], left, right, id));
    return push_fresh(b);
}

static err_t find_merges(bpe_trainer *b) {
    while (b->tokens.list.n < b->vocab && b->heap.n > 0) {
        candidate c = pop(b);
        int64_t now = find_count(b->count, b->slots, c.pair)->count;
        err_t rc = ERR_OK;
        if (now != c.count) {
            c.count = now;
            TRY(push(b, c));  // there is room: one was taken out
            continue;
        }
        if (now > 0) rc = merge(b, &c);
        free(c.in.at);
        TRY(rc);
        if (now < 1) break;
    }
    return ERR_OK;
}

// Special tokens, then bytes by the characters that stand for them; and each piece as bytes.
static err_t begin(bpe_trainer *b) {
    int32_t id_of[256], id;
    for (int i = 0; i < 3; i++)
        if (b->kind->special[i])
            TRY(lexicon_take(&b->tokens, (const uint8_t *)b->kind->special[i], (int64_t)strlen(b->kind->special[i]),
                             &id));
    for (uint32_t c = 0x21; c < 0x180; c++)
        for (int byte = 0; byte < 256; byte++)
            if (byte_character((uint8_t)byte) == c)
                TRY(lexicon_take(&b->tokens, &(uint8_t){(uint8_t)byte}, 1, &id_of[byte]));
    b->symbol = malloc((size_t)(b->pieces.text.n + 1) * sizeof *b->symbol);
    b->length = malloc((size_t)(b->pieces.list.n + 1) * sizeof *b->length);
    if (!b->symbol || !b->length)
        return err_set(ERR_INTERNAL, "no memory for %lld different pieces of text", (long long)b->pieces.list.n);
    for (int64_t i = 0; i < b->pieces.text.n; i++) b->symbol[i] = id_of[b->pieces.text.at[i]];
    for (int32_t i = 0; i < (int32_t)b->pieces.list.n; i++) {
        const lexeme *x = &b->pieces.list.at[i];
        b->length[i] = (int32_t)x->bytes;
        for (int64_t k = 0; k + 1 < x->bytes; k++)
            TRY(add_count(b, pair_of(b->symbol[x->at + k], b->symbol[x->at + k + 1]), x->count, i));
    }
    return push_fresh(b);
}

// --- tokenizer.json --------------------------------------------------------------------------------------------------

// A token as it is written: special ones are ASCII, which stands for itself.
static void spell(const bpe_trainer *b, int32_t id, char *to) {
    const lexeme *x = &b->tokens.list.at[id];
    for (int64_t i = 0; i < x->bytes; i++) to += utf8_put((uint8_t *)to, byte_character(b->tokens.text.at[x->at + i]));
    *to = 0;
}

static json_t *level(bool regex) {
    return json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                     (int)regex);
}

static json_t *pre_tokenizer(const kind *k) {
    if (k->digits == DIGITS_EACH)
        return json_pack("{s:s,s:[{s:s,s:b},o]}", "type", "Sequence", "pretokenizers", "type", "Digits",
                         "individual_digits", 1, level(true));
    if (k->pattern == SPLIT_GPT2) return level(true);
    return json_pack("{s:s,s:[{s:s,s:{s:s},s:s,s:b},o]}", "type", "Sequence", "pretokenizers", "type", "Split",
                     "pattern", "Regex", split_regex(k->pattern), "behavior", "Isolated", "invert", 0, level(false));
}

static json_t *post_processor(const kind *k) {
    const char *first = k->first >= 0 ? k->special[k->first] : NULL;
    if (!first) return level(true);
    return json_pack(
        "{s:s,s:[{s:{s:s,s:i}},{s:{s:s,s:i}}],s:[{s:{s:s,s:i}},{s:{s:s,s:i}},{s:{s:s,s:i}},{s:{s:s,s:i}}],s:{s:{s:s,s:[i],s:[s]}}}",
        "type", "TemplateProcessing", "single", "SpecialToken", "id", first, "type_id", 0, "Sequence", "id", "A",
        "type_id", 0, "pair", "SpecialToken", "id", first, "type_id", 0, "Sequence", "id", "A", "type_id", 0,
        "SpecialToken", "id", first, "type_id", 1, "Sequence", "id", "B", "type_id", 1, "special_tokens", first, "id",
        first, "ids", k->first, "tokens", first);
}

static json_t *added_tokens(const kind *k) {
    json_t *all = json_array();
    for (int i = 0; i < 3; i++)
        if (k->special[i])
            json_array_append_new(all,
                                  json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", i, "content", k->special[i],
                                            "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    return all;
}

static json_t *model(const bpe_trainer *b, char *left, char *right) {
    json_t *vocab = json_object(), *merges = json_array();
    for (int32_t id = 0; id < (int32_t)b->tokens.list.n; id++) {
        spell(b, id, left);
        json_object_set_new(vocab, left, json_integer(id));
    }
    for (int64_t i = 0; i < b->merges.n; i++) {
        spell(b, (int32_t)(b->merges.at[i] >> 32), left);
        spell(b, (int32_t)b->merges.at[i], right);
        json_array_append_new(merges, json_pack("[s,s]", left, right));
    }
    return json_pack("{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:b,s:o,s:o}", "type", "BPE", "dropout", "unk_token",
                     "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                     "ignore_merges", 0, "vocab", vocab, "merges", merges);
}

static err_t write_json(const bpe_trainer *b, char **out) {
    const kind *k = b->kind;
    int64_t longest = 0;
    for (int64_t i = 0; i < b->tokens.list.n; i++)
        if (b->tokens.list.at[i].bytes > longest) longest = b->tokens.list.at[i].bytes;
    char *left = malloc((size_t)(4 * longest + 8)), *right = left ? left + 2 * longest + 4 : NULL;
    json_t *root =
        left ? json_pack("{s:s,s:n,s:n,s:o,s:o,s:o,s:o,s:o,s:o}", "version", "1.0", "truncation", "padding",
                         "added_tokens", added_tokens(k), "normalizer",
                         k->nfc ? json_pack("{s:s}", "type", "NFC") : json_null(), "pre_tokenizer", pre_tokenizer(k),
                         "post_processor", post_processor(k), "decoder", level(true), "model", model(b, left, right))
             : NULL;
    *out = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    free(left);
    return *out ? ERR_OK
                : err_set(ERR_INTERNAL, "no memory for a tokenizer.json of %lld tokens", (long long)b->tokens.list.n);
}

err_t bpe_trainer_finish(bpe_trainer *b, char **json) {
    *json = NULL;
    TRY(begin(b));
    TRY(find_merges(b));
    return write_json(b, json);
}
