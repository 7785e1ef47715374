// base/err.c: one failure record per thread. It is the library's only mutable state that is not passed as an argument.
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local err_record record;

err_t err_pass(const char *file, int line, const char *func, err_t code) {
    if (record.depth < ERR_TRAIL) {
        record.trail[record.depth].file = file;
        record.trail[record.depth].func = func;
        record.trail[record.depth].line = line;
        record.depth++;
    }
    return code;
}

err_t err_set_at(const char *file, int line, const char *func, err_t code, const char *fmt, ...) {
    char text[ERR_TEXT];  // the arguments may point into the old record
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(record.text, text, sizeof text);
    record.code = code;
    record.depth = 0;
    record.shared = false;
    return err_pass(file, line, func, code);
}

err_t err_prefix(const char *fmt, ...) {
    char text[ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0) n = 0;
    if (n >= ERR_TEXT) n = ERR_TEXT - 1;
    snprintf(text + n, sizeof text - (size_t)n, ": %s", record.text);
    memcpy(record.text, text, sizeof text);
    return record.code;
}

err_t err_share(void) {
    record.shared = true;
    return record.code;
}

const err_record *err_last(void) { return &record; }

err_t err_restore(const err_record *from) {
    record = *from;
    return record.code;
}
