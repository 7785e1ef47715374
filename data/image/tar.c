// data/image/tar.c: tar archives whose files belong together by name, as WebDataset writes them: 0007.jpg (.jpeg, .png)
// is a picture, and 0007.cls beside it the number of its class in digits. A name ends at the first dot after its last
// slash; what belongs together stands together. Files with other endings are left alone.
//
// Read are the formats ustar, GNU and pax (IEEE 1003.1-2017, pax): headers of 512 bytes, contents in whole blocks of
// 512.
#include "data/image/list.h"

#include "base/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 512, NAME = 100, SIZE_AT = 124, SUM_AT = 148, TYPE_AT = 156, PREFIX_AT = 345, PREFIX = 155, LABEL = 32 };

typedef struct tar {
    image_list *l;
    const char *path;
    int fd, split;
    int64_t size, at;         // of the archive; offset of the next header
    char name[IO_PATH];       // of the member whose header was read
    int64_t bytes;            // of its contents
    char next_name[IO_PATH];  // what a header before says it is called; "": nothing
    int64_t next_bytes;       // and how large; -1: nothing
    char key[IO_PATH];        // of the files that belong together
    image_item picture;       // path NULL: none yet
    int32_t label;            // -1: none yet
    const char *why;          // what is wrong with the label
} tar;

// --- headers ---------------------------------------------------------------------------------------------------------

static err_t wrong(const tar *t, int64_t at, const char *what) {
    return err_set(ERR_DATA, "%s: offset %" PRId64 ": %s: damaged, or no tar archive that is not compressed", t->path,
                   at, what);
}

// Octal digits, or, where the first bit is set, a number of base 256 (GNU).
static bool take_number(const uint8_t *at, int n, int64_t *out) {
    int64_t v = 0;
    if (at[0] & 0x80) {
        for (int i = 1; i < n; i++) {
            if (v > INT64_MAX >> 9) return false;
            v = v << 8 | at[i];
        }
        return *out = v, (at[0] & 0x7f) == 0;
    }
    int i = 0, digits = 0;
    while (i < n && at[i] == ' ') i++;
    for (; i < n && at[i] >= '0' && at[i] <= '7'; i++, digits++) v = v << 3 | (at[i] - '0');
    return *out = v, digits > 0 && (i == n || at[i] == 0 || at[i] == ' ');
}

static bool sum_is_right(const uint8_t *h) {
    int64_t sum = 0, want;
    for (int i = 0; i < BLOCK; i++) sum += i >= SUM_AT && i < SUM_AT + 8 ? ' ' : h[i];
    return take_number(h + SUM_AT, 8, &want) && sum == want;
}

// "27 path=pictures/0007.jpg\n" and others, each with its own length in front.
static void take_pax(tar *t, const char *text, int64_t n) {
    while (n > 0) {
        char *end;
        long long length = strtoll(text, &end, 10);
        if (length < 1 || length > n || end >= text + length || *end != ' ') return;
        const char *key = end + 1;
        int64_t left = text + length - key - 1;  // without the line's end
        if (left > 5 && strncmp(key, "path=", 5) == 0 && left - 5 < IO_PATH)
            snprintf(t->next_name, IO_PATH, "%.*s", (int)(left - 5), key + 5);
        if (left > 5 && strncmp(key, "size=", 5) == 0) t->next_bytes = strtoll(key + 5, NULL, 10);
        text += length, n -= length;
    }
}

// Contents of a header that says something of the next member.
static err_t take_extra(tar *t, char type, int64_t bytes) {
    enum { MOST = 1 << 16 };
    if (bytes > MOST) return type == 'g' ? ERR_OK : wrong(t, t->at, "a name of more than 65536 bytes");
    char *text = malloc((size_t)bytes + 1);
    if (!text) return err_set(ERR_INTERNAL, "%s: no memory", t->path);
    err_t rc = io_read_at(t->fd, t->path, t->at, text, (size_t)bytes);
    text[rc == ERR_OK ? bytes : 0] = 0;
    if (rc == ERR_OK && type == 'L') snprintf(t->next_name, IO_PATH, "%s", text);
    if (rc == ERR_OK && type == 'x') take_pax(t, text, bytes);
    free(text);
    return rc;
}

static void take_name(tar *t, const uint8_t *h) {
    bool ustar = memcmp(h + 257, "ustar\0", 6) == 0 && h[PREFIX_AT];
    if (t->next_name[0]) snprintf(t->name, IO_PATH, "%s", t->next_name);
    else
        snprintf(t->name, IO_PATH, "%.*s%s%.*s", ustar ? PREFIX : 0, (const char *)h + PREFIX_AT, ustar ? "/" : "",
                 NAME, (const char *)h);
    t->next_name[0] = 0;
}

