// test/test_published.c: predictions of other trainers' published steps (test/bench/foreign.h): lists against closed
// forms, prices of collectives against what a ring sends, what is wrong in a table by its line, and a fit that finds
// the constants which rows were made with.
#include "test/bench/foreign_fit.h"
#include "test/support/run.h"

#include <math.h>

static void close_to(double found, double wanted) {
    if (fabs(found - wanted) > 1e-9 * fabs(wanted)) fail_msg("%.12g, expected %.12g", found, wanted);
}

// --- lists -----------------------------------------------------------------------------------------------------------

static foreign_run run_of(int pipeline, int chunks, int64_t layers) {
    return (foreign_run){.hidden = 1024,
                         .heads = 8,
                         .keys = 8,
                         .inner = 4096,
                         .layers = layers,
                         .vocabulary = 1000,
                         .sequence = 512,
                         .tensor = 1,
                         .data = 1,
                         .context = 1,
                         .pipeline = pipeline,
                         .chunks = chunks,
                         .schedule = chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B,
                         .card = 10e9,
                         .micro = 1,
                         .gradient = 4};
}

static double seconds(const foreign_run *r, int64_t micros, foreign_price p) {
    foreign_lists x;
    double s;
    OK(foreign_open(&x, r, micros));
    OK(foreign_simulate(&s, &x, &p));
    foreign_close(&x);
    return s;
}

// Each stage waits (p - 1) times for a micro-batch of all its layers, or of one chunk's (arXiv 2104.04473, 2.2). Of a
// last stage that has more to do the others wait for it all the time.
static void bubbles_are_the_closed_form(void **state) {
    (void)state;
    foreign_run plain = run_of(4, 1, 8), cut = run_of(4, 2, 8);
    foreign_price p = {.forward = 1, .backward = 3};
    close_to(seconds(&plain, 8, p), (8 + 3) * 2 * (1 + 3));
    close_to(seconds(&cut, 8, p), 8 * 2 * (1 + 3) + 3 * (1 + 3));
    p.head = 0.5;
    close_to(seconds(&plain, 8, p), 3 * 2 * (1 + 3) + 8 * (2 * (1 + 3) + 0.5));
    // messages delay a micro-batch on its way there and on its way back
    p = (foreign_price){.forward = 1, .backward = 3, .message = 0.25};
    close_to(seconds(&plain, 1, p), (1 + 3) * 2 * (1 + 3) + 2 * 3 * 0.25);
    // more on the first stage hides in its last 3 waits; gradients, then the update, follow the pipeline
    p = (foreign_price){.forward = 1, .backward = 3, .embed = 0.5, .reduce = 7, .update = 11};
    close_to(seconds(&plain, 8, p), (8 + 3) * 2 * (1 + 3) + (8 - 3) * 0.5 + 7 + 11);
}

static void many_micro_batches_follow_from_few(void **state) {
    (void)state;
    foreign_sheet sheet;
    foreign_sheet_start(&sheet);
    for (int chunks = 1; chunks <= 2; chunks++) {
        foreign_run r = run_of(4, chunks, 8);
        foreign_case few;
        foreign_machines m = {.sheet = &sheet};
        foreign_lists all;
        foreign_price p;
        costs c;
        double found, wanted;
        r.micros = chunks > 1 ? 60 : 61;
        OK(foreign_case_open(&few, &r));
        assert_true(few.left > 0);
        OK(foreign_step(&found, &few, &m));
        OK(foreign_costs(&c, &sheet, r.device, r.type, r.card));
        foreign_price_of(&p, &r, &c, &sheet);
        OK(foreign_open(&all, &r, r.micros));
        OK(foreign_simulate(&wanted, &all, &p));
        close_to(found, wanted);
        foreign_close(&all), costs_free(&c), foreign_case_close(&few), foreign_machines_free(&m);
    }
}

