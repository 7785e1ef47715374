// test/test_foreign_by_hand.c: what other trainers' layers take (test/bench/foreign.h), by hand, on machines where one
// thing alone takes time: arithmetic, memory, starting an operation, links; and what each row of a table is read as.
#include "test/bench/foreign_tables.h"
#include "test/support/run.h"

#include <math.h>

static void close_to(const char *what, double found, double wanted) {
    if (!(fabs(found - wanted) <= 1e-9 * fabs(wanted) + 1e-15))
        fail_msg("%s: %.12g, expected %.12g", what, found, wanted);
}

// --- machines --------------------------------------------------------------------------------------------------------

// Of n GPUs, each of which sends so many bytes: the constants are those that a fit starts with.
static double all_reduce(foreign_device device, int n, double sent) {
    if (device == FOREIGN_V100) return 8e-6 * n + sent / (n == 2 ? 22e9 : n == 5 ? 44e9 : n == 8 ? 132e9 : 88e9);
    double rate = device == FOREIGN_A100 ? 250e9 : 0.8 * 450e9;
    return 20e-6 + 4e-6 * n + 5e-6 * sqrt(sent / 1e6) + sent / rate * (1 + 0.5 / n);
}

static void curves_are_their_formula(void **state) {
    (void)state;
    static const int groups[] = {2, 4, 5, 7, 8};
    foreign_sheet sheet;
    foreign_sheet_start(&sheet);
    for (foreign_device d = FOREIGN_A100; d <= FOREIGN_H200; d++) {
        costs c;
        OK(foreign_costs(&c, &sheet, d, FOREIGN_FP16, 25e9));
        for (int g = 0; g < 5; g++)
            for (double sent = 65536; sent < 64e9; sent *= 4) {
                double s = all_reduce(d, groups[g], sent);
                close_to("sums", costs_of_call(&c, CALL_ALL_REDUCE, COSTS_NODE, groups[g], sent).s, s);
                close_to("gathers", costs_of_call(&c, CALL_ALL_GATHER, COSTS_NODE, groups[g], sent / 2).s, s / 2);
                close_to("scatters", costs_of_call(&c, CALL_REDUCE_SCATTER, COSTS_NODE, groups[g], sent / 2).s, s / 2);
            }
        costs_free(&c);
    }
}

static double reach(const costs *c, const char *op) {
    for (int i = 0; i < c->reaches; i++)
        if (strcmp(c->reach[i].name, op) == 0) return c->reach[i].share.is;
    return 0;
}

// What is fitted takes the place of what the planner's sheet says; FP8 has twice the peak of BF16.
static void machines_have_fitted_figures(void **state) {
    (void)state;
    static const struct {
        foreign_device device;
        foreign_type type;
        double matmul, forward, backward, copy, card, node;
        int lost;
    } of[] = {
        {FOREIGN_A100, FOREIGN_FP16, 0.8, 0.35, 0.3, 2.039e12, 0.8 * 25e9, 250e9, 64},
        {FOREIGN_V100, FOREIGN_FP16, 0.8, 0.35, 0.3, 2.039e12, 0.8 * 25e9, 250e9, 64},
        {FOREIGN_H100, FOREIGN_FP16, 0.6, 0.5, 0.425, 2.4e12, 0.7 * 25e9, 0.7 * 450e9, 192},
        {FOREIGN_H100, FOREIGN_FP8, 1.1, 0.5, 0.425, 2.4e12, 0.7 * 25e9, 0.7 * 450e9, 192},
        {FOREIGN_H200, FOREIGN_FP8_ROWS, 1.1, 0.5, 0.425, 4.8e12, 0.7 * 25e9, 0.7 * 450e9, 192},
    };
    foreign_sheet sheet;
    foreign_sheet_start(&sheet);
    sheet.at[CONSTANT_h100_link] = 0.7, sheet.at[CONSTANT_a100_other] = 0.9, sheet.at[CONSTANT_h100_fp8] = 0.55;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        costs c;
        OK(foreign_costs(&c, &sheet, of[i].device, of[i].type, 25e9));
        close_to("matmul", reach(&c, "matmul"), of[i].matmul), close_to("other", reach(&c, "other"), 0.9);
        close_to("forward", reach(&c, "attention_forward"), of[i].forward);
        close_to("backward", reach(&c, "attention_backward"), of[i].backward);
        close_to("copy", c.copy.is, of[i].copy), close_to("launch", c.launch.is, 5e-6);
        close_to("card", c.link[COSTS_RACK].rate.is, of[i].card);
        close_to("link", c.link[COSTS_NODE].rate.is, of[i].node);
        assert_int_equal(c.tiles.lost, of[i].lost);
        costs_free(&c);
    }
}

