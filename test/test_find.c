// test/test_find.c: what [device] backend = auto is on this machine, and whether a GPU is passed over.
#include "base/io.h"
#include "gpu/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void write_word(const char *root, const char *slot, const char *name, const char *word) {
    char path[IO_PATH];
    assert_int_equal(io_path(path, "%s/sys/bus/pci/devices/%s", root, slot), ERR_OK);
    assert_int_equal(io_mkdirs(path), ERR_OK);
    assert_int_equal(io_path(path, "%s/sys/bus/pci/devices/%s/%s", root, slot, name), ERR_OK);
    assert_int_equal(io_write_file(path, word, strlen(word), NULL), ERR_OK);
}

static void add(const char *root, const char *slot, const char *vendor, const char *class, const char *model) {
    write_word(root, slot, "vendor", vendor);
    write_word(root, slot, "class", class);
    write_word(root, slot, "device", model);
}

static void gpus_are_known_by_vendor_and_class(void **state) {
    (void)state;
    char root[] = "/tmp/lockstep-find.XXXXXX", gpu[64] = "x";
    assert_non_null(mkdtemp(root));
    device_on_board(root, gpu);
    assert_string_equal(gpu, "");
    add(root, "0000:00:02.0", "0x8086\n", "0x030000\n", "0x1234\n");  // another vendor's
    add(root, "0000:01:00.1", "0x10de\n", "0x040300\n", "0x22ba\n");  // its sound
    add(root, "0000:02:00.0", "0x10de\n", "0x068000\n", "0x22a3\n");  // a switch
    write_word(root, "0000:03:00.0", "vendor", "0x10de\n");           // half there
    device_on_board(root, gpu);
    assert_string_equal(gpu, "");
    add(root, "0000:04:00.0", "0x10de\n", "0x030200\n", "0x2330\n");
    device_on_board(root, gpu);
    assert_string_equal(gpu, "NVIDIA, PCI id 10de:2330");
    add(root, "0000:00:01.0", "0x10de\n", "0x030000\n", "0x2684\n");
    device_on_board(root, gpu);
    assert_string_equal(gpu, "NVIDIA, PCI id 10de:2684");
    assert_int_equal(io_remove_tree(root), ERR_OK);
}

// As the device itself says, which is opened here afterwards.
static void auto_is_what_a_child_finds(void **state) {
    (void)state;
    device_found f;
    device *d;
    assert_int_equal(device_find(&f), ERR_OK);
    assert_int_equal(device_open(&d, &(device_options){.kind = DEVICE_AUTO, .threads = 1}), ERR_OK);
    assert_int_equal(f.kind, device_about(d)->kind);
    assert_string_equal(f.why, device_about(d)->choice);
    assert_memory_equal(f.why, "auto chose the ", 15);
    device_close(d);
    assert_int_equal(device_open(&d, &(device_options){.kind = f.kind, .threads = 1, .why = "it was found so"}),
                     ERR_OK);
    assert_string_equal(device_about(d)->choice, "it was found so");
    device_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gpus_are_known_by_vendor_and_class),
                                       cmocka_unit_test(auto_is_what_a_child_finds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
