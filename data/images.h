// data/images.h: in what pictures come to `lockstep pack`: the words of [pack] images.
#ifndef DATA_IMAGES_H
#define DATA_IMAGES_H

#include "base/words.h"

#define IMAGE_WORDS(X) \
    X(IMAGES_NO, "no") \
    X(IMAGES_FOLDERS, "folders") \
    X(IMAGES_TAR, "tar") \
    X(IMAGES_IDX, "idx") \
    X(IMAGES_CIFAR10, "cifar10") \
    X(IMAGES_CIFAR100, "cifar100")
typedef enum { IMAGE_WORDS(WORD_ENUM) } image_kind;

#endif
