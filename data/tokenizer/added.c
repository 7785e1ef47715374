// data/tokenizer/added.c: at each place of a text the longest token of the tree, from left to right.
#include "data/tokenizer/added.h"
#include "data/tokenizer/unicode.h"

#include <string.h>

static int32_t child_of(const added_set *s, int32_t node, uint8_t byte) {
    int32_t c = s->nodes.at[node].child;
    while (c >= 0 && s->nodes.at[c].byte != byte) c = s->nodes.at[c].sibling;
    return c;
}

static err_t add_node(added_set *s, uint8_t byte, int32_t sibling) {
    ROOM_FOR(&s->nodes, s->nodes.n + 1);
    s->nodes.at[s->nodes.n++] = (added_node){-1, -1, sibling, byte};
    return ERR_OK;
}

err_t added_put(added_set *s, const added_token *token, int32_t k, const uint8_t *text, int64_t n) {
    int32_t node = 0;
    if (n == 0) return ERR_OK;
    s->token = token;
    if (s->nodes.n == 0) TRY(add_node(s, 0, -1));
    for (int64_t i = 0; i < n; i++) {
        int32_t c = child_of(s, node, text[i]);
        if (c < 0) {
            c = (int32_t)s->nodes.n;
            TRY(add_node(s, text[i], s->nodes.at[node].child));
            s->nodes.at[node].child = c;
        }
        node = c;
    }
    if (s->nodes.at[node].token >= 0) return ERR_OK;
    s->nodes.at[node].token = k;
    s->starts[text[0]] = true;
    s->count++;
    s->plain += !token[k].special;
    return ERR_OK;
}

void added_free(added_set *s) { free(s->nodes.at); }

int32_t added_at(const added_set *s, const uint8_t *text, int64_t n, int64_t *length) {
    int32_t node = 0, found = -1;
    for (int64_t i = 0; i < n && (node = child_of(s, node, text[i])) >= 0; i++)
        if (s->nodes.at[node].token >= 0) found = s->nodes.at[node].token, *length = i + 1;
    return found;
}

// The class of the character that ends at text[n], n > 0, and its bytes.
static uint8_t class_before(const uint8_t *table, const uint8_t *text, int64_t n, int *bytes) {
    for (int k = 1; k <= 4 && k <= n; k++) {
        uint32_t c;
        if (utf8_next(text + n - k, k, &c) == k) return *bytes = k, table[c];
    }
    return *bytes = 1, 0;
}

static bool beside_word(const uint8_t *table, const uint8_t *text, int64_t n, int64_t begin, int64_t end) {
    int bytes;
    return (begin > 0 && class_before(table, text, begin, &bytes) & CLASS_WORD) ||
           (end < n && class_at(table, text + end, n - end, &bytes) & CLASS_WORD);
}

added_match added_next(const added_set *s, const uint8_t *table, const uint8_t *text, int64_t n, bool special,
                       int64_t *scan, int64_t from) {
    int64_t at = *scan, length = 0;
    int bytes;
    for (; at < n; at++) {
        if (!s->starts[text[at]]) continue;
        int32_t k = added_at(s, text + at, n - at, &length);
        if (k < 0) continue;
        const added_token *t = &s->token[k];
        added_match m = {at, at + length, k};
        at += length - 1;
        if ((t->special && !special) || (t->single_word && beside_word(table, text, n, m.begin, m.end))) continue;
        *scan = at + 1;
        if (t->left)
            while (m.begin > from && class_before(table, text, m.begin, &bytes) & CLASS_SPACE) m.begin -= bytes;
        if (t->right)
            while (m.end < n && class_at(table, text + m.end, n - m.end, &bytes) & CLASS_SPACE) m.end += bytes;
        return m;
    }
    *scan = n;
    return (added_match){n, n, -1};
}
