// data/tokenizer/pieces.c: both walk the tree of tokens from each place that they come to; time is the piece's length
// times that of the longest token at most.
#include "data/tokenizer/pieces.h"
#include "data/tokenizer/unicode.h"

static bool starts_character(uint8_t byte) { return (byte & 0xC0) != 0x80; }

static int64_t characters(const uint8_t *text, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += starts_character(text[i]);
    return count;
}

err_t wordpiece_encode(const piece_model *m, const uint8_t *text, int64_t n, id_list *out) {
    int64_t before = out->n;
    if (n > m->most && characters(text, n) > m->most) return ids_add(out, m->unknown);
    for (int64_t at = 0, end; at < n; at = end) {
        int32_t node = at ? m->inner : 0, id = -1;
        end = at;
        for (int64_t i = at; i < n && node >= 0 && (node = trie_next(&m->words, node, text[i])) >= 0; i++)
            if (m->words.nodes.at[node] >= 0 && (i + 1 == n || starts_character(text[i + 1])))
                id = m->words.nodes.at[node], end = i + 1;
        if (id < 0) {
            out->n = before;
            return ids_add(out, m->unknown);
        }
        TRY(ids_add(out, id));
    }
    return ERR_OK;
}

static void offer(path_node *to, double score, int64_t from, int32_t id) {
    if (to->from < 0 || score > to->score) *to = (path_node){score, from, id};
}

// All tokens that begin at `at`, and the unknown character where none is as long as the character.
static void extend(const piece_model *m, const uint8_t *text, int64_t n, int64_t at, path_node *path) {
    uint32_t c;
    int bytes = utf8_next(text + at, n - at, &c), one = bytes ? bytes : 1;
    double score = path[at].score;
    bool single = false;
    int32_t node = 0;
    for (int64_t i = at; i < n && (node = trie_next(&m->words, node, text[i])) >= 0; i++) {
        int32_t id = m->words.nodes.at[node];
        if (id < 0) continue;
        offer(&path[i + 1], m->score[id] + score, at, id);
        single |= i + 1 - at == one;
    }
    if (!single) offer(&path[at + one], m->no_score + score, at, m->unknown);
}

// A run of unknown characters is one token: one with these bytes, if there is; else each byte's, if all have one, or
// the unknown one.
static err_t add_unknown(const piece_model *m, const uint8_t *text, int64_t n, id_list *out) {
    int32_t node = trie_walk(&m->words, text, n), id = node >= 0 ? m->words.nodes.at[node] : -1;
    bool known = m->bytes_known;
    for (int64_t i = 0; i < n && known && id < 0; i++) known = m->byte_id[text[i]] >= 0;
    if (id >= 0 || !known) return ids_add(out, id >= 0 ? id : m->unknown);
    for (int64_t i = 0; i < n; i++) TRY(ids_add(out, m->byte_id[text[i]]));
    return ERR_OK;
}

// The way from the end back becomes one forth: each node's `from` is then where its token ends.
static void turn(path_node *path, int64_t n) {
    int64_t end = -1;
    int32_t id = -1;
    for (int64_t at = n; at >= 0;) {
        path_node was = path[at];
        path[at].from = end;
        path[at].id = id;
        end = at;
        id = was.id;
        if (at == 0) break;
        at = was.from;
    }
}

err_t unigram_encode(const piece_model *m, const uint8_t *text, int64_t n, path_work *work, id_list *out) {
    ROOM_FOR(work, n + 1);
    path_node *path = work->at;
    for (int64_t i = 0; i <= n; i++) path[i] = (path_node){0, -1, -1};
    for (int64_t at = 0, bytes; at < n; at += bytes) {
        uint32_t c;
        bytes = utf8_next(text + at, n - at, &c);
        if (!bytes) bytes = 1;
        extend(m, text, n, at, path);
    }
    turn(path, n);
    for (int64_t at = 0, end; at < n; at = end) {
        end = path[at].from;
        if (path[at].id != m->unknown) {
            TRY(ids_add(out, path[at].id));
            continue;
        }
        while (end < n && path[end].id == m->unknown) end = path[end].from;
        TRY(add_unknown(m, text + at, end - at, out));
    }
    return ERR_OK;
}

void piece_model_free(piece_model *m) {
    trie_free(&m->words);
    free(m->score);
}
