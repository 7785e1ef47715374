// trainer/export.c: a checkpoint as a directory of Hugging Face: config.json, weights as safetensors, one file or
// several with an index, and the tokenizer's files where one is given. Everything is written beside the directory,
// synced, and renamed: it is whole or not there.
#include "base/io.h"
#include "data/tokenizer/tokenizer.h"
#include "model/foreign.h"
#include "model/peft.h"
#include "model/safetensors.h"
#include "trainer/session/restore.h"
#include "trainer/verbs.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct export_options {
    const char *from, *tokenizer;  // a run or a checkpoint; NULL: that of the data
    char to[IO_PATH];              // a directory that is made, without a slash at its end
    st_type type;
    int64_t shard;  // most bytes of a file
    bool merge;     // adapters are added to the weights beside them
    bool ema;       // the mean of the weights is written in place of the last ones
} export_options;

// A tensor of the files: rows of a parameter.
typedef struct piece {
    st_tensor tensor;
    int param, file;
    int64_t first;  // element of the parameter
    weight_part part;
} piece;

typedef struct export {
    const export_options *o;
    session *x;
    char dir[IO_PATH];    // where it is written
    char words[IO_PATH];  // where the tokenizer is; "": there is none
    char lost[ERR_TEXT];  // why the one of the data was not found; "": it was, or there is none
    piece *piece;
    int pieces, files;
    int64_t bytes;
}
export;

// --- which tensors, in which files -----------------------------------------------------------------------------------

// Are the adapters alone written?
static bool is_adapters(const export *e) { return model_adapts(e->x->net)->rank && !e->o->merge; }

static bool is_written(const export *e, const param *p) {
    if (p->tied >= 0) return false;
    return !model_adapts(e->x->net)->rank || param_is_frozen(p) == e->o->merge;
}

static void add_piece(export *e, int param_index, const weight_part *part, int64_t first, int64_t *used) {
    const model *m = e->x->net;
    const param *p = &m->param[param_index];
    piece *k = &e->piece[e->pieces++];
    *k = (piece){.param = param_index, .first = first, .part = *part};
    st_tensor *t = &k->tensor;
    if (is_adapters(e)) peft_name(t->name, sizeof t->name, m, part);
    else snprintf(t->name, sizeof t->name, "%s%s", part->prefixed ? m->type->prefix : "", part->name);
    t->type = e->o->type;
    t->dims = weight_part_shape(part, p, part->rows, t->size);
    int64_t bytes = shape_count(t->dims, t->size) * (e->o->type == ST_F32 ? 4 : 2);
    if (*used > 0 && *used + bytes > e->o->shard && !is_adapters(e)) e->files++, *used = 0;
    *used += bytes;
    e->bytes += bytes;
    k->file = e->files - 1;
}

static err_t plan_pieces(export *e) {
    const model *m = e->x->net;
    int64_t used = 0;
    e->piece = calloc((size_t)(m->params * WEIGHT_PARTS), sizeof *e->piece);
    if (!e->piece) return err_set(ERR_INTERNAL, "no memory for a table of %d tensors", m->params * WEIGHT_PARTS);
    e->files = 1;
    for (int i = 0; i < m->params; i++) {
        weight_part part[WEIGHT_PARTS];
        int64_t first = 0;
        if (!is_written(e, &m->param[i])) continue;
        int parts = m->type->parts(m->options, &m->param[i], part);
        for (int k = 0; k < parts; k++) {
            add_piece(e, i, &part[k], first, &used);
            first += shape_count(e->piece[e->pieces - 1].tensor.dims, e->piece[e->pieces - 1].tensor.size);
        }
    }
    return ERR_OK;
}

// --- weights ---------------------------------------------------------------------------------------------------------

static err_t file_name(const export *e, int file, char dst[64]) {
    if (is_adapters(e)) snprintf(dst, 64, "adapter_model.safetensors");
    else if (e->files == 1) snprintf(dst, 64, "model.safetensors");
    else snprintf(dst, 64, "model-%05d-of-%05d.safetensors", file + 1, e->files);
    return ERR_OK;
}

