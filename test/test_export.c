// test/test_export.c: what `lockstep export` writes, against what others read. For each model of test/golden/families,
// config.json must be, key by key, one that transformers was shown to load with the right logits (make_configs.py), and
// the tensors those that transformers itself had written. Larger tensors, which go out in pieces, must have each
// element of the parameter in its place; and of a run's checkpoints it is the best that goes out.
#include "test/support/export.h"

#include "data/text/about.h"
#include "model/weights.h"
#include "trainer/verbs.h"

#include <inttypes.h>
#include <math.h>

// --- models of others ------------------------------------------------------------------------------------------------

static json_t *exported_json(const char *dir, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.json", dir, name);
    return read_json_file(path);
}

// DIR/NAME.json is, key by key, what the golden file says.
static void expect_json(const char *what, const char *dir, const char *name, const json_t *want) {
    char *ours, *theirs;
    json_t *found = exported_json(dir, name);
    assert_non_null(want);
    ours = json_dumps(found, JSON_SORT_KEYS), theirs = json_dumps(want, JSON_SORT_KEYS);
    if (!json_equal(found, want)) fail_msg("%s: %s.json is\n%s\nexpected\n%s", what, name, ours, theirs);
    free(ours), free(theirs);
    json_decref(found);
}

// Every tensor of one directory is in the other, with its type, shape and bytes; and there are no more.
static void expect_same_tensors(const char *what, const char *dir, const char *other) {
    weights *ours, *theirs;
    int tensors = 0, found = 0;
    OK(weights_open(&ours, dir));
    OK(weights_open(&theirs, other));
    for (int i = 0; i < ours->files; i++) found += ours->file[i].count;
    for (int i = 0; i < theirs->files; i++)
        for (int k = 0; k < theirs->file[i].count; k++, tensors++) {
            const st_tensor *t = &theirs->file[i].tensors[k], *x;
            const st_file *f;
            if (!(x = weights_find(ours, t->name, &f))) fail_msg("%s: there is no %s", what, t->name);
            if (x->type != t->type || x->dims != t->dims ||
                memcmp(x->size, t->size, (size_t)t->dims * sizeof *t->size) != 0)
                fail_msg("%s: %s has another type or shape", what, t->name);
            void *a = malloc((size_t)t->bytes), *b = malloc((size_t)t->bytes);
            OK(st_read(f, x, a));
            OK(st_read(&theirs->file[i], t, b));
            if (memcmp(a, b, (size_t)t->bytes) != 0) fail_msg("%s: %s has other values", what, t->name);
            free(a), free(b);
        }
    assert_int_equal(found, tensors);
    weights_close(ours), weights_close(theirs);
}

// transformers refuses a file whose metadata do not say for which library it was written. The header is JSON, after
// its length in 8 bytes, little end first.
static void expect_format(const char *what, const char *path) {
    char *text;
    size_t n;
    uint64_t bytes = 0;
    json_error_t why;
    OK(io_read_file(path, 1 << 28, &text, &n));
    for (int i = 8; i-- > 0;) bytes = bytes << 8 | (unsigned char)text[i];
    assert_true(bytes <= n - 8);
    json_t *header = json_loadb(text + 8, (size_t)bytes, 0, &why);
    if (!header) fail_msg("%s: %s: %s", what, path, why.text);
    const char *format = json_string_value(json_object_get(json_object_get(header, "__metadata__"), "format"));
    if (!format || strcmp(format, "pt") != 0)
        fail_msg("%s: %s: format is %s, expected pt", what, path, format ? format : "missing");
    json_decref(header);
    free(text);
}

