// test/test_io.c: what the system says of a write. One that it does only in part, or interrupts, is finished all the
// same: the file is a pipe whose reader waits until the writer has been interrupted a few times.
#include "base/io.h"
#include "base/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { BYTES = 300007 };  // more than a pipe holds

static volatile sig_atomic_t rings;
static int go[2];  // a pipe in which the reader finds a byte when it may begin

static void ring(int number) {
    if (number == SIGALRM && ++rings == 5 && write(go[1], "", 1) != 1) _exit(1);
}

static uint8_t byte_at(int i) { return (uint8_t)(i * 31 + i / 251); }

// The reader's exit status: 0 when exactly these bytes came.
static int read_late(int fd) {
    uint8_t piece[4096];
    int at = 0, wrong = read(go[0], piece, 1) != 1;
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0; at += (int)n)
        for (int i = 0; i < (int)n; i++) wrong |= piece[i] != byte_at(at + i);
    return wrong || at != BYTES;
}

static void writes_are_finished(void **state) {
    (void)state;
    int fd[2], status;
    assert_int_equal(pipe(fd) | pipe(go), 0);
    pid_t reader = fork();
    if (reader == 0) {
        close(fd[1]);
        alarm(30);
        _exit(read_late(fd[0]));
    }
    close(fd[0]);
    uint8_t *bytes = malloc(BYTES);
    for (int i = 0; i < BYTES; i++) bytes[i] = byte_at(i);
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = ring}, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 10000}, {0, 10000}}, NULL);
    err_t rc = io_write(fd[1], "pipe", bytes, BYTES, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    close(fd[1]);
    free(bytes);
    assert_int_equal(waitpid(reader, &status, 0), reader);
    if (rc != ERR_OK) fail_msg("%s", err_last()->text);
    assert_true(rings >= 5);
    assert_int_equal(status, 0);
}

static void a_file_that_cannot_be_made_is_named(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    char dir[IO_PATH], path[IO_PATH];
    assert_int_equal(io_path(dir, "%s/lockstep-io-XXXXXX", base ? base : "/tmp"), ERR_OK);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(io_path(path, "%s/none/file", dir), ERR_OK);
    assert_int_equal(io_write_file(path, "x", 1, NULL), ERR_IO);
    if (!strstr(err_last()->text, "/none/file") || !strstr(err_last()->text, strerror(ENOENT)))
        fail_msg("%s", err_last()->text);
    assert_int_equal(rmdir(dir), 0);
}

// Who reads it sees the old text or the new one, and nothing is left beside it, whether or not it could be replaced.
// Neither to read nor to write, and a file that is not there keeps its errno.
static void only_files_are_opened(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    char dir[IO_PATH], path[IO_PATH], socket_path[108];
    int fd, s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(io_path(dir, "%s/lockstep-io-XXXXXX", base ? base : "/tmp"), ERR_OK);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(io_path(path, "%s/pipe", dir), ERR_OK);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(socket_path, sizeof socket_path, "%.90s/socket", dir);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, socket_path, sizeof at.sun_path);
    assert_int_equal(bind(s, (struct sockaddr *)&at, sizeof at), 0);
    const char *const kinds[][2] = {
        {dir, "a directory"}, {path, "a FIFO"}, {socket_path, "a socket"}, {"/dev/zero", "a device"}};
    int next = dup(s);  // the descriptor that a file would be given: none of these keeps it
    close(next);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(io_open(kinds[i / 2][0], i % 2 ? O_WRONLY | O_CREAT : O_RDONLY, &fd), ERR_DATA);
        assert_int_equal(fd, -1);
        if (!strstr(err_last()->text, kinds[i / 2][0]) || !strstr(err_last()->text, kinds[i / 2][1]))
            fail_msg("%s", err_last()->text);
    }
    assert_int_equal(dup(s), next);
    close(next);
    close(s), unlink(socket_path), unlink(path);
    assert_int_equal(io_open(path, O_RDONLY, &fd), ERR_IO);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(io_open(path, O_WRONLY | O_CREAT, &fd), ERR_OK);
    close(fd), unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

static void a_file_is_replaced(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    char dir[IO_PATH], path[IO_PATH], *text;
    size_t size;
    assert_int_equal(io_path(dir, "%s/lockstep-io-XXXXXX", base ? base : "/tmp"), ERR_OK);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(io_path(path, "%s/status.json", dir), ERR_OK);
    assert_int_equal(io_replace_file(path, "longer than the next", 20), ERR_OK);
    assert_int_equal(io_replace_file(path, "new", 3), ERR_OK);
    assert_int_equal(io_read_file(path, 100, &text, &size), ERR_OK);
    assert_int_equal(size, 3);
    assert_memory_equal(text, "new", 3);
    free(text);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0755), 0);  // which no file replaces
    assert_int_equal(io_replace_file(path, "new", 3), ERR_IO);
    assert_non_null(strstr(err_last()->text, "status.json: rename: "));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(io_replace_file(path, "new", 3), ERR_IO);
    assert_non_null(strstr(err_last()->text, "/.status.json.new: "));
}

