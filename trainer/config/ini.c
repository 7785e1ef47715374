// trainer/config/ini.c: see trainer/config/ini.h. Three passes over one buffer: bytes and line lengths, lines, and
// iniparser over the copy.
//
// The copy has one line for each line of the file: empty, `[section]`, or `key = "value"`. In values, characters that
// iniparser 4.1 and 4.2 treat differently, or can't hold, are replaced by control bytes; the first pass has checked
// that the file contains none.
#include "trainer/config/ini.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if __has_include(<iniparser/iniparser.h>)
#include <iniparser/iniparser.h>
#else
#include <iniparser.h>  // where older distributions put it
#endif

enum { HIDDEN_BACKSLASH = 1, HIDDEN_QUOTE = 2, HIDDEN_NEWLINE = 3 };

typedef struct scanner {
    const char *path;
    ini_file *out;
    int line;
    char section[INI_NAME];  // "": none yet
    char *copy;              // for iniparser
    size_t used;
} scanner;

const char *ini_show(char dst[INI_SHOW], const char *bytes, size_t n) {
    size_t room = INI_SHOW - 1, shown = n <= room ? n : room - 3;
    for (size_t i = 0; i < shown; i++) dst[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?';
    if (shown < n) memcpy(dst + shown, "...", 3), shown += 3;
    dst[shown] = 0;
    return dst;
}

const char *ini_place(char dst[INI_PLACE], const char *path, int line) {
    size_t n = strlen(path), room = INI_PLACE - 32;  // "..." and ":line" need less
    int at = n > room ? snprintf(dst, INI_PLACE, "...%s", path + n - room)
                      : snprintf(dst, INI_PLACE, "%s", n ? path : "\"\"");
    for (int i = 0; i < at; i++)
        if ((unsigned char)dst[i] < ' ' || dst[i] == 127) dst[i] = '?';
    if (line) snprintf(dst + at, (size_t)(INI_PLACE - at), ":%d", line);
    return dst;
}

// ---- bytes

static err_t unreadable(const char *path, const char *why) {
    char place[INI_PLACE];
    return err_set(ERR_CONFIG, "%s: can't read the configuration: %s", ini_place(place, path, 0), why);
}

// A run's directory has the run's settings in it.
static err_t is_directory(int fd, const char *path) {
    char why[INI_PLACE + 64], place[INI_PLACE];
    const char *slash = *path && path[strlen(path) - 1] == '/' ? "" : "/";
    bool run = faccessat(fd, "config.ini", R_OK, 0) == 0;
    snprintf(why, sizeof why, "it is a directory, expected an INI file%s%s%s%s", run ? ": that of the run is " : "",
             run ? ini_place(place, path, 0) : "", run ? slash : "", run ? "config.ini" : "");
    return unreadable(path, why);
}

// Reads at most INI_FILE + 1 bytes, so that a huge file costs no more.
static err_t read_fd(int fd, const char *path, char *bytes, size_t *n) {
    struct stat st;
    if (fstat(fd, &st) != 0) return unreadable(path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return is_directory(fd, path);
    if (!S_ISREG(st.st_mode)) return unreadable(path, "it is not a regular file");
    *n = 0;
    while (*n <= INI_FILE) {
        ssize_t got = read(fd, bytes + *n, INI_FILE + 1 - *n);
        if (got == 0) break;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable(path, strerror(errno));
        *n += (size_t)got;
    }
    return ERR_OK;
}

static err_t read_bytes(const char *path, char *bytes, size_t *n) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);  // a FIFO must not make us wait
    if (fd < 0) return unreadable(path, strerror(errno));
    err_t rc = read_fd(fd, path, bytes, n);
    close(fd);
    return rc;
}