// Element `at` of a row as it is stored. In FP32 the weights in use are the masters.
static float stored(const export *e, int row, int64_t at) {
    const tensor *w = &e->x->state.w[row];
    const char *codes = w->data;
    float scale;
    if (w->type != UINT8) return ((const float *)w->data)[at];
    memcpy(&scale, codes + tensor_count(w) + at / WIDEN_GROUP * 4, sizeof scale);
    return (float)(int8_t)codes[at] * scale;
}

// Element `at` of a row in row-major order.
static float element(const export *e, int row, int64_t at) {
    int64_t run;
    if (param_slices(&e->x->net->param[row]) == 1) return stored(e, row, at);
    const ckpt_order o = state_order(&e->x->state, row);
    return stored(e, row, order_stored(&o, at, &run));
}

// The row of one of the matrices of the piece's adapter, suffix "A" or "B"; -1: it has none.
static int adapter_of(const export *e, const piece *k, const char *which) {
    char name[MODEL_NAME + 16];
    const char *end = strstr(k->part.name, ".weight");
    if (!end) return -1;
    snprintf(name, sizeof name, "%.*s.lora_%s.weight", (int)(end - k->part.name), k->part.name, which);
    return model_find(e->x->net, name);
}

// out += factor * B A, of elements `first` and on in the order of the file.
static void merge(const export *e, const piece *k, int64_t first, int64_t n, float *out) {
    const model_adapters *is = model_adapts(e->x->net);
    const param *p = &e->x->net->param[k->param];
    int a = e->o->merge && is->rank ? adapter_of(e, k, "A") : -1, b = a < 0 ? -1 : adapter_of(e, k, "B");
    float factor = (float)(is->alpha / (double)is->rank);
    if (b < 0) return;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = weight_part_element(&k->part, p, first + i), row = at / p->size[1], column = at % p->size[1];
        float sum = 0;
        for (int64_t r = 0; r < is->rank; r++)
            sum += element(e, b, row * is->rank + r) * element(e, a, r * p->size[1] + column);
        out[i] += factor * sum;
    }
}

// Elements first .. first+n-1 of a piece in the order of the file, as FP32.
static void gather(const export *e, const piece *k, int64_t first, int64_t n, float *out) {
    const param *p = &e->x->net->param[k->param];
    bool cut = param_slices(p) > 1, plain = !cut && !k->part.transposed && !k->part.filters;
    int64_t run;
    if (plain) {
        for (int64_t i = 0; i < n; i++) out[i] = stored(e, k->param, k->first + first + i);
        return;
    }
    const ckpt_order o = state_order(&e->x->state, k->param);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = weight_part_element(&k->part, p, first + i);
        out[i] = stored(e, k->param, cut ? order_stored(&o, k->first + at, &run) : k->first + at);
    }
}

static err_t put_piece(const export *e, st_writer *w, const piece *k) {
    enum { SOME = 1 << 16 };
    int64_t each = e->o->type == ST_F32 ? 4 : 2, count = k->tensor.bytes / each;
    float *x = malloc(SOME * sizeof *x);
    void *y = malloc(SOME * sizeof *x);
    err_t rc = x && y ? ERR_OK : err_set(ERR_INTERNAL, "no memory to write %s", k->tensor.name);
    for (int64_t i = 0; i < count && rc == ERR_OK; i += SOME) {
        int64_t n = count - i < SOME ? count - i : SOME;
        tensor from = {x, FP32, 1, {n, 1, 1, 1}}, to = {y, e->o->type == ST_BF16 ? BF16 : FP16, 1, {n, 1, 1, 1}};
        gather(e, k, i, n, x);
        merge(e, k, i, n, x);
        if (e->o->type != ST_F32) rc = device_ops(e->x->dev)->cast(&(cast_args){.y = &to, .x = &from}, e->x->s);
        if (rc == ERR_OK) rc = st_put(w, e->o->type == ST_F32 ? (void *)x : y, (size_t)(n * each));
    }
    free(x), free(y);
    return rc;
}

