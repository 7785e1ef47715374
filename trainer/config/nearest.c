// trainer/config/nearest.c: suggestions for misspelled names: the nearest ones of those in the table and of the names
// of the same keys in other trainers.
#include "base/edits.h"
#include "trainer/config/table.h"

#include <string.h>
#include <strings.h>

enum { LISTED = 512 };

static int least(int a, int b) { return a < b ? a : b; }

static int distance_to_row(const char *found, const setting *k) {
    char word[CONFIG_WORD];
    int best = edits_between(found, k->key);
    for (int i = 0; config_word(k->also, i, word); i++) best = least(best, edits_between(found, word));
    return best;
}

// The nearest row, of this section or (NULL) of any.
static int nearest_row(const config *c, const char *found, const char *section, int *edits) {
    int best = -1;
    *edits = CONFIG_WORD + 1;
    for (int i = config_next(c, -1); i >= 0; i = config_next(c, i)) {
        if (section && strcmp(config_key(i)->section, section) != 0) continue;
        int d = distance_to_row(found, config_key(i));
        if (d >= *edits) continue;
        best = i;
        *edits = d;
    }
    return best;
}

static void add_word(char dst[LISTED], const char *fmt, const char *word) {
    size_t n = strlen(dst);
    snprintf(dst + n, LISTED - n, fmt, n ? " " : "", word);
}

static int nearest_word(const char *found, const char *words, int best, char dst[CONFIG_WORD]) {
    char word[CONFIG_WORD];
    for (int i = 0; config_word(words, i, word); i++) {
        int d = edits_between(found, word);
        if (d >= best) continue;
        best = d;
        memcpy(dst, word, CONFIG_WORD);
    }
    return best;
}

// --- what others have and we have not --------------------------------------------------------------------------------

