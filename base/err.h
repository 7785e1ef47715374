// base/err.h: how a failure travels.
//
// A function that can fail returns err_t, and leaves a record on its thread: what was expected, what was found, a hint,
// and the trail of TRY() lines that it passed on its way up. The codes are the exit codes of the program (sysexits(3)),
// so nothing translates them. Library code never prints and never exits: main.c does both, once.
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdbool.h>

typedef enum err_t {
    ERR_OK = 0,
    ERR_USAGE = 64,        // the command line
    ERR_DATA = 65,         // bytes that were read are wrong: shard, checkpoint, token
    ERR_UNAVAILABLE = 69,  // a peer, device or library is not there
    ERR_INTERNAL = 70,     // our own mistake, or no memory
    ERR_IO = 74,           // the operating system refused to read or write
    ERR_INTERRUPTED = 75,  // stopped on request, resumable
    ERR_AUTH = 77,         // not authorised
    ERR_CONFIG = 78,       // the INI
} err_t;

enum { ERR_TEXT = 1024, ERR_TRAIL = 12 };

typedef struct err_record {
    err_t code;
    char text[ERR_TEXT];
    bool shared;  // every rank of the run has this failure: no need to report it to the others
    int depth;    // entries of trail in use
    struct {
        const char *file, *func;
        int line;
    } trail[ERR_TRAIL];
} err_record;

// Starts this thread's record: code, formatted text, and the caller's place. Returns code, for `return err_set(...)`.
// (The code passes through the expression itself, so that the compiler sees that it is not ERR_OK.)
#define err_set(code, ...) \
    ({ \
        err_t code_ = (code); \
        err_set_at(__FILE__, __LINE__, __func__, code_, __VA_ARGS__); \
        code_; \
    })
err_t err_set_at(const char *file, int line, const char *func, err_t code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

// Prepends "context: " to the text of this thread's record. Returns its code.
err_t err_prefix(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// Adds the caller's place to the trail. Returns code.
err_t err_pass(const char *file, int line, const char *func, err_t code);

// Marks this thread's record as shared, until the next failure. Returns its code.
err_t err_share(void);

// This thread's record; valid until the thread's next failure. Copy the record to carry a failure to another thread.
const err_record *err_last(void);
err_t err_restore(const err_record *from);

// Returns from the calling function, with its place added to the trail, when `call` fails.
#define TRY(call) \
    do { \
        err_t try_code_ = (call); \
        if (try_code_ != ERR_OK) { \
            err_pass(__FILE__, __LINE__, __func__, try_code_); \
            return try_code_; \
        } \
    } while (0)

// The same for functions that have something to release: sets `err_t rc` and jumps.
#define TRY_GOTO(call, label) \
    do { \
        if ((rc = (call)) != ERR_OK) { \
            err_pass(__FILE__, __LINE__, __func__, rc); \
            goto label; \
        } \
    } while (0)

#endif