// Weights come before each layer, forward and again backward. Where they take longer than computing, nothing else
// counts; where they take less, only those count that nothing is computed beside.
static void gathers_hide_behind_computing(void **state) {
    (void)state;
    foreign_run r = run_of(1, 1, 6);
    r.shards = true;
    foreign_price slow = {.forward = 1, .backward = 2, .gather = 10, .scatter = 5},
                  fast = {.forward = 10, .backward = 20, .gather = 3, .scatter = 2, .update = 1};
    close_to(seconds(&r, 1, slow), 2 * 6 * 10 + 6 * 5 + 1);  // backward asks for weights after the last forward
    close_to(seconds(&r, 1, fast), 6 * (10 + 20) + 2 * 3 + 2 + 1);
}

// --- prices ----------------------------------------------------------------------------------------------------------

static foreign_price price(const foreign_run *r, const foreign_sheet *sheet) {
    foreign_price p;
    costs c;
    OK(foreign_costs(&c, sheet, r->device, r->type, r->card));
    foreign_price_of(&p, r, &c, sheet);
    costs_free(&c);
    return p;
}

// A ring of 32 GPUs on 4 nodes leaves each of them through 8 cards; where 8 ranks share layers, rings have a card each.
static void rings_share_the_cards(void **state) {
    (void)state;
    foreign_sheet sheet;
    costs c;
    foreign_sheet_start(&sheet);
    foreign_run r = run_of(1, 1, 4);
    OK(foreign_costs(&c, &sheet, r.device, r.type, r.card));
    double late = c.link[COSTS_RACK].s, rate = r.card * sheet.at[CONSTANT_a100_card];
    costs_free(&c);
    double held = 4 * 12.0 * 1024 * 1024 + 1000 * 1024;
    r.data = 32;
    close_to(price(&r, &sheet).reduce, late + 2 * 31 / 32.0 * 4 * held / 8 / rate);
    r.tensor = 8, r.data = 4;
    close_to(price(&r, &sheet).reduce, late + 2 * 3 / 4.0 * 4 * held / 8 / rate);
    r.tensor = 1, r.data = 32, r.shards = true;
    double each = 12.0 * 1024 * 1024;
    close_to(price(&r, &sheet).gather, late + 31 / 32.0 * 2 * each / 8 / rate);
    close_to(price(&r, &sheet).scatter, late + 31 / 32.0 * 4 * each / 8 / rate);
}

// What fills a node is a stage's own: from 8 GPUs on, stages send each other through cards.
static void stages_meet_where_they_are(void **state) {
    (void)state;
    static const struct {
        int data, context;
        costs_level level;
    } of[] = {{4, 1, COSTS_NODE}, {7, 1, COSTS_NODE}, {8, 1, COSTS_RACK}, {2, 4, COSTS_RACK}, {16, 1, COSTS_RACK}};
    foreign_sheet sheet;
    costs c;
    foreign_sheet_start(&sheet);
    foreign_run r = run_of(2, 1, 4);
    OK(foreign_costs(&c, &sheet, r.device, r.type, r.card));
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        r.data = of[i].data, r.context = of[i].context;
        double bytes = 2 * 1024 * 512 / (double)r.context;
        close_to(price(&r, &sheet).message, costs_of_call(&c, CALL_MESSAGE, of[i].level, 2, bytes).s);
    }
    costs_free(&c);
}