// Machines are kept by what they differ in, and made once.
static void machines_are_kept(void **state) {
    (void)state;
    foreign_sheet sheet;
    foreign_machines m = {.sheet = &sheet};
    const costs *a, *b;
    foreign_sheet_start(&sheet);
    OK(foreign_machine(&a, &m, FOREIGN_H100, FOREIGN_FP16, 25e9));
    OK(foreign_machine(&b, &m, FOREIGN_H100, FOREIGN_FP16, 25e9));
    assert_true(a == b && m.count == 1);
    OK(foreign_machine(&b, &m, FOREIGN_H200, FOREIGN_FP16, 25e9));
    assert_true(b != a && m.count == 2 && b->copy.is == 4.8e12);
    OK(foreign_machine(&b, &m, FOREIGN_H100, FOREIGN_FP8, 25e9));
    assert_true(b != a && m.count == 3 && reach(b, "matmul") == 1.2);
    OK(foreign_machine(&b, &m, FOREIGN_H100, FOREIGN_FP16, 50e9));
    assert_true(b != a && m.count == 4 && b->link[COSTS_RACK].rate.is == 0.8 * 50e9);
    foreign_machines_free(&m);
}

// --- layers ----------------------------------------------------------------------------------------------------------

enum { H = 1024, HEADS = 8, INNER = 4096, LAYERS = 4, WORDS = 1000, LENGTH = 512 };

static foreign_run run_of(bool llama) {
    return (foreign_run){.hidden = H,
                         .heads = HEADS,
                         .keys = llama ? 2 : HEADS,
                         .inner = INNER,
                         .layers = LAYERS,
                         .vocabulary = WORDS,
                         .sequence = LENGTH,
                         .llama = llama,
                         .tensor = 1,
                         .data = 1,
                         .context = 1,
                         .pipeline = 1,
                         .chunks = 1,
                         .schedule = PIPELINE_1F1B,
                         .card = 10e9,
                         .micro = 1,
                         .gradient = 4};
}

static const char flops_only[] =
    "lockstep costs 2\ndevice t\npeak fp16 1 flop/s 0 spread\npeak bf16 1 flop/s 0 spread\n"
    "copy 1e30 bytes/s 0 spread\nlink node 1e30 bytes/s 0 us 0 spread\nend 4\n";
static const char bytes_only[] = "lockstep costs 2\ndevice t\ncopy 1 bytes/s 0 spread\n"
                                 "link node 1e30 bytes/s 0 us 0 spread\nend 2\n";
static const char starts_only[] = "lockstep costs 2\ndevice t\ncopy 1e30 bytes/s 0 spread\nlaunch 1e6 us 0 spread\n"
                                  "link node 1e30 bytes/s 0 us 0 spread\nend 3\n";

static foreign_price price(const foreign_run *r, const char *table) {
    foreign_price p;
    foreign_sheet sheet;
    costs c;
    foreign_sheet_start(&sheet);
    OK(costs_parse(&c, "t", table));
    foreign_price_of(&p, r, &c, &sheet);
    costs_free(&c);
    return p;
}

