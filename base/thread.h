// base/thread.h: how this program starts a thread: with a name for top and gdb, and with every signal blocked but those that a thread brings on
// itself, because signals are the main thread's.
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/err.h"

#include <pthread.h>

// name: at most 15 bytes. ERR_INTERNAL with the reason.
err_t thread_start(pthread_t *out, const char *name, void *(*body)(void *), void *arg);

#endif