// Twice the samples, about twice the time; all again, one more forward; what is divided by two, less than before and
// more than half.
static void layers_cost_what_they_do(void **state) {
    (void)state;
    foreign_sheet sheet;
    foreign_sheet_start(&sheet);
    foreign_run r = run_of(1, 1, 4), again, attention, half, rows;
    r.hidden = 4096, r.inner = 4 * r.hidden, r.sequence = 2048;
    again = attention = half = r;
    again.again = AGAIN_ALL, attention.again = AGAIN_ATTENTION, half.tensor = 2;
    foreign_price p = price(&r, &sheet), q = price(&again, &sheet), s = price(&attention, &sheet),
                  t = price(&half, &sheet);
    close_to(q.backward, p.backward + p.forward);
    assert_true(s.backward > p.backward && s.backward < q.backward);
    assert_true(p.backward > 1.5 * p.forward && p.backward < 2.5 * p.forward);
    assert_true(t.forward < 1.5 * p.forward && t.forward > p.forward / 2);
    // gathers and scatters send what all-reduces do, and norms are divided
    rows = half, rows.rows = true;
    assert_true(price(&rows, &sheet).forward < t.forward);
    r.sequence *= 2;
    assert_true(price(&r, &sheet).forward > 1.5 * p.forward);
}

// Of vTrain's runs alone, where some GPUs of a node share a layer, and not all do.
static void layers_wait_for_others_of_their_node(void **state) {
    (void)state;
    foreign_sheet sheet;
    foreign_sheet_start(&sheet);
    sheet.at[CONSTANT_vtrain_others] = 0.4;
    for (int tensor = 1; tensor <= 16; tensor *= 2) {
        foreign_run plain = run_of(1, 1, 8), r;
        plain.tensor = tensor, r = plain, r.deepspeed = true;
        double times = tensor == 1 || tensor >= 8 ? 1 : 1 + 0.4 * (8 - tensor) / 8;
        close_to(price(&r, &sheet).forward, times * price(&plain, &sheet).forward);
        close_to(price(&r, &sheet).backward, times * price(&plain, &sheet).backward);
    }
}

// --- tables ----------------------------------------------------------------------------------------------------------

#define VTRAIN "billions,gpus,global_batch,micro_batch,hidden,heads,layers,sequence,tensor,data,pipeline,ms\n"
#define CALLS_HEAD "device,gpus,bytes,us\n"

static void a_table_is_read(void **state) {
    (void)state;
    char *dir = make_dir(), path[1024];
    tables t = {0};
    snprintf(path, sizeof path, "%s/dev-vtrain-multi.csv", dir);
    write_text(dir, "dev-vtrain-multi.csv", "# a remark\n" VTRAIN "1,64,512,2,3072,32,30,2048,2,8,4,4034.5\n\n");
    assert_int_equal(table_kind_of(path), TABLE_VTRAIN);
    assert_int_equal(table_kind_of("vtrain-multi.csv"), TABLE_VTRAIN);
    assert_int_equal(table_kind_of("kept/megatron-2104-table2.csv"), TABLE_2104_TWO);
    assert_int_equal(table_kind_of("sim-vtrain-single.csv"), TABLES);
    assert_int_equal(table_kind_of("notvtrain-multi.csv"), TABLES);
    OK(table_read(&t, path, TABLE_VTRAIN));
    assert_int_equal(t.rows, 1);
    assert_int_equal(t.row[0].runs, 1);
    const foreign_run *r = &t.row[0].run[0].run;
    assert_int_equal(r->micros, 32), assert_int_equal(r->pipeline, 4), assert_int_equal(r->tensor, 2);
    assert_int_equal(r->hidden, 3072), assert_int_equal(r->again, AGAIN_ALL);
    close_to(t.row[0].measured, 4034.5);
    // in ms
    foreign_sheet sheet;
    double ms, s;
    foreign_sheet_start(&sheet);
    foreign_machines m = {.sheet = &sheet};
    OK(table_predict(&ms, &t.row[0], &m));
    OK(foreign_step(&s, &t.row[0].run[0], &m));
    close_to(ms, 1e3 * s);
    foreign_machines_free(&m);
    tables_free(&t);
    drop_dir(dir);
}

