// test/test_foreign_members.c: each member of a config.json of T5 or BERT: what it stands for where it is not there or
// null, another value, and one of another type, which is refused by its name; what is written of such models; models
// of another kind, and settings that do not go together.
#include "model/bert/bert.h"
#include "model/t5/t5.h"
#include "model/types.h"
#include "test/support/settings_of.h"

#define T5 "{\"model_type\": \"t5\""
#define BERT "{\"model_type\": \"bert\""
#define SORTS BERT ", \"architectures\": [\"BertForSequenceClassification\"]"

static const char WHOLE[] = "expected a whole number from 0 to 2147483647", NUMBER[] = "expected a number",
                  YES_NO[] = "expected true or false", STRING[] = "expected a string";

// A member that is not there, or null, is what the library takes it for; another value is taken; one of another type is
// refused by its name.
static const struct {
    const char *rest, *member, *without, *value, *with, *expected;
} members[] = {
    {T5, "num_layers", "layers=6 decoder_layers=6", "3", "layers=3 decoder_layers=3", WHOLE},
    {T5 ", \"num_layers\": 3", "num_decoder_layers", "layers=3 decoder_layers=3", "2", "layers=3 decoder_layers=2",
     WHOLE},
    {T5, "num_heads", "heads=8", "3", "heads=3", WHOLE},
    {T5, "d_kv", "head_dim=64", "32", "head_dim=32", WHOLE},
    {T5, "d_model", "embed=512", "96", "embed=96", WHOLE},
    {T5, "d_ff", "hidden=2048", "99", "hidden=99", WHOLE},
    {T5, "vocab_size", "vocab=32128 sentinel_token=32099", "32100", "vocab=32100 sentinel_token=32099", WHOLE},
    {T5, "vocab_size", "vocab=32128", "32099", "vocab=32099 sentinel_token=32098", WHOLE},
    {T5, "relative_attention_num_buckets", "buckets=32", "16", "buckets=16", WHOLE},
    {T5, "relative_attention_max_distance", "max_distance=128", "64", "max_distance=64", WHOLE},
    {T5, "layer_norm_epsilon", "norm_eps=1e-06", "1e-5", "norm_eps=1e-05", NUMBER},
    {T5, "decoder_start_token_id", "begin_token=0", "7", "begin_token=7", WHOLE},
    {T5, "pad_token_id", "begin_token=0", "5", "begin_token=5", WHOLE},
    {T5 ", \"pad_token_id\": 5", "decoder_start_token_id", "begin_token=5", "7", "begin_token=7", WHOLE},
    {T5 ", \"decoder_start_token_id\": 7", "pad_token_id", "begin_token=7", "5", "begin_token=7", WHOLE},
    {T5, "eos_token_id", "end_token=1", "2", "end_token=2", WHOLE},
    {T5, "tie_word_embeddings", "tied=yes", "false", "tied=no", YES_NO},
    {T5, "scale_decoder_outputs", "tied=yes", "false", "tied=no", YES_NO},
    {T5 ", \"tie_word_embeddings\": true", "scale_decoder_outputs", "tied=yes", "false", "tied=no", YES_NO},
    {T5 ", \"tie_word_embeddings\": false", "scale_decoder_outputs", "tied=no", "true", "tied=yes", YES_NO},
    {T5, "feed_forward_proj", "activation=relu", "\"gated-gelu\"", "activation=geglu", STRING},
    {BERT, "num_hidden_layers", "layers=12", "3", "layers=3", WHOLE},
    {BERT, "num_attention_heads", "heads=12", "3", "heads=3", WHOLE},
    {BERT, "hidden_size", "embed=768", "96", "embed=96", WHOLE},
    {BERT, "intermediate_size", "hidden=3072", "99", "hidden=99", WHOLE},
    {BERT, "vocab_size", "vocab=30522 mask_token=103 begin_token=101 end_token=102", "104",
     "vocab=104 mask_token=103 begin_token=101 end_token=102", WHOLE},
    {BERT, "vocab_size", "vocab=30522", "103", "vocab=103 mask_token=102 begin_token=100 end_token=101", WHOLE},
    {BERT, "max_position_embeddings", "context=512", "64", "context=64", WHOLE},
    {BERT, "type_vocab_size", "types=2", "1", "types=1", WHOLE},
    {BERT, "layer_norm_eps", "norm_eps=1e-12", "1e-5", "norm_eps=1e-05", NUMBER},
    {BERT, "hidden_act", "task=mlm", "\"gelu\"", "task=mlm", STRING},
    {BERT, "position_embedding_type", "task=mlm", "\"absolute\"", "task=mlm", STRING},
    {BERT, "is_decoder", "task=mlm", "false", "task=mlm", YES_NO},
    {BERT, "add_cross_attention", "task=mlm", "false", "task=mlm", YES_NO},
    {BERT, "tie_word_embeddings", "task=mlm", "true", "task=mlm", YES_NO},
    {BERT, "architectures", "task=mlm next_sentence=no", "[\"BertForPreTraining\"]", "task=mlm next_sentence=yes",
     NULL},
    {BERT, "architectures", "task=mlm", "[\"BertForMaskedLM\"]", "task=mlm next_sentence=no", NULL},
    {BERT, "architectures", "task=mlm", "[\"BertForSequenceClassification\"]", "task=classify classes=2", NULL},
    {SORTS, "num_labels", "task=classify classes=2", "5", "task=classify classes=5", WHOLE},
    {SORTS, "num_labels", "task=classify classes=2", "1", "task=regress", WHOLE},
    {SORTS, "id2label", "task=classify classes=2", "{\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}", "classes=3", NULL},
    {SORTS, "id2label", "task=classify classes=2", "{\"0\": \"a\"}", "task=regress", NULL},
    {SORTS ", \"id2label\": {\"0\": \"a\"}", "num_labels", "task=regress", "4", "task=classify classes=4", WHOLE},
    {SORTS, "problem_type", "task=classify", "\"single_label_classification\"", "task=classify", STRING},
    {SORTS ", \"num_labels\": 1", "problem_type", "task=regress", "\"regression\"", "task=regress", STRING},
    {SORTS, "tie_word_embeddings", "task=classify", "false", "task=classify", NULL},
};