// Products forward, and twice that backward; attention's own ones of a GPT over all positions, of a Llama, which is in
// one kernel, over half of them, and backward five for two.
static void arithmetic_of_layers(void **state) {
    (void)state;
    const double T = LENGTH, h = H, inner = INNER, keys = H / HEADS * 2, words = WORDS;
    for (int t = 1; t <= 2; t++) {
        foreign_run r = run_of(false), l = run_of(true);
        r.tensor = l.tensor = t;
        double scores = 4 * T * T * h / t;
        double gpt = 2 * T * (4 * h * h + 2 * h * inner) / t + scores;
        foreign_price p = price(&r, flops_only), q = price(&l, flops_only);
        close_to("forward", p.forward, gpt), close_to("backward", p.backward, 2 * gpt);
        close_to("head", p.head, 3 * 2 * T * words * h / t);
        double products = 2 * T * (2 * h * h + 2 * keys * h + 3 * h * inner) / t, seen = T * T / 2 * h / t;
        close_to("llama", q.forward, products + 4 * seen);
        close_to("llama backward", q.backward, 2 * products + 10 * seen);
        r.again = AGAIN_ATTENTION;
        close_to("attention again", price(&r, flops_only).backward, 2 * gpt + scores);
        r.again = AGAIN_HALF;
        close_to("half again", price(&r, flops_only).backward, 2.5 * gpt);
        r.again = AGAIN_ALL;
        close_to("all again", price(&r, flops_only).backward, 3 * gpt);
    }
    // ranks that share positions have fewer of them each, and see all
    foreign_run r = run_of(true);
    foreign_price whole = price(&r, flops_only);
    r.context = 2;
    close_to("context", price(&r, flops_only).forward, whole.forward / 2);
}

// Operations by number: a product, a move, attention.
static void operations_of_layers(void **state) {
    (void)state;
    foreign_run r = run_of(false), l = run_of(true);
    foreign_price p = price(&r, starts_only);
    close_to("forward", p.forward, 4 + (2 + 6) + 6), close_to("backward", p.backward, 8 + (4 + 6) + 8);
    close_to("head", p.head, 3 + 8), close_to("embed", p.embed, 4), close_to("update", p.update, 8);
    p = price(&l, starts_only);
    close_to("llama", p.forward, 4 + 1 + 5), close_to("llama backward", p.backward, 8 + 1 + 7);
    l.type = FOREIGN_FP8;  // each product's factors are cast, but for those with the table of words
    p = price(&l, starts_only);
    close_to("fp8", p.forward, 8 + 1 + 5), close_to("fp8 backward", p.backward, 16 + 1 + 7);
    close_to("fp8 head", p.head, 3 + 8);
}

// Of a product, m x k and k x n that are read and m x n that is written, of 2 bytes; a gradient is added to in its own.
static double moved(double m, double n, double k) { return 2 * (m * k + k * n + m * n); }
static double added(double m, double n, double k, double gradient) {
    return 2 * (m * k + k * n) + 2 * gradient * m * n;
}

