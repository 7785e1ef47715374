// test/sim/report.cpp: findings and the seed. A program with findings ends with status 99, whatever it thinks of
// itself.
#include "test/sim/device.h"

#include <set>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

namespace simt {

enum { SHOWN = 10 };

static std::set<std::string> known;
static std::string kind_of_last, text_of_last;
static int count;

Stats stats;

static void at_end() {
    if (!count) return;
    fflush(nullptr);
    fprintf(stderr, "simulator: %d finding%s\n", count, count == 1 ? "" : "s");
    _exit(99);
}

std::string where() {
    if (!running) return "";
    char text[300];
    snprintf(text, sizeof text, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u), seed %llu", block.kernel,
             block_index.x, block_index.y, block_index.z, running->tid.x, running->tid.y, running->tid.z,
             (unsigned long long)seed());
    return text;
}

void check_msg(const char *kind, const char *format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!known.insert(std::string(kind) + text).second) return;
    static bool registered = (atexit(at_end), true);
    (void)registered;
    std::string place = where();
    kind_of_last = kind;
    text_of_last = text + (place.empty() ? place : " [" + place + "]");
    if (count++ < SHOWN) fprintf(stderr, "simulator: %s: %s\n", kind, text_of_last.c_str());
}

int findings() { return count; }
const char *last_kind() { return kind_of_last.c_str(); }
const char *last_text() { return text_of_last.c_str(); }
void clear_findings() {
    known.clear();
    kind_of_last.clear();
    text_of_last.clear();
    count = 0;
}

// --- seed: xorshift64 (Marsaglia 2003) -------------------------------------------------------------------------------

static uint64_t chosen, state = 88172645463325252ull;

uint64_t rnd() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}
void set_seed(uint64_t s) {
    chosen = s;
    state = s * 0x9E3779B97F4A7C15ull + 88172645463325252ull;
    for (int i = 0; i < 8; i++) rnd();
}
uint64_t seed() { return chosen; }

__attribute__((constructor)) static void read_seed() {
    const char *text = getenv("SIM_SEED");
    set_seed(text ? strtoull(text, nullptr, 10) : 0);
}

}  // namespace simt

#if SIM_ASAN  // what is left behind is not looked for: stacks of blocks that never end hold memory. A mistake ends the program.
extern "C" const char *__asan_default_options() { return "detect_leaks=0:detect_stack_use_after_return=0"; }
extern "C" const char *__ubsan_default_options() { return "halt_on_error=1:print_stacktrace=1"; }
#endif