static void what_is_wrong_in_a_table_is_said(void **state) {
    (void)state;
    static const struct {
        table_kind kind;
        const char *text, *says;
    } bad[] = {
        {TABLE_VTRAIN, "", ":0: ends here: expected the head `billions,gpus"},
        {TABLE_VTRAIN, "# remark\nbillions,gpus\n", ":2: `billions,gpus`: expected the head"},
        {TABLE_VTRAIN, VTRAIN "1,64,512\n", ":2: 3 fields: expected 12"},
        {TABLE_VTRAIN, VTRAIN "1,64,512,2,3072,32,30,2048,2,8,4,4034,7\n", ":2: 13 fields: expected 12"},
        {TABLE_VTRAIN, VTRAIN "1,64,512,2,3072,32,30,2048,2,8,4,fast\n", ":2: ms `fast`: expected a number above 0"},
        {TABLE_VTRAIN, VTRAIN "1,64,512,2,3072,32,30,2048,2,8,4,-1\n", ":2: ms `-1`: expected a number above 0"},
        {TABLE_VTRAIN, VTRAIN "1,64,512,2,3072,32,30.5,2048,2,8,4,1\n", ":2: layers `30.5`: expected a whole number"},
        {TABLE_VTRAIN, VTRAIN "1,60,512,2,3072,32,30,2048,2,8,4,1\n", ":2: gpus `60`: expected tensor x data x pipe"},
        {TABLE_VTRAIN, VTRAIN "1,64,500,2,3072,32,30,2048,2,8,4,1\n", ":2: global_batch `500`: expected a multiple"},
        {TABLE_VTRAIN, VTRAIN "1,62,512,2,3072,32,30,2048,2,1,31,1\n", "31 stages, and the model has only 30"},
        {TABLE_ALL_REDUCE, CALLS_HEAD "a100,2,1048576,45\nb200,2,1048576,45\n", ":3: device `b200`: expected a100 or"},
        {TABLE_VTRAIN, VTRAIN "1,64,512,2,3072,32,30,2048,65536,8,4,1\n",
         ": tensor `65536`: expected a whole number, 16384"},
        {TABLE_ALL_REDUCE, CALLS_HEAD "a100,9,1048576,45\n", ":2: gpus `9`: expected 2 to 8"},
    };
    char *dir = make_dir(), path[1024];
    snprintf(path, sizeof path, "%s/t.csv", dir);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tables t = {0};
        write_text(dir, "t.csv", bad[i].text);
        err_t rc = table_read(&t, path, bad[i].kind);
        if (rc == ERR_OK || !strstr(err_last()->text, bad[i].says))
            fail_msg("%s: %d, `%s`; expected `%s`", bad[i].text, rc, err_last()->text, bad[i].says);
        tables_free(&t);
    }
    tables t = {0};
    assert_int_equal(table_read(&t, "/nowhere/t.csv", TABLE_VTRAIN), ERR_IO);
    drop_dir(dir);
}

static void a_sheet_is_whole(void **state) {
    (void)state;
    char *dir = make_dir(), path[1024], *text, name[64];
    size_t n;
    foreign_sheet s, again;
    assert_true(CONSTANT_COUNT < 25);
    foreign_sheet_start(&s);
    s.at[CONSTANT_a100_lost] = 77;
    snprintf(path, sizeof path, "%s/s", dir);
    OK(foreign_sheet_write(&s, path));
    OK(foreign_sheet_read(&again, path));
    for (int i = 0; i < CONSTANT_COUNT; i++) close_to(again.at[i], s.at[i]);
    OK(io_read_file(path, 1 << 20, &text, &n));
    char *last = strstr(text, "h100_link");
    last[0] = 'x';
    OK(io_write_file(path, text, n, NULL));
    assert_int_equal(foreign_sheet_read(&again, path), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "expected `h100_link` and a number above 0"));
    OK(io_write_file(path, text, (size_t)(last - text), NULL));
    assert_int_equal(foreign_sheet_read(&again, path), ERR_DATA);
    snprintf(name, sizeof name, "expected %d constants", CONSTANT_COUNT);
    assert_non_null(strstr(err_last()->text, name));
    free(text);
    drop_dir(dir);
}

