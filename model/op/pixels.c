// model/op/pixels.c: the model's first input, an image of bytes, as numbers: (x - mean) / deviation, of each channel.
// It has no gradient.
#include "model/op/op.h"

#include "model/slices.h"

enum { PIXELS };  // input of the model

static err_t take(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor y = at_images(f, s->v[0]), x = f->p->in[PIXELS];
    int64_t C = y.size[3];
    tensor mean = constants_at(f, o->constant, C), inv = constants_at(f, o->constant + (int)C, C);
    x.size[0] = f->p->B;
    x = tensor_rows(&x, model_first_row(f->m, f->p->B), y.size[0]);
    return f->p->ops->pixels(&(pixels_args){.y = &y, .x = &x, .mean = &mean, .inv = &inv}, f->p->s);
}

static void forward(lowering *L, int op, const operation *o) { emit(L, "pixels", take, op, "w", o->out[0]); }

static void backward(lowering *L, int op, const operation *o) { (void)L, (void)op, (void)o; }

static const op_type type = {.name = "pixels", .role = ROLE_INPUT, .forward = forward, .backward = backward};

value pixels(graph *g, const char *name, int64_t H, int64_t W, int C, const double *mean, const double *deviation) {
    operation *o = graph_add(g, &type, "pixels", 0, 0);
    float x[2 * PIXEL_CHANNELS];
    if (C > PIXEL_CHANNELS) return graph_mistake(g, name, "an image has at most %d channels", PIXEL_CHANNELS), 0;
    for (int c = 0; c < C; c++) x[c] = (float)(255 * mean[c]), x[C + c] = (float)(1 / (255 * deviation[c]));
    o->constant = graph_constant(g, x, 2 * C);
    graph_image_input(g, name, H, W, C);
    return graph_result(
        g, o, 0,
        (graph_value){.letters = "HWC", .width = H * W * C, .H = H, .W = W, .C = C, .at = LAYOUT_STREAM, .is_E = true});
}