static void bytes_of_layers(void **state) {
    (void)state;
    const double T = LENGTH, h = H, inner = INNER, keys = H / HEADS * 2, words = WORDS, size = H / HEADS;
    const double scores = T * T * HEADS;
    foreign_run r = run_of(false), l = run_of(true);
    foreign_price p = price(&r, bytes_only);
    double core = moved(scores / T, T, size) + moved(scores / T, size, T) + 4 * scores + 5 * scores + 16 * T * h;
    close_to("forward", p.forward,
             moved(T, 3 * h, h) + core + moved(T, h, h) + moved(T, inner, h) + moved(T, h, inner) + 22 * T * h +
                 8 * T * inner);
    double back = 2 * (moved(scores / T, T, size) + moved(scores / T, size, T)) + 6 * scores + 5 * scores + 16 * T * h;
    close_to("backward", p.backward,
             moved(T, h, 3 * h) + added(3 * h, h, T, 4) + moved(T, h, h) + added(h, h, T, 4) + moved(T, h, inner) +
                 added(inner, h, T, 4) + moved(T, inner, h) + added(h, inner, T, 4) + back + 42 * T * h +
                 8 * T * inner);
    close_to("head", p.head,
             moved(T, words, h) + moved(T, h, words) + added(words, h, T, 4) + 30 * T * words + 14 * T * h);
    close_to("embed", p.embed, 10 * T * h);
    double each = 4 * h * h + 2 * h * inner, table = words * h;
    close_to("update", p.update, 50 * (LAYERS * each + table));
    p = price(&l, bytes_only);
    close_to("llama", p.forward,
             moved(T, h + 2 * keys, h) + 8 * T * h + moved(T, h, h) + moved(T, 2 * inner, h) + moved(T, h, inner) +
                 20 * T * h + 4 * T * (h + keys) + 6 * T * inner);
    close_to("llama backward", p.backward,
             moved(T, h, h + 2 * keys) + moved(h + 2 * keys, h, T) + 2 * moved(h, h, T) + moved(T, h, 2 * inner) +
                 moved(2 * inner, h, T) + moved(T, inner, h) + moved(h, inner, T) - moved(h, h, T) + moved(T, h, h) +
                 8 * T * h + 28 * T * h + 4 * T * (h + keys) + 10 * T * inner);
    each = h * (2 * h + 2 * keys) + 3 * h * inner;
    close_to("llama update", p.update, 50 * (LAYERS * each + table));
    l.type = FOREIGN_FP8;  // factors are read and measured, then read and written: 5 bytes of each
    close_to("fp8", price(&l, bytes_only).forward - p.forward,
             5 * (4 * T * h - T * h + T * inner + h * (h + 2 * keys) + h * h + 3 * h * inner));
    l.type = FOREIGN_FP8_ROWS;  // twice
    close_to("fp8 rows", price(&l, bytes_only).forward - p.forward,
             2 * 5 * (3 * T * h + T * inner + h * (h + 2 * keys) + h * h + 3 * h * inner));
    // tensor ranks divide channels, and, by rows, norms and sums, too
    foreign_run half = r, rows;
    half.tensor = 2, rows = half, rows.rows = true;
    close_to("rows", price(&half, bytes_only).forward - price(&rows, bytes_only).forward, 22 * T * h / 2);
    close_to("embed rows", price(&rows, bytes_only).embed, 10 * T * h / 2);
    close_to("half an update", price(&half, bytes_only).update, price(&r, bytes_only).update / 2);
}

// --- links -----------------------------------------------------------------------------------------------------------

// Nothing takes time but one kind of call, a second a byte.
static foreign_price sends(const foreign_run *r, const char *call, int ranks) {
    char table[512];
    snprintf(table, sizeof table,
             "lockstep costs 2\ndevice t\ncopy 1e30 bytes/s 0 spread\nlink node 1e30 bytes/s 0 us 0 spread\n"
             "comm %s node %d 1 1e6 us 0 spread\nend 3\n",
             call, ranks);
    return price(r, table);
}

// Two all-reduces a layer, each way, half of one for the words; or as many gathers and scatters, which send half each,
// and for the words both. In pieces beside products all but the first is hidden.
static void tensor_ranks_talk(void **state) {
    (void)state;
    const double bytes = 2.0 * LENGTH * H;
    for (int llama = 0; llama < 2; llama++)
        for (int t = 2; t <= 8; t *= 2) {
            foreign_run r = run_of(llama);
            r.tensor = t;
            double part = bytes * (t - 1) / t;
            foreign_price p = sends(&r, "all_reduce", t);
            close_to("forward", p.forward, 2 * 2 * part), close_to("backward", p.backward, 2 * 2 * part);
            close_to("head", p.head, 0.5 * 2 * part);
            assert_true(sends(&r, "all_gather", t).forward < 1 && sends(&r, "reduce_scatter", t).forward < 1);
            r.rows = true;
            assert_true(sends(&r, "all_reduce", t).forward < 1);
            p = sends(&r, "all_gather", t);
            close_to("gathers", p.forward, 2 * part), close_to("gathers", p.backward, 2 * part);
            close_to("head", p.head, part);
            p = sends(&r, "reduce_scatter", t);
            close_to("scatters", p.forward, 2 * part), close_to("head", p.head, part);
            r.beside = true;
            close_to("pieces", sends(&r, "all_gather", t).backward, 2 * part / t);
            r.beside = false, r.context = 2;
            close_to("context", sends(&r, "all_gather", t).forward, part);
        }
}