// Names of others for what is not here, or not under a name of its own: a near word would mislead.
static const struct {
    const char *section;  // whose values these are, "section.key"; NULL: names of keys, wherever they stand
    const char *names;
    bool there;  // it can be had
    const char *instead;
} absent[] = {
    {"batch.bn_span", "micro", true, "It is 1."},
    {"batch.bn_span", "global all yes true", true, "It is 0, all lanes of a step."},
    {"optimizer.type", "lion adafactor adagrad rmsprop lamb larc sophia shampoo soap adam8bit adamw8bit", false,
     "There are adamw, sgd, lars and muon."},
    {"optimizer.type", "adam", true, "It is adamw with weight_decay = 0."},
    {"optimizer.type", "momentum nesterov", true, "It is sgd with [optimizer] momentum = 0.9, and nesterov = yes."},
    {"schedule.type",
     "polynomial exponential inverse_sqrt step multistep onecycle cosine_with_restarts reduce_on_plateau plateau",
     false, "There are cosine, linear, constant and wsd."},
    {"schedule.type", "cosine_with_min_lr", true, "It is cosine, with [schedule] final_fraction."},
    {"schedule.type", "warmup_stable_decay trapezoidal", true, "It is wsd."},
    {"schedule.type", "constant_with_warmup", true, "It is constant, with [schedule] warmup."},
    {"model.type", "roberta vit mamba rwkv mixtral gemma2 phi phi3 deepseek falcon bloom opt gptj gpt_neox moe", false,
     "There are these:"},
    {"precision.compute", "fp8 fp4 int8 mxfp8 nvfp4 tf32 fp64 float64", false, "There are fp32, bf16 and fp16."},
    {"precision.compute", "float32 full", true, "It is fp32."},
    {"precision.compute", "bfloat16", true, "It is bf16."},
    {"precision.compute", "float16 half", true, "It is fp16."},
    {"precision.products",
     "bf16_pairs bf16pairs pairs bf16 bfloat16 autocast amp vdpbf16ps avx512_bf16 avx512bf16 medium", true,
     "It is bf16-pairs."},
    {"precision.products", "float32 full none off highest", true, "It is fp32."},
    {"precision.products", "tf32 fp16 fp8 int8 bf16-tiles amx bfdot bfmmla high", false,
     "There are fp32 and bf16-pairs."},
    {"device.backend", "gpu", true, "It is cuda."},
    {"device.backend", "rocm hip mps metal xpu tpu npu vulkan", false, "There are cpu and cuda."},
    {"reduce.compress", "powersgd onebit 1bit 2bit signsgd terngrad qsgd", false,
     "There are fp16, int8, int4 and topk."},
    {"reduce.compress", "top-k dgc", true, "It is topk."},
    {"reduce.compress", "8bit q8 fp8", true, "It is int8."},
    {"reduce.compress", "4bit q4 fp4 nf4", true, "It is int4."},
    {"reduce.compress", "float16 half bf16", true, "It is fp16."},
    {"reduce.transport", "mpi gloo ucx rccl", false, "There are nccl between GPUs, and tcp and fabric between CPUs."},
    {"reduce.transport", "libfabric ofi verbs rdma ib infiniband roce efa", true,
     "It is fabric; fabric_provider says which network."},
    {"outer.type", "diloco", true, "It is nesterov."},
    {"outer.type", "local_sgd localsgd local-sgd mean fedavg", true, "It is average."},
    {"outer.type", "adam adamw slowmo eager gossip", false, "There are average and nesterov."},
    {"outer.compress", "8bit q8 fp8", true, "It is int8."},
    {"outer.compress", "float16 half bf16", true, "It is fp16."},
    {"outer.compress", "4bit q4 fp4 nf4", true, "It is int4."},
    {"outer.compress", "topk 2bit", false, "There are fp16, int8 and int4."},
    {"server.mode", "synchronous bsp", true, "It is sync."},
    {"server.mode", "asynchronous asp hogwild downpour", true, "It is async."},
    {"server.mode", "ssp stale", true, "It is bounded."},
    {"server.mode", "backup", true, "It is hybrid."},
    {"parallel.schedule", "dualpipe zb-h2 zbh2", false, "There are gpipe, 1f1b, interleaved, zb-h1 and zb-v."},
    {NULL, "label_smoothing label_smoothing_factor", false,
     "The loss is the cross entropy of the labels as they are; of type = resnet, smoothing smooths them."},
    {NULL, "use_ema ema_weights model_ema", true,
     "Set [optimizer] ema, such as 0.999; lockstep export --ema writes that mean."},
    {NULL, "lora use_lora peft adapter", true, "Set [lora] rank, alpha and targets."},
    {NULL, "load_in_4bit", false, "[lora] weights = int8 keeps the weights beside adapters in 8 bits."},
    {NULL, "freeze frozen freeze_layers trainable", true,
     "[optimizer] groups = h.0.*: frozen trains all weights but those; with [lora] rank the adapters alone are trained."},
    {NULL, "fsdp fully_sharded sharding_strategy deepspeed zero_optimization", true,
     "[parallel] zero = 1, 2 or 3 keeps shares of state, gradients and weights."},
    {NULL, "moe experts num_experts num_local_experts top_k_experts expert_parallel ep", false,
     "All layers are dense."},
    {NULL, "train_on_inputs train_on_prompt mask_prompt", true,
     "Pack with [pack] template, and set [data] answers = yes: then only answers count in the loss."},
    {NULL, "wandb wandb_project use_wandb mlflow report_to", false,
     "[log] tensorboard = yes, jsonl and report are there."},
    {NULL, "diloco local_sgd localsgd hivemind", true, "Set [outer] islands, every and type."},
    {NULL,
     "gradient_accumulation_steps gradient_accumulation grad_accum grad_accum_steps accumulate_grad_batches accumulation",
     true, "It is [batch] global / (lanes * micro): for so many steps set global to that many times lanes * micro."},
    {NULL, "fp16 bf16 half amp mixed_precision", true, "Set [precision] compute = bf16 or fp16."},
    {NULL, "bf16_pairs bf16-pairs pairs autocast amp_products matmul_dtype compute_products", true,
     "Set [precision] products = bf16-pairs (on a CPU), or compute = bf16, or both."},
    {NULL, "flash_attention use_flash_attn flash attn_implementation compile torch_compile", true,
     "It is always so, where the device can."},
    {NULL, "lr_mult layerwise_lr_decay llrd", true,
     "Set [optimizer] groups, such as h.0.*: lr=0.5; biases and norms do not decay."},
    {NULL, "z_loss logit_softcap final_logit_softcapping attn_logit_softcapping", false,
     "The loss is the plain cross entropy of the logits."},
};

// Whether a name is in the list of an entry, whatever its case.
static bool is_named(const char *names, const char *found) {
    char word[CONFIG_WORD];
    for (int i = 0; config_word(names, i, word); i++)
        if (strcasecmp(word, found) == 0) return true;
    return false;
}

// What to say of the name of a key (where NULL), or of a value of "section.key". NULL: nothing is known of it.
static const char *find_absent(const char *where, const char *found, bool *there) {
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        if (where ? !absent[i].section || strcmp(where, absent[i].section) != 0 : absent[i].section != NULL) continue;
        if (is_named(absent[i].names, found)) return *there = absent[i].there, absent[i].instead;
    }
    return NULL;
}

