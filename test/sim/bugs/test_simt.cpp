// test/sim/bugs/test_simt.cpp: does the simulator find what it is there to find? Every planted bug runs under several
// seeds, each in a process of its own (a bug may kill it), and so does its correct twin, which must be right and silent
// under each.
//
// Three builds of this program see different things: plain (wrong results, misuse), race (unordered accesses, named by
// line), and AddressSanitizer (bounds, alignment). What each must see is in the table.
#include "test/sim/bugs/bugs.h"
#include "test/sim/simt_rt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

const bug bugs[] = {
    // name               file         what             plain    race     asan     kind             named
    {"missing_barrier", "shared.cu", missing_barrier, WRONG, FINDING, WRONG, "race", true},
    {"missing_syncwarp", "shared.cu", missing_syncwarp, WRONG, FINDING, WRONG, "race", true},
    {"double_buffer", "shared.cu", double_buffer, WRONG, FINDING, WRONG, "race", true},
    {"missing_copy_wait", "shared.cu", missing_copy_wait, WRONG, FINDING, WRONG, "race", true},
    {"halves_of_words", "shared.cu", halves_of_words, WRONG, FINDING, WRONG, "race", true},
    {"shared_past_end", "shared.cu", shared_past_end, FINDING, FINDING, DIES, "shared-bounds", true},
    {"uninitialised_shared", "shared.cu", uninitialised_shared, WRONG, WRONG, WRONG, "", false},
    {"threads_add", "global.cu", threads_add, SILENT, FINDING, SILENT, "race", true},
    {"blocks_add", "global.cu", blocks_add, SILENT, FINDING, SILENT, "race", true},
    {"missing_fence", "global.cu", missing_fence, SILENT, FINDING, SILENT, "race", true},
    {"global_past_end", "global.cu", global_past_end, SILENT, FINDING, DIES, "memory", true},
    {"misaligned", "global.cu", misaligned, DIES, DIES, DIES, "misaligned", true},
    {"lane_leaves", "control.cu", lane_leaves, FINDING, FINDING, FINDING, "warp", true},
    {"divergent_barrier", "control.cu", divergent_barrier, FINDING, FINDING, FINDING, "barrier", true},
    {"stuck", "control.cu", stuck, FINDING, FINDING, FINDING, "deadlock", true},
    {"too_much_shared", "control.cu", too_much_shared, FINDING, FINDING, FINDING, "launch", false},
};
const size_t bug_count = sizeof bugs / sizeof *bugs;

// --- device memory ---------------------------------------------------------------------------------------------------

float *device_floats(int n, float first, float step) {
    std::vector<float> values((size_t)n);
    void *p = nullptr;
    for (int i = 0; i < n; i++) values[(size_t)i] = first + (float)i * step;
    if (cudaMalloc(&p, (size_t)n * sizeof(float)) ||
        cudaMemcpy(p, values.data(), (size_t)n * sizeof(float), cudaMemcpyHostToDevice))
        abort();
    return (float *)p;
}

void read_floats(float *out, const float *in, int n) {
    (void)cudaMemcpy(out, in, (size_t)n * sizeof(float), cudaMemcpyDeviceToHost);
}
void release(void *p) { (void)cudaFree(p); }

// --- one run ---------------------------------------------------------------------------------------------------------

struct outcome {
    bool right;
    int findings, status;  // status as of waitpid()
    char kind[32];
    char text[8192];  // what it printed on standard error
};

static void child(const bug *b, bool planted, uint64_t seed, int text, int result) {
    outcome o = {};
    if (dup2(text, 2) < 0) _exit(1);
    simt::set_seed(seed);
    o.right = b->run(planted);
    o.findings = simt::findings();
    snprintf(o.kind, sizeof o.kind, "%s", simt::last_kind());
    if (write(result, &o, sizeof o) != sizeof o) _exit(1);
    exit(0);  // 99 with findings
}

static outcome run(const bug *b, bool planted, uint64_t seed) {
    outcome o = {};
    int ends[2];
    FILE *text = tmpfile();
    if (!text || pipe(ends)) abort();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) child(b, planted, seed, fileno(text), ends[1]);
    close(ends[1]);
    if (read(ends[0], &o, sizeof o) != sizeof o) o = {};
    close(ends[0]);
    waitpid(pid, &o.status, 0);
    rewind(text);
    o.text[fread(o.text, 1, sizeof o.text - 1, text)] = 0;
    fclose(text);
    return o;
}