// The index of several files has the size of all tensors; where there is one file there is no index. A file is as full
// as it may be: the first tensor of the next one would not have fitted, and a single one may be larger than a file
// should be.
static void expect_files(const char *what, const char *dir, int64_t most) {
    char path[1024];
    weights *w;
    int64_t bytes = 0;
    OK(weights_open(&w, dir));
    for (int i = 0; i < w->files; i++) {
        int64_t here = 0, next = i + 1 < w->files ? w->file[i + 1].tensors[0].bytes : most + 1;
        if (w->files == 1) snprintf(path, sizeof path, "%s/model.safetensors", dir);
        else snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors", dir, i + 1, w->files);
        if (strcmp(w->file[i].path, path) != 0) fail_msg("%s: %s, expected %s", what, w->file[i].path, path);
        for (int k = 0; k < w->file[i].count; k++) here += w->file[i].tensors[k].bytes;
        if ((here > most && w->file[i].count > 1) || here + next <= most)
            fail_msg("%s: file %d has %" PRId64 " bytes", what, i, here);
        bytes += here;
        expect_format(what, w->file[i].path);
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    if (w->files == 1) assert_int_equal(access(path, F_OK), -1);
    else {
        json_t *index = read_json_file(path);
        int64_t said = json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size"));
        if (said != bytes) fail_msg("%s: total_size is %" PRId64 ", expected %" PRId64, what, said, bytes);
        json_decref(index);
    }
    weights_close(w);
}

// What an export says of itself is what is there. after: what follows the directory's name.
static void expect_said(const char *said, int64_t step, const char *dir, const char *after) {
    char want[1024];
    weights *w;
    int tensors = 0;
    int64_t bytes = 0;
    OK(weights_open(&w, dir));
    for (int i = 0; i < w->files; i++)
        for (int k = 0; k < w->file[i].count; k++) tensors++, bytes += w->file[i].tensors[k].bytes;
    snprintf(want, sizeof want,
             "exported step %" PRId64 ": %d tensors, %" PRId64 " bytes of %s in %d file%s, to %s%s\n", step, tensors,
             bytes, st_type_name(w->file[0].tensors[0].type), w->files, w->files == 1 ? "" : "s", dir, after);
    if (strcmp(said, want) != 0) fail_msg("said: %sexpected: %s", said, want);
    weights_close(w);
}

// A step at a rate of 0, from the directory, leaves its weights in a checkpoint.
static void exports_as(const char *name, const char *weights, const json_t *config, const json_t *want) {
    const char *mb = strcmp(name, "llama3") == 0 ? "0.02" : "1";
    char said[1024];
    rig r;
    rig_open(&r);
    foreign_directory(r.from, weights, config);
    char *section = inspected(r.from);
    rig_train(&r, short_run, section);
    free(section);
    EXPORT(r.run, r.to, said, "--shard-mb", mb);
    expect_said(said, 1, r.to, "; without a tokenizer (--tokenizer PATH adds it)");
    expect_json(name, r.to, "config", json_object_get(want, "config"));
    expect_json(name, r.to, "generation_config", json_object_get(want, "generation_config"));
    expect_same_tensors(name, r.to, r.from);
    expect_files(name, r.to, (int64_t)(1e6 * atof(mb)));
    rig_close(&r);
}

static void exports_are_those_that_transformers_reads(void **state) {
    (void)state;
    json_t *all = read_json_file(FAMILIES "exports.json"), *cases = read_json_file(FAMILIES "configs.json"), *want;
    const char *name;
    json_object_foreach(all, name, want) {
        char path[256];
        json_t *one = json_object_get(cases, name), *own = NULL;
        if (strcmp(name, "tokenizer") == 0 || json_object_get(want, "section")) continue;  // the next tests
        snprintf(path, sizeof path, FAMILIES "%s/config.json", name);
        if (!one) own = read_json_file(path);
        exports_as(name, one ? json_string_value(json_object_get(one, "weights")) : name,
                   one ? json_object_get(one, "config") : own, want);
        json_decref(own);
    }
    assert_int_equal(json_object_size(all), 51);
    json_decref(all), json_decref(cases);
}

// What was written says all that was set: read back, it is the same model.
static void expect_same_settings(const char *what, const rig *r) {
    weights *w;
    weights_map *map;
    model *net;
    OK(weights_open(&w, r->to));
    OK(model_open(&net, model_types[r->c.model.type], &r->c.model.of));
    if (weights_match(&map, w, net, &r->c.model.of, false) != ERR_OK) fail_msg("%s: %s", what, err_last()->text);
    weights_map_close(map), weights_close(w);
    model_close(net);
}

// What no family there has: other biases, windows and scalings, of models whose loss transformers found to be ours.
static void settings_are_written_as_transformers_reads_them(void **state) {
    (void)state;
    json_t *all = read_json_file(FAMILIES "exports.json"), *want;
    const char *name;
    int made = 0;
    json_object_foreach(all, name, want) {
        const char *section = json_string_value(json_object_get(want, "section"));
        char text[1024];
        rig r;
        if (!section) continue;
        rig_open(&r);
        snprintf(text, sizeof text, "[model]\nvocab = 61\ncontext = 40\n%s", section);
        rig_train(&r, short_run, text);
        EXPORT(r.run, r.to, NULL, "--shard-mb", "1");
        expect_json(name, r.to, "config", json_object_get(want, "config"));
        expect_json(name, r.to, "generation_config", json_object_get(want, "generation_config"));
        expect_same_settings(name, &r);
        rig_close(&r);
        made++;
    }
    assert_int_equal(made, 6);
    json_decref(all);
}

static void the_tokenizer_says_where_texts_begin_and_end(void **state) {
    (void)state;
    rig r;
    json_t *all = read_json_file(FAMILIES "exports.json"), *want = json_object_get(all, "tokenizer");
    rig_open(&r);
    rig_train(&r, short_run,
              "[model]\ntype = llama\nlayers = 1\nheads = 1\nembed = 4\nhidden = 4\ncontext = 8\nvocab = 1000\n");
    EXPORT(r.run, r.to, NULL, "--tokenizer", "test/golden/tokenizer/llama3.json", "--dtype", "bf16");
    static const char *const names[] = {"config", "generation_config", "tokenizer_config"};
    for (int i = 0; i < 3; i++) expect_json("with a tokenizer", r.to, names[i], json_object_get(want, names[i]));
    json_decref(all);
    rig_close(&r);
}

// The id of an added token of a tokenizer.json, as that file has it; null for none.
static json_t *added_id(const json_t *file, const char *token) {
    const json_t *all = json_object_get(file, "added_tokens");
    for (size_t i = 0; token && i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        if (strcmp(json_string_value(json_object_get(one, "content")), token) == 0)
            return json_incref(json_object_get(one, "id"));
    }
    assert_null(token);
    return json_null();
}

static void expect_token(const char *what, const char *dir, const json_t *file, const char *name, const char *token) {
    static const char *const of_ids[] = {"config", "generation_config"};
    char key[32];
    json_t *id = added_id(file, token), *names = exported_json(dir, "tokenizer_config");
    snprintf(key, sizeof key, "%s_id", name);
    for (int i = 0; i < 2; i++) {
        json_t *config = exported_json(dir, of_ids[i]);
        if (!json_equal(json_object_get(config, key), id))
            fail_msg("%s: %s of %s.json is not that of %s", what, key, of_ids[i], token);
        json_decref(config);
    }
    const char *found = json_string_value(json_object_get(names, name));
    if (!found != !token || (token && strcmp(found, token) != 0))
        fail_msg("%s: %s is %s, expected %s", what, name, found, token);
    json_decref(names), json_decref(id);
}

// The first and the last ids of a vocabulary among them: SmolLM's end of a text is token 0.
static void begin_and_end_have_the_ids_of_the_tokenizer(void **state) {
    (void)state;
    static const struct {
        const char *path, *begin, *end;
    } list[] = {{"test/golden/tokenizer/gpt2.json", NULL, "<|endoftext|>"},
                {"test/golden/tokenizer/llama3.json", "<|begin_of_text|>", "<|end_of_text|>"},
                {"test/golden/tokenizer/qwen2.json", NULL, "<|endoftext|>"},
                {"test/golden/tokenizer/smollm.json", NULL, "<|endoftext|>"}};
    rig r;
    rig_open(&r);
    rig_train(&r, short_run,
              "[model]\ntype = llama\nlayers = 1\nheads = 1\nembed = 4\nhidden = 4\ncontext = 8\nvocab = 1000\n");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char to[700];
        json_t *file = read_json_file(list[i].path);
        snprintf(to, sizeof to, "%s-%d", r.to, (int)i);
        EXPORT(r.run, to, NULL, "--tokenizer", list[i].path);
        expect_token(list[i].path, to, file, "bos_token", list[i].begin);
        expect_token(list[i].path, to, file, "eos_token", list[i].end);
        json_decref(file);
    }
    rig_close(&r);
}

