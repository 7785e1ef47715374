// test/test_foreign_files.c: directories and files of weights that others wrote: an index, other files beside weights,
// llm.c's headers. (What a config.json says, and the tensors of one file, are in test/test_foreign.c.)
#include "test/support/foreign.h"

#include "model/families.h"
#include "model/foreign.h"
#include "model/weights.h"

// --- a directory -----------------------------------------------------------------------------------------------------

// A file of these tensors, each a single number; names: "a b c".
static void write_named(const char *dir, const char *file, const char *names) {
    st_tensor table[8] = {0};
    char copy[128], path[700], *rest;
    int count = 0;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name = strtok_r(copy, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        table[count] = (st_tensor){.type = ST_F32, .dims = 1, .size = {1}};
        snprintf(table[count++].name, ST_NAME, "%s", name);
    }
    snprintf(path, sizeof path, "%s/%s", dir, file);
    write_tensors(path, table, count);
}

static void expect_open(const char *path, err_t code, const char *says) {
    weights *w;
    err_t rc = weights_open(&w, path);
    if (rc != code) fail_msg("%s: %d, %s; expected %s", path, rc, rc == ERR_OK ? "opened" : err_last()->text, says);
    if (rc != ERR_OK && !strstr(err_last()->text, says)) fail_msg("%s, expected \"%s\"", err_last()->text, says);
    weights_close(w);
}

// What the index says of a tensor and what its file has are the same, for each of them, and names do not lead
// elsewhere.
static void an_index_names_each_tensor_once(void **state) {
    (void)state;
    static const struct {
        const char *map, *says;  // NULL: it is right
    } all[] = {
        {"{\"a\": \"1.st\", \"b\": \"1.st\", \"c\": \"2.st\"}", NULL},
        {"{\"c\": \"2.st\", \"b\": \"1.st\", \"a\": \"1.st\"}", NULL},
        {"{\"a\": \"1.st\", \"b\": \"3.st\", \"c\": \"3.st\"}", "tensor b is in "},  // in both, and named once
        {"{\"a\": \"1.st\", \"b\": \"1.st\", \"c\": \"3.st\"}", "3.st, and the index has it in another file"},
        {"{\"a\": \"1.st\", \"c\": \"2.st\"}", "tensor b is in "},
        {"{\"a\": \"1.st\", \"b\": \"1.st\", \"c\": \"1.st\"}", "tensor c should be in "},
        {"{\"a\": \"1.st\", \"b\": \"1.st\", \"d\": \"2.st\", \"c\": \"2.st\"}", "tensor d should be in "},
        {"{\"a\": \"1.st\", \"b\": \"1.st\", \"c\": \"4.st\"}", "4.st: No such file"},
        {"{\"a\": \"1.st\", \"b\": \"1.st\", \"c\": \"..\"}",
         "weight_map: c: expected the name of a file in the same directory"},
        {"{\"a\": \"1.st\", \"b\": \"1.st\", \"c\": \"\"}", "weight_map: c: expected the name"},
        {"{\"a\": \"1.st\", \"b\": \"./1.st\", \"c\": \"2.st\"}", "weight_map: b: expected the name"},
        {"{\"a\": \"1.st\", \"b\": \"/etc/passwd\", \"c\": \"2.st\"}", "weight_map: b: expected the name"},
        {"{\"a\": \"1.st\", \"b\": 1, \"c\": \"2.st\"}", "weight_map: b: expected the name"},
        {"{}", "no weight_map, or an empty one"},
        {"[\"1.st\"]", "no weight_map, or an empty one"},
    };
    char *dir = make_dir(), index[512];
    write_named(dir, "1.st", "a b"), write_named(dir, "2.st", "c"), write_named(dir, "3.st", "b c");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        snprintf(index, sizeof index, "{\"metadata\": {\"total_size\": 12}, \"weight_map\": %s}", all[i].map);
        write_text(dir, "model.safetensors.index.json", index);
        expect_open(dir, !all[i].says ? ERR_OK : strstr(all[i].says, "No such") ? ERR_IO : ERR_DATA, all[i].says);
    }
    drop_dir(dir);
}

