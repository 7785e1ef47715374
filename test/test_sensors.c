// test/test_sensors.c: power, clocks and who holds a GPU: RAPL over a made directory, NVML over the stand-in of
// test/standin/nvml.c, and what is logged of readings that are written down here.
#include "test/support/run.h"

#include "comm/cost.h"
#include "gpu/backend.h"
#include "gpu/cpu/rapl.h"
#include "gpu/cuda/nvml_api.h"
#include "gpu/nvlinks.h"
#include "gpu/sensors.h"
#include "trainer/joined.h"
#include "trainer/log/power.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <sys/stat.h>

// test/nvml_headers.c, linked where NVML's header is installed.
extern const bool nvml_headers_compared __attribute__((weak));

#define FAILS(call, ...) \
    do { \
        err_t fails_ = (call); \
        const char *words_[] = {__VA_ARGS__}; \
        assert_int_equal(fails_, ERR_UNAVAILABLE); \
        for (size_t i_ = 0; i_ < sizeof words_ / sizeof *words_; i_++) \
            if (!strstr(err_last()->text, words_[i_])) fail_msg("no `%s` in: %s", words_[i_], err_last()->text); \
    } while (0)

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

// --- RAPL ------------------------------------------------------------------------------------------------------------

// A zone as the kernel shows it; NULL: the file is not there.
static void zone(const char *dir, const char *name, const char *label, const char *range, const char *energy) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(io_mkdirs(path));
    if (label) write_text(path, "name", label);
    if (range) write_text(path, "max_energy_range_uj", range);
    if (energy) write_text(path, "energy_uj", energy);
}

// The kernel's files stay what they are: written in place, not replaced.
static void now_says(const char *dir, const char *name, const char *energy) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s/energy_uj", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(energy, f);
    assert_int_equal(fclose(f), 0);
}

static double read_joules(rapl *r) {
    double joules = NAN;
    OK(rapl_read(r, &joules));
    return joules;
}

// Two packages; what is below them, the platform, a second way to the same counter and other powercap zones do not
// count.
static void rapl_adds_packages(void **state) {
    (void)state;
    char *dir = make_dir();
    rapl r;
    zone(dir, "intel-rapl:0", "package-0\n", "262143328850\n", "5000000\n");
    zone(dir, "intel-rapl:1", "package-1\n", "262143328850\n", "7000000\n");
    zone(dir, "intel-rapl:0:0", "core\n", "262143328850\n", "3000000\n");
    zone(dir, "intel-rapl:2", "psys\n", "262143328850\n", "1\n");
    zone(dir, "intel-rapl-mmio:0", "package-0\n", "262143328850\n", "5000000\n");
    zone(dir, "intel-rapl", NULL, NULL, NULL);
    OK(rapl_open(&r, dir));
    assert_int_equal(r.count, 2);
    assert_true(read_joules(&r) == 0);
    now_says(dir, "intel-rapl:0", "6500000\n");
    now_says(dir, "intel-rapl:1", "7250000\n");
    now_says(dir, "intel-rapl:0:0", "4000000\n");
    now_says(dir, "intel-rapl:2", "9000000\n");
    now_says(dir, "intel-rapl-mmio:0", "6500000\n");
    assert_true(near(read_joules(&r), 1.75));
    assert_true(near(read_joules(&r), 1.75));
    rapl_close(&r);
    drop_dir(dir);
}

static void rapl_goes_round(void **state) {
    (void)state;
    char *dir = make_dir();
    rapl r;
    zone(dir, "intel-rapl:0", "package-0\n", "65532610987\n", "65532000000\n");  // an AMD's range
    OK(rapl_open(&r, dir));
    now_says(dir, "intel-rapl:0", "389013\n");
    assert_true(near(read_joules(&r), 1));
    now_says(dir, "intel-rapl:0", "2389013\n");
    assert_true(near(read_joules(&r), 3));
    now_says(dir, "intel-rapl:0", "1389013\n");  // round again
    assert_true(near(read_joules(&r), 65534.610987));
    rapl_close(&r);
    drop_dir(dir);
}

static void rapl_says_what_is_missing(void **state) {
    (void)state;
    char *dir = make_dir(), path[512];
    double joules;
    rapl r;
    snprintf(path, sizeof path, "%s/powercap", dir);
    FAILS(rapl_open(&r, path), "powercap: No such file", "no RAPL");
    OK(io_mkdirs(path));
    FAILS(rapl_open(&r, path), "intel-rapl:0", "no RAPL");
    zone(path, "intel-rapl:0", "package-0\n", NULL, "12\n");
    FAILS(rapl_open(&r, path), "intel-rapl:0/max_energy_range_uj: No such file");
    zone(path, "intel-rapl:0", "package-0\n", "1000\n", "twelve\n");
    FAILS(rapl_open(&r, path), "intel-rapl:0/energy_uj: not a number");
    zone(path, "intel-rapl:0", "package-0\n", "1000\n", "12\n");
    OK(rapl_open(&r, path));
    now_says(path, "intel-rapl:0", "");
    FAILS(rapl_read(&r, &joules), "intel-rapl:0/energy_uj: not a number");
    rapl_close(&r);
    assert_int_equal(r.count, 0);
    drop_dir(dir);
}

