// test/test_foreign_members.c: each member of a config.json of T5 or BERT: what it stands for where it is not there or
// null, another value, and one of another type, which is refused by its name. And models that are of another kind.
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_of_encoders_are_read),
        cmocka_unit_test(other_encoders_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