// A stage sends each tensor rank's share, which are gathered there; near, or where a stage has more than a node, far.
static void stages_talk(void **state) {
    (void)state;
    static const char table[] = "lockstep costs 2\ndevice t\ncopy 1e30 bytes/s 0 spread\n"
                                "link node 1 bytes/s 0 us 0 spread\nlink rack 1 bytes/s 1e15 us 0 spread\nend 3\n";
    const double bytes = 2.0 * LENGTH * H;
    foreign_run r = run_of(false);
    close_to("one stage", price(&r, table).message, 0);
    r.pipeline = 2;
    close_to("near", price(&r, table).message, bytes);
    r.tensor = 4;
    close_to("shares", price(&r, table).message, bytes / 4 + bytes * 3 / 4);
    r.data = 4;
    close_to("far", price(&r, table).message, 1e9 + bytes / 4 + bytes * 3 / 4);
    r.data = 1, r.context = 4, r.tensor = 4;
    close_to("far by contexts", price(&r, table).message, 1e9 + bytes / 16 + bytes / 4 * 3 / 4);
}

// Gradients of all that a rank holds, once; of vTrain's nodes through one card of two GPUs. Sharded ones come and go a
// layer at a time, and what computes beside that is slower.
static void gradients_are_summed(void **state) {
    (void)state;
    static const char table[] = "lockstep costs 2\ndevice t\ncopy 1e30 bytes/s 0 spread\n"
                                "link node 1 bytes/s 0 us 0 spread\nlink rack 1e12 bytes/s 0 us 0 spread\nend 3\n";
    const double each = 12.0 * H * H, words = (double)WORDS * H;
    foreign_run r = run_of(false);
    close_to("alone", price(&r, table).reduce, 0);
    r.data = 4, r.pipeline = 2;
    close_to("sums", price(&r, table).reduce, 2 * 3 / 4.0 * 4 * (2 * each + words));
    r.gradient = 2, r.data = 2, r.context = 2;
    close_to("of contexts, too", price(&r, table).reduce, 2 * 3 / 4.0 * 2 * (2 * each + words));
    r = run_of(false), r.data = 16, r.deepspeed = true, r.card = 3;
    double held = 4 * each + words;
    static const char fast[] = "lockstep costs 2\ndevice t\ncopy 1e30 bytes/s 0 spread\n"
                               "link node 1e30 bytes/s 0 us 0 spread\nlink rack 1e30 bytes/s 0 us 0 spread\nend 3\n";
    close_to("one card", price(&r, fast).reduce, 2 * 4 * held * 15 / 16 / (2 * 3 * 0.8));
    r.data = 8;
    assert_true(price(&r, fast).reduce < 1);  // of one node
    r = run_of(false), r.data = 2, r.shards = true;
    foreign_price p = price(&r, table);
    close_to("gather", p.gather, 2 * each / 2), close_to("scatter", p.scatter, 4 * each / 2);
    assert_true(p.reduce == 0);
    // of a machine where all takes time: 1.2 times as long where a gather is longer than the work beside it
    static const char both[] =
        "lockstep costs 2\ndevice t\npeak fp16 1e6 flop/s 0 spread\npeak bf16 1e6 flop/s 0 spread\n"
        "copy 1e30 bytes/s 0 spread\nlink node %s bytes/s 0 us 0 spread\nend 4\n";
    for (int llama = 0; llama < 2; llama++) {
        char slow[256], quick[256];
        foreign_run one = run_of(llama), many = run_of(llama);
        many.data = 2, many.shards = true;
        double more = llama ? 0.1256 : 0.2;
        snprintf(slow, sizeof slow, both, "1"), snprintf(quick, sizeof quick, both, "1e30");
        foreign_price a = price(&one, quick), b = price(&many, slow);
        close_to("slower", b.forward, (1 + more) * a.forward), close_to("slower", b.backward, (1 + more) * a.backward);
        snprintf(slow, sizeof slow, both, "1e5");
        b = price(&many, slow);
        assert_true(b.gather + b.scatter < a.forward);
        close_to("a little slower", b.forward, a.forward + more * b.gather);
        close_to("a little slower", b.backward, a.backward + more * (b.gather + b.scatter));
    }
    r = run_of(false), r.data = 4, r.shards = true;
    double whole = price(&r, bytes_only).update;
    r.shards = false;
    close_to("a share is updated", whole, price(&r, bytes_only).update / 4);
}