static err_t write_tensors(const export *e, const char *path, st_tensor *table, piece *first, int count) {
    static const char *const metadata[] = {"format", "pt", NULL};
    st_writer w;
    TRY(st_create(&w, path, table, count, metadata, NULL));
    err_t rc = ERR_OK;
    for (int i = 0; i < count && rc == ERR_OK; i++) {
        first[i].tensor = table[i];
        rc = put_piece(e, &w, &first[i]);
    }
    if (rc == ERR_OK) return st_finish(&w, NULL);
    st_abort(&w);
    return rc;
}

static err_t write_file(const export *e, int file) {
    char path[IO_PATH], name[64];
    int first = 0, count = 0;
    while (e->piece[first].file != file) first++;
    while (first + count < e->pieces && e->piece[first + count].file == file) count++;
    TRY(file_name(e, file, name));
    TRY(io_path(path, "%s/%s", e->dir, name));
    st_tensor *table = calloc((size_t)count, sizeof *table);
    if (!table) return err_set(ERR_INTERNAL, "no memory for a table of %d tensors", count);
    for (int i = 0; i < count; i++) table[i] = e->piece[first + i].tensor;
    err_t rc = write_tensors(e, path, table, &e->piece[first], count);
    free(table);
    return rc;
}

// --- the files beside them -------------------------------------------------------------------------------------------

// Takes the object.
static err_t write_json(const export *e, const char *name, json_t *object) {
    char path[IO_PATH], *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_ENSURE_ASCII) : NULL;
    json_decref(object);
    if (!text) return err_set(ERR_INTERNAL, "%s: no memory", name);
    err_t rc = io_path(path, "%s/%s", e->dir, name);
    if (rc == ERR_OK) rc = io_write_file(path, text, strlen(text), NULL);
    free(text);
    return rc;
}

static err_t write_index(const export *e) {
    json_t *map = json_object();
    if (e->files == 1) return json_decref(map), ERR_OK;
    for (int i = 0; i < e->pieces; i++) {
        char name[64];
        TRY(file_name(e, e->piece[i].file, name));
        json_object_set_new(map, e->piece[i].tensor.name, json_string(name));
    }
    return write_json(e, "model.safetensors.index.json",
                      json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)e->bytes, "weight_map", map));
}

// The targets as files have them, whatever they are called in the INI: ends of names, each once.
static json_t *target_modules(const export *e) {
    json_t *names = json_array();
    for (int i = 0; i < e->pieces; i++) {
        const char *name = e->piece[i].part.name, *end = strstr(name, ".lora_A.weight"), *at = end;
        if (!end) continue;
        for (int dots = 0; at > name && (dots += at[-1] == '.') < 2;) at--;
        json_t *one = json_stringn(at, (size_t)(end - at));
        bool there = false;
        for (size_t k = 0; k < json_array_size(names); k++) there |= json_equal(json_array_get(names, k), one);
        if (there) json_decref(one);
        else json_array_append_new(names, one);
    }
    return names;
}

// What PEFT reads. GPT-2's layers hold their matrices as (in,out).
static err_t write_adapter_config(const export *e) {
    const model_adapters *is = model_adapts(e->x->net);
    const char *base = e->x->cfg->model.init_from;
    return write_json(e, "adapter_config.json",
                      json_pack("{s:s, s:s, s:o, s:I, s:f, s:f, s:o, s:s, s:b, s:b, s:b}", "peft_type", "LORA",
                                "task_type", "CAUSAL_LM", "base_model_name_or_path",
                                *base ? json_string(base) : json_null(), "r", (json_int_t)is->rank, "lora_alpha",
                                is->alpha, "lora_dropout", is->dropout, "target_modules", target_modules(e), "bias",
                                "none", "fan_in_fan_out", strcmp(e->x->net->type->name, "gpt") == 0, "inference_mode",
                                1, "init_lora_weights", 1));
}

static json_t *id_or_null(int32_t id) { return id < 0 ? json_null() : json_integer(id); }