// One file goes before an index, as for others. Slashes at the end are none of the name.
static void a_directory_may_have_more_than_weights(void **state) {
    (void)state;
    char *dir = make_dir(), path[700];
    weights *w;
    expect_open(dir, ERR_DATA, "neither model.safetensors nor model.safetensors.index.json is in this directory");
    assert_null(strstr(err_last()->text, "pickle"));
    write_text(dir, "pytorch_model.bin", "PK");
    expect_open(dir, ERR_DATA, "; pytorch_model.bin is a pickle");
    write_text(dir, "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"1.st\", \"b\": \"2.st\"}}");
    write_named(dir, "1.st", "a"), write_named(dir, "2.st", "b");
    for (int both = 0; both < 2; both++) {
        if (both) write_named(dir, "model.safetensors", "c");
        snprintf(path, sizeof path, "%s///", dir);
        OK(weights_open(&w, path));
        assert_string_equal(w->path, dir);
        assert_int_equal(w->files, both ? 1 : 2);
        const st_file *f;
        for (const char *name = "abc"; *name; name++)
            assert_int_equal(weights_find(w, (char[]){*name, 0}, &f) != NULL, *name == 'c' ? both : !both);
        assert_null(w->config);
        weights_close(w);
    }
    write_text(dir, "config.json", "{\"model_type\": \"llama\"}");
    OK(weights_open(&w, dir));
    assert_string_equal(json_string_value(json_object_get(w->config, "model_type")), "llama");
    weights_close(w);
    write_text(dir, "config.json", "{\n\"model_type\": \"llama\",\n}");
    expect_open(dir, ERR_DATA, "config.json: line 3: not valid JSON");
    write_text(dir, "config.json", "[]");
    expect_open(dir, ERR_DATA, "config.json: expected a JSON object");
    snprintf(path, sizeof path, "%s/none", dir);
    expect_open(path, ERR_IO, "none: No such file");
    drop_dir(dir);
}

// --- llm.c -----------------------------------------------------------------------------------------------------------

// A checkpoint of zeros with this header, and so many bytes more than that needs.
static void write_llmc(const char *dir, const int32_t head[8], int64_t more) {
    int32_t header[256] = {0};
    char path[700];
    int64_t T = head[2], L = head[4], C = head[6], Vp = head[7], n = Vp * C + T * C + L * (12 * C * C + 13 * C) + 2 * C;
    memcpy(header, head, 8 * sizeof *head);
    snprintf(path, sizeof path, "%s/x.bin", dir);
    OK(io_write_file(path, header, sizeof header, NULL));
    assert_int_equal(truncate(path, 1024 + n * (head[1] == 5 ? 2 : 4) + more), 0);
}

static void headers_of_llm_c_are_checked(void **state) {
    (void)state;
    static const struct {
        int32_t head[8];
        int more;
        const char *says;
    } all[] = {
        {{20240326, 3, 16, 20, 2, 2, 8, 20}, 0, NULL},
        {{20240326, 3, 16, 20, 2, 2, 8, 32}, 0, NULL},
        {{20240326, 5, 16, 20, 3, 2, 8, 32}, 0, NULL},
        {{20240326, 4, 16, 20, 2, 2, 8, 32}, 0, "of version 4, expected 3 (FP32) or 5 (BF16)"},
        {{20240326, 3, 16, 20, 2, 2, 8, 19}, 0, "20 (19) tokens, 2 layers, 8 channels, which can't be"},
        {{20240326, 3, 0, 20, 2, 2, 8, 20}, 0, "of 0 positions"},
        {{20240326, 3, 16, 0, 2, 2, 8, 20}, 0, "0 (20) tokens"},
        {{20240326, 3, 16, 20, 0, 2, 8, 20}, 0, "0 layers"},
        {{20240326, 3, 16, 20, 1025, 2, 8, 20}, 0, "1025 layers"},
        {{20240326, 3, 16, 20, 2, 2, 0, 20}, 0, "0 channels"},
        {{20240326, 3, 16, 20, 2, 2, 8, 20}, 4, "and its header needs "},
        {{20240326, 3, 16, 20, 2, 2, 8, 20}, -4, "and its header needs "},
        {{20240326, 5, 16, 20, 2, 2, 8, 20}, 2, "and its header needs "},
        {{20240520, 3, 16, 20, 2, 2, 8, 20}, 0, "header length"},  // no checkpoint of llm.c
    };
    char *dir = make_dir(), path[700];
    snprintf(path, sizeof path, "%s/x.bin", dir);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        write_llmc(dir, all[i].head, all[i].more);
        expect_open(path, all[i].says ? ERR_DATA : ERR_OK, all[i].says);
    }
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_names_each_tensor_once),
        cmocka_unit_test(a_directory_may_have_more_than_weights),
        cmocka_unit_test(headers_of_llm_c_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
