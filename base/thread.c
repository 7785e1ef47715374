// base/thread.c: see base/thread.h.
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

err_t thread_start(pthread_t *out, const char *name, void *(*body)(void *), void *arg) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(out, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e)
        return err_set(ERR_INTERNAL, "thread %s could not be started: %s; raise the limit (ulimit -u, TasksMax)", name,
                       strerror(e));
    pthread_setname_np(*out, name);
    return ERR_OK;
}
