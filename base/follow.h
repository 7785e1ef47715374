// base/follow.h: the whole lines of a file that grows, each once, whatever happens to the file: it may be truncated,
// replaced by another one, or not be there yet. Nothing is missed between two looks, since the bytes before our place
// are compared: a file that was truncated and has grown again has others there.
//
//   follower f;
//   follow_begin(&f, path, text, sizeof text);
//   follow_look(&f, &news);                                   now and then
//   while (follow_next(&f, &line, &n)) ...                    what is new, without the newline; a torn line waits
//   follow_close(&f);                                         f.rc: could it be read?
#ifndef BASE_FOLLOW_H
#define BASE_FOLLOW_H

#include "base/io.h"

#include <stdbool.h>
#include <sys/types.h>

// What became of the file since the last look. After REPLACED, SHORTER and OTHER it is read from its beginning, unless
// the caller chooses another place.
typedef enum follow_news {
    FOLLOW_ON,        // what was read is still there, or nothing was read
    FOLLOW_GONE,      // there is no file
    FOLLOW_REPLACED,  // another file has the name
    FOLLOW_SHORTER,   // truncated
    FOLLOW_OTHER,     // other bytes before our place
} follow_news;

enum { FOLLOW_MARK = 64 };

typedef struct follower {
    char path[IO_PATH];
    int fd;        // -1: not open
    int64_t at;    // where the first line begins that was not read
    int64_t size;  // of the file, at the last look
    err_t rc;      // of reading
    ino_t file;
    dev_t device;
    char mark[FOLLOW_MARK];  // the bytes before `at`
    size_t marked;
    bool passing;  // the line at `at` is too long: its end is looked for
    char *text;    // the caller's, of `room` bytes: [begin, have) are those of the file from `at` on
    size_t room, begin, have;
} follower;

// Nothing is opened. text is only used from a look to follow_close: several followers may share it. A line of `room`
// bytes or more, its newline counted, is too long.
err_t follow_begin(follower *f, const char *path, char *text, size_t room);

// Opens the file that has the name now, instead of the one that was open. ERR_IO: it can't be read. ERR_DATA: it is no
// regular file.
err_t follow_look(follower *f, follow_news *news);

// The next whole line, valid until the next call; NULL, once, for one that is too long. false: there is none now, or it
// can't be read (f->rc).
bool follow_next(follower *f, const char **line, size_t *n);

// After a look: goes to a place where a line begins, or before the last `lines` whole lines (0: to the end).
void follow_seek(follower *f, int64_t at);
void follow_last(follower *f, int lines);

// Closes the file; the place is kept for the next look.
void follow_close(follower *f);

#endif