// The file with which the library of others encodes and decodes bytes.
static void bytes_have_a_tokenizer_that_others_decode_with(void **state) {
    (void)state;
    rig r;
    json_t *want = read_json_file("test/golden/tokenizer/bytes.json");
    rig_open(&r);
    rig_train(&r, short_run, "[model]\nlayers = 1\nheads = 1\nembed = 4\ncontext = 8\nvocab = 256\n");
    EXPORT(r.run, r.to, NULL, "--dtype", "f32");
    expect_json("bytes", r.to, "tokenizer", want);
    json_decref(want);
    rig_close(&r);
}

// Says of the run's data with which tokenizer it was made. Its file has these very four bytes where the header of a
// shard has its checksum.
static void tell_about(const rig *r, const char *tokenizer) {
    char path[700], json[700], hash[17];
    char *bytes;
    size_t n;
    struct tokenizer *words;
    about a = {.known = true};
    about_writer *w;
    snprintf(path, sizeof path, "%s/t-train-00000.bin", r->dir), snprintf(json, sizeof json, "%s/t", r->dir);
    OK(io_read_file(path, 1 << 24, &bytes, &n));
    uint32_t crc = 0;
    for (int i = 4; i-- > 0;) crc = crc << 8 | (uint8_t)bytes[60 + i];
    free(bytes);
    snprintf(a.tokenizer, sizeof a.tokenizer, "%s", tokenizer), strcpy(a.vocabulary, "0123456789abcdef");
    if (access(tokenizer, R_OK) == 0) {
        OK(tokenizer_open(&words, tokenizer));
        tokenizer_hash(words, hash), strcpy(a.vocabulary, hash);
        tokenizer_close(words);
    }
    OK(about_write_open(&w));
    about_write_shard(w, path, crc);
    OK(about_write(w, json, &a));
    about_write_close(w);
}

