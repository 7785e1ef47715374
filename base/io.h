// base/io.h: files, with readable errors and writes that are all or nothing.
#ifndef BASE_IO_H
#define BASE_IO_H

#include "base/err.h"
#include "base/fault.h"

#include <stddef.h>
#include <stdint.h>

enum { IO_PATH = 1024 };

// dst = formatted path of at most IO_PATH-1 bytes. ERR_CONFIG when it does not fit.
err_t io_path(char dst[IO_PATH], const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Opens a regular file, and never waits, even if a FIFO without a writer is in its place. flags: of open(2); O_CLOEXEC
// is added. A new file has mode 0644. On failure *fd is -1 and errno is that of open(2), 0 if it succeeded. ERR_IO: it
// can't be opened. ERR_DATA: it is a directory, a FIFO, a device or a socket.
err_t io_open(const char *path, int flags, int *fd);

// Reads exactly n bytes at offset. ERR_IO names the file, offset and errno; a file that ends early is ERR_DATA.
err_t io_read_at(int fd, const char *path, int64_t offset, void *dst, size_t n);

// Writes all n bytes at the current position. ERR_IO names the file and errno. Honours FAULT_WRITE and FAULT_FLIP.
err_t io_write(int fd, const char *path, const void *src, size_t n, fault_list *faults);

// Reads a whole file of at most `limit` bytes and appends a NUL; *size is without the NUL. The caller frees *out.
// ERR_IO when it can't be read, ERR_DATA when it is larger or no regular file.
err_t io_read_file(const char *path, size_t limit, char **out, size_t *size);

// Sends bytes first .. first + n - 1 of a file that is being written to disk, and waits for them if `waits`: so that a
// large file goes there as it is written, not in one fsync at its end, which may take minutes and shows no progress. It
// does not replace the fsync. ERR_IO: they may be lost, and the fsync may no longer say so.
err_t io_push(int fd, const char *path, int64_t first, int64_t n, bool waits);

// fsync of a file, and of a directory (what makes a rename last). Honour FAULT_SYNC. An fsync that failed is never
// tried again on the same file: the kernel may have dropped the pages and would then report success.
err_t io_sync(int fd, const char *path, fault_list *faults);
err_t io_sync_dir(const char *path, fault_list *faults);

// rename(2), and fsync of the parent directory of `to`. Honours FAULT_RENAME.
err_t io_rename(const char *from, const char *to, fault_list *faults);

// Replaces `path` by these bytes: writes a temporary file beside it, fsync, rename, fsync of the parent. On failure the
// temporary file is removed and `path` is whole: it has the old bytes, or the new ones if only the parent's fsync
// failed.
err_t io_write_file(const char *path, const void *src, size_t n, fault_list *faults);

// The same of a file that is only of use now, such as a status: not synced, so that it costs the disk nothing, and
// after a crash of the machine it may be any of the last ones, or empty. Written as DIR/.NAME.new first.
err_t io_replace_file(const char *path, const void *src, size_t n);

// mkdir -p.
err_t io_mkdirs(const char *path);

// rm -r of one of our directories; a missing one is fine. Never follows links.
err_t io_remove_tree(const char *path);

#endif