static err_t check_byte(const char *path, int line, const char *p, const char *end) {
    char place[INI_PLACE];
    unsigned char c = (unsigned char)*p;
    bool fine = c == '\r' ? p + 1 == end || p[1] == '\n' : c == '\t' || (c >= ' ' && c != 127);
    if (fine) return ERR_OK;
    ini_place(place, path, line);
    if (c == 0) return err_set(ERR_CONFIG, "%s: NUL byte: this is not a text file (UTF-16? save it as UTF-8)", place);
    if (c == '\r') return err_set(ERR_CONFIG, "%s: carriage return inside a line: end lines with a newline", place);
    return err_set(ERR_CONFIG, "%s: control character 0x%02x: expected plain text", place, c);
}

static err_t check_bytes(const char *path, const char *bytes, size_t n) {
    char place[INI_PLACE];
    const char *start = bytes, *end = bytes + n;
    int line = 1;
    for (const char *p = bytes; p < end; p++) {
        if (*p == '\n') {
            start = p + 1;
            line++;
            continue;
        }
        if (p - start >= INI_LINE && *p != '\r')
            return err_set(ERR_CONFIG, "%s: line is longer than %d bytes", ini_place(place, path, line), INI_LINE);
        TRY(check_byte(path, line, p, end));
    }
    if (n <= INI_FILE) return ERR_OK;
    return err_set(ERR_CONFIG, "%s: larger than %d bytes, expected an INI file", ini_place(place, path, 0), INI_FILE);
}

// ---- lines

// Fails at the current line, with a message that ends with the offending text.
static err_t reject(const scanner *s, const char *why, const char *p, const char *end) {
    char place[INI_PLACE], show[INI_SHOW];
    return err_set(ERR_CONFIG, "%s: %s: `%s`", ini_place(place, s->path, s->line), why,
                   ini_show(show, p, (size_t)(end - p)));
}

// The same for the value of a key.
static err_t reject_value(const scanner *s, const char *key, const char *why, const char *p, const char *end) {
    char place[INI_PLACE], show[INI_SHOW];
    return err_set(ERR_CONFIG, "%s: [%s] %s: %s: `%s`", ini_place(place, s->path, s->line), s->section, key, why,
                   ini_show(show, p, (size_t)(end - p)));
}

static bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static bool opens_comment(char c) { return c == ';' || c == '#'; }

static const char *skip_blanks(const char *p, const char *end) {
    while (p < end && blank(*p)) p++;
    return p;
}

static const char *trim_blanks(const char *p, const char *end) {
    while (end > p && blank(end[-1])) end--;
    return end;
}

// A name is 1 .. INI_NAME-1 letters, digits and underscores.
static err_t take_name(const scanner *s, const char *what, const char *p, const char *end, char dst[INI_NAME]) {
    size_t n = (size_t)(end - p);
    bool good = n > 0 && n < INI_NAME;
    for (const char *c = p; good && c < end; c++)
        good = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_';
    if (!good) return reject(s, what, p, end);
    memcpy(dst, p, n);
    dst[n] = 0;
    return ERR_OK;
}

static void emit(scanner *s, const char *text, size_t n) {
    memcpy(s->copy + s->used, text, n);
    s->used += n;
}

static err_t add_entry(scanner *s, const char *key) {
    if (s->out->count == INI_ENTRIES)
        return reject(s, "more sections and keys in one file than any configuration has", key, key + strlen(key));
    ini_entry *e = &s->out->entry[s->out->count++];
    e->line = s->line;
    memcpy(e->section, s->section, INI_NAME);
    memcpy(e->key, key, strlen(key) + 1);
    return ERR_OK;
}

// iniparser ignores case and lets the last one win: here a second one is an error, whatever its case.
static err_t check_repeat(const scanner *s, const char *key) {
    char place[INI_PLACE];
    for (int i = 0; i < s->out->count; i++) {
        const ini_entry *e = &s->out->entry[i];
        if (!e->key[0] || strcasecmp(e->key, key) != 0 || strcasecmp(e->section, s->section) != 0) continue;
        ini_place(place, s->path, s->line);
        return err_set(ERR_CONFIG, "%s: [%s] %s: given twice, first in line %d. Keep one of the two.", place,
                       s->section, key, e->line);
    }
    return ERR_OK;
}

