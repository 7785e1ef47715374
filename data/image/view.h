// data/image/view.h: which part of a picture a sample is, and how it is brought to the sample's size. What is drawn by
// chance is a function of (seed, n) alone, n being the sample's position in the run, so that threads, ranks and
// restarts change no byte.
#ifndef DATA_IMAGE_VIEW_H
#define DATA_IMAGE_VIEW_H

#include "data/image/resize.h"
#include "data/source.h"

// A box of the picture, which is resized if it has another size than the sample; one of the sample's own size may reach
// past the picture, where all is 0.
typedef struct view {
    int top, left, h, w;
    bool flip;  // left to right
} view;

// The sample of (h,w) pixels that training sees of this picture at the draw.
//   area < 1   a box of a random share of the picture, from `area` to 1, and of a random shape, from 3:4 to 4:3, both
//              as torchvision's RandomResizedCrop draws them (Szegedy et al. 2015, section 6), with other dice
//   otherwise  the box in the middle, moved by up to `shift` pixels each way
// A picture that is smaller than the sample gives the largest box in its middle that has the sample's shape.
view view_train(const source_view *o, const picture *p, int h, int w, const source_draw *d);

// The box in the middle, as evaluation sees it.
view view_middle(const picture *p, int h, int w);

// Test-time views, 0 .. VIEWS_TEST-1: the box in the middle, the same a little up and left, and down and right, by 1/32
// of its side; those with odd numbers are mirrored (Jordan 2024, arXiv 2404.00498, section 3.5). A model's answer to an
// image is then the mean of those to its views.
enum { VIEWS_TEST = 6 };
view view_test(const picture *p, int h, int w, int which);

// dst (=) the view, (h,w,c) bytes.
err_t view_cut(resizer *r, uint8_t *dst, int h, int w, const picture *p, const view *v);

#endif