// --- tables ----------------------------------------------------------------------------------------------------------

static void read_rows(tables *t, const char *dir, table_kind kind, const char *head, const char *rows) {
    char path[1024], text[2048];
    *t = (tables){0};
    snprintf(path, sizeof path, "%s/t.csv", dir);
    snprintf(text, sizeof text, "%s\n%s", head, rows);
    write_text(dir, "t.csv", text);
    OK(table_read(t, path, kind));
}

static void is_run(const foreign_run *r, foreign_run wanted) {
    assert_true(r->device == wanted.device && r->type == wanted.type && r->card == wanted.card);
    assert_true(r->hidden == wanted.hidden && r->heads == wanted.heads && r->keys == wanted.keys);
    assert_true(r->inner == wanted.inner && r->layers == wanted.layers && r->vocabulary == wanted.vocabulary);
    assert_true(r->sequence == wanted.sequence && r->llama == wanted.llama && r->tensor == wanted.tensor);
    assert_true(r->data == wanted.data && r->pipeline == wanted.pipeline && r->context == wanted.context);
    assert_true(r->chunks == wanted.chunks && r->schedule == wanted.schedule && r->micro == wanted.micro);
    assert_true(r->micros == wanted.micros && r->again == wanted.again && r->rows == wanted.rows);
    assert_true(r->beside == wanted.beside && r->deepspeed == wanted.deepspeed && r->shards == wanted.shards);
    assert_true(r->one_by_one == wanted.one_by_one && r->gradient == wanted.gradient);
}

static foreign_run selene(int64_t hidden, int64_t heads, int64_t layers, int tensor, int pipeline, int data) {
    return (foreign_run){.device = FOREIGN_A100,
                         .type = FOREIGN_FP16,
                         .card = 25e9,
                         .hidden = hidden,
                         .heads = heads,
                         .keys = heads,
                         .inner = 4 * hidden,
                         .layers = layers,
                         .vocabulary = 51200,
                         .sequence = 2048,
                         .tensor = tensor,
                         .data = data,
                         .pipeline = pipeline,
                         .context = 1,
                         .chunks = 1,
                         .schedule = PIPELINE_1F1B,
                         .again = AGAIN_ALL,
                         .gradient = 4};
}

// Formula 3 of arXiv 2104.04473, of all samples.
static double flops(double B, double s, double l, double h, double V) {
    return 96 * B * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h));
}