static err_t scan_section(scanner *s, const char *p, const char *end) {
    const char *close = memchr(p, ']', (size_t)(end - p));
    if (!close) return reject(s, "section header without its closing ], expected [name]", p, end);
    const char *name = skip_blanks(p + 1, close), *rest = skip_blanks(close + 1, end);
    TRY(take_name(s, "a section's name is letters, digits and _", name, trim_blanks(name, close), s->section));
    if (rest < end && !opens_comment(*rest))
        return reject(s, "text after a section header", rest, trim_blanks(rest, end));
    emit(s, "[", 1);
    emit(s, s->section, strlen(s->section));
    emit(s, "]", 1);
    return add_entry(s, "");
}

static const char *const CONTINUED = "a line can't be continued with \\, put the value on one line";

// *p is a backslash inside double quotes. Emits the character that the escape stands for.
static err_t scan_escape(scanner *s, const char *key, const char *p, const char *end) {
    static const char letters[] = "nt\\\"", stands_for[] = {HIDDEN_NEWLINE, '\t', HIDDEN_BACKSLASH, HIDDEN_QUOTE};
    if (p + 1 == trim_blanks(p, end)) return reject_value(s, key, CONTINUED, p, p + 1);
    const char *letter = strchr(letters, p[1]);
    if (!letter) return reject_value(s, key, "unknown escape, expected one of \\n \\t \\\\ \\\"", p, p + 2);
    emit(s, &stands_for[letter - letters], 1);
    return ERR_OK;
}

// p is after the opening quote. Escapes work in double quotes; in single quotes every character is literal.
static err_t scan_quoted(scanner *s, const char *key, const char *p, const char *end) {
    const char *open = p - 1;
    for (; p < end && *p != *open; p++) {
        if (*p == '\\' && *open == '"') {
            TRY(scan_escape(s, key, p, end));
            p++;
        } else {
            char c = *p == '\\' ? HIDDEN_BACKSLASH : *p == '"' ? HIDDEN_QUOTE : *p;
            emit(s, &c, 1);
        }
    }
    if (p == end) return reject_value(s, key, "quoted value without its closing quote", open, trim_blanks(open, end));
    p = skip_blanks(p + 1, end);
    if (p == end || opens_comment(*p)) return ERR_OK;
    return reject_value(s, key, *p == '\\' ? CONTINUED : "text after the closing quote", p, trim_blanks(p, end));
}

static err_t scan_plain(scanner *s, const char *key, const char *p, const char *end) {
    const char *stop = p;
    while (stop < end && !opens_comment(*stop)) stop++;
    stop = trim_blanks(p, stop);
    if (stop > p && stop[-1] == '\\') return reject_value(s, key, CONTINUED, p, stop);
    for (const char *c = p; c < stop; c++)
        if (*c == '\\' || *c == '"')
            return reject_value(s, key, "\" or \\ in a value without quotes, put all of it in quotes", p, stop);
    emit(s, p, (size_t)(stop - p));
    return ERR_OK;
}

static err_t scan_key(scanner *s, const char *p, const char *end) {
    const char *equals = p;
    char key[INI_NAME];
    while (equals < end && *equals != '=' && !opens_comment(*equals)) equals++;
    if (equals == end || *equals != '=')
        return reject(s, "no = in this line, expected key = value", p, trim_blanks(p, equals));
    TRY(take_name(s, "before = stands a key, which is letters, digits and _", p, trim_blanks(p, equals), key));
    if (!s->section[0]) return reject(s, "key outside any section, put its [section] above it", key, key + strlen(key));
    TRY(check_repeat(s, key));
    TRY(add_entry(s, key));
    emit(s, key, strlen(key));
    emit(s, " = \"", 4);
    const char *value = skip_blanks(equals + 1, end);
    if (value < end && (*value == '"' || *value == '\'')) TRY(scan_quoted(s, key, value + 1, end));
    else TRY(scan_plain(s, key, value, end));
    emit(s, "\"", 1);
    return ERR_OK;
}