// What is found of a file that was opened: it is closed in what this process starts, it is not waited for, and its mode
// is for others to read. errno is that of the open, whatever it was before.
static void what_is_opened(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    char dir[IO_PATH], path[IO_PATH], *text;
    struct stat st;
    size_t size;
    int fd;
    assert_int_equal(io_path(dir, "%s/lockstep-io-XXXXXX", base ? base : "/tmp"), ERR_OK);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(io_path(path, "%s/file", dir), ERR_OK);
    mode_t before = umask(0);
    assert_int_equal(io_open(path, O_RDWR | O_CREAT | O_EXCL, &fd), ERR_OK);
    umask(before);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) && fstat(fd, &st) == 0 && st.st_mode == (S_IFREG | 0644));
    assert_int_equal(write(fd, "12345", 5), 5);
    close(fd);
    assert_int_equal(io_open(path, O_RDWR | O_CREAT | O_EXCL, &fd), ERR_IO);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(fd, -1);
    errno = ENOENT;
    assert_int_equal(io_open(dir, O_RDONLY, &fd), ERR_DATA);  // it was opened, and is no file
    assert_int_equal(errno, 0);
    assert_int_equal(io_open(dir, O_WRONLY, &fd), ERR_DATA);
    assert_int_equal(errno, EISDIR);
    errno = ENOENT;
    assert_int_equal(io_open(path, O_RDONLY, &fd), ERR_OK);
    assert_int_equal(errno, 0);
    close(fd);
    assert_int_equal(io_read_file(path, 5, &text, &size), ERR_OK);  // as large as it may be
    assert_string_equal(text, "12345");
    assert_int_equal(size, 5);
    free(text);
    assert_int_equal(io_read_file(path, 4, &text, &size), ERR_DATA);
    assert_true(!text && size == 0 && strstr(err_last()->text, "/file: has 5 bytes, expected at most 4"));
    strcat(path, "/below");
    assert_int_equal(io_open(path, O_RDONLY, &fd), ERR_IO);
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(io_remove_tree(dir), ERR_OK);
}

// Others may look into what is made on the way, and write nowhere.
static void directories_are_for_others_to_read(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    char dir[IO_PATH], path[IO_PATH];
    struct stat st;
    assert_int_equal(io_path(dir, "%s/lockstep-io-XXXXXX", base ? base : "/tmp"), ERR_OK);
    assert_non_null(mkdtemp(dir));
    mode_t before = umask(0);
    assert_int_equal(io_path(path, "%s/a/b", dir), ERR_OK);
    assert_int_equal(io_mkdirs(path), ERR_OK);
    assert_int_equal(io_mkdirs(path), ERR_OK);  // where it is already
    umask(before);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode, S_IFDIR | 0755);
        path[strlen(path) - 2] = 0;
    }
    assert_int_equal(io_remove_tree(dir), ERR_OK);
    assert_int_equal(access(dir, F_OK), -1);
}

// What a shell makes of it is the path again, as one word.
static void paths_for_a_shell(void **state) {
    (void)state;
    static const char *const paths[][2] = {
        {"runs/a@best", "runs/a@best"}, {"a b", "'a b'"},   {"", "''"},
        {"it's", "'it'\\''s'"},         {"-o", "./-o"},     {"-o x", "./'-o x'"},
        {"$HOME/`id`", "'$HOME/`id`'"}, {"a\nb", "'a\nb'"}, {"\xc3\xa9", "'\xc3\xa9'"}};
    char word[SHELL_PATH], command[SHELL_PATH + 32], got[IO_PATH], longest[IO_PATH];
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_string_equal(shell_path(word, paths[i][0]), paths[i][1]);
        snprintf(command, sizeof command, "printf %%s %s", word);
        FILE *f = popen(command, "r");
        size_t n = f ? fread(got, 1, sizeof got - 1, f) : 0;
        assert_true(f && pclose(f) == 0);
        got[n] = 0;
        assert_string_equal(got + (paths[i][0][0] == '-' ? 2 : 0), paths[i][0]);
    }
    memset(longest, '\'', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(strlen(shell_path(word, longest)), 4 * (IO_PATH - 1) + 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_are_finished),
        cmocka_unit_test(a_file_that_cannot_be_made_is_named),
        cmocka_unit_test(only_files_are_opened),
        cmocka_unit_test(a_file_is_replaced),
        cmocka_unit_test(directories_are_for_others_to_read),
        cmocka_unit_test(paths_for_a_shell),
        cmocka_unit_test(what_is_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