static void rows_of_megatron(void **state) {
    (void)state;
    char *dir = make_dir();
    tables t;
    read_rows(&t, dir, TABLE_VTRAIN,
              "billions,gpus,global_batch,micro_batch,hidden,heads,layers,sequence,tensor,data,pipeline,ms",
              "1,64,512,2,3072,32,30,1024,2,8,4,4034.5\n");
    foreign_run x = selene(3072, 32, 30, 2, 4, 8);
    x.card = 12.5e9, x.vocabulary = 50257, x.sequence = 1024, x.gradient = 2, x.deepspeed = true, x.micro = 2;
    x.micros = 32;
    is_run(&t.row[0].run[0].run, x);
    assert_true(t.row[0].runs == 1 && t.row[0].scale == 1e3 && t.row[0].work == 0 && t.row[0].measured == 4034.5);
    assert_string_equal(t.row[0].model, "1B on 64, batch 512");
    tables_free(&t);

    // micro-batches of 1 to 8 samples, and stages in up to 4 parts, where they divide
    read_rows(&t, dir, TABLE_2104_ONE,
              "billions,heads,hidden,layers,tensor,pipeline,gpus,global_batch,tflops_gpu,pflops",
              "16.5,48,6144,36,8,2,256,1024,135,34.6\n");
    int n = 0;
    for (int b = 1; b <= 8; b *= 2)
        for (int v = 1; v <= 4; v++) {
            if (36 % (2 * v)) continue;
            x = selene(6144, 48, 36, 8, 2, 16);
            x.micro = b, x.micros = 64 / b, x.chunks = v, x.schedule = v > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
            is_run(&t.row[0].run[n++].run, x);
        }
    assert_int_equal(t.row[0].runs, n);
    close_to("work", t.row[0].work, 1e-12 * flops(1024, 2048, 36, 6144, 51200) / 256);
    assert_string_equal(t.row[0].model, "16.5B on 256");
    assert_true(t.row[0].measured == 135);
    // of choices that the table does not name the best one counts, wherever it stands
    foreign_sheet sheet;
    foreign_sheet_start(&sheet);
    foreign_machines machines = {.sheet = &sheet};
    for (int turn = 0; turn < 2; turn++) {
        foreign_case *run = t.row[0].run, first = run[0];
        double predicted, step, least = INFINITY, most = 0;
        for (int i = 0; i < n; i++) {
            OK(foreign_step(&step, &run[i], &machines));
            least = fmin(least, step), most = fmax(most, step);
        }
        OK(table_predict(&predicted, &t.row[0], &machines));
        close_to("the best choice", predicted, t.row[0].work / least);
        assert_true(most > 1.1 * least);
        run[0] = run[n - 1], run[n - 1] = first;
    }
    foreign_machines_free(&machines);
    tables_free(&t);

    read_rows(&t, dir, TABLE_2104_TWO, "scheme,billions,model_parallel,global_batch,gpus,micro_batch,tflops_gpu,days",
              "zero3,174.6,1,1536,768,2,88,74\nptdp,174.6,96,1536,768,1,149,43\nptdp,529.6,280,2240,560,1,171,156\n");
    x = selene(12288, 96, 96, 1, 1, 768), x.micro = 2, x.micros = 1, x.shards = x.one_by_one = true, x.gradient = 2;
    is_run(&t.row[0].run[0].run, x);
    x = selene(12288, 96, 96, 8, 12, 8), x.micro = 1, x.micros = 192;
    is_run(&t.row[1].run[0].run, x);
    x = selene(20480, 128, 105, 8, 35, 2), x.micro = 1, x.micros = 1120;
    is_run(&t.row[2].run[0].run, x);
    assert_true(t.row[0].runs == 1 && t.row[1].runs == 1 && t.row[2].runs == 1 && t.row[1].measured == 149);
    close_to("work", t.row[2].work, 1e-12 * flops(2240, 2048, 105, 20480, 51200) / 560);
    tables_free(&t);

    read_rows(&t, dir, TABLE_2205,
              "model,hidden,heads,layers,gpus,tensor,pipeline,chunks,global_batch,micro_batch,recompute,s",
              "22B,6144,64,48,8,8,1,1,4,4,selective,1.1\n175B,12288,96,96,64,8,8,3,64,1,full,18.13\n");
    x = selene(6144, 64, 48, 8, 1, 1), x.micro = 4, x.micros = 1, x.again = AGAIN_ATTENTION, x.rows = true;
    is_run(&t.row[0].run[0].run, x);
    x = selene(12288, 96, 96, 8, 8, 1), x.micro = 1, x.micros = 64, x.chunks = 3, x.schedule = PIPELINE_INTERLEAVED;
    is_run(&t.row[1].run[0].run, x);
    assert_true(t.row[0].scale == 1 && t.row[1].measured == 18.13);
    tables_free(&t);
    drop_dir(dir);
}

