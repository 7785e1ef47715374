// trainer/answers.h: what a model of classes says of its validation data, for people: DIR/answers.json, which the
// report draws (trainer/report/). An evaluation of a run replaces it. It costs a training step nothing, and since every
// rank of every world knows the same answers, its bytes do not depend on the layout.
//
//   {"step":1400,"samples":1000,"right":992,"of_classes":10,
//    "classes":[{"label":0,"name":"cat","of":85,"right":84,"said":86}, ...]   seen or said; name: or null
//    "pairs":[{"label":4,"answer":9,"count":2}, ...]     what was taken for something else, the most frequent first
//    "examples":[{"sample":0,"label":7,"answer":7,"sure":0.99,"png":"iVBO..."}, ...]       evenly among the samples
//    "mistakes":[...]}                                   the same: the wrong ones of which the model is surest
//
// png is the picture as the model sees it, in base64; null where samples are no pictures. One that is large is reduced.
#ifndef TRAINER_ANSWERS_H
#define TRAINER_ANSWERS_H

#include "trainer/session/session.h"

enum {
    ANSWERS_PAIRS = 1000,     // most pairs: all of 32 classes
    ANSWERS_PICTURES = 24,    // most examples, and mistakes
    ANSWERS_SIDE = 80,        // pixels of a picture's longer side; larger ones are reduced
    ANSWERS_PIXELS = 240000,  // most bytes of all examples, and of all mistakes, so that a page stays below 1 MB
};

// The mean over classes, of those that were seen or said, of F1 = 2 right / (of + said): how well each class is found,
// whatever its size (macro F1). ERR_INTERNAL: x->answers is NULL.
err_t answers_f1(const session *x, const evaluation *e, double *f1);

// From x->answers, after the evaluation *e, to DIR/answers.json; nothing where x->answers is NULL. ERR_DATA, ERR_IO: a
// picture can't be read; ERR_IO: the file can't be written.
err_t answers_write(const session *x, const evaluation *e, const char *dir);

#endif
