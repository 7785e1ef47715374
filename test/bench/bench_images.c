// test/bench/bench_images.c: how many images of 256 x 256 one thread makes samples of, in a second: reads them from a
// shard that is in the page cache, cuts or resizes, and mirrors half of them.
//
//     bench_images [images] [rounds]
//
// Each line is the best of the rounds (5) over all images (500), for samples of 224 x 224. The first look at an image
// also computes its checksum; the other lines are of later epochs. A second is one of the thread's own time on a
// processor, so that other work on the machine counts less.
#include "data/image/shard.h"
#include "data/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SIDE = 256, CROP = 224 };

static double processor_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void need(err_t rc) {
    if (rc == ERR_OK) return;
    fprintf(stderr, "bench_images: %s\n", err_last()->text);
    exit((int)rc);
}

static void make_shard(const char *path, int64_t images) {
    image_writer *w;
    image_sums sums = {0};
    picture p = {0};
    image_about about = {.channels = 3, .size = SIDE, .classes = 1, .names = "0", .name_bytes = 2};
    need(image_write_open(&w, path, &about));
    need(picture_make(&p, SIDE, SIDE, 3));
    for (int64_t k = 0; k < images; k++) {
        for (int64_t i = 0; i < picture_bytes(&p); i++) p.at[i] = (uint8_t)(i * (k + 3) + i / 777);
        if (k == 0) image_sums_add(&sums, &p);
        need(image_write(w, &p, 0));
    }
    need(image_write_seal(w));
    need(image_write_finish(w, &sums));
    image_write_close(w);
    picture_free(&p);
}

static void measure(const char *path, const char *what, source_view view, int rounds, bool first_look) {
    static uint8_t out[CROP * CROP * 3];
    const tensor_spec wanted = {.name = "pixels", .type = UINT8, .dims = 3, .size = {CROP, CROP, 3}};
    double best = 0;
    source *s = NULL;
    for (int r = 0; r < rounds + 1; r++) {
        if (!s) need(source_open(&s, &(source_options){.files = path, .wanted = &wanted, .inputs = 1, .view = view}));
        int64_t n = source_about(s).samples;
        double since = processor_now();
        for (int64_t k = 0; k < n; k++) {
            source_draw d = {.sample = k, .seed = 1, .n = k + r * n, .train = true, .epoch = r};
            need(source_read(s, &d, (void *[]){out}));
        }
        double rate = (double)n / (processor_now() - since);
        if ((first_look || r > 0) && rate > best) best = rate;
        if (first_look) source_close(s), s = NULL;
    }
    source_close(s);
    printf("%-52s %8.0f images/s\n", what, best);
}

int main(int argc, char **argv) {
    int64_t images = argc > 1 ? atoll(argv[1]) : 500;
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    char path[64];
    if (images < 1 || rounds < 1) return fprintf(stderr, "bench_images [images] [rounds]\n"), 64;
    snprintf(path, sizeof path, "/tmp/bench-images-%d.bin", (int)getpid());
    make_shard(path, images);
    measure(path, "the middle", (source_view){.crop = CROP, .flip = FLIP_RANDOM}, rounds, false);
    measure(path, "shifted by up to 16", (source_view){.crop = CROP, .flip = FLIP_RANDOM, .shift = 16}, rounds, false);
    measure(path, "a box of 8 % to 100 %, resized", (source_view){.crop = CROP, .flip = FLIP_RANDOM, .area = 0.08},
            rounds, false);
    measure(path, "the same, the first look, with checksums",
            (source_view){.crop = CROP, .flip = FLIP_RANDOM, .area = 0.08}, rounds, true);
    unlink(path);
    return 0;
}
