// test/fuzz/fuzz_flight.c: any bytes at all as flight recordings, one or two that are put together. What is taken can
// be judged, and written down again to the same verdict.
#include "comm/flight_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

static void expect(bool truth) {
    if (!truth) abort();
}

// The text's bytes, and a NUL that is not among them.
static err_t read_text(flight_view *v, const uint8_t *data, size_t n) {
    char *bytes = malloc(n + 1);
    expect(bytes != NULL);
    if (n) memcpy(bytes, data, n);
    bytes[n] = 0;
    err_t rc = flight_read(v, "input", bytes, n);
    free(bytes);
    return rc;
}

static void check(const flight_view *v) {
    flight_view back = {0};
    text first = {0}, all = {0}, second = {0};
    flight_verdict(v, &first);
    flight_write(&all, v, NULL, 0);
    expect(!first.full && !all.full && first.n > 0);
    expect(read_text(&back, (const uint8_t *)all.at, all.n) == ERR_OK);
    flight_verdict(&back, &second);
    expect(strcmp(first.at, second.at) == 0);
    text_free(&first), text_free(&all), text_free(&second);
    flight_view_close(&back);
}

// Two files are apart by a byte 0, which none can hold.
bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    flight_view v = {0};
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    size_t n = cut ? (size_t)(cut - data) : size;
    bool whole = read_text(&v, data, n) == ERR_OK;
    if (whole && cut) whole = read_text(&v, cut + 1, size - n - 1) == ERR_OK;
    if (whole) check(&v);
    flight_view_close(&v);
    return whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

// --- seeds -----------------------------------------------------------------------------------------------------------

#define HEAD(node) "lockstep flight recording 1\nabout\t" node "\t2\t4\t5\t1700000000\ttiny\n"
#define RANK(rank, ended) "rank\t" rank "\t0\t0\t31.5\trank " rank " (10.0.0.1)\t" ended "\tbackward 3 of step 41\n"
#define ON(rank, id, op, n, state) \
    "on\t" rank "\t" id "\t4\t0\t" n "\t17\t" op "\t" state "\t31.25\t4096\t41\t3\tf\t5\treduce gradients\n"

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const char one[] =
        HEAD("0") "\nwords\n" RANK("0", "") ON("0", "1", "2", "8123", "0") ON("0", "5f3a0c11", "1", "7", "3"),
                      two[] = HEAD("0") RANK("0", "") ON("0", "1", "2", "8", "0") RANK("1", "")
                          ON("1", "1", "2", "8", "2") "\0" HEAD("1") RANK("2", "was killed by signal 9 (Killed)")
                              ON("2", "1", "2", "7", "1") RANK("3", "");
    seed(ctx, (const uint8_t *)one, sizeof one - 1);
    seed(ctx, (const uint8_t *)two, sizeof two - 1);
    return 0;
}
