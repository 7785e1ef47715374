// test/fuzz/fuzz_ini.c: any bytes at all as an INI file. They become an unnamed file in memory and are loaded. Whatever
// they are, the answer is ERR_CONFIG with the file's name, or a configuration that, printed and loaded again, is the
// same. The same bytes are also read as the value of [cluster] nodes, alone: ERR_CONFIG with the entry, or a list that,
// printed and read again, is the same.
#include "trainer/node/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

static void expect(bool truth) {
    if (!truth) abort();
}

static err_t load(config *c, const uint8_t *data, size_t size) {
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    expect(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    err_t rc = config_load(c, (const char *const[]){path}, 1);
    close(fd);
    expect(rc == ERR_OK || (rc == ERR_CONFIG && strncmp(err_last()->text, path, strlen(path)) == 0));
    return rc;
}

static err_t collect(void *ctx, const char *key, const char *value) {
    fprintf(ctx, "%s=%s\n", key, value);
    return ERR_OK;
}

// All keys and values.
static char *list(const config *c) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    expect(f);
    for (int class = CLASS_BITS; class <= CLASS_LOCAL; class ++)
        expect(config_each(c, (key_class) class, collect, f) == ERR_OK);
    expect(fclose(f) == 0);
    return text;
}

static bool try_ini(const uint8_t *data, size_t size) {
    config *c = malloc(sizeof *c);
    expect(c);
    bool valid = load(c, data, size) == ERR_OK;
    if (valid) {
        char *before = list(c), *printed = NULL;
        size_t n;
        FILE *f = open_memstream(&printed, &n);
        expect(f);
        config_print(c, f);
        expect(fclose(f) == 0);
        expect(load(c, (const uint8_t *)printed, n) == ERR_OK);
        char *after = list(c);
        expect(strcmp(before, after) == 0);
        free(before);
        free(after);
        free(printed);
    }
    free(c);
    return valid;
}

// "a:1, [fe80::1]:8"
static char *print_nodes(const cluster *cl) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    expect(f);
    for (int i = 0; i < cl->nodes; i++)
        fprintf(f, strchr(cl->host[i], ':') ? "%s[%s]:%d" : "%s%s:%d", i ? ", " : "", cl->host[i], cl->ranks[i]);
    expect(fclose(f) == 0);
    return text;
}

static bool try_nodes(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1), *printed;
    cluster *cl = malloc(2 * sizeof *cl);
    expect(text && cl);
    memcpy(text, data, size);
    text[size] = 0;
    err_t rc = cluster_parse(cl, text);
    expect(rc == ERR_OK || (rc == ERR_CONFIG && strncmp(err_last()->text, "entry ", 6) == 0));
    if (rc == ERR_OK) {
        int world = 0;
        expect(cl->nodes >= 1 && cl->nodes <= TEAM_NODES_MAX && cl->world <= TEAM_RANKS_MAX);
        for (int i = 0; i < cl->nodes; i++) {
            expect(cl->ranks[i] >= 1 && *cl->host[i] && memchr(cl->host[i], 0, COMM_HOST));
            world += cl->ranks[i];
        }
        expect(world == cl->world);
        printed = print_nodes(cl);
        expect(cluster_parse(cl + 1, printed) == ERR_OK && memcmp(cl, cl + 1, sizeof *cl) == 0);
        free(printed);
    }
    free(cl);
    free(text);
    return rc == ERR_OK;
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    bool ini = try_ini(data, size), nodes = try_nodes(data, size);
    return ini || nodes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const char *const seeds[] = {
        "[run]\nname = a.b ; comment\nseed = 7\nfaults = write@3\n[optimizer]\nlr = 3e-4\n# done\n",
        "\xef\xbb\xbf[sample]\r\nprompt = \"a\\n\\t\\\\\\\"; #\" # c\r\ntop_k=0\r\n[data]\r\nval=''\r\ntrain='x\"\\'\r\n",
        "[batch]\nglobal = 12\nmicro = 3\nlanes = 4\n[precision]\nloss_scale = dynamic\n[schedule]\ntype = constant\n",
        "[cluster]\nnodes = gpu[01-04].lab:3, [fe80::1%eth0]:2\n[batch]\nglobal = 64\nlanes = 64\nmicro = 1\n",
        "gpu[01-16]:8",
        "10.0.0.1:2, [::1]:4, a-b_c.d, n[001-253]",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) seed(ctx, (const uint8_t *)seeds[i], strlen(seeds[i]));
    return 0;
}