// --- the fit ---------------------------------------------------------------------------------------------------------

// Rows of constants that are not those a fit starts with; those that are left out are wrong, and must not matter.
static void a_fit_finds_the_constants(void **state) {
    (void)state;
    enum { ROWS = 40, LEFT = 4 };
    table_row row[ROWS];
    bool left_out[ROWS] = {false};
    foreign_sheet made, found;
    foreign_machines m = {.sheet = &made};
    tables t = {.row = row, .rows = ROWS};
    foreign_sheet_start(&made), foreign_sheet_start(&found);
    made.at[CONSTANT_v100_two] = 31, made.at[CONSTANT_v100_eight] = 90, made.at[CONSTANT_v100_rank] = 12;
    for (int i = 0; i < ROWS; i++) {
        row[i] = (table_row){.kind = TABLE_ALL_REDUCE,
                             .device = FOREIGN_V100,
                             .gpus = i % 2 ? 2 : 8,
                             .bytes = 1e5 * (i + 1) * (i + 1),
                             .scale = 1e6};
        OK(table_predict(&row[i].measured, &row[i], &m));
        if (i < LEFT) row[i].measured *= 9, left_out[i] = true;
    }
    foreign_machines_free(&m);
    OK(fit_sheet(&found, &t, left_out));
    assert_true(fabs(found.at[CONSTANT_v100_two] / 31 - 1) < 0.01);
    assert_true(fabs(found.at[CONSTANT_v100_eight] / 90 - 1) < 0.01);
    assert_true(fabs(found.at[CONSTANT_v100_rank] / 12 - 1) < 0.03);
    assert_true(found.at[CONSTANT_v100_five] == made.at[CONSTANT_v100_five]);
    // each row's prediction is by constants that did not see it: one that is wrong is not fitted
    double predicted[ROWS];
    for (int i = 0; i < LEFT; i++) row[i].measured /= 9;
    row[0].measured *= 9;
    OK(fit_folds(&t, predicted));
    assert_true(predicted[0] < row[0].measured / 8);
    for (int i = 1; i < ROWS; i++) assert_true(fabs(predicted[i] / row[i].measured - 1) < 0.02);
}

// Of a constant that one row alone has, the folds that have the row learn nothing for the one that does not: that one
// begins where each begins.
static void folds_learn_nothing_from_each_other(void **state) {
    (void)state;
    enum { ROWS = 2 * FOLDS };
    foreign_sheet start, made;
    foreign_sheet_start(&start), foreign_sheet_start(&made);
    made.at[CONSTANT_v100_five] *= 2;
    for (int five = 0; five < ROWS; five++) {
        table_row row[ROWS];
        tables t = {.row = row, .rows = ROWS};
        double predicted[ROWS], by_start;
        foreign_machines m = {.sheet = &made}, first = {.sheet = &start};
        for (int i = 0; i < ROWS; i++) {
            row[i] = (table_row){.kind = TABLE_ALL_REDUCE,
                                 .device = FOREIGN_V100,
                                 .gpus = i == five ? 5
                                         : i % 2   ? 2
                                                   : 8,
                                 .bytes = 1e8 * (i + 1) * (i + 1),
                                 .scale = 1e6};
            OK(table_predict(&row[i].measured, &row[i], &m));
        }
        OK(table_predict(&by_start, &row[five], &first));
        OK(fit_folds(&t, predicted));
        close_to(predicted[five], by_start);
        assert_true(by_start > 1.5 * row[five].measured);
        foreign_machines_free(&m), foreign_machines_free(&first);
    }
}