// --- what was seen ---------------------------------------------------------------------------------------------------

// Does the text name a line that carries the bug's mark?
static bool names_line(const bug *b, const char *text) {
    char path[200], mark[64], line[512], name[64];
    bool found = false;
    snprintf(path, sizeof path, "test/sim/bugs/%s", b->file);
    snprintf(mark, sizeof mark, "// <%s>", b->name);
    FILE *f = fopen(path, "r");
    for (int n = 1; f && fgets(line, sizeof line, f); n++) {
        snprintf(name, sizeof name, "%s:%d", b->file, n);
        size_t length = strlen(name);
        const char *at = strstr(line, mark) ? strstr(text, name) : nullptr;
        found = found || (at && (at[length] < '0' || at[length] > '9'));
    }
    if (f) fclose(f);
    return found;
}

static shows seen(const bug *b, const outcome *o, bool lines) {
    bool as_told = WIFEXITED(o->status) && WEXITSTATUS(o->status) == (o->findings ? 99 : 0),
         named = !lines || !b->named || names_line(b, o->text);
    if (!as_told) return named ? DIES : WRONG;
    if (o->findings) return named && !strcmp(o->kind, b->kind) ? FINDING : WRONG;
    return o->right ? SILENT : WRONG;
}

// The line of what it printed that says most.
static std::string gist(const char *text) {
    static const char *const marks[] = {"simulator: ", "runtime error: ", "ERROR: "};
    for (const char *mark : marks) {
        const char *at = strstr(text, mark);
        if (at) return std::string(at, strcspn(at, "\n"));
    }
    return "";
}

// Findings and deaths are the simulator's duty under every seed; a wrong result needs luck, so one is enough.
static bool check_bug(const bug *b, shows expected, uint64_t seeds, bool lines) {
    static const char *const words[] = {"silent", "wrong", "finding", "dies"};
    uint64_t hits[4] = {};
    std::string sample;
    for (uint64_t s = 0; s < seeds; s++) {
        outcome o = run(b, true, s);
        hits[seen(b, &o, lines)]++;
        if (sample.empty()) sample = gist(o.text);
    }
    bool good = expected == WRONG ? hits[WRONG] > 0 && hits[WRONG] + hits[SILENT] == seeds : hits[expected] == seeds;
    printf("%-6s %-22s %-8s %2llu of %llu seeds  %s\n", good ? "ok" : "FAILED", b->name, words[expected],
           (unsigned long long)hits[expected], (unsigned long long)seeds, sample.c_str());
    if (!good)
        printf("       silent %d, wrong %d, finding %d, dies %d\n", (int)hits[0], (int)hits[1], (int)hits[2],
               (int)hits[3]);
    return good;
}

static bool check_twin(const bug *b, uint64_t seeds) {
    bool good = true;
    for (uint64_t s = 0; s < seeds; s++) {
        outcome o = run(b, false, s);
        if (o.right && !o.findings && WIFEXITED(o.status) && WEXITSTATUS(o.status) == 0) continue;
        printf("FAILED %s, correct twin, seed %llu: %s, status 0x%x, %d findings: %s\n", b->name, (unsigned long long)s,
               o.right ? "right" : "wrong", (unsigned)o.status, o.findings, o.text);
        good = false;
    }
    return good;
}

int main(int argc, char **argv) {
    uint64_t seeds = argc > 1 ? strtoull(argv[1], nullptr, 10) : 8;
#ifdef __SANITIZE_ADDRESS__
    bool asan = true;
#else
    bool asan = false;
#endif
    bool race = simt::race_build();
    int passed = 0, failed = 0;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (size_t i = 0; i < bug_count; i++) {
        const bug *b = &bugs[i];
        shows expected = asan ? b->asan : race ? b->race : b->plain;
        bool both[] = {check_bug(b, expected, seeds, asan || race), check_twin(b, seeds)};
        for (bool good : both) ++(good ? passed : failed);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