// The tokenizer that was given; else that of the data, if it is found and fits; else that of bytes, if there are so
// many tokens and the data says nothing else.
static void the_tokenizer_is_that_of_the_data(void **state) {
    (void)state;
#define GPT2 "test/golden/tokenizer/gpt2.json"
#define QWEN2 "test/golden/tokenizer/qwen2.json"
    static const struct {
        int vocab;
        const char *data, *given, *ends, *says, *has;  // ends: what was printed does; says NULL: nothing of tokenizers
    } rows[] = {
        {256, NULL, NULL, "", NULL, "test/golden/tokenizer/bytes.json"},
        {256, "/nowhere/t.json", NULL, "",
         "; without a tokenizer (--tokenizer PATH adds it): [sample] tokenizer = bytes: the shards in ", NULL},
        {256, GPT2, NULL, "",
         "; without a tokenizer (--tokenizer PATH adds it): [sample] tokenizer = " GPT2 " has ids up to ", NULL},
        {700, NULL, NULL, "; without a tokenizer (--tokenizer PATH adds it)", "", NULL},
        {700, NULL, GPT2, "; with the tokenizer " GPT2, "", GPT2},
        {700, GPT2, NULL, "; with the tokenizer " GPT2, "", GPT2},
        {700, "/nowhere/t.json", NULL, "", "; without a tokenizer (--tokenizer PATH adds it): ", NULL},
        {700, "/nowhere/t.json", QWEN2, "; with the tokenizer " QWEN2, "", QWEN2},
        {700, GPT2, QWEN2, "; with the tokenizer " QWEN2, "", QWEN2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig r;
        char text[2000], said[1024], to[700], ends[1800], *data;
        size_t n;
        rig_open(&r);
        OK(io_read_file(FAMILIES "tokens.bin", 1 << 24, &data, &n));
        snprintf(text, sizeof text, "%s/t-train-00000.bin", r.dir);
        OK(io_write_file(text, data, n, NULL));
        free(data);
        snprintf(
            text, sizeof text,
            "[data]\ntrain = %s/t-train-00000.bin\nval =\nformat = raw16\n[run]\nsteps = 1\n[batch]\nglobal = 2\nmicro = 2\n[device]\n"
            "threads = 1\n[sample]\ntokens = 0\n[model]\nlayers = 1\nheads = 1\nembed = 4\ncontext = 8\nvocab = %d\n",
            r.dir, rows[i].vocab);
        if (rows[i].data) tell_about(&r, rows[i].data);
        rig_train(&r, text, "");
        snprintf(to, sizeof to, "%s-0", r.to);
        if (rows[i].given) EXPORT(r.run, to, said, "--tokenizer", rows[i].given);
        else EXPORT(r.run, to, said, "--dtype", "f32");
        said[strcspn(said, "\n")] = 0;
        snprintf(ends, sizeof ends, "%s%s", rows[i].says ? "" : "to ", rows[i].says ? rows[i].ends : to);
        if (rows[i].says ? !strstr(said, rows[i].says) : strstr(said, "tokenizer") != NULL)
            fail_msg("%s; expected %s", said, rows[i].says);
        if (strlen(said) < strlen(ends) || strcmp(said + strlen(said) - strlen(ends), ends) != 0)
            fail_msg("%s; expected %s", said, ends);
        snprintf(text, sizeof text, "%s/tokenizer.json", to);
        assert_int_equal(access(text, R_OK) == 0, rows[i].has != NULL);
        if (rows[i].has) {
            json_t *found = read_json_file(text), *want = read_json_file(rows[i].has);
            assert_true(json_equal(found, want));
            json_decref(found), json_decref(want);
        }
        rig_close(&r);
    }
}

// --- what is not to go out -------------------------------------------------------------------------------------------

// The embedding has no row for an id beyond the model's vocabulary. An export that fails leaves nothing.
static void a_tokenizer_has_no_more_tokens_than_the_model(void **state) {
    (void)state;
    static const char model[] = "[model]\ntype = llama\nlayers = 1\nheads = 1\nembed = 4\nhidden = 4\ncontext = 8\n";
    enum { TOKENS = 607 };  // of llama3.json, the added ones included
    for (int missing = 0; missing < 2; missing++) {
        char text[256], *said;
        size_t n;
        rig r;
        rig_open(&r);
        snprintf(text, sizeof text, "%svocab = %d\n", model, TOKENS - missing);
        rig_train(&r, short_run, text);
        char *argv[] = {r.run, r.to, "--tokenizer", "test/golden/tokenizer/llama3.json"};
        FILE *out = open_memstream(&said, &n);
        assert_non_null(out);
        err_t rc = verb_export(4, argv, out);
        fclose(out), free(said);
        assert_int_equal(rc, missing ? ERR_CONFIG : ERR_OK);
        if (missing) assert_non_null(strstr(err_last()->text, "has ids up to 606, and the model knows 606 tokens"));
        assert_true(is_there(r.to, "/tokenizer.json") == !missing);
        assert_false(is_there(r.to, ".tmp-export"));
        rig_close(&r);
    }
}

// Files of another division of the tensors would stand beside those of this one, and there are programs that read
// them all.
static void what_a_killed_export_left_does_not_go_out(void **state) {
    (void)state;
    rig r;
    char left[1024];
    rig_open(&r);
    rig_train(&r, short_run, "[model]\nlayers = 1\nheads = 1\nembed = 4\ncontext = 8\nvocab = 64\n");
    snprintf(left, sizeof left, "%s.tmp-export", r.to);
    OK(io_mkdirs(left));
    snprintf(left, sizeof left, "%s.tmp-export/model-00002-of-00002.safetensors", r.to);
    OK(io_write_file(left, "half", 4, NULL));
    EXPORT(r.run, r.to, NULL, "--shard-mb", "1");
    assert_true(is_there(r.to, "/model.safetensors"));
    assert_false(is_there(r.to, "/model-00002-of-00002.safetensors"));
    assert_false(is_there(r.to, ".tmp-export"));
    rig_close(&r);
}

// --- tensors of several pieces ---------------------------------------------------------------------------------------

// A tensor of the files: rows of a parameter from the first one on, which lie there as (columns, rows) if they are
// transposed.
typedef struct piece {
    const char *tensor, *param;
    int64_t first, rows, cols;  // cols 0: a vector
    bool transposed;
} piece;

static const char gpt[] = "[model]\nlayers = 1\nheads = 4\nembed = 160\ncontext = 8\nvocab = 500\n";
static const piece gpt_pieces[] = {
    {"transformer.wte.weight", "wte.weight", 0, 500, 160, false},
    {"transformer.wpe.weight", "wpe.weight", 0, 8, 160, false},
    {"transformer.h.0.ln_1.weight", "h.0.ln_1.weight", 0, 160, 0, false},
    {"transformer.h.0.ln_1.bias", "h.0.ln_1.bias", 0, 160, 0, false},
    {"transformer.h.0.attn.c_attn.weight", "h.0.attn.c_attn.weight", 0, 480, 160, true},
    {"transformer.h.0.attn.c_attn.bias", "h.0.attn.c_attn.bias", 0, 480, 0, false},
    {"transformer.h.0.attn.c_proj.weight", "h.0.attn.c_proj.weight", 0, 160, 160, true},
    {"transformer.h.0.attn.c_proj.bias", "h.0.attn.c_proj.bias", 0, 160, 0, false},
    {"transformer.h.0.ln_2.weight", "h.0.ln_2.weight", 0, 160, 0, false},
    {"transformer.h.0.ln_2.bias", "h.0.ln_2.bias", 0, 160, 0, false},
    {"transformer.h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.weight", 0, 640, 160, true},
    {"transformer.h.0.mlp.c_fc.bias", "h.0.mlp.c_fc.bias", 0, 640, 0, false},
    {"transformer.h.0.mlp.c_proj.weight", "h.0.mlp.c_proj.weight", 0, 160, 640, true},
    {"transformer.h.0.mlp.c_proj.bias", "h.0.mlp.c_proj.bias", 0, 160, 0, false},
    {"transformer.ln_f.weight", "ln_f.weight", 0, 160, 0, false},
    {"transformer.ln_f.bias", "ln_f.bias", 0, 160, 0, false},
};

static const char llama[] =
    "[model]\ntype = llama\nlayers = 1\nheads = 4\nkv_heads = 2\nhead_dim = 120\nembed = 160\nhidden = 480\ncontext = 8\nvocab = 500\n";
static const piece llama_pieces[] = {
    {"model.embed_tokens.weight", "embed_tokens.weight", 0, 500, 160, false},
    {"model.layers.0.input_layernorm.weight", "layers.0.input_layernorm.weight", 0, 160, 0, false},
    {"model.layers.0.self_attn.q_proj.weight", "layers.0.self_attn.qkv_proj.weight", 0, 480, 160, false},
    {"model.layers.0.self_attn.k_proj.weight", "layers.0.self_attn.qkv_proj.weight", 480, 240, 160, false},
    {"model.layers.0.self_attn.v_proj.weight", "layers.0.self_attn.qkv_proj.weight", 720, 240, 160, false},
    {"model.layers.0.self_attn.o_proj.weight", "layers.0.self_attn.o_proj.weight", 0, 160, 480, false},
    {"model.layers.0.post_attention_layernorm.weight", "layers.0.post_attention_layernorm.weight", 0, 160, 0, false},
    {"model.layers.0.mlp.gate_proj.weight", "layers.0.mlp.gate_up_proj.weight", 0, 480, 160, false},
    {"model.layers.0.mlp.up_proj.weight", "layers.0.mlp.gate_up_proj.weight", 480, 480, 160, false},
    {"model.layers.0.mlp.down_proj.weight", "layers.0.mlp.down_proj.weight", 0, 160, 480, false},
    {"model.norm.weight", "norm.weight", 0, 160, 0, false},
    {"lm_head.weight", "lm_head.weight", 0, 500, 160, false},
};

// Each element is the parameter's, rounded to the nearest of its type.
static void expect_piece(const char *what, const weights *w, const model *m, const piece *k, uint64_t seed) {
    static const double half_ulp[] = {[ST_F32] = 0, [ST_F16] = 0x1p-11, [ST_BF16] = 0x1p-8};
    const st_file *f;
    const st_tensor *t = weights_find(w, k->tensor, &f);
    int64_t cols = k->cols ? k->cols : 1, count = k->rows * cols;
    if (!t) fail_msg("%s: there is no %s", what, k->tensor);
    int64_t outer = k->transposed ? cols : k->rows, inner = k->transposed ? k->rows : k->cols;
    if (t->dims != (k->cols ? 2 : 1) || t->size[0] != outer || (k->cols && t->size[1] != inner))
        fail_msg("%s: %s has another shape", what, k->tensor);
    float *found = malloc((size_t)count * sizeof *found), *want = malloc((size_t)count * sizeof *want);
    OK(st_read_f32(f, t, found));
    model_init(m, model_find(m, k->param), seed, k->first * cols, count, want);
    for (int64_t i = 0; i < count; i++) {
        float x = found[k->transposed ? i % cols * k->rows + i / cols : i];
        if (!(fabs((double)x - (double)want[i]) <=
              half_ulp[t->type] * fabs((double)want[i]) + (t->type == ST_F16 ? 0x1p-25 : 0)))
            fail_msg("%s: %s, row %d, column %d is %.9g, expected %.9g", what, k->tensor, (int)(i / cols),
                     (int)(i % cols), (double)x, (double)want[i]);
    }
    free(found), free(want);
}

// The type of the numbers is under both keys: transformers 5 reads dtype, transformers 4 torch_dtype.
static void expect_type(const char *what, const char *dir, const char *type) {
    json_t *config = exported_json(dir, "config");
    static const char *const keys[] = {"dtype", "torch_dtype"};
    for (int i = 0; i < 2; i++) {
        const char *found = json_string_value(json_object_get(config, keys[i]));
        if (!found || strcmp(found, type) != 0)
            fail_msg("%s: %s is %s, expected %s", what, keys[i], found ? found : "missing", type);
    }
    json_decref(config);
}

// A new model's weights, exported in each type, in one file and in several.
static void expect_pieces(const char *section, const char *more, const piece *pieces, int count) {
    static const char *const how[][3] = {
        {"f32", "100", "float32"}, {"bf16", "0.2", "bfloat16"}, {"f16", "100", "float16"}};
    rig r;
    char text[1024];
    model *net;
    rig_open(&r);
    snprintf(text, sizeof text, "%s%s", section, more);
    rig_train(&r, short_run, text);
    OK(model_open(&net, model_types[r.c.model.type], &r.c.model.of));
    for (int i = 0; i < 3; i++) {
        char to[700], what[800], said[1024];
        weights *w;
        int tensors = 0;
        snprintf(to, sizeof to, "%s-%s", r.to, how[i][0]);
        snprintf(what, sizeof what, "%s%s", how[i][0], more);
        EXPORT(r.run, to, said, "--dtype", how[i][0], "--shard-mb", how[i][1]);
        expect_said(said, 1, to, "; without a tokenizer (--tokenizer PATH adds it)");
        expect_type(what, to, how[i][2]);
        OK(weights_open(&w, to));
        for (int k = 0; k < w->files; k++) tensors += w->file[k].count;
        assert_int_equal(tensors, count);
        assert_true((w->files > 1) == (i == 1));
        expect_files(what, to, (int64_t)(1e6 * atof(how[i][1])));
        for (int k = 0; k < count; k++) expect_piece(what, w, net, &pieces[k], (uint64_t)r.c.run.seed);
        weights_close(w);
    }
    model_close(net);
    rig_close(&r);
}

static void every_element_is_in_its_place(void **state) {
    (void)state;
    static const char *const more[] = {"", "[parallel]\nslices = 2\n", "[parallel]\nslices = 4\n"};
    for (int i = 0; i < 3; i++) expect_pieces(gpt, more[i], gpt_pieces, sizeof gpt_pieces / sizeof *gpt_pieces);
    for (int i = 0; i < 2; i++) expect_pieces(llama, more[i], llama_pieces, sizeof llama_pieces / sizeof *llama_pieces);
}

// --- which checkpoint ------------------------------------------------------------------------------------------------

// A rate that destroys what was learned makes an early checkpoint the best.
static void the_best_checkpoint_goes_out(void **state) {
    (void)state;
    enum { STEPS = 12 };
    rig r;
    char said[1024], ckpt[1300], best[1300], newest[1300], link[800], target[64] = "";
    int step = 0;
    rig_open(&r);
    write_tokens(r.dir, "text.bin", 6000);
    write_tokens(r.dir, "val.bin", 1500);
    rig_train(
        &r,
        "[data]\nformat = raw16\n[model]\nlayers = 1\nheads = 2\nembed = 16\ncontext = 24\nvocab = 128\n[batch]\nglobal = 12\nmicro = 6\n"
        "[device]\nthreads = 1\n[sample]\ntokens = 0\n[run]\nsteps = 12\n",
        "[optimizer]\nlr = 0.8\n[schedule]\ntype = constant\nwarmup = 12\n[eval]\nevery = 2\n[checkpoint]\nevery = 2\nkeep = 20\n");
    snprintf(link, sizeof link, "%s/best", r.run);
    assert_true(readlink(link, target, sizeof target - 1) > 0);
    assert_int_equal(sscanf(target, "ckpt/step-%d", &step), 1);
    assert_in_range(step, 1, STEPS - 1);
    EXPORT(r.run, r.to, said, "--shard-mb", "100");
    snprintf(ckpt, sizeof ckpt, "exported step %d:", step);
    assert_non_null(strstr(said, ckpt));
    snprintf(ckpt, sizeof ckpt, "%s/ckpt/step-%08d", r.run, step), snprintf(best, sizeof best, "%s-best", r.to);
    EXPORT(ckpt, best, NULL, "--shard-mb", "100");
    snprintf(ckpt, sizeof ckpt, "%s/ckpt/step-%08d", r.run, STEPS), snprintf(newest, sizeof newest, "%s-newest", r.to);
    EXPORT(ckpt, newest, NULL, "--shard-mb", "100");
    assert_true(same_file(r.to, best));
    assert_false(same_file(r.to, newest));
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exports_are_those_that_transformers_reads),
        cmocka_unit_test(settings_are_written_as_transformers_reads_them),
        cmocka_unit_test(the_tokenizer_says_where_texts_begin_and_end),
        cmocka_unit_test(begin_and_end_have_the_ids_of_the_tokenizer),
        cmocka_unit_test(bytes_have_a_tokenizer_that_others_decode_with),
        cmocka_unit_test(the_tokenizer_is_that_of_the_data),
        cmocka_unit_test(a_tokenizer_has_no_more_tokens_than_the_model),
        cmocka_unit_test(what_a_killed_export_left_does_not_go_out),
        cmocka_unit_test(every_element_is_in_its_place),
        cmocka_unit_test(the_best_checkpoint_goes_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
