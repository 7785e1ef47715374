// trainer/log/terminal.c: lines for a person on standard output, and where that is a terminal, a bar below them
// (trainer/log/progress.h).
#include "base/clock.h"
#include "trainer/log/progress.h"
#include "trainer/log/sink.h"

typedef struct terminal {
    progress shown;
    double started;      // when this process's first step began, seconds
    int64_t first_step;  // and its number
} terminal;

static err_t terminal_open(void *self, const log_setup *run) {
    *(terminal *)self = (terminal){0};
    progress *p = &((terminal *)self)->shown;
    progress_open(p, run->c->run.steps, run->short_unit);
    p->epochs = run->c->resolved.epochs, p->epoch_steps = run->c->resolved.epoch_steps;
    return ERR_OK;
}

static void terminal_close(void *self) { progress_close(&((terminal *)self)->shown); }

static err_t take_line(void *self, const record *r) {
    progress_say(&((terminal *)self)->shown, "%s", r->line);
    return ERR_OK;
}

static err_t take_event(void *self, const record *r) {
    progress_event(&((terminal *)self)->shown, &r->event);
    return ERR_OK;
}

static err_t take_eval(void *self, const record *r) {
    progress_eval(&((terminal *)self)->shown, &r->eval);
    return ERR_OK;
}

static err_t take_sample(void *self, const record *r) {
    progress_sample(&((terminal *)self)->shown, &r->sample);
    return ERR_OK;
}

static err_t take_start(void *self, const record *r) {
    terminal *t = self;
    t->started = clock_now();
    t->first_step = r->start.step + 1;
    return ERR_OK;
}

static err_t take_step(void *self, const record *r) {
    terminal *t = self;
    double done = (double)(r->step.step - t->first_step + 1);
    progress_step(&t->shown, &r->step, (clock_now() - t->started) / done * (double)(t->shown.steps - r->step.step));
    return ERR_OK;
}

const sink sink_terminal = {
    .name = "the terminal",
    .bytes = sizeof(terminal),
    .people = true,
    .every_step = true,
    .open = terminal_open,
    .close = terminal_close,
    .take = {[RECORD_START] = take_start,
             [RECORD_STEP] = take_step,
             [RECORD_EVAL] = take_eval,
             [RECORD_SAMPLE] = take_sample,
             [RECORD_EVENT] = take_event,
             [RECORD_LINE] = take_line},
};