// Classes of texts get the names that `pack` gave numbers to, if its list is still there and has as many.
static void name_classes(const export *e, json_t *config) {
    char path[IO_PATH], number[24];
    json_error_t why;
    const model *net = e->x->net;
    if (!net->context || !net->classes || !e->x->cfg->pack.output[0]) return;
    if (io_path(path, "%s-labels.json", e->x->cfg->pack.output) != ERR_OK) return;
    json_t *list = json_load_file(path, 0, &why), *names = json_object(), *numbers = json_object(), *name;
    size_t i;
    if (json_is_array(list) && (int64_t)json_array_size(list) == net->classes) {
        json_array_foreach(list, i, name) {
            snprintf(number, sizeof number, "%zu", i);
            json_object_set(names, number, name);
            json_object_set_new(numbers, json_string_value(name), json_integer((json_int_t)i));
        }
        json_object_set(config, "id2label", names), json_object_set(config, "label2id", numbers);
    }
    json_decref(list), json_decref(names), json_decref(numbers);
}

static err_t write_config(const export *e, const tokenizer_info *about) {
    static const char *const words[] = {[ST_F32] = "float32", [ST_F16] = "float16", [ST_BF16] = "bfloat16"};
    const char *type = words[e->o->type];
    const model *net = e->x->net;
    int64_t end = net->reads ? net->end : about->end_of_text;
    json_t *c = json_object();
    err_t rc = e->x->net->type->to_foreign(&e->x->cfg->model.of, c);
    if (rc != ERR_OK) return json_decref(c), rc;
    json_t *more = json_pack("{s:s, s:s, s:b, s:o, s:o}", "torch_dtype", type, "dtype", type, "use_cache", 1,
                             "bos_token_id", id_or_null(about->bos), "eos_token_id", id_or_null(end));
    json_object_update(c, more);
    json_decref(more);
    name_classes(e, c);
    TRY(write_json(e, "config.json", c));
    json_t *says = json_pack("{s:b, s:o, s:o}", "do_sample", 0, "bos_token_id", id_or_null(about->bos), "eos_token_id",
                             id_or_null(end));
    if (net->reads) json_object_set_new(says, "decoder_start_token_id", json_integer((json_int_t)net->begin));
    if (net->reads) json_object_set_new(says, "pad_token_id", json_integer(0));
    return write_json(e, "generation_config.json", says);
}

// A token for each byte, as a tokenizer.json: the alphabet of GPT-2's bytes, no merges.
static json_t *bytes_tokenizer(void) {
    json_t *vocab = json_object();
    for (int b = 0, next = 256; b < 256; b++) {
        bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        int point = itself ? b : next++;
        char text[3] = {(char)(0xC0 | point >> 6), (char)(0x80 | (point & 0x3F)), 0};
        if (point < 0x80) text[0] = (char)point, text[1] = 0;
        json_object_set_new(vocab, text, json_integer(b));
    }
    json_t *level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                              "use_regex", 0);
    return json_pack("{s:s, s:n, s:n, s:[], s:n, s:O, s:n, s:o, s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}}",
                     "version", "1.0", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", level,
                     "post_processor", "decoder", level, "model", "type", "BPE", "dropout", "unk_token",
                     "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                     "ignore_merges", 0, "vocab", vocab, "merges");
}

static err_t copy_file(const export *e, const char *from, const char *name) {
    enum { MOST = 256 << 20 };
    char to[IO_PATH], *text;
    size_t n;
    TRY(io_read_file(from, MOST, &text, &n));
    err_t rc = io_path(to, "%s/%s", e->dir, name);
    if (rc == ERR_OK) rc = io_write_file(to, text, n, NULL);
    free(text);
    return rc;
}

// GPT-2's two files get the names under which transformers looks for them.
static err_t copy_tokenizer(const export *e, const tokenizer_files *f) {
    if (f->json[0]) return copy_file(e, f->json, "tokenizer.json");
    if (f->words[0]) return copy_file(e, f->words, "vocab.txt");
    if (!f->vocab[0]) return write_json(e, "tokenizer.json", bytes_tokenizer());
    TRY(copy_file(e, f->vocab, "vocab.json"));
    return copy_file(e, f->merges, "merges.txt");
}