// The kernel gives the counter to root only. Root may read everything: it is somebody else for a moment.
static void rapl_of_root_only(void **state) {
    (void)state;
    char *dir = make_dir(), path[512];
    rapl r;
    bool root = geteuid() == 0;
    zone(dir, "intel-rapl:0", "package-0\n", "1000\n", "12\n");
    snprintf(path, sizeof path, "%s/intel-rapl:0/energy_uj", dir);
    assert_int_equal(chmod(path, root ? 0400 : 0), 0);
    assert_int_equal(chmod(dir, 0755), 0);
    if (root && seteuid(65534) != 0) skip();
    err_t rc = rapl_open(&r, dir);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(rc, ERR_UNAVAILABLE);
    assert_non_null(strstr(err_last()->text, "energy_uj is readable by root only"));
    drop_dir(dir);
}

// --- NVML ------------------------------------------------------------------------------------------------------------

// The stand-in lies beside this program, or where a build shares it.
static const char *standin(void) {
    static char path[600];
    ssize_t n = readlink("/proc/self/exe", path, 480);
    assert_true(n > 0);
    path[n] = 0;
    char *slash = strrchr(path, '/');
    snprintf(slash ? slash + 1 : path, 64, "nvml/libnvidia-ml.so.1");
    return path;
}

static int forget(void **state) {
    (void)state;
    static const char *const names[] = {"41", "42", "43", "44", "INIT", "PROCESSES", "ENTRY", "LIST", "WIPES"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "LOCKSTEP_NVML_%s", names[i]);
        unsetenv(name);
    }
    return 0;
}

static void nvml_reads_sensors(void **state) {
    (void)state;
    nvml n;
    device_sensors s;
    setenv("LOCKSTEP_NVML_41", "power=250500 energy=1234567890123 heat=71 clock=1755 reasons=4", 1);
    OK(nvml_open(&n, standin(), "0000:41:00.0"));
    OK(nvml_sense(&n, &s));
    assert_true(near(s.watts, 250.5) && s.celsius == 71 && s.mhz == 1755 && near(s.joules, 1234567890.123));
    assert_int_equal(s.limited, LIMITED_POWER);
    nvml_close(&n);
    assert_null(n.handle);
}