const model_alias *config_family(const char *name, int *type) {
    for (*type = 0; *type < MODEL_TYPES; ++*type)
        for (const model_alias *a = model_types[*type]->alias; a && a->name; a++)
            if (strcmp(a->name, name) == 0) return a;
    return NULL;
}

// The values of a key, and of [model] type the families: into dst, and the one that is nearest to `found`.
static void list_values(const setting *k, const char *found, char dst[LISTED], char nearest[CONFIG_WORD]) {
    int best = nearest_word(found, k->words, CONFIG_WORD + 1, nearest);
    bool type = strcmp(k->section, "model") == 0 && strcmp(k->key, "type") == 0;
    snprintf(dst, LISTED, "values: %s%s", k->words + (*k->words == ' '), type ? "; families:" : "");
    for (int t = 0; type && t < MODEL_TYPES; t++)
        for (const model_alias *a = model_types[t]->alias; a && a->name; a++) {
            best = nearest_word(found, a->name, best, nearest);
            add_word(dst, "%s%s", a->name);
        }
}

err_t config_no_value(const setting *k, const char *text) {
    char where[2 * CONFIG_WORD], show[INI_SHOW], all[LISTED], nearest[CONFIG_WORD] = "";
    bool there = true;
    snprintf(where, sizeof where, "%s.%s", k->section, k->key);
    ini_show(show, text, strlen(text));
    list_values(k, text, all, nearest);
    const char *instead = find_absent(where, text, &there);
    if (!there) return err_set(ERR_CONFIG, "`%s` is not supported. %s (%s)", show, instead, all);
    if (instead) return err_set(ERR_CONFIG, "no such value `%s`. %s (%s)", show, instead, all);
    return err_set(ERR_CONFIG, "no such value `%s`. Did you mean `%s`? (%s)", show, nearest, all);
}

// --- names -----------------------------------------------------------------------------------------------------------

err_t config_no_section(const char *place, const ini_entry *e) {
    char all[LISTED] = "";
    const char *nearest = "";
    int best = CONFIG_WORD + 1;
    for (int i = 0; i < config_keys(); i++) {
        const char *section = config_key(i)->section;
        if (i > 0 && strcmp(section, config_key(i - 1)->section) == 0) continue;
        add_word(all, "%s%s", section);
        int d = edits_between(e->section, section);
        if (d < best) best = d, nearest = section;
    }
    return err_set(ERR_CONFIG, "%s: [%s]: no such section. Did you mean [%s]? (sections: %s)", place, e->section,
                   nearest, all);
}

// The sections that have a key of exactly this name.
static void sections_with(const config *c, const char *key, char dst[LISTED]) {
    dst[0] = 0;
    for (int i = config_next(c, -1); i >= 0; i = config_next(c, i))
        if (strcmp(config_key(i)->key, key) == 0) add_word(dst, "%s[%s]", config_key(i)->section);
}

err_t config_no_key(const config *c, const char *place, const ini_entry *e) {
    char hint[LISTED], elsewhere[LISTED], all[LISTED] = "", show[INI_SHOW];
    bool there;
    const char *instead = find_absent(NULL, e->key, &there);
    int edits_here, edits_any;
    ini_show(show, e->value, strlen(e->value));
    if (instead)
        return err_set(ERR_CONFIG, "%s: [%s] %s: %s. %s (its value here: `%s`)", place, e->section, e->key,
                       there ? "no such key" : "not supported", instead, show);
    int here = nearest_row(c, e->key, e->section, &edits_here), any = nearest_row(c, e->key, NULL, &edits_any);
    sections_with(c, e->key, elsewhere);
    if (elsewhere[0] && edits_here > 0) snprintf(hint, sizeof hint, "`%s` is a key of %s.", e->key, elsewhere);
    else if (edits_near(e->key, edits_here)) snprintf(hint, sizeof hint, "Did you mean `%s`?", config_key(here)->key);
    else if (edits_near(e->key, edits_any))
        snprintf(hint, sizeof hint, "Did you mean `%s` of [%s]?", config_key(any)->key, config_key(any)->section);
    else snprintf(hint, sizeof hint, "The nearest is `%s`.", config_key(here)->key);
    for (int i = config_next(c, -1); i >= 0; i = config_next(c, i))
        if (strcmp(config_key(i)->section, e->section) == 0) add_word(all, "%s%s", config_key(i)->key);
    return err_set(ERR_CONFIG, "%s: [%s] %s: no such key. %s (keys: %s; its value here: `%s`)", place, e->section,
                   e->key, hint, all, show);
}