static void add_token(json_t *config, const tokenizer *t, const char *name, int32_t id) {
    const uint8_t *text;
    int64_t n;
    if (id >= 0 && tokenizer_first_piece(t, id, &text, &n) == ERR_OK)
        json_object_set_new(config, name, json_stringn((const char *)text, (size_t)n));
}

static bool reads_types(const model *net) {
    for (int i = 0; i < net->inputs; i++)
        if (strcmp(net->input[i].name, "types") == 0) return true;
    return false;
}

// What a tokenizer of texts and pairs of texts is asked for by name, and that it gives the types of tokens too.
static void add_words_of_bert(json_t *config, const tokenizer *t) {
    static const char *const word[][2] = {{"cls_token", "[CLS]"},
                                          {"sep_token", "[SEP]"},
                                          {"mask_token", "[MASK]"},
                                          {"pad_token", "[PAD]"},
                                          {"unk_token", "[UNK]"}};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        if (tokenizer_special(t, word[i][1]) >= 0) json_object_set_new(config, word[i][0], json_string(word[i][1]));
    json_object_set_new(config, "model_input_names",
                        json_pack("[s, s, s]", "input_ids", "token_type_ids", "attention_mask"));
}

static err_t write_tokenizer(const export *e, const tokenizer *t, const tokenizer_info *about) {
    tokenizer_files f;
    TRY(tokenizer_find(&f, t ? e->words : "bytes"));
    const char *class = f.words[0] ? "BertTokenizer" : f.vocab[0] ? "GPT2Tokenizer" : "PreTrainedTokenizerFast";
    json_t *c = json_pack("{s:s, s:I, s:b}", "tokenizer_class", class, "model_max_length",
                          (json_int_t)e->x->net->context, "clean_up_tokenization_spaces", 0);
    if (!c) return err_set(ERR_INTERNAL, "tokenizer_config.json: no memory");
    if (f.words[0]) json_object_set_new(c, "do_lower_case", json_boolean(f.lower));
    if (t) add_token(c, t, "bos_token", about->bos), add_token(c, t, "eos_token", about->end_of_text);
    if (t && reads_types(e->x->net)) add_words_of_bert(c, t);
    TRY(write_json(e, "tokenizer_config.json", c));
    return copy_tokenizer(e, &f);
}

// --- all of it -------------------------------------------------------------------------------------------------------

// A vocabulary of 256 is bytes, unless the data says otherwise.
static bool has_words(const export *e, const tokenizer *t) { return t || (e->x->net->vocab == 256 && !*e->lost); }

static err_t write_all(export *e, const tokenizer *t) {
    tokenizer_info about = t ? tokenizer_about(t) : (tokenizer_info){.end_of_text = -1, .bos = -1};
    TRY(plan_pieces(e));
    for (int i = 0; i < e->files; i++) TRY(write_file(e, i));
    if (is_adapters(e)) {
        TRY(write_adapter_config(e));
        return io_sync_dir(e->dir, NULL);
    }
    TRY(write_index(e));
    if (e->x->net->type->to_foreign) TRY(write_config(e, &about));
    if (has_words(e, t)) TRY(write_tokenizer(e, t, &about));
    return io_sync_dir(e->dir, NULL);
}

static err_t write_directory(export *e, const tokenizer *t) {
    TRY(io_path(e->dir, "%s.tmp-export", e->o->to));
    TRY(io_remove_tree(e->dir));
    TRY(io_mkdirs(e->dir));
    err_t rc = write_all(e, t);
    if (rc == ERR_OK) rc = io_rename(e->dir, e->o->to, NULL);
    if (rc == ERR_OK) return ERR_OK;
    err_record why = *err_last();
    io_remove_tree(e->dir);
    return err_restore(&why);
}

static err_t check_tokenizer(const export *e, const tokenizer *t) {
    const model *net = e->x->net;
    int64_t vocab = net->vocab ? net->vocab : net->context ? net->input[0].limit : 0;
    if (!t || tokenizer_about(t).vocab <= vocab) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s%s has ids up to %d, and the model knows %" PRId64
                   " tokens: expected the one that its data was made with",
                   e->o->tokenizer ? "--tokenizer " : "tokenizer ", e->words, tokenizer_about(t).vocab - 1, vocab);
}