static void nvml_says_what_holds_clocks(void **state) {
    (void)state;
    static const struct {
        const char *reasons;
        unsigned limited;
        const char *text;
    } rows[] = {
        {"0", 0, "no"},
        {"1", 0, "no"},
        {"2", 0, "no"},
        {"16", 0, "no"},
        {"256", 0, "no"},
        {"4", LIMITED_POWER, "power"},
        {"8", LIMITED_HARDWARE, "hardware"},
        {"32", LIMITED_HEAT, "heat"},
        {"72", LIMITED_HEAT, "heat"},
        {"136", LIMITED_BRAKE, "brake"},
        {"12", LIMITED_POWER | LIMITED_HARDWARE, "power+hardware"},
        {"236", LIMITED_POWER | LIMITED_HEAT | LIMITED_BRAKE, "power+heat+brake"},
        {"!3", LIMITED_UNKNOWN, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        nvml n;
        device_sensors s;
        char text[64], words[LIMITED_TEXT];
        snprintf(text, sizeof text, "power=1 reasons=%s", rows[i].reasons);
        setenv("LOCKSTEP_NVML_41", text, 1);
        OK(nvml_open(&n, standin(), "0000:41:00.0"));
        OK(nvml_sense(&n, &s));
        if (s.limited != rows[i].limited)
            fail_msg("reasons %s: %u, expected %u", rows[i].reasons, s.limited, rows[i].limited);
        assert_string_equal(device_limited_text(s.limited, words), rows[i].text);
        nvml_close(&n);
    }
}

static void nvml_lacks_sensors(void **state) {
    (void)state;
    nvml n;
    device_sensors s;
    setenv("LOCKSTEP_NVML_41", "heat=50 power=!999,100000", 1);
    OK(nvml_open(&n, standin(), "0000:41:00.0"));
    OK(nvml_sense(&n, &s));
    assert_true(isnan(s.watts) && s.celsius == 50 && isnan(s.mhz) && isnan(s.joules));
    assert_int_equal(s.limited, LIMITED_UNKNOWN);
    OK(nvml_sense(&n, &s));
    assert_true(near(s.watts, 100));
    nvml_close(&n);
    setenv("LOCKSTEP_NVML_41", "nothing", 1);
    OK(nvml_open(&n, standin(), "0000:41:00.0"));
    FAILS(nvml_sense(&n, &s), "0000:41:00.0", "Not Supported (3)");
    nvml_close(&n);
}

static void nvml_says_why_not(void **state) {
    (void)state;
    nvml n;
    FAILS(nvml_open(&n, "/nowhere/libnvidia-ml.so.1", "0000:41:00.0"), "libnvidia-ml.so.1 not found", "/nowhere/",
          "driver");
    FAILS(nvml_open(&n, standin(), "0000:41:00.0"), "0000:41:00.0", "Not Found (6)", "driver stand-in");
    assert_null(n.handle);
    setenv("LOCKSTEP_NVML_INIT", "9", 1);
    FAILS(nvml_open(&n, standin(), "0000:41:00.0"), "nvmlInit_v2: Driver Not Loaded (9)");
    assert_null(n.handle);
}

// A library of another age: some functions are not there.
typedef struct age {
    void *handle;
    const char *without;
} age;

static void *find_of_age(void *ctx, const char *name) {
    const age *a = ctx;
    char word[80];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(a->without, word) ? NULL : dlsym(a->handle, name);
}

static void open_of_age(nvml *n, age *a, const char *without) {
    *n = (nvml){.bus_id = "0000:41:00.0"};
    *a = (age){.handle = dlopen(standin(), RTLD_NOW | RTLD_LOCAL), .without = without};
    assert_non_null(a->handle);
    OK(nvml_bind(n, find_of_age, a));
    n->handle = a->handle;
    assert_int_equal(n->nvmlInit_v2(), NVML_SUCCESS);
    assert_int_equal(n->nvmlDeviceGetHandleByPciBusId_v2(n->bus_id, &n->device), NVML_SUCCESS);
}

static void nvml_of_another_age(void **state) {
    (void)state;
    nvml n;
    age a;
    device_sensors s;
    char text[256];
    setenv("LOCKSTEP_NVML_41", "power=9000 heat=40 clock=800 energy=5000 reasons=32", 1);
    setenv("LOCKSTEP_NVML_PROCESSES", "77:1073741824,78:2147483648", 1);
    open_of_age(&n, &a,
                " nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetComputeRunningProcesses_v3 "
                "nvmlDeviceGetTotalEnergyConsumption nvmlErrorString ");
    OK(nvml_sense(&n, &s));
    assert_true(near(s.watts, 9) && isnan(s.joules));
    assert_int_equal(s.limited, LIMITED_HEAT);
    nvml_holders(&n, "/nowhere", text, sizeof text);
    assert_string_equal(text, "held by process 78 (2.0 GiB), 77 (1.0 GiB)");
    nvml_close(&n);
    open_of_age(&n, &a,
                " nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetComputeRunningProcesses_v2 "
                "nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons "
                "nvmlDeviceGetPowerUsage nvmlDeviceGetTemperature nvmlDeviceGetClockInfo ");
    OK(nvml_sense(&n, &s));
    assert_true(isnan(s.watts) && isnan(s.celsius) && isnan(s.mhz) && near(s.joules, 5));
    assert_int_equal(s.limited, LIMITED_UNKNOWN);
    nvml_holders(&n, "/nowhere", text, sizeof text);
    assert_string_equal(text, "held by process 78 (2.0 GiB), 77 (1.0 GiB)");
    FAILS(nvml_bind(&(nvml){0}, find_of_age, &(age){a.handle, " nvmlInit_v2 nvmlShutdown "}),
          "lacks nvmlInit_v2, nvmlShutdown", "450");
    nvml_close(&n);
}

// However many bytes the library writes for a process, and whichever edition of the call answers.
static void nvml_entries_of_all_sizes(void **state) {
    (void)state;
    static const struct {
        const char *entry, *list, *wipes;
    } rows[] = {{"24", NULL, NULL}, {"32", NULL, NULL},  {"16", NULL, NULL}, {"24", NULL, "1"},
                {"32", NULL, "1"},  {"24", "!13", NULL}, {"24", "!3", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        nvml n;
        char text[256];
        forget(NULL);
        setenv("LOCKSTEP_NVML_41", "power=1", 1);
        setenv("LOCKSTEP_NVML_ENTRY", rows[i].entry, 1);
        if (rows[i].list) setenv("LOCKSTEP_NVML_LIST", rows[i].list, 1);
        if (rows[i].wipes) setenv("LOCKSTEP_NVML_WIPES", rows[i].wipes, 1);
        OK(nvml_open(&n, standin(), "0000:41:00.0"));
        setenv("LOCKSTEP_NVML_PROCESSES", "11:1073741824", 1);
        nvml_holders(&n, "/nowhere", text, sizeof text);
        assert_string_equal(text, "held by process 11 (1.0 GiB)");
        setenv("LOCKSTEP_NVML_PROCESSES", "11:1073741824,12:3221225472,13:2147483648", 1);
        nvml_holders(&n, "/nowhere", text, sizeof text);
        assert_string_equal(text, "held by process 12 (3.0 GiB), 13 (2.0 GiB), 11 (1.0 GiB)");
        nvml_close(&n);
    }
}

// As many processes as there are, with memory or without.
static void crowd(int count, const char *bytes) {
    char text[2048] = "";
    for (int i = 0, n = 0; i < count; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d:%s", i ? "," : "", 100 + i, bytes);
    setenv("LOCKSTEP_NVML_PROCESSES", text, 1);
}

static void nvml_names_holders(void **state) {
    (void)state;
    nvml n;
    char *proc = make_dir(), text[256], want[256], dir[512];
    setenv("LOCKSTEP_NVML_41", "power=1", 1);
    OK(nvml_open(&n, standin(), "0000:41:00.0"));
    nvml_holders(&n, proc, text, sizeof text);
    assert_string_equal(text, "");
    snprintf(dir, sizeof dir, "%s/4711", proc);
    OK(io_mkdirs(dir));
    write_text(dir, "comm", "python3\n");
    snprintf(dir, sizeof dir, "%s/4802", proc);
    OK(io_mkdirs(dir));
    write_text(dir, "comm", "a\033[31m\nb");  // who may be called anything
    snprintf(text, sizeof text, "4802:,4711:75269931008,%d:3221225472,9:104857600", (int)getpid());
    setenv("LOCKSTEP_NVML_PROCESSES", text, 1);
    nvml_holders(&n, proc, text, sizeof text);
    snprintf(want, sizeof want,
             "held by process 4711 (python3, 70.1 GiB), %d (this process, 3.0 GiB), 9 (0.1 GiB), "
             "4802 (a?[31m)",
             (int)getpid());
    assert_string_equal(text, want);
    crowd(6, "1073741824");
    nvml_holders(&n, proc, text, sizeof text);
    assert_string_equal(text, "held by process 100 (1.0 GiB), 101 (1.0 GiB), 102 (1.0 GiB), 103 (1.0 GiB) and 2 more");
    crowd(61, "");
    nvml_holders(&n, proc, text, sizeof text);
    assert_string_equal(text, "held by process 100, 101, 102, 103 and 57 more");
    crowd(62, "");
    nvml_holders(&n, proc, text, sizeof text);
    assert_string_equal(text, "held by 62 processes");
    nvml_close(&n);
    drop_dir(proc);
}

// --- NVLink ----------------------------------------------------------------------------------------------------------

// What `lockstep check` says of the GPUs on buses 41 .. 40 + n.
static void nvlinks_say(int n, const char *const *links, int64_t joined, const char *expected) {
    char bus[4][DEVICE_BUS] = {"0000:41:00.0", "0000:42:00.0", "0000:43:00.0", "0000:44:00.0"}, name[32], value[256],
         *text;
    size_t size;
    nvlinks x;
    forget(NULL);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "LOCKSTEP_NVML_%d", 41 + i);
        snprintf(value, sizeof value, "power=1 %s", links[i]);
        setenv(name, value, 1);
    }
    OK(nvlinks_read(&x, n, (const char(*)[DEVICE_BUS])bus, standin()));
    FILE *out = open_memstream(&text, &size);
    joined_print_links(&x, (const char(*)[DEVICE_BUS])bus, joined, out);
    fclose(out);
    if (strcmp(text, expected) != 0) fail_msg("it says\n%sexpected\n%s", text, expected);
    free(text);
}

#define PAIRS "links=42,42", "links=41,41", "links=44,44", "links=43,43"
#define PAIRS_SAID \
    "nvlink  4 GPUs in 2 groups\n" \
    "  GPU 0   0000:41:00.0  group 0   2 to GPU 1\n  GPU 1   0000:42:00.0  group 0   2 to GPU 0\n" \
    "  GPU 2   0000:43:00.0  group 1   2 to GPU 3\n  GPU 3   0000:44:00.0  group 1   2 to GPU 2\n"

static void nvlink_joins(void **state) {
    (void)state;
    nvlinks_say(2, (const char *[]){"", ""}, 0, "nvlink  none between 2 GPUs\n");
    nvlinks_say(2, (const char *[]){"", ""}, 2,
                "nvlink  none between 2 GPUs\n"
                "slow    [cluster] joined = 2, and NVLink does not join such neighbours\n");
    nvlinks_say(4, (const char *[]){PAIRS}, 0,
                PAIRS_SAID "faster  with [cluster] joined = 2 sums are added inside these groups first\n");
    nvlinks_say(4, (const char *[]){PAIRS}, 2, PAIRS_SAID);
    nvlinks_say(4, (const char *[]){PAIRS}, 4,
                PAIRS_SAID "slow    [cluster] joined = 4, and NVLink does not join such neighbours\n"
                           "faster  with [cluster] joined = 2 sums are added inside these groups first\n");
    // pairs that are no neighbours, and a GPU alone: nothing is proposed
    nvlinks_say(4, (const char *[]){"links=43", "links=44", "links=41", "links=42"}, 0,
                "nvlink  4 GPUs in 2 groups\n"
                "  GPU 0   0000:41:00.0  group 0   1 to GPU 2\n  GPU 1   0000:42:00.0  group 1   1 to GPU 3\n"
                "  GPU 2   0000:43:00.0  group 0   1 to GPU 0\n  GPU 3   0000:44:00.0  group 1   1 to GPU 1\n");
    nvlinks_say(3, (const char *[]){"links=42", "links=41", ""}, 0,
                "nvlink  3 GPUs in 2 groups\n"
                "  GPU 0   0000:41:00.0  group 0   1 to GPU 1\n  GPU 1   0000:42:00.0  group 0   1 to GPU 0\n"
                "  GPU 2   0000:43:00.0  group 1   no link\n");
}

// Of switches a GPU says no more than that; a chain of GPUs is one group.
static void nvlink_leads_to_switches_and_on(void **state) {
    (void)state;
    nvlinks_say(3, (const char *[]){"links=s,s,s", "links=s,-,-", "links=s,s,s"}, 0,
                "nvlink  3 GPUs in 1 group\n"
                "  GPU 0   0000:41:00.0  group 0   3 to switches\n  GPU 1   0000:42:00.0  group 0   1 to switches\n"
                "  GPU 2   0000:43:00.0  group 0   3 to switches\n"
                "slow    GPU 1 has 1 working NVLink, its equals have 3; 2 are down: see `nvidia-smi nvlink --status -i "
                "1`\n");
    nvlinks_say(3, (const char *[]){"links=43,43", "links=43,o", "links=42,41,41,-"}, 0,
                "nvlink  3 GPUs in 1 group\n"
                "  GPU 0   0000:41:00.0  group 0   2 to GPU 2\n"
                "  GPU 1   0000:42:00.0  group 0   1 to GPU 2, 1 to others\n"
                "  GPU 2   0000:43:00.0  group 0   2 to GPU 0, 1 to GPU 1\n");
    nvlinks_say(
        2, (const char *[]){"links=-,-", "links=o,o"}, 0,
        "nvlink  2 GPUs in 2 groups\n"
        "  GPU 0   0000:41:00.0  group 0   no link\n  GPU 1   0000:42:00.0  group 1   2 to others\n"
        "slow    GPU 0 has 0 working NVLinks, its equals have 2; 2 are down: see `nvidia-smi nvlink --status -i "
        "0`\n");
}

static void nvlink_is_not_known(void **state) {
    (void)state;
    char bus[2][DEVICE_BUS] = {"0000:41:00.0", ""};
    nvlinks x;
    FAILS(nvlinks_read(&x, 2, (const char(*)[DEVICE_BUS])bus, standin()), "nvlink", "no address");
    setenv("LOCKSTEP_NVML_41", "links=42", 1);
    snprintf(bus[1], sizeof bus[1], "0000:42:00.0");
    FAILS(nvlinks_read(&x, 2, (const char(*)[DEVICE_BUS])bus, standin()), "0000:42:00.0", "Not Found");
    FAILS(nvlinks_read(&x, NVLINKS_GPUS + 1, (const char(*)[DEVICE_BUS])bus, standin()), "65 GPUs", "at most 64");
}

static void nvml_header_is_compared(void **state) {
    (void)state;
    if (!&nvml_headers_compared || !nvml_headers_compared) skip();
}

// --- what is logged --------------------------------------------------------------------------------------------------

enum { WORLD = 3, TOKENS = 64 };

typedef struct scene {
    char *dir;
    comm *ranks;
    comm_place place[WORLD];
    device *dev;
    power p;
    monitor m;
    double reports[WORLD * REPORT_ITEMS];
} scene;

static void open_scene(scene *s, int64_t every, int64_t behind) {
    memset(s, 0, sizeof *s);
    s->dir = make_dir();
    for (int k = 0; k < WORLD; k++) {
        s->place[k] = (comm_place){.node = k / 2, .local = k % 2, .rank = k};
        snprintf(s->place[k].host, COMM_HOST, "node%d", k / 2);
    }
    OK(comm_imaginary_open(&s->ranks, 0, WORLD, s->place));
    OK(device_open(&s->dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    err_t rc = power_open(&s->p, s->dev, s->ranks, every, behind);
    assert_true(rc == ERR_OK || rc == ERR_UNAVAILABLE);  // this machine's own
    OK(monitor_open(&s->m, &(log_setup){.dir = s->dir,
                                        .c = &(config){.run.steps = 100, .log.jsonl = true},
                                        .unit = "token",
                                        .quiet = true}));
}

static void close_scene(scene *s) {
    monitor_close(&s->m);
    power_close(&s->p);
    device_close(s->dev);
    s->ranks->table->close(s->ranks);
    drop_dir(s->dir);
}

static void reading(scene *s, int rank, double watts, double joules, unsigned limited) {
    double *of = &s->reports[rank * REPORT_ITEMS];
    of[REPORT_SENSED] = 1, of[REPORT_WATTS] = watts, of[REPORT_CELSIUS] = 40 + rank, of[REPORT_MHZ] = 1000 + rank;
    of[REPORT_JOULES] = joules, of[REPORT_LIMITED] = limited;
}

static char *written(scene *s, const char *name) {
    char path[512], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    OK(io_read_file(path, 1 << 20, &text, &n));
    return text;
}

static int count_of(const char *text, const char *word) {
    int n = 0;
    for (; (text = strstr(text, word)); text++) n++;
    return n;
}

// Sums over ranks; energy for each token since the last record, or since the run began, which may be in the middle of
// an interval.
static void record_of_all_ranks(void **state) {
    (void)state;
    scene s;
    open_scene(&s, 10, 5);
    reading(&s, 0, 100, 32, 0);
    reading(&s, 2, 50.5, 16, LIMITED_POWER | LIMITED_HEAT);
    power_log(&s.p, &s.m, 9, s.reports, TOKENS);
    power_log(&s.p, &s.m, 10, s.reports, TOKENS);
    reading(&s, 1, NAN, 1, LIMITED_UNKNOWN);
    s.reports[REPORT_ITEMS + REPORT_CELSIUS] = s.reports[REPORT_ITEMS + REPORT_MHZ] = NAN;
    power_log(&s.p, &s.m, 20, s.reports, TOKENS);
    char *log = written(&s, "log.jsonl");
    assert_string_equal(log, "{\"t\":\"power\",\"step\":10,\"watts\":150.5,\"joules_per_token\":0.15,\"devices\":["
                             "{\"rank\":0,\"watts\":100,\"celsius\":40,\"mhz\":1000,\"limited\":\"no\"},"
                             "{\"rank\":2,\"watts\":50.5,\"celsius\":42,\"mhz\":1002,\"limited\":\"power+heat\"}]}\n"
                             "{\"t\":\"power\",\"step\":20,\"watts\":null,\"joules_per_token\":0.0765625,\"devices\":["
                             "{\"rank\":0,\"watts\":100,\"celsius\":40,\"mhz\":1000,\"limited\":\"no\"},"
                             "{\"rank\":1,\"watts\":null,\"celsius\":null,\"mhz\":null,\"limited\":null},"
                             "{\"rank\":2,\"watts\":50.5,\"celsius\":42,\"mhz\":1002,\"limited\":\"power+heat\"}]}\n");
    free(log);
    close_scene(&s);
}

static void nothing_known_nothing_told(void **state) {
    (void)state;
    scene s;
    open_scene(&s, 10, 0);
    power_log(&s.p, &s.m, 10, s.reports, TOKENS);
    for (int k = 0; k < WORLD; k++) {
        reading(&s, k, NAN, NAN, LIMITED_UNKNOWN);
        s.reports[k * REPORT_ITEMS + REPORT_CELSIUS] = s.reports[k * REPORT_ITEMS + REPORT_MHZ] = NAN;
    }
    power_log(&s.p, &s.m, 20, s.reports, TOKENS);
    char *log = written(&s, "log.jsonl");
    assert_string_equal(log, "");
    free(log);
    close_scene(&s);
    open_scene(&s, 0, 0);
    for (int i = 0; i < REPORT_ITEMS; i++) s.reports[i] = 7;
    power_report(&s.p, 10, s.reports);  // no reading is due, ever
    power_report(NULL, 10, &s.reports[REPORT_ITEMS]);
    for (int i = REPORT_SENSED; i <= REPORT_LIMITED; i++)
        assert_true(s.reports[i] == 0 && s.reports[REPORT_ITEMS + i] == 0);
    assert_true(s.reports[REPORT_BUSY_MS] == 7);  // not its own
    power_log(&s.p, &s.m, 10, s.reports, TOKENS);
    close_scene(&s);
}

// Logged when it begins, when another reason joins, and when two readings in a row are free of it; for each rank by
// itself.
static void limits_are_told_once(void **state) {
    (void)state;
    static const unsigned course[][2] = {{0, 0},
                                         {LIMITED_POWER, 0},
                                         {LIMITED_POWER, LIMITED_HEAT},
                                         {0, LIMITED_HEAT},
                                         {LIMITED_POWER, LIMITED_HEAT},
                                         {LIMITED_POWER | LIMITED_HEAT, LIMITED_UNKNOWN},
                                         {0, 0},
                                         {0, 0},
                                         {0, 0},
                                         {LIMITED_POWER, 0}};
    scene s;
    open_scene(&s, 1, 0);
    for (size_t i = 0; i < sizeof course / sizeof *course; i++) {
        reading(&s, 0, 300, 1, course[i][0]);
        reading(&s, 2, NAN, 1, course[i][1]);
        power_log(&s.p, &s.m, (int64_t)i + 1, s.reports, TOKENS);
    }
    static const char *const told[] = {
        "\"kind\":\"throttled\",\"step\":2,\"text\":\"rank 0 (node0), device 0, is held back by power: "
        "1000 MHz, 40 C, 300 W; nvidia-smi -q -d POWER shows the cap\"",
        "\"kind\":\"throttled\",\"step\":3,\"text\":\"rank 2 (node1), device 0, is held back by heat: "
        "1002 MHz, 42 C, ? W; see to its cooling\"",
        "\"kind\":\"throttled\",\"step\":6,\"text\":\"rank 0 (node0), device 0, is held back by heat: ",
        "\"kind\":\"unthrottled\",\"step\":8,\"text\":\"rank 0 (node0), device 0, is no longer held back by power+heat: "
        "1000 MHz, 40 C, 300 W\"",
        "\"kind\":\"unthrottled\",\"step\":8,\"text\":\"rank 2 (node1), device 0, is no longer held back by heat: ",
        "\"kind\":\"throttled\",\"step\":10,\"text\":\"rank 0 (node0), device 0, is held back by power: ",
    };
    char *events = written(&s, "events.jsonl");
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (count_of(events, told[i]) != 1)
            fail_msg("%d times, expected once: %s\nin\n%s", count_of(events, told[i]), told[i], events);
    assert_int_equal(count_of(events, "\n"), sizeof told / sizeof *told);
    free(events);
    close_scene(&s);
}

// A device whose sensors answer from a list; how often it was asked.
typedef struct listed {
    device head;
    const device_sensors *list;
    int count, asked;
} listed;

static err_t sense_list(device *d, device_sensors *out) {
    listed *l = (listed *)d;
    int k = l->asked++;
    if (k >= l->count || l->list[k].joules < 0) return err_set(ERR_UNAVAILABLE, "the sensors are broken");
    *out = l->list[k];
    return ERR_OK;
}

static const backend listed_backend = {.sense = sense_list};

static void readings_are_due(void **state) {
    (void)state;
    static const device_sensors list[] = {{100, 40, 1000, 5, 0}, {120, 41, 900, 8.5, LIMITED_POWER},
                                          {.joules = -1},        {NAN, 42, 800, 20, 0},
                                          {NAN, 42, 800, 21, 0}, {90, 42, 800, 19, 0}};
    comm_place place[WORLD] = {{.local = 0}, {.local = 1}, {.local = 2}};
    listed d = {.head = {.backend = &listed_backend, .info.kind = DEVICE_CUDA}, .list = list, .count = 6};
    double r[REPORT_ITEMS];
    comm *ranks;
    power p;
    OK(comm_imaginary_open(&ranks, 1, WORLD, place));
    OK(power_open(&p, &d.head, ranks, 5, 3));
    power_report(&p, 4, r);
    assert_true(r[REPORT_SENSED] == 0 && r[REPORT_WATTS] == 0);
    assert_int_equal(d.asked, 1);  // not when nothing is due
    power_report(&p, 5, r);
    assert_true(r[REPORT_SENSED] == 1 && r[REPORT_WATTS] == 120 && r[REPORT_CELSIUS] == 41 && r[REPORT_MHZ] == 900);
    assert_true(r[REPORT_JOULES] == 3.5 && r[REPORT_LIMITED] == LIMITED_POWER);
    power_report(&p, 10, r);  // does not answer this time
    assert_true(r[REPORT_SENSED] == 1 && isnan(r[REPORT_WATTS]) && isnan(r[REPORT_JOULES]));
    assert_true(r[REPORT_LIMITED] == LIMITED_UNKNOWN);
    power_report(&p, 15, r);  // since when it did not answer is not known
    assert_true(r[REPORT_CELSIUS] == 42 && isnan(r[REPORT_WATTS]) && isnan(r[REPORT_JOULES]));
    usleep(1000);
    power_report(&p, 20, r);  // no watts: the mean since the last reading
    assert_true(r[REPORT_JOULES] == 1 && r[REPORT_WATTS] > 0 && r[REPORT_WATTS] <= 1000);
    power_report(&p, 25, r);  // a counter that went back says nothing
    assert_true(r[REPORT_WATTS] == 90 && isnan(r[REPORT_JOULES]));
    assert_int_equal(d.asked, 6);
    power_close(&p);
    ranks->table->close(ranks);
}

// The counters of processors wrap within minutes: they are also read between two records that are far apart, and
// nothing is logged then. A GPU's counters do not wrap.
static void processors_are_looked_at_between_readings(void **state) {
    (void)state;
    static const device_sensors list[] = {{1, 1, 1, 1, 0}, {1, 1, 1, 1, 0}, {1, 1, 1, 1, 0}};
    for (int cpu = 0; cpu < 2; cpu++) {
        comm_place place[WORLD] = {0};
        device_kind kind = cpu ? DEVICE_CPU : DEVICE_CUDA;
        listed d = {.head = {.backend = &listed_backend, .info.kind = kind}, .list = list, .count = 3};
        double r[REPORT_ITEMS];
        comm *ranks;
        power p;
        OK(comm_imaginary_open(&ranks, 0, WORLD, place));
        OK(power_open(&p, &d.head, ranks, 100, 0));
        power_report(&p, 1, r);
        assert_int_equal(d.asked, 1);  // it has just been
        p.looked -= 60;
        power_report(&p, 2, r);
        assert_int_equal(d.asked, 1 + cpu);
        assert_true(r[REPORT_SENSED] == 0);
        power_report(&p, 3, r);
        assert_int_equal(d.asked, 1 + cpu);
        power_close(&p);
        ranks->table->close(ranks);
    }
}

// The ranks of a node share its processors: the first one reports them. A GPU is a rank's own.
static void who_reads(void **state) {
    (void)state;
    static const device_sensors list[] = {{1, 1, 1, 1, 0}, {1, 1, 1, 1, 0}};
    static const struct {
        device_kind kind;
        int rank, asked;
    } rows[] = {{DEVICE_CPU, 0, 2}, {DEVICE_CPU, 1, 0}, {DEVICE_CPU, 2, 2}, {DEVICE_CUDA, 1, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        comm_place place[WORLD] = {{.node = 0, .local = 0}, {.node = 0, .local = 1}, {.node = 1, .local = 0}};
        listed d = {.head = {.backend = &listed_backend, .info.kind = rows[i].kind}, .list = list, .count = 2};
        double r[REPORT_ITEMS];
        comm *ranks;
        power p;
        OK(comm_imaginary_open(&ranks, rows[i].rank, WORLD, place));
        OK(power_open(&p, &d.head, ranks, 1, 0));
        power_report(&p, 1, r);
        assert_int_equal(d.asked, rows[i].asked);
        assert_int_equal(r[REPORT_SENSED], rows[i].asked != 0);
        power_close(&p);
        ranks->table->close(ranks);
    }
}

// Who said at the start that nothing is known is not asked again: opening takes time and memory.
static void nothing_known_is_not_asked_again(void **state) {
    (void)state;
    comm_place place[WORLD] = {{.local = 0}};
    listed d = {.head = {.backend = &listed_backend, .info.kind = DEVICE_CUDA}};
    double r[REPORT_ITEMS];
    comm *ranks;
    power p;
    OK(comm_imaginary_open(&ranks, 0, WORLD, place));
    FAILS(power_open(&p, &d.head, ranks, 2, 0), "the sensors are broken");
    power_report(&p, 2, r);
    assert_true(r[REPORT_SENSED] == 1 && isnan(r[REPORT_WATTS]) && isnan(r[REPORT_MHZ]) &&
                r[REPORT_LIMITED] == LIMITED_UNKNOWN);
    assert_int_equal(d.asked, 1);
    power_close(&p);
    ranks->table->close(ranks);
}

// A record has room for so many devices; each one must be whole.
static void large_runs_fit(void **state) {
    (void)state;
    enum { DEVICES = 300 };
    static power_device device[DEVICES];
    scene s;
    open_scene(&s, 0, 0);
    for (int k = 0; k < DEVICES; k++) device[k] = (power_device){1000 + k, 698.123456789, 83.1234567, 1980.12345, 15};
    monitor_log(&s.m, &(record){RECORD_POWER, .power = {.step = 123456789,
                                                        .watts = 1e6 + 1. / 3,
                                                        .joules_per_unit = 1. / 3,
                                                        .device = device,
                                                        .devices = DEVICES}});
    char *log = written(&s, "log.jsonl");
    assert_int_equal(count_of(log, "\n"), 3);
    assert_int_equal(count_of(log, "\"limited\":\"power+heat+brake+hardware\"}"), DEVICES);
    assert_int_equal(count_of(log, "}]}\n"), 3);
    assert_int_equal(count_of(log, "\"rank\":1299,"), 1);
    free(log);
    close_scene(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rapl_adds_packages),
        cmocka_unit_test(rapl_goes_round),
        cmocka_unit_test(rapl_says_what_is_missing),
        cmocka_unit_test(rapl_of_root_only),
        cmocka_unit_test_teardown(nvml_reads_sensors, forget),
        cmocka_unit_test_teardown(nvml_says_what_holds_clocks, forget),
        cmocka_unit_test_teardown(nvml_lacks_sensors, forget),
        cmocka_unit_test_teardown(nvml_says_why_not, forget),
        cmocka_unit_test_teardown(nvml_of_another_age, forget),
        cmocka_unit_test_teardown(nvml_entries_of_all_sizes, forget),
        cmocka_unit_test_teardown(nvml_names_holders, forget),
        cmocka_unit_test_teardown(nvlink_joins, forget),
        cmocka_unit_test_teardown(nvlink_leads_to_switches_and_on, forget),
        cmocka_unit_test_teardown(nvlink_is_not_known, forget),
        cmocka_unit_test(nvml_header_is_compared),
        cmocka_unit_test(record_of_all_ranks),
        cmocka_unit_test(nothing_known_nothing_told),
        cmocka_unit_test(limits_are_told_once),
        cmocka_unit_test(readings_are_due),
        cmocka_unit_test(processors_are_looked_at_between_readings),
        cmocka_unit_test(who_reads),
        cmocka_unit_test(nothing_known_is_not_asked_again),
        cmocka_unit_test(large_runs_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