static void members_of_encoders_are_read(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        char text[512], says[256];
        const char *rest = members[i].rest, *member = members[i].member, *expected = members[i].expected;
        snprintf(text, sizeof text, "%s}", rest);
        expect_settings(text, members[i].without);
        snprintf(text, sizeof text, "%s, \"%s\": null}", rest, member);
        expect_settings(text, members[i].without);
        snprintf(text, sizeof text, "%s, \"%s\": %s}", rest, member, members[i].value);
        expect_settings(text, members[i].with);
        if (!expected) continue;
        static const char *const wrong[] = {"[]", "\"1\"", "true", "0.5", "7"};
        for (int k = 0; k < 5; k++) {
            if ((expected == STRING && k == 1) || (expected == YES_NO && k == 2)) continue;
            if ((expected == NUMBER && k >= 3) || (expected == WHOLE && k == 4)) continue;
            snprintf(text, sizeof text, "%s, \"%s\": %s}", rest, member, wrong[k]);
            snprintf(says, sizeof says, "theirs/config.json: %s: %s", member, expected);
            expect_refused(text, says);
        }
    }
}

// What these models are not, and what would be computed otherwise.
static void other_encoders_are_refused(void **state) {
    (void)state;
    static const char *const all[][2] = {
        {T5 ", \"feed_forward_proj\": \"gated-silu\"}", "feed_forward_proj: expected gated-gelu or relu"},
        {T5 ", \"feed_forward_proj\": \"gelu\"}", "feed_forward_proj: expected gated-gelu or relu"},
        {BERT ", \"hidden_act\": \"gelu_new\"}", "hidden_act: expected gelu, its form with erf"},
        {BERT ", \"hidden_act\": \"relu\"}", "hidden_act: expected gelu"},
        {BERT ", \"position_embedding_type\": \"relative_key\"}", "position_embedding_type: expected absolute"},
        {BERT ", \"is_decoder\": true}", "is_decoder: expected false"},
        {BERT ", \"add_cross_attention\": true}", "add_cross_attention: expected false"},
        {BERT ", \"tie_word_embeddings\": false}", "tie_word_embeddings: expected true"},
        {SORTS ", \"problem_type\": \"regression\"}", "problem_type: expected single_label_classification"},
        {SORTS ", \"problem_type\": \"multi_label_classification\"}", "expected single_label_classification"},
        {SORTS ", \"num_labels\": 1, \"problem_type\": \"single_label_classification\"}",
         "problem_type: expected regression, as there is one label"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect_refused(all[i][0], all[i][1]);
}

// --- what is written -------------------------------------------------------------------------------------------------

// want: "member=JSON member=JSON", with a space between.
static void expect_members(json_t *config, const char *want) {
    char copy[1024], *rest;
    snprintf(copy, sizeof copy, "%s", want);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value++ = 0;
        const json_t *x = json_object_get(config, word);
        char *found = x ? json_dumps(x, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
        if (!found || strcmp(found, value) != 0)
            fail_msg("%s is %s, expected %s", word, found ? found : "not there", value);
        free(found);
    }
    json_decref(config);
}

// Every value is another one, and none is what the library takes a missing one for.
static void members_of_encoders_are_written(void **state) {
    (void)state;
    t5_options t5 = {.layers = 3,
                     .decoder_layers = 4,
                     .heads = 5,
                     .head_dim = 7,
                     .embed = 11,
                     .hidden = 13,
                     .vocab = 99,
                     .context = 17,
                     .says = 19,
                     .buckets = 24,
                     .max_distance = 21,
                     .norm_eps = 0.5,
                     .dropout = 0.25,
                     .begin_token = 6,
                     .end_token = 9};
    json_t *config = json_object();
    assert_int_equal(t5_to_foreign(&t5, config), ERR_OK);
    expect_members(
        config, "model_type=\"t5\" architectures=[\"T5ForConditionalGeneration\"] is_encoder_decoder=true num_layers=3 "
                "num_decoder_layers=4 num_heads=5 d_kv=7 d_model=11 d_ff=13 vocab_size=99 n_positions=17 "
                "relative_attention_num_buckets=24 relative_attention_max_distance=21 layer_norm_epsilon=0.5 "
                "dropout_rate=0.25 feed_forward_proj=\"gated-gelu\" tie_word_embeddings=false "
                "scale_decoder_outputs=false pad_token_id=0 eos_token_id=9 decoder_start_token_id=6");
    t5.activation = T5_RELU, t5.tied = true;
    assert_int_equal(t5_to_foreign(&t5, config = json_object()), ERR_OK);
    expect_members(config, "feed_forward_proj=\"relu\" tie_word_embeddings=true scale_decoder_outputs=true");
    bert_options bert = {.layers = 3,
                         .heads = 5,
                         .embed = 10,
                         .hidden = 13,
                         .vocab = 99,
                         .context = 17,
                         .types = 4,
                         .classes = 3,
                         .norm_eps = 0.5,
                         .dropout = 0.25};
    static const char same[] = "model_type=\"bert\" num_hidden_layers=3 num_attention_heads=5 hidden_size=10 "
                               "intermediate_size=13 vocab_size=99 max_position_embeddings=17 type_vocab_size=4 "
                               "layer_norm_eps=0.5 hidden_act=\"gelu\" position_embedding_type=\"absolute\" "
                               "hidden_dropout_prob=0.25 attention_probs_dropout_prob=0.25 tie_word_embeddings=true";
    static const struct {
        bert_task task;
        bool pairs;
        const char *with;
    } rows[] = {{BERT_MLM, false, "architectures=[\"BertForMaskedLM\"]"},
                {BERT_MLM, true, "architectures=[\"BertForPreTraining\"]"},
                {BERT_CLASSIFY, false,
                 "architectures=[\"BertForSequenceClassification\"] "
                 "id2label={\"0\":\"LABEL_0\",\"1\":\"LABEL_1\",\"2\":\"LABEL_2\"} "
                 "label2id={\"LABEL_0\":0,\"LABEL_1\":1,\"LABEL_2\":2}"},
                {BERT_REGRESS, false,
                 "architectures=[\"BertForSequenceClassification\"] id2label={\"0\":\"LABEL_0\"} "
                 "label2id={\"LABEL_0\":0} problem_type=\"regression\""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bert.task = rows[i].task, bert.next_sentence = rows[i].pairs;
        assert_int_equal(bert_to_foreign(&bert, config = json_object()), ERR_OK);
        expect_members(json_incref(config), same);
        expect_members(config, rows[i].with);
    }
}

// --- settings that do not go together --------------------------------------------------------------------------------

static void expect_rule(const model_type *type, void *options, const char *says) {
    model_rule r = {.micro = 2};
    err_t rc = type->resolve(options, &r);
    if (rc != (says ? ERR_CONFIG : ERR_OK) || (says && !strstr(err_last()->text, says)))
        fail_msg("%s: %s, expected %s", type->name, rc ? err_last()->text : "taken", says ? says : "it taken");
}

static void masks_have_places_and_tokens(void **state) {
    (void)state;
    static const struct {
        double masked;
        bool pairs;
        int64_t mask, begin, end;
        const char *says;
    } rows[] = {
        {0.8, false, 4, 5, 6, NULL},
        {0.9, false, 4, 5, 6, "masked = 0.9 of context = 10 positions are 9, and there are 8 between a sample's ends"},
        {0.7, true, 4, 5, 6, NULL},
        {0.8, true, 4, 5, 6, "masked = 0.8 of context = 10 positions are 8, and there are 7 between a sample's ends"},
        {0.01, false, 36, 0, 1, NULL},
        {0.1, false, 37, 5, 6, "mask_token = 37 is no token: vocab = 37 has tokens 0 to 36"},
        {0.1, false, 4, 37, 6, "begin_token = 37 is no token"},
        {0.1, false, 4, 5, 37, "end_token = 37 is no token"},
        {0.1, false, 4, 4, 6, "mask_token and begin_token are the same token, 4"},
        {0.1, false, 4, 5, 4, "mask_token and end_token are the same token, 4"},
        {0.1, false, 4, 5, 5, "begin_token and end_token are the same token, 5"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bert_options o = {.layers = 2,
                          .heads = 2,
                          .embed = 8,
                          .hidden = 8,
                          .vocab = 37,
                          .context = 10,
                          .types = 2,
                          .classes = 2,
                          .norm_eps = 1e-12,
                          .head_chunks = 1};
        o.masked = rows[i].masked, o.next_sentence = rows[i].pairs;
        o.mask_token = rows[i].mask, o.begin_token = rows[i].begin, o.end_token = rows[i].end;
        expect_rule(&model_bert, &o, rows[i].says);
        o.task = BERT_CLASSIFY, o.next_sentence = false, o.masked = 0.1;  // which has no masks
        expect_rule(&model_bert, &o, NULL);
    }
}

static void spans_have_tokens(void **state) {
    (void)state;
    t5_options usual = {.layers = 2,
                        .decoder_layers = 3,
                        .heads = 2,
                        .head_dim = 4,
                        .embed = 8,
                        .hidden = 8,
                        .vocab = 37,
                        .context = 32,
                        .buckets = 8,
                        .max_distance = 5,
                        .noise = 0.5,
                        .span = 2,
                        .sentinel_token = 36,
                        .begin_token = 0,
                        .end_token = 1,
                        .norm_eps = 1e-6,
                        .head_chunks = 1},
               o = usual;
    model_rule r = {.micro = 2};
    assert_int_equal(model_t5.resolve(&o, &r), ERR_OK);
    assert_int_equal(r.blocks, 2 + 3 + 3);  // the embedding, the encoder's norm and the head
    int64_t spans = t5_spans_for(32, 0.5, 2).spans;
    assert_true(spans > 4);
    o = usual, o.max_distance = 4, expect_rule(&model_t5, &o, "max_distance = 4 leaves nothing to divide");
    o = usual, o.sentinel_token = spans - 1, expect_rule(&model_t5, &o, NULL);
    o = usual, o.sentinel_token = spans - 2, expect_rule(&model_t5, &o, "from sentinel_token = ");
    o = usual, o.sentinel_token = 37, expect_rule(&model_t5, &o, "sentinel_token = 37 is no token");
    o = usual, o.begin_token = 37, expect_rule(&model_t5, &o, "begin_token = 37 is no token: vocab = 37");
    o = usual, o.end_token = 37, expect_rule(&model_t5, &o, "end_token = 37 is no token");
    o = usual, o.task = T5_TEXT, o.sentinel_token = 37, expect_rule(&model_t5, &o, NULL);  // which has no spans
    o = usual, o.task = T5_TEXT, o.end_token = 37, expect_rule(&model_t5, &o, "end_token = 37 is no token");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_of_encoders_are_read),
        cmocka_unit_test(other_encoders_are_refused),
        cmocka_unit_test(members_of_encoders_are_written),
        cmocka_unit_test(masks_have_places_and_tokens),
        cmocka_unit_test(spans_have_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
