// base/thread.h: starts a thread with a name for top and gdb. All signals are blocked in it, because the main thread
// handles them, except those that a thread causes itself.
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/err.h"

#include <pthread.h>

// name: at most 15 bytes. ERR_INTERNAL with the reason.
err_t thread_start(pthread_t *out, const char *name, void *(*body)(void *), void *arg);

#endif