// The one that was given, or else that which `sample` would write with. An export without it has the weights all the
// same.
static err_t open_words(export *e, tokenizer **t) {
    const char *given = e->o->tokenizer;
    if (given && tokenizer_open(t, given) != ERR_OK) return err_prefix("--tokenizer");
    if (given) return io_path(e->words, "%s", given);
    if (!e->x->net->vocab || exam_words(t, e->words, e->x->cfg, e->x->net, false) == ERR_OK) return ERR_OK;
    snprintf(e->lost, sizeof e->lost, ": %s", err_last()->text);
    tokenizer_close(*t);
    *t = NULL;
    return ERR_OK;
}

// The mean of the weights ([optimizer] ema) as the weights.
static err_t load_mean(session *x, const export_options *o, const char *ckpt) {
    double ema = x->cfg->optimizer.ema;
    float *w = x->state.masters.t.data;
    if (ema == 0)
        return err_set(ERR_USAGE, "--ema: %s keeps no mean of its weights ([optimizer] ema = 0): leave it out",
                       o->from);
    x->state.ckpt.group[0].name = MEAN_NAME;
    TRY(session_load(x, ckpt));
    if (x->progress.updates == 0)
        return err_set(ERR_DATA, "--ema: %s has no update, and so no mean of weights yet: expected a later one", ckpt);
    const float factor = mean_factor(ema, x->progress.updates);
    for (int64_t i = 0; i < tensor_count(&x->state.masters.t); i++) w[i] *= factor;
    return ERR_OK;
}

static err_t export_session(session *x, const export_options *o, const char *ckpt, FILE *out) {
    export e = {.o = o, .x = x};
    tokenizer *t = NULL;
    struct stat st;
    if (!x->net->type->parts)
        return err_set(ERR_CONFIG,
                       "a model of type %s has no form among those of Hugging Face; its safetensors are in %s",
                       x->net->type->name, ckpt);
    if (lstat(o->to, &st) == 0)
        return err_set(ERR_USAGE, "%s is there already: expected the name of a directory that can be made", o->to);
    if (o->merge && !model_adapts(x->net)->rank)
        return err_set(ERR_USAGE, "--merge: %s has no adapters ([lora] rank = 0): leave it out", o->from);
    TRY(o->ema ? load_mean(x, o, ckpt) : session_load(x, ckpt));
    TRY(open_words(&e, &t));
    err_t rc = check_tokenizer(&e, t);
    if (rc == ERR_OK) rc = write_directory(&e, t);
    if (rc == ERR_OK)
        fprintf(out, "exported %sstep %" PRId64 ": %d tensors, %" PRId64 " bytes of %s in %d file%s, to %s%s%s\n",
                o->ema ? "the mean of weights up to " : "", x->progress.step, e.pieces, e.bytes, st_type_name(o->type),
                e.files, e.files == 1 ? "" : "s", o->to,
                t                                    ? "; with the tokenizer "
                : has_words(&e, t) || !x->net->vocab ? ""
                                                     : "; without a tokenizer (--tokenizer PATH adds it)",
                t ? e.words : e.lost);
    free(e.piece);
    tokenizer_close(t);
    return rc;
}

// ckpt = the checkpoint, ini = the run's config.ini, of a run's directory or of a checkpoint's.
static err_t find_run(const char *from, char ckpt[IO_PATH], char ini[IO_PATH]) {
    struct stat st;
    TRY(io_path(ini, "%s/config.ini", from));
    if (stat(ini, &st) == 0) {
        bool best, found;
        TRY(run_checkpoint(from, ckpt, &best, &found));
        return found ? ERR_OK : err_set(ERR_DATA, "%s/ckpt: no checkpoint yet", from);
    }
    char *real = realpath(from, NULL);
    if (!real) return err_set(ERR_IO, "%s: %m", from);
    err_t rc = io_path(ckpt, "%s", real);
    if (rc == ERR_OK) rc = io_path(ini, "%s/../../config.ini", real);
    free(real);
    TRY(rc);
    return stat(ini, &st) == 0
               ? ERR_OK
               : err_set(ERR_DATA, "%s: neither a run's directory, with its config.ini, nor one of its checkpoints",
                         from);
}

