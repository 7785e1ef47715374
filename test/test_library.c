// test/test_library.c: NVIDIA's libraries are found where they are: in a folder of CUDA's or in a Python environment.
// The trees are made up, and a stand-in is copied into them under names that no machine has.
#include "base/io.h"
#include "base/library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NAME "liblockstep-made-up.so.13"
static const char *const names[] = {NAME, "liblockstep-made-up.so.12"};

static char root[] = "/tmp/lockstep-library.XXXXXX";
static char *so;
static size_t so_bytes;

static const char *place(const char *folder, const char *name) {
    static char path[IO_PATH];
    assert_int_equal(io_path(path, "%s/%s", root, folder), ERR_OK);
    assert_int_equal(io_mkdirs(path), ERR_OK);
    assert_int_equal(io_path(path, "%s/%s/%s", root, folder, name), ERR_OK);
    return path;
}

static void put(const char *folder, const char *name) {
    assert_int_equal(io_write_file(place(folder, name), so, so_bytes, NULL), ERR_OK);
}

static void point(const char *variable, const char *folder) {
    char path[IO_PATH];
    assert_int_equal(io_path(path, "%s/%s", root, folder), ERR_OK);
    setenv(variable, path, 1);
}

static void found_in(const char *folder, const char *name) {
    library lib;
    if (!library_search(&lib, names, 2)) fail_msg("not found: %s", lib.text);
    if (strcmp(lib.path, place(folder, name)) != 0) fail_msg("found %s, expected %s", lib.path, place(folder, name));
    assert_string_equal(lib.text, "");
    library_close(&lib);
}

static int open_tree(void **state) {
    (void)state;
    unsetenv("VIRTUAL_ENV"), unsetenv("CONDA_PREFIX"), unsetenv("CUDA_HOME"), unsetenv("CUDA_PATH");
    setenv("PATH", "/nowhere", 1), setenv("HOME", "/nowhere", 1);
    return mkdtemp(root) && io_read_file("build/test/libnccl-standin.so", 64 << 20, &so, &so_bytes) == ERR_OK ? 0 : -1;
}

static int close_tree(void **state) {
    (void)state;
    free(so);
    return io_remove_tree(root) == ERR_OK ? 0 : -1;
}

static void nothing_says_where_it_looked(void **state) {
    (void)state;
    library lib;
    assert_false(library_search(&lib, names, 2));
    assert_non_null(strstr(lib.text, NAME ", liblockstep-made-up.so.12, in the dynamic linker's folders"));
    assert_non_null(strstr(lib.text, "nvidia/*/lib"));
}

static void every_place_is_searched(void **state) {
    (void)state;
    put("user/.local/lib/python3.9/site-packages/nvidia/nccl/lib", NAME);
    point("HOME", "user");
    found_in("user/.local/lib/python3.9/site-packages/nvidia/nccl/lib", NAME);
    put("path/bin", "python3");
    assert_int_equal(access(place("path/bin", "python3"), X_OK), -1);  // not to be run: passed over
    put("env/lib/python3.12/site-packages/nvidia/cu13/lib", NAME);
    assert_int_equal(symlink("/bin/sh", place("env/bin", "python3")), 0);
    char path[2 * IO_PATH];
    snprintf(path, sizeof path, "/nowhere:%s/path/bin:%s/env/bin", root, root);
    setenv("PATH", path, 1);
    found_in("env/lib/python3.12/site-packages/nvidia/cu13/lib", NAME);
    put("conda/lib", NAME);
    point("CONDA_PREFIX", "conda");
    found_in("conda/lib", NAME);
    put("venv/lib/python3.11/dist-packages/nvidia/cublas/lib", NAME);
    point("VIRTUAL_ENV", "venv");
    found_in("venv/lib/python3.11/dist-packages/nvidia/cublas/lib", NAME);
    put("cuda/lib64", NAME);
    point("CUDA_HOME", "cuda");
    found_in("cuda/lib64", NAME);
}

static void names_come_in_order_and_broken_files_are_named(void **state) {
    (void)state;
    library lib;
    unsetenv("VIRTUAL_ENV"), unsetenv("CONDA_PREFIX");
    setenv("PATH", "/nowhere", 1), setenv("HOME", "/nowhere", 1);
    put("older/lib64", names[1]);
    point("CUDA_HOME", "older");
    found_in("older/lib64", names[1]);
    put("older/lib64", NAME);
    found_in("older/lib64", NAME);
    assert_int_equal(io_write_file(place("broken/lib64", NAME), "no library", 10, NULL), ERR_OK);
    point("CUDA_HOME", "broken");
    assert_false(library_search(&lib, names, 2));
    assert_non_null(strstr(lib.text, place("broken/lib64", NAME)));
    point("CUDA_PATH", "older");
    found_in("older/lib64", NAME);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_says_where_it_looked),
        cmocka_unit_test(every_place_is_searched),
        cmocka_unit_test(names_come_in_order_and_broken_files_are_named),
    };
    return cmocka_run_group_tests(tests, open_tree, close_tree);
}