static err_t scan_lines(scanner *s, const char *bytes, size_t n) {
    const char *p = bytes, *end = bytes + n;
    if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) p += 3;  // what some editors put before UTF-8
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p)), *stop = newline ? newline : end;
        s->line++;
        p = skip_blanks(p, stop);
        if (p < stop && *p == '[') TRY(scan_section(s, p, stop));
        else if (p < stop && !opens_comment(*p)) TRY(scan_key(s, p, stop));
        emit(s, "\n", 1);
        p = stop + 1;
    }
    return ERR_OK;
}

// ---- iniparser

static int silent(const char *format, ...) {
    (void)format;
    return 0;
}

// Loads exactly the scanned bytes: from a private file in memory, which no other process can change.
static err_t load_copy(const scanner *s, dictionary **d) {
    char place[INI_PLACE], path[64];
    const char *did = "create a file in memory";
    int fd = memfd_create("ini", MFD_CLOEXEC);
    if (fd < 0) goto fail;
    did = "write to a file in memory";
    for (size_t done = 0; done < s->used;) {
        ssize_t wrote = write(fd, s->copy + done, s->used - done);
        if (wrote < 0 && errno != EINTR) goto fail;
        if (wrote > 0) done += (size_t)wrote;
    }
    did = "parse /proc/self/fd (is /proc mounted?)";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    iniparser_set_error_callback(silent);
    errno = 0;
    *d = iniparser_load(path);
    if (!*d) goto fail;
    close(fd);
    return ERR_OK;
fail:;
    int why = errno;
    if (fd >= 0) close(fd);
    ini_place(place, s->path, 0);
    return err_set(ERR_INTERNAL, "%s: could not %s: %s", place, did, why ? strerror(why) : "iniparser gave up");
}

static err_t take_values(const scanner *s, const dictionary *d) {
    for (int i = 0; i < s->out->count; i++) {
        ini_entry *e = &s->out->entry[i];
        if (!e->key[0]) continue;
        char name[2 * INI_NAME];
        snprintf(name, sizeof name, "%s:%s", e->section, e->key);
        const char *value = iniparser_getstring(d, name, NULL);
        if (!value || strlen(value) > INI_LINE)
            return err_set(ERR_INTERNAL, "line %d: [%s] %s: lost by iniparser: out of memory?", e->line, e->section,
                           e->key);
        char *to = e->value;
        for (; *value; value++)
            *to++ = *value == HIDDEN_BACKSLASH ? '\\'
                    : *value == HIDDEN_QUOTE   ? '"'
                    : *value == HIDDEN_NEWLINE ? '\n'
                                               : *value;
        *to = 0;
    }
    return ERR_OK;
}

err_t ini_read(const char *path, ini_file **out) {
    err_t rc = ERR_OK;
    dictionary *d = NULL;
    size_t n = 0;
    char *bytes = malloc(INI_FILE + 1);
    // A key's line grows by ` = ""` at most, and only lines with a key grow.
    scanner s = {.path = path, .out = calloc(1, sizeof *s.out), .copy = malloc(INI_FILE + 1 + 8 * (size_t)INI_ENTRIES)};
    if (!bytes || !s.out || !s.copy) {
        rc = err_set(ERR_INTERNAL, "no memory to read the configuration");
        goto done;
    }
    TRY_GOTO(read_bytes(path, bytes, &n), done);
    TRY_GOTO(check_bytes(path, bytes, n), done);
    TRY_GOTO(scan_lines(&s, bytes, n), done);
    TRY_GOTO(load_copy(&s, &d), done);
    TRY_GOTO(take_values(&s, d), done);
    *out = s.out;
    s.out = NULL;
done:
    if (d) iniparser_freedict(d);
    free(bytes);
    free(s.copy);
    free(s.out);
    return rc;
}
