// trainer/config/ini.h: one INI file, read strictly.
//
// iniparser supplies the values. But it keeps no line numbers, silently lets a repeated key win, cuts lines at a fixed
// length, and its versions differ in what a backslash means. So every byte is scanned here first: anything other than a
// plain `key = value` in a `[section]` is an error with its line, and iniparser gets only a cleaned copy of the text.
#ifndef TRAINER_CONFIG_INI_H
#define TRAINER_CONFIG_INI_H

#include "base/err.h"

#include <stddef.h>

enum {
    INI_FILE = 1 << 20,  // largest file, bytes
    INI_LINE = 1000,     // longest line, bytes; iniparser's buffers hold 1024
    INI_NAME = 64,       // longest section or key, with its NUL
    INI_ENTRIES = 512,   // most section headers and keys in one file
    INI_SHOW = 88,       // room for a quoted piece of the file in a message
    INI_PLACE = 320,     // room for "file:line"
};

typedef struct ini_entry {
    int line;  // from 1
    char section[INI_NAME];
    char key[INI_NAME];        // "": the section's header itself
    char value[INI_LINE + 1];  // without quotes, escapes resolved
} ini_entry;

typedef struct ini_file {
    int count;
    ini_entry entry[INI_ENTRIES];  // in the order of the file
} ini_file;

// Reads one file into *out, which the caller frees with free(). ERR_CONFIG with "file:line: ..." for anything that
// breaks the rules at the top of config.ini, or when the file can't be read.
err_t ini_read(const char *path, ini_file **out);

// dst = these bytes for a message: unprintable ones become `?`, and a long text ends in "...". Returns dst.
const char *ini_show(char dst[INI_SHOW], const char *bytes, size_t n);

// dst = "path:line", or the path alone for line 0; a long path loses its front. Returns dst.
const char *ini_place(char dst[INI_PLACE], const char *path, int line);

#endif