static void rows_of_others(void **state) {
    (void)state;
    char *dir = make_dir();
    tables t;
    read_rows(
        &t, dir, TABLE_TORCHTITAN,
        "model,device,gpus,fsdp,tensor,pipeline,context,sequence,local_batch,recompute,precision,compile,async_tp,"
        "schedule,tokens_per_s_gpu,gib",
        "70B,h100,256,32,8,1,1,8192,16,full,fp8-rowwise,1,1,,624.8,\n8B,h200,32,16,1,1,2,4096,2,selective,fp8,1,0,,"
        "7000,48\n405B,h100,64,2,8,4,1,8192,16,,bf16,1,0,Interleaved1F1B,600,\n");
    foreign_run x = selene(8192, 64, 80, 8, 1, 32);
    x.llama = x.rows = x.shards = true, x.keys = 8, x.inner = 28672, x.vocabulary = 128256, x.card = 50e9;
    x.device = FOREIGN_H100, x.type = FOREIGN_FP8_ROWS, x.sequence = 8192, x.micro = 16, x.micros = 1, x.beside = true;
    is_run(&t.row[0].run[0].run, x);
    close_to("work", t.row[0].work, 8192.0 * 16 * 32 / 256);
    x.hidden = 4096, x.heads = 32, x.layers = 32, x.inner = 14336, x.tensor = 1, x.data = 16, x.context = 2;
    x.device = FOREIGN_H200, x.type = FOREIGN_FP8, x.sequence = 4096, x.micro = 2, x.beside = false;
    x.again = AGAIN_HALF;
    is_run(&t.row[1].run[0].run, x);
    close_to("work", t.row[1].work, 4096.0 * 2 * 16 / 32);
    x.hidden = 16384, x.heads = 128, x.layers = 126, x.inner = 53248, x.tensor = 8, x.data = 2, x.context = 1;
    x.pipeline = 4, x.device = FOREIGN_H100, x.type = FOREIGN_FP16, x.sequence = 8192, x.again = AGAIN_NONE;
    x.micro = 1, x.micros = 16, x.shards = false, x.schedule = PIPELINE_INTERLEAVED, x.chunks = 2;
    is_run(&t.row[2].run[0].run, x);
    close_to("work", t.row[2].work, 8192.0 * 16 * 2 / 64);
    assert_true(t.row[0].measured == 624.8 && t.row[0].device == FOREIGN_H100 && t.row[1].device == FOREIGN_H200);
    assert_string_equal(t.row[0].model, "70B h100 on 256, 8192");
    tables_free(&t);

    // what each GPU of a ring sends, in microseconds
    read_rows(&t, dir, TABLE_ALL_REDUCE, "device,gpus,bytes,us", "a100,4,1048576,45\nv100,8,4194304,90\n");
    foreign_sheet sheet;
    foreign_sheet_start(&sheet);
    foreign_machines m = {.sheet = &sheet};
    double us;
    for (int i = 0; i < 2; i++) {
        const table_row *r = &t.row[i];
        costs c;
        assert_true(r->gpus == (i ? 8 : 4) && r->bytes == (i ? 4194304 : 1048576) && r->runs == 0);
        OK(table_predict(&us, r, &m));
        OK(foreign_costs(&c, &sheet, i ? FOREIGN_V100 : FOREIGN_A100, FOREIGN_FP16, 25e9));
        double sent = 2 * r->bytes * (r->gpus - 1) / r->gpus;
        close_to("us", us, 1e6 * costs_of_call(&c, CALL_ALL_REDUCE, COSTS_NODE, r->gpus, sent).s);
        costs_free(&c);
    }
    foreign_machines_free(&m), tables_free(&t);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(curves_are_their_formula),
                                       cmocka_unit_test(machines_have_fitted_figures),
                                       cmocka_unit_test(machines_are_kept),
                                       cmocka_unit_test(arithmetic_of_layers),
                                       cmocka_unit_test(operations_of_layers),
                                       cmocka_unit_test(bytes_of_layers),
                                       cmocka_unit_test(tensor_ranks_talk),
                                       cmocka_unit_test(stages_talk),
                                       cmocka_unit_test(gradients_are_summed),
                                       cmocka_unit_test(rows_of_megatron),
                                       cmocka_unit_test(rows_of_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
