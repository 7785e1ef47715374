// model/peft.c: see model/peft.h.
#include "model/peft.h"

#include <jansson.h>
#include <stdio.h>

void peft_name(char *dst, size_t room, const model *m, const weight_part *part) {
    snprintf(dst, room, PEFT_PREFIX "%s%s", part->prefixed ? m->type->prefix : "", part->name);
}

// What would change the sum that a pair of matrices adds, or adds more than these: absent, null, false or empty where
// adapters are plain.
static const char *const forms[] = {"use_dora",
                                    "use_rslora",
                                    "rank_pattern",
                                    "alpha_pattern",
                                    "use_qalora",
                                    "modules_to_save",
                                    "trainable_token_indices",
                                    "megatron_config",
                                    "lora_bias",
                                    "target_parameters"};

static bool is_plain(const json_t *x) {
    return !x || json_is_null(x) || json_is_false(x) || (json_is_object(x) && json_object_size(x) == 0) ||
           (json_is_array(x) && json_array_size(x) == 0);
}

static err_t check_form(const json_t *config, const char *path) {
    const char *type = json_string_value(json_object_get(config, "peft_type")),
               *bias = json_string_value(json_object_get(config, "bias"));
    if (!type || strcmp(type, "LORA") != 0)
        return err_set(ERR_DATA, "%s/adapter_config.json: peft_type %.40s: expected LORA", path,
                       type ? type : "is missing");
    if (bias && strcmp(bias, "none") != 0)
        return err_set(ERR_DATA, "%s/adapter_config.json: bias %.40s: expected none, as biases are frozen here", path,
                       bias);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!is_plain(json_object_get(config, forms[i])))
            return err_set(ERR_DATA, "%s/adapter_config.json: has %s, which adapters here have not", path, forms[i]);
    return ERR_OK;
}

err_t peft_agrees(const json_t *config, const char *path, const model_adapters *is) {
    const json_t *r = json_object_get(config, "r"), *alpha = json_object_get(config, "lora_alpha");
    TRY(check_form(config, path));
    if (!json_is_integer(r) || !json_is_number(alpha))
        return err_set(ERR_DATA, "%s/adapter_config.json: expected numbers r and lora_alpha", path);
    if (json_integer_value(r) != is->rank || json_number_value(alpha) != is->alpha)
        return err_set(ERR_CONFIG,
                       "%s holds adapters of [lora] rank = %lld, alpha = %g, and the settings say %lld and %g", path,
                       (long long)json_integer_value(r), json_number_value(alpha), (long long)is->rank, is->alpha);
    return ERR_OK;
}