// A row of each table; of Megatron's second one also a row with ZeRO-3; of vTrain's one whose gradients go through one
// card, and one whose layers go over two nodes.
static void read_all_kinds(const char *dir, tables *t) {
    static const struct {
        table_kind kind;
        const char *text;
    } file[] = {
        {TABLE_VTRAIN, VTRAIN "1,64,512,2,3072,32,30,2048,2,8,4,1000\n1,64,512,2,3072,32,30,2048,1,32,2,1000\n"
                              "1,64,512,2,3072,32,30,2048,16,4,1,1000\n"},
        {TABLE_2104_ONE, "billions,heads,hidden,layers,tensor,pipeline,gpus,global_batch,tflops_gpu,pflops\n"
                         "76.1,80,10240,60,8,4,1024,1792,140,143.8\n"},
        {TABLE_2104_TWO, "scheme,billions,model_parallel,global_batch,gpus,micro_batch,tflops_gpu,days\n"
                         "zero3,174.6,1,1536,768,2,88,74\nptdp,174.6,96,1536,768,1,149,43\n"},
        {TABLE_2205, "model,hidden,heads,layers,gpus,tensor,pipeline,chunks,global_batch,micro_batch,recompute,s\n"
                     "22B,6144,64,48,8,8,1,1,4,4,selective,1.1\n"},
        {TABLE_TORCHTITAN,
         "model,device,gpus,fsdp,tensor,pipeline,context,sequence,local_batch,recompute,precision,compile,async_tp,"
         "schedule,tokens_per_s_gpu,gib\n70B,h100,256,32,8,1,1,8192,16,full,fp8-rowwise,1,1,,624.8,\n"
         "8B,h200,32,32,1,1,1,8192,2,,bf16,1,0,,7000,48\n70B,h100,64,2,8,4,1,8192,16,full,bf16,1,0,1F1B,600,\n"},
        {TABLE_ALL_REDUCE, CALLS_HEAD "a100,4,1048576,45\nv100,2,1048576,90\nv100,8,1048576,90\n"},
    };
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/t.csv", dir);
        write_text(dir, "t.csv", file[i].text);
        OK(table_read(t, path, file[i].kind));
    }
}

// Where a constant is said not to matter the prediction stays as it was; and each matters somewhere.
static void a_fit_knows_which_rows_to_predict_again(void **state) {
    (void)state;
    enum { MOST = 32 };
    char *dir = make_dir();
    tables t = {0};
    foreign_sheet was, now;
    double before[MOST], after[MOST];
    read_all_kinds(dir, &t);
    assert_true(t.rows < MOST);
    foreign_sheet_start(&was);
    OK(fit_predict(before, &t, &was, NULL));
    for (int k = 0; k < CONSTANT_COUNT; k++) {
        int moved = 0;
        now = was;
        now.at[k] *= 1.5;
        OK(fit_predict(after, &t, &now, NULL));
        for (int i = 0; i < t.rows; i++) {
            assert_true(before[i] > 0 && isfinite(before[i]));
            moved += after[i] != before[i];
            if (after[i] != before[i] && !fit_matters(k, &t.row[i]))
                fail_msg("%s changes a row of %s", constant_name(k), table_name[t.row[i].kind]);
        }
        if (!moved && k != CONSTANT_v100_four && k != CONSTANT_v100_five)
            fail_msg("%s changes nothing", constant_name(k));
    }
    tables_free(&t);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bubbles_are_the_closed_form),
        cmocka_unit_test(many_micro_batches_follow_from_few),
        cmocka_unit_test(gathers_hide_behind_computing),
        cmocka_unit_test(rings_share_the_cards),
        cmocka_unit_test(stages_meet_where_they_are),
        cmocka_unit_test(layers_cost_what_they_do),
        cmocka_unit_test(layers_wait_for_others_of_their_node),
        cmocka_unit_test(a_table_is_read),
        cmocka_unit_test(what_is_wrong_in_a_table_is_said),
        cmocka_unit_test(a_sheet_is_whole),
        cmocka_unit_test(a_fit_finds_the_constants),
        cmocka_unit_test(folds_learn_nothing_from_each_other),
        cmocka_unit_test(a_fit_knows_which_rows_to_predict_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