// The weights alone, in FP32, on the CPU, by one process.
static err_t export_run(const export_options *o, config *c, FILE *out) {
    char ckpt[IO_PATH], ini[IO_PATH];
    session x;
    TRY(find_run(o->from, ckpt, ini));
    TRY(config_load(c, &(const char *){ini}, 1));
    c->device.backend = DEVICE_CPU;
    TRY(config_decide(c, DEVICE_CPU, "an export needs no other"));
    c->precision.compute = FP32;
    c->precision.products = PRODUCTS_FP32;
    c->precision.rounding = 0;
    c->resolved.micro = 1;
    c->data.val[0] = 0;
    c->data.holdout = 0;
    c->eval.text[0] = c->eval.choices[0] = c->eval.sets[0] = 0;
    c->eval.weights = EVAL_LAST;
    c->sample.tokens = 0;
    c->device.plans[0] = 0;
    err_t rc = session_open(&x, c, SESSION_INFERENCE, NULL);
    if (rc == ERR_OK) rc = export_session(&x, o, ckpt, out);
    session_close(&x);
    return rc;
}

static err_t parse_type(const char *word, st_type *type) {
    static const struct {
        const char *name;
        st_type type;
    } types[] = {{"f32", ST_F32}, {"bf16", ST_BF16}, {"f16", ST_F16}};
    for (int i = 0; i < 3; i++)
        if (strcmp(word, types[i].name) == 0) return *type = types[i].type, ERR_OK;
    return err_set(ERR_USAGE, "--dtype %s: expected f32, bf16 or f16", word);
}

static err_t parse(int argc, char **argv, export_options *o) {
    const char *to = NULL;
    *o = (export_options){.type = ST_F32, .shard = 5000000000};
    for (int i = 0; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strncmp(argv[i], "--", 2) != 0) {
            if (to) return err_set(ERR_USAGE, "%s: expected no more than a run and a directory", argv[i]);
            if (o->from) to = argv[i];
            else o->from = argv[i];
            continue;
        }
        bool *flag = strcmp(argv[i], "--merge") == 0 ? &o->merge : strcmp(argv[i], "--ema") == 0 ? &o->ema : NULL;
        if (flag) {
            *flag = true;
            continue;
        }
        if (!value) return err_set(ERR_USAGE, "%s: expected a value after it", argv[i]);
        if (strcmp(argv[i], "--tokenizer") == 0) o->tokenizer = value;
        else if (strcmp(argv[i], "--dtype") == 0) TRY(parse_type(value, &o->type));
        else if (strcmp(argv[i], "--shard-mb") == 0) {
            char *end;
            double mb = strtod(value, &end);
            if (*end || !(mb > 0 && mb <= 1e9))
                return err_set(ERR_USAGE, "--shard-mb %s: expected a number of megabytes above 0", value);
            o->shard = (int64_t)(mb * 1e6);
        } else
            return err_set(
                ERR_USAGE,
                "%s: no such option here (--dtype f32|bf16|f16, --tokenizer PATH, --shard-mb N, --merge, --ema)",
                argv[i]);
        i++;
    }
    if (!to)
        return err_set(ERR_USAGE,
                       "lockstep export: expected a run and a directory, e.g. lockstep export runs/default my-model");
    size_t n = strlen(to);
    while (n > 1 && to[n - 1] == '/') n--;
    return io_path(o->to, "%.*s", (int)n, to);
}

err_t verb_export(int argc, char **argv, FILE *out) {
    export_options o;
    TRY(parse(argc, argv, &o));
    config *c = calloc(1, sizeof *c);
    if (!c) return err_set(ERR_INTERNAL, "no memory for the settings");
    err_t rc = export_run(&o, c, out);
    free(c);
    return rc;
}