// The header of the next file; *found = false: the archive is at its end. t->at becomes the offset of its contents.
static err_t next_file(tar *t, bool *found) {
    uint8_t h[BLOCK];
    for (*found = false; t->at < t->size; t->at += (t->bytes + BLOCK - 1) / BLOCK * BLOCK) {
        static const uint8_t zero[BLOCK];
        if (t->size - t->at < BLOCK) return wrong(t, t->at, "less than a header of 512 bytes");
        TRY(io_read_at(t->fd, t->path, t->at, h, BLOCK));
        if (memcmp(h, zero, BLOCK) == 0) return ERR_OK;
        if (!sum_is_right(h)) return wrong(t, t->at, "a header with a wrong checksum");
        if (!take_number(h + SIZE_AT, 12, &t->bytes)) return wrong(t, t->at + SIZE_AT, "a size that is no number");
        t->at += BLOCK;
        char type = (char)h[TYPE_AT];
        bool extra = type == 'L' || type == 'K' || type == 'x' || type == 'g';
        if (!extra && t->next_bytes >= 0) t->bytes = t->next_bytes;
        if (!extra) t->next_bytes = -1;
        if (t->bytes < 0 || t->bytes > t->size - t->at) return wrong(t, t->at, "a file that ends after the archive");
        if (extra) TRY(take_extra(t, type, t->bytes));
        if (extra) continue;
        take_name(t, h);
        if (type == '0' || type == 0 || type == '7') return *found = true, ERR_OK;
    }
    return wrong(t, t->size, "the archive ends without the block of zeros that every archive ends with");
}

// --- what belongs together -------------------------------------------------------------------------------------------

static err_t end_group(tar *t) {
    if (t->picture.path) {
        t->picture.label = t->label < 0 ? 0 : t->label;
        t->picture.why = t->why         ? t->why
                         : t->label < 0 ? "no file of the same name with the ending .cls is beside it"
                                        : NULL;
        TRY(list_add(t->l, &t->picture));
    }
    t->picture.path = NULL;
    t->label = -1;
    t->why = NULL;
    return ERR_OK;
}

static err_t read_label(tar *t) {
    char text[LABEL + 1] = "", *end;
    int64_t n = t->bytes < LABEL ? t->bytes : LABEL;
    TRY(io_read_at(t->fd, t->path, t->at, text, (size_t)n));
    long long v = strtoll(text, &end, 10);
    bool digits = text[0] >= '0' && text[0] <= '9' && strspn(end, " \r\n\t") == strlen(end);
    if (t->bytes > LABEL || !digits || v >= 1 << 24) t->why = "the file .cls beside it holds no number below 16777216";
    else t->label = (int32_t)v;
    return ERR_OK;
}

static err_t take_file(tar *t) {
    char *slash = strrchr(t->name, '/'), *base = slash ? slash + 1 : t->name, *dot = strchr(base, '.');
    if (!dot || dot == base) return ERR_OK;
    const char *ending = dot + 1;
    *dot = 0;
    if (strcmp(t->name, t->key) != 0) TRY(end_group(t));
    snprintf(t->key, IO_PATH, "%s", t->name);
    *dot = '.';
    if (strcasecmp(ending, "cls") == 0) return read_label(t);
    if (strcasecmp(ending, "jpg") != 0 && strcasecmp(ending, "jpeg") != 0 && strcasecmp(ending, "png") != 0) {
        t->l->skipped++;
        return ERR_OK;
    }
    const char *member = list_keep(t->l, t->name);
    if (!member) return err_set(ERR_INTERNAL, "no memory for a list of files");
    if (t->picture.path)
        TRY(list_add(t->l, &(image_item){.path = t->path,
                                         .member = member,
                                         .offset = t->at,
                                         .bytes = t->bytes,
                                         .split = t->split,
                                         .why = "the second picture of this name"}));
    else
        t->picture =
            (image_item){.path = t->path, .member = member, .offset = t->at, .bytes = t->bytes, .split = t->split};
    return ERR_OK;
}

static err_t read_all(tar *t) {
    bool found = true;
    while (found) {
        TRY(next_file(t, &found));
        if (!found) break;
        TRY(take_file(t));
        t->at += (t->bytes + BLOCK - 1) / BLOCK * BLOCK;
    }
    return end_group(t);
}

err_t list_tar(image_list *l, const char *path, int split) {
    tar *t = calloc(1, sizeof *t);
    const char *kept = list_keep(l, path);
    struct stat st;
    err_t rc = t && kept ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a list of files");
    int fd = -1;
    if (rc == ERR_OK) rc = io_open(path, O_RDONLY, &fd);
    if (rc == ERR_OK) {
        *t = (tar){.l = l, .path = kept, .fd = fd, .split = split, .next_bytes = -1, .label = -1};
        t->size = fstat(fd, &st) == 0 ? st.st_size : 0;
        rc = read_all(t);
    }
    if (fd >= 0) close(fd);
    free(t);
    return rc;
}
