// test/support/fake_device.h: a device that computes nothing: it says of its bits what a test wants it to say, and
// keeps the plans that it is given.
#ifndef TEST_SUPPORT_FAKE_DEVICE_H
#define TEST_SUPPORT_FAKE_DEVICE_H

#include "gpu/backend.h"

#include <stdio.h>
#include <string.h>

enum { FAKE_PLANS = 8 };

typedef struct fake_device {
    device head;
    const char *arithmetic;
    int plans;
    char plan[FAKE_PLANS][DEVICE_PLAN];
    const char *refuses;  // a plan with this in it; NULL: none
} fake_device;

static inline void fake_arithmetic(const device *d, char *dst, size_t room) {
    snprintf(dst, room, "%s", ((const fake_device *)d)->arithmetic);
}

static inline bool fake_plans_get(const device *d, int index, char text[DEVICE_PLAN]) {
    const fake_device *f = (const fake_device *)d;
    if (index < f->plans) strcpy(text, f->plan[index]);
    return index < f->plans;
}

static inline err_t fake_plans_set(device *d, const char *text) {
    fake_device *f = (fake_device *)d;
    if (f->refuses && strstr(text, f->refuses)) return err_set(ERR_CONFIG, "refused: %.80s", text);
    if (f->plans == FAKE_PLANS) return err_set(ERR_UNAVAILABLE, "no place");
    strcpy(f->plan[f->plans++], text);
    return ERR_OK;
}

static inline fake_device fake_open(const char *arithmetic) {
    static const backend table = {
        .arithmetic = fake_arithmetic, .plans_get = fake_plans_get, .plans_set = fake_plans_set};
    return (fake_device){.head = {.backend = &table, .info = {.kind = DEVICE_CUDA, .name = "fake"}},
                         .arithmetic = arithmetic};
}

#endif
