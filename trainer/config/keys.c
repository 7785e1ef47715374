// trainer/config/keys.c: the one table of keys.
//
// A key's row says everything about it. A new key is a field in trainer/config/config.h and a row here, or, if it is an
// architecture's, a field of its options and a row beside them; this is enough
// for it to be parsed, checked, printed, written to config.ini, compared on resume and suggested when it is misspelled.
//
// Which class a key has:
//   bits    what the weights of a step depend on: the model's shape, the seed and the order of the data, the batch and
//           its lanes, precision, optimizer and schedule. Not run.steps: a run may be extended; the part of run.steps
//           that the schedule uses is kept in decay_steps, which is resolved first.
//           The default of a bits key that is added later is the behaviour of all builds before it, so that their
//           checkpoints can be continued.
//   layout  what all ranks must do alike because they do it together (evaluating, sampling, checkpointing and hashing
//           are collective), but what may differ between runs. Also init_from: only a run's first step uses it.
//   local   what one node does for itself: its device, its paths (the data's hash is compared instead), its log, how
//           many checkpoints it keeps, and faults, which are meant to hit one of many.
#include "trainer/config/table.h"

#include <assert.h>
#include <string.h>

// clang-format off
#define AT(section, key) #section, #key
#define IN(section, key) offsetof(config, section.key)
#define INT(s, k, class, def, min, max, also, comment) {AT(s, k), KEY_INT, class, IN(s, k), def, min, max, NULL, also, comment, FORK_UNSAID}
#define REAL(s, k, class, def, min, max, also, comment) {AT(s, k), KEY_REAL, class, IN(s, k), def, min, max, NULL, also, comment, FORK_UNSAID}
#define BOOL(s, k, class, def, also, comment) {AT(s, k), KEY_BOOL, class, IN(s, k), def, 0, 1, "no yes", also, comment, FORK_UNSAID}
#define TEXT(s, k, class, def, least, also, comment) {AT(s, k), KEY_TEXT, class, IN(s, k), def, least, 0, NULL, also, comment, FORK_UNSAID}
#define WORD(s, k, class, def, words, also, comment) {AT(s, k), KEY_WORD, class, IN(s, k), def, 0, 0, words, also, comment, FORK_UNSAID}
#define BITS CLASS_BITS
#define LAYOUT CLASS_LAYOUT
#define LOCAL CLASS_LOCAL
#define MANY 1e12              // more steps, tokens or bytes than anyone has
#define EXACT 9007199254740991.0  // 2^53 - 1

// A word's index is read and written as an int, and is the value of its enum.
_Static_assert(sizeof(device_kind) == sizeof(int), "enums are as large as int");
_Static_assert(FP32 == 0 && BF16 == 1 && FP16 == 2, "[precision] compute");

static const setting first_keys[] = {
    {AT(run, name), KEY_NAME, LAYOUT, IN(run, name), "default", 1, 0, NULL, "run_name id", "the run's files are in DIR/NAME", FORK_UNSAID},
    TEXT(run, dir, LOCAL, "runs", 1, "out_dir output_dir", "directory of all runs"),
    INT(run, seed, BITS, "1337", 0, EXACT, "random_seed",
         "start of everything random: initial weights, order of the data, dropout, samples"),
    INT(run, steps, LAYOUT, "600", 1, MANY, "max_iters max_steps iterations num_iterations",
         "train until this step; may be raised later"),
    REAL(run, epochs, LAYOUT, "0", 0, 1e9, "num_epochs num_train_epochs max_epochs",
         "in place of steps: so many times as many samples as [data] train has, rounded up to whole steps; 0 = steps says"),
    INT(run, bad_steps, LAYOUT, "50", 0, MANY, "max_skipped max_bad_steps",
         "stop a run that has diverged: after so many steps in a row whose loss or gradient is not finite; 0 = never"),
    WORD(run, resume, LAYOUT, "auto", RESUME_WORDS(WORD_TEXT) + 1, "",
         "`never` refuses a checkpoint, `must` to start without; `other-bits` takes one of other bits"),
    TEXT(run, faults, LOCAL, "", 0, "",
         "rehearse failures: write@3 (point@first[xcount][:rank]; read write sync rename flip slow unit lie nan drag twice)"),

    WORD(device, backend, LOCAL, "auto", DEVICE_WORDS(WORD_TEXT) + 1, "device kind", "where to compute; auto takes a GPU if there is one"),
    INT(device, ranks, LOCAL, "0", 0, 1024, "nproc_per_node world_size gpus",
         "processes on this node; 0 = one for each GPU, or one, or what [cluster] nodes says; does not change the result"),
    INT(device, threads, LOCAL, "0", 0, 1024, "num_threads cores",
         "of each rank; 0 = a fair share of the cores that this process may use; does not change the result"),
    WORD(device, simd, LOCAL, "auto", WIDTH_WORDS(WORD_TEXT) + 1, "vector",
         "the CPU's vector width; does not change the result"),
    BOOL(device, graph, LOCAL, "yes", "cuda_graph", "on a GPU: record a micro-batch, or a stage's part of it, and queue it as one; does not change the result"),
    BOOL(device, check, LOCAL, "no", "launch_blocking", "on a GPU: wait after every kernel, so that a failure names the very one; slow"),
    TEXT(device, plans, BITS, "", 0, "", "on a GPU: file of matmul plans that lockstep tune has measured; empty = the library's first choice"),
    BOOL(device, match, LAYOUT, "yes", "", "refuse to go on from a checkpoint of another kind of device or library, on which the bits differ"),

    WORD(model, type, BITS, MODEL_DEFAULT, MODEL_WORDS + 1, "arch architecture", "the architecture; or a family of one, such as qwen3, which implies some keys"),
};

// Here come the keys of the architectures.

static const setting more_keys[] = {
    TEXT(model, init_from, LAYOUT, "", 0, "pretrained",
         "start from weights: a run, a checkpoint, a safetensors file, a directory of Hugging Face, a .bin of llm.c; empty = random"),
    BOOL(model, init_missing, LAYOUT, "no", "ignore_mismatched_sizes", "parameters that init_from lacks, such as those of a new classifier, start as in a new model"),
    BOOL(model, init_resize, LAYOUT, "no", "", "take as many rows of the embeddings of init_from as there are; rows that it lacks start as random ones"),
    REAL(model, demand_mb, LAYOUT, "0", 0, 1e9, "spill_mb cache_mb", "demand: megabytes of rows in a rank's memory, the others are in a file in offload_dir; 0 = all rows are in memory"),

    INT(lora, rank, BITS, "0", 0, 4096, "lora_r lora_rank",
        "train adapters of this rank beside frozen weights, those of init_from; 0 = train all weights"),
    REAL(lora, alpha, BITS, "16", 1e-6, 1e6, "lora_alpha", "what an adapter adds is multiplied by alpha / rank"),
    REAL(lora, dropout, BITS, "0", 0, 0.99, "lora_dropout", "probability that an element of what an adapter reads is dropped, in training"),
    WORD(lora, weights, BITS, "compute", LORA_WORDS(WORD_TEXT) + 1, "qlora load_in_8bit quantization", "what the weights beside adapters are kept in: the compute type, or 8 bits with a scale for 64 inputs"),
    TEXT(lora, targets, BITS, "", 0, "target_modules lora_target",
         "ends of the names of what gets adapters, as in files of Hugging Face, such as: q_proj v_proj"),
    TEXT(lora, init_from, LAYOUT, "", 0, "adapter_name_or_path adapters",
         "start from adapters that PEFT or lockstep export wrote: their directory; empty = as new ones"),

    TEXT(data, train, LOCAL, "datasets/text-train-*.bin", 1, "train_data",
         "training data: files or globs, space between; NAME@WEIGHT for each mixes them by weight"),
    TEXT(data, val, LOCAL, "datasets/text-val-*.bin", 0, "validation valid eval_data",
         "validation data; empty = no evaluation"),
    WORD(data, format, LOCAL, "auto", SOURCE_FORMATS(WORD_TEXT) + 1, "",
         "format of the files; auto: by first bytes, or an index beside it"),
    INT(data, prefetch, LOCAL, "8", 2, 1024, "num_workers", "micro-batches that are read ahead of need at most"),
    INT(data, workers, LOCAL, "0", 0, 64, "loader_workers",
         "threads that fill a micro-batch with images; 0 = as many as compute, at most 8, or 4 beside a GPU; does not change the result"),
    INT(data, crop, BITS, "0", 0, 65500, "crop_size image_size", "images: a sample is a square of so many pixels; 0 = the whole image, where all are of one size"),
    REAL(data, area, BITS, "1", 0.001, 1, "scale random_resized_crop", "images: training takes a box of a random share of each, from this to 1, and resizes it; 1 = the box in the middle"),
    INT(data, shift, BITS, "0", 0, 65500, "translate random_crop padding", "images: training moves the box in the middle by up to so many pixels; outside of the image all is 0"),
    WORD(data, flip, BITS, "no", FLIP_WORDS(WORD_TEXT) + 1, "hflip horizontal_flip", "images: training sees some mirrored; alternating: one half of them in an epoch, the other in the next"),
    INT(data, retry, LOCAL, "5", 0, 100, "retries", "how often a failed read is tried again"),
    BOOL(data, shuffle, BITS, "yes", "", "visit the samples of the data in a random order, another one each epoch"),
    INT(data, holdout, BITS, "0", 0, MANY, "", "samples at the end of the training data that are validation data instead; then val must be empty"),
    INT(data, ignore, BITS, "-1", -1, 16777215, "ignore_index pad_token_id pad_id", "a token whose loss does not count where it is the next one, such as padding; -1 = all count"),
    BOOL(data, answers, BITS, "no", "assistant_only_loss completion_only_loss answers_only", "only answers count in the loss, as `lockstep pack` marks them with [pack] template"),
    BOOL(data, documents, BITS, "no", "document_mask reset_attention_mask reset_position_ids sample_packing", "a sample is several documents: none sees another, each has positions from 0 on, and no target is of the next one"),
    INT(data, document_end, BITS, "-1", -1, 16777215, "eot eod eos_token_id end_of_text", "documents: the token that ends one; -1 = rows of `lockstep pack` say where they begin"),

    TEXT(pack, input, LOCAL, "stories:1", 1, "source",
         "what `lockstep pack` reads: files, directories or globs, space between; stories:SEED:BYTES is text that it makes up"),
    WORD(pack, images, LOCAL, "no", IMAGE_WORDS(WORD_TEXT) + 1, "image", "input is pictures: a folder for each class, tar archives, IDX or CIFAR files; no = text"),
    TEXT(pack, val_input, LOCAL, "", 0, "", "images, clicks: those for validation; empty = val_fraction of input"),
    TEXT(pack, output, LOCAL, "datasets/text", 1, "destination",
         "the shards' names begin with this: PREFIX-train-00000.bin, PREFIX-val-..."),
    TEXT(pack, tokenizer, LOCAL, "bytes", 1, "encoding", "bytes; a tokenizer.json or a folder with one; or train:SIZE or train:SIZE:KIND, made from the input"),
    TEXT(pack, text_key, LOCAL, "text", 1, "text_field", "the member of a JSONL line's object that is its text"),
    WORD(pack, template, LOCAL, "no", CHAT_WORDS(WORD_TEXT) + 1, "chat_template", "how conversations are written; labels, numbers: labelled texts; text: for T5"),
    BOOL(pack, documents, LOCAL, "no", "packing", "conversations: a row holds as many of them as fit, which [data] documents = yes tells apart"),
    INT(pack, shard_tokens, LOCAL, "100000000", 1, MANY, "shard_size", "most tokens in one shard"),
    REAL(pack, val_fraction, LOCAL, "0.1", 0, 0.9, "val_split", "share of the tokens, from the end, that is kept for validation; of images, drawn by chance"),
    INT(pack, shard_images, LOCAL, "10000", 1, MANY, "", "images: most in one shard"),
    INT(pack, size, LOCAL, "0", 0, 65500, "resize", "images: the shorter side is brought to so many pixels; 0 = as they are"),
    INT(pack, bad_most, LOCAL, "0", 0, MANY, "", "images: so many may be left out because they can't be read; with more nothing is packed"),
    WORD(pack, clicks, LOCAL, "no", CLICK_WORDS(WORD_TEXT) + 1, "click_logs", "input is clicks: Criteo's, MovieLens', made up; or MovieLens' ratings, as numbers"),
    INT(pack, threshold, LOCAL, "4", 1, 5, "min_rating", "clicks: a rating of MovieLens from this on is a click"),
    INT(pack, shard_records, LOCAL, "1000000", 1, MANY, "", "clicks: most in one shard"),
    BOOL(pack, compress, LOCAL, "no", "", "compress the shards with zlib"),

    INT(batch, global, BITS, "16", 1, 16777216, "batch_size total_batch_size",
         "samples in one step; lanes * micro * a whole number, the steps of gradient accumulation"),
    INT(batch, micro, BITS, "8", 1, 1048576, "micro_batch_size device_batch_size", "samples that are computed at once; gradient accumulation is global / (lanes * micro)"),
    INT(batch, lanes, BITS, "0", 0, 1024, "",
         "a power of two; the gradient is the sum of so many parts; 0 = largest up to 8 that fits"),
    INT(batch, bn_span, BITS, "1", 0, 1024, "sync_bn sync_batchnorm sync_batch_norm syncbn batch_norm_span",
         "a power of two; batch norms take moments over the micro-batches of so many lanes; 0 = over all of a step"),

    WORD(precision, compute, BITS, "fp32", "fp32 bf16 fp16", "dtype type",
         "storage of activations and of the weights in use; masters are fp32"),
    WORD(precision, products, BITS, "fp32", PRODUCTS_WORDS(WORD_TEXT) + 1, "matmul_precision float32_matmul_precision",
         "what is multiplied on a CPU: as stored, or rounded to BF16, in pairs, which some CPUs do faster"),
    WORD(precision, rounding, BITS, "nearest", ROUNDING_WORDS(WORD_TEXT) + 1, "stochastic_rounding",
         "of masters to 16-bit weights in use; stochastic: up or down by chance, the nearer the likelier"),
    {AT(precision, loss_scale), KEY_REAL, BITS, IN(precision, loss_scale), "dynamic", 1, 16777216, "dynamic", "grad_scale",
     "a number, or dynamic: as large as fp16 allows (1 for fp32 and bf16)", FORK_UNSAID},
    INT(precision, scale_window, BITS, "2000", 1, MANY, "growth_interval", "good steps after which a dynamic loss scale doubles"),

    WORD(optimizer, type, BITS, "adamw", OPTIMIZER_WORDS(WORD_TEXT) + 1, "name", "the update rule"),
    REAL(optimizer, lr, BITS, "0.001", 0, 1000, "learning_rate max_lr", "learning rate at the end of the warm-up"),
    REAL(optimizer, beta1, BITS, "0.9", 0, 0.999999, "", "adamw: decay of the mean of the gradient"),
    REAL(optimizer, beta2, BITS, "0.99", 0, 0.999999, "", "adamw: decay of the mean of the gradient's square"),
    REAL(optimizer, eps, BITS, "1e-08", 1e-30, 1, "epsilon", "adamw: added to the square root of that mean; lars: to the norms that it divides by"),
    REAL(optimizer, weight_decay, BITS, "0.1", 0, 100, "wd", "decay of the matrices; biases and norms do not decay"),
    REAL(optimizer, grad_clip, BITS, "1", 0, 1e30, "clip max_grad_norm", "largest norm of the gradient; 0 = off"),
    REAL(optimizer, skip_norm, BITS, "0", 0, 1e30, "skip_step skip_outliers",
         "skip a step whose gradient has more than so many times the mean norm of those before; 0 = only those that are not finite"),
    REAL(optimizer, rollback, BITS, "0", 0, 1e30, "spike_rollback rewind",
         "after 3 losses in a row above so many times the median go back, and leave those steps out; 0 = never"),
    REAL(optimizer, momentum, BITS, "0", 0, 0.999999, "", "sgd, lars: share of a step that the next one goes on with"),
    BOOL(optimizer, nesterov, BITS, "no", "", "sgd, lars: look ahead along the momentum"),
    REAL(optimizer, trust, BITS, "0.001", 1e-30, 1000, "trust_coefficient trust_coeff eeta",
         "lars: step of a matrix at lr = 1, measured by the norm of its weights"),
    REAL(optimizer, muon_momentum, BITS, "0.95", 0, 0.999999, "", "muon: share of a matrix's mean gradient that the next step goes on with"),
    REAL(optimizer, ema, BITS, "0", 0, 0.999999, "ema_decay model_ema_decay",
         "keep a mean of the weights in which each step counts so much less than the next, for export --ema; 0 = none"),
    TEXT(optimizer, groups, BITS, "", 0, "param_groups parameter_groups",
         "rules by name, the first that matches: wte.*: lr=0.1, h.0.*: frozen, *.mlp.*: decay=0 type=adamw; lr is a factor"),

    WORD(schedule, type, BITS, "cosine", SCHEDULE_WORDS(WORD_TEXT) + 1, "lr_scheduler",
         "course of the learning rate after the warm-up; wsd = warm-up, stable, decay"),
    INT(schedule, warmup, BITS, "0", -1, MANY, "warmup_steps warmup_iters",
        "steps in which the rate rises to lr; 0 = a tenth of decay_steps, at most 100; -1 = none"),
    INT(schedule, decay_steps, BITS, "0", 0, MANY, "lr_decay_iters", "step at which the decay ends; 0 = run.steps"),
    REAL(schedule, final_fraction, BITS, "0.1", 0, 1, "min_lr final_lr learning_rate_decay_frac",
         "learning rate at the end, as a fraction of lr"),

    INT(parallel, data, LAYOUT, "0", 0, 1024, "dp data_parallel",
         "ranks, or pipelines of ranks, that share the lanes of a step; 0 = as many as there are"),
    INT(parallel, tensor, LAYOUT, "1", 1, 1024, "tp tensor_parallel tensor_model_parallel_size mp",
         "ranks that share every layer, each with some of its slices: a power of two up to `slices`; does not change the result"),
    INT(parallel, context, LAYOUT, "1", 1, 1024, "cp context_parallel ulysses context_parallel_size",
        "ranks that share positions of samples (token slices), or samples of a span (bn_span); does not change the result"),
    BOOL(parallel, sequence, LAYOUT, "no", "sequence_parallel sp",
         "each of those ranks has rows of its own between a layer's matrices: less memory; does not change the result"),
    INT(parallel, pipeline, LAYOUT, "1", 1, 1024, "pp pipeline_parallel stages_count",
         "ranks that each run a part of the blocks, one after the other; does not change the result"),
    WORD(parallel, schedule, LAYOUT, "1f1b", PIPELINE_WORDS(WORD_TEXT) + 1, "pipeline_schedule",
         "order in which a pipeline runs micro-batches; does not change the result"),
    INT(parallel, chunks, LAYOUT, "1", 1, 64, "virtual_stages num_model_chunks", "interleaved: stages of each rank of a pipeline; zb-v has 2"),
    TEXT(parallel, deal, LAYOUT, "", 0, "lanes_per_rank", "lanes of each rank, or model of several ranks, such as 4,2,1,1; empty = as equal as they can be; does not change the result"),
    WORD(parallel, balance, LAYOUT, "none", BALANCE_WORDS(WORD_TEXT) + 1, "",
         "auto: lanes go to the ranks that are measured to be faster, while the run goes on; does not change the result"),
    TEXT(parallel, stages, LAYOUT, "", 0, "", "blocks of each stage of a pipeline, such as 5 4 3; empty = even work"),
    INT(parallel, zero, LAYOUT, "0", 0, 3, "zero_stage stage sharding",
         "what ranks keep a share of: 1 = masters, optimizer state, 2 = also the sum of gradients, 3 = also weights; changes no result"),
    INT(parallel, slices, BITS, "1", 1, 1024, "",
         "parts of each sum over heads, hidden channels and vocabulary, a power of two; tensor parallelism divides them"),
    INT(parallel, token_slices, BITS, "1", 1, 1024, "",
        "parts of each sum over positions, a power of two up to `slices`; context parallelism divides them"),
    WORD(parallel, recompute, LAYOUT, "none", RECOMPUTE_WORDS(WORD_TEXT) + 1, "checkpointing gradient_checkpointing activation_checkpointing remat",
         "recomputed in backward: norms and GELU, or a block from its input; does not change the result"),
    WORD(parallel, offload, LAYOUT, "none", OFFLOAD_WORDS(WORD_TEXT) + 1, "cpu_offload offload_optimizer",
         "where masters and optimizer state are kept and updated: host = in host memory, nvme = in files of offload_dir"),
    TEXT(parallel, offload_dir, LOCAL, "", 0, "nvme_path nvme_dir", "directory of a local disk for offload = nvme and demand_mb; empty = the run's"),

    WORD(reduce, order, BITS, "fixed", ORDER_WORDS(WORD_TEXT) + 1, "",
         "fixed: the same bits for every number of ranks; any: the transport's own sums"),
    WORD(reduce, compress, BITS, "none", SEND_WORDS(WORD_TEXT) + 1, "compression gradient_compression fp16_compression communication_data_type",
         "each lane's gradient is sent in so few bits; what rounding leaves out is sent with the next one"),
    WORD(reduce, compress_back, BITS, "none", CODEC_WORDS(WORD_TEXT) + 1, "",
         "the same for the sum of the lanes on its way back to all ranks, which ZeRO stage 0 sends"),
    INT(reduce, compress_span, BITS, "1", 1, 4096, "compress_group",
        "so many lanes, a power of two, run on one rank and are added before they are coded and sent as one"),
    REAL(reduce, density, BITS, "0.01", 0.0001, 1, "compress_ratio sparsity", "topk: the share of each lane's gradient that is sent in a step"),
    INT(reduce, density_warmup, BITS, "0", 0, MANY, "warmup_density rampup",
        "topk: so many steps send more, first a quarter, then a sixteenth, and so on until it is no more than density"),
    REAL(reduce, bucket_mb, LAYOUT, "25", 0.001, 65536, "bucket_cap_mb bucket_size", "megabytes of gradients, and at least a block's, that are sent together while backward goes on"),
    WORD(reduce, transport, LAYOUT, "auto", TRANSPORT_WORDS(WORD_TEXT) + 1, "backend", "auto: NCCL between GPUs, else shared memory and TCP; fabric: between CPU nodes, over libfabric"),
    TEXT(reduce, nccl_library, LOCAL, "", 0, "", "path of libnccl.so.2; empty = the usual places"),
    TEXT(reduce, nccl_interface, LOCAL, "", 0, "NCCL_SOCKET_IFNAME", "network interface that NCCL uses; empty = its own choice"),
    WORD(reduce, nccl_ib, LAYOUT, "auto", CHOICE_WORDS(WORD_TEXT) + 1, "NCCL_IB_DISABLE", "may NCCL use InfiniBand"),
    TEXT(reduce, nccl_algorithm, LAYOUT, "", 0, "NCCL_ALGO", "algorithms that NCCL may use, such as Ring; empty = its own choice"),
    TEXT(reduce, fabric_provider, LAYOUT, "", 0, "FI_PROVIDER", "provider of libfabric, such as verbs;ofi_rxm, efa or tcp; empty = its own choice"),
    TEXT(reduce, fabric_domain, LOCAL, "", 0, "FABRIC_IFACE", "device that libfabric uses, such as mlx5_0 or eth0; empty = that of the node's address, or its own choice"),

    INT(outer, islands, BITS, "1", 1, 1024, "replicas diloco_workers num_islands",
        "a power of two: groups of ranks that take steps of their own, each with its share of the lanes; 1 = all share every gradient"),
    INT(outer, every, BITS, "1", 1, MANY, "sync_every inner_steps local_steps sync_interval h",
        "islands mix their weights after so many steps; only then is anything saved, evaluated or hashed"),
    WORD(outer, type, BITS, "average", OUTER_WORDS(WORD_TEXT) + 1, "outer_optimizer",
         "what becomes of the islands' weights: their mean, or a step with Nesterov's momentum towards it (DiLoCo)"),
    REAL(outer, lr, BITS, "0.7", 0, 10, "outer_lr outer_learning_rate", "nesterov: learning rate of the step towards the mean"),
    REAL(outer, momentum, BITS, "0.9", 0, 0.9999, "outer_momentum", "nesterov: momentum of the step towards the mean"),
    WORD(outer, compress, BITS, "none", CODEC_WORDS(WORD_TEXT) + 1, "outer_compression quantize_outer",
         "codes in which islands send how far their weights have gone; what a code leaves out is sent the next time"),
    WORD(outer, moments, BITS, "mean", MOMENTS_WORDS(WORD_TEXT) + 1, "outer_moments",
         "what optimizers keep of each weight: its mean over the islands, or each island's own, of which nothing is sent"),
    TEXT(outer, fragments, BITS, "", 0, "streaming layered_sync sync_fragments num_fragments",
         "PATTERN:PERIOD+OFFSET of tensors' names, h.0.*:50+25: these mix at steps of their own, all others after `every`"),
    INT(outer, overlap, BITS, "0", 0, MANY, "delay fragment_sync_delay tau",
         "what islands send after a step is mixed in so many steps later, and travels beside them; 0 = at once"),
    REAL(outer, keep, BITS, "0.5", 0, 1, "fragment_update_alpha alpha",
         "overlap: the share of its own weights that an island keeps when those of all arrive"),

    INT(server, count, LAYOUT, "0", 0, 1023, "servers num_servers parameter_servers num_ps ps",
        "the last so many of the ranks that share the lanes have none: they keep the optimizer's state; does not change the result"),
    REAL(server, weight, LAYOUT, "0", 0, 1, "worker_weight",
         "what each of the others keeps of it beside a server: 0 = nothing, 1 = as much; does not change the result"),
    WORD(server, mode, BITS, "sync", SERVER_WORDS(WORD_TEXT) + 1, "consistency",
         "sync: a step waits for all lanes; bounded, async: it waits for none; hybrid: it waits for a while"),
    INT(server, staleness, BITS, "2", 0, 1000000, "max_staleness staleness_bound ssp",
        "bounded: a worker has all updates but those of so many steps before its own; 0 = as sync"),
    REAL(server, timeout, BITS, "1", 0, 86400, "late_after backup_timeout",
         "hybrid: seconds that a step waits for more gradients after its first one"),
    WORD(server, late, BITS, "drop", LATE_WORDS(WORD_TEXT) + 1, "late_policy",
         "hybrid: a gradient that comes too late is dropped, or counts half as much for each step that it is late"),
    INT(server, every, BITS, "10", 1, MANY, "sync_every cut_every",
        "bounded, async, hybrid: steps after which all ranks meet; only then is anything saved, evaluated or hashed"),
    BOOL(server, record, LOCAL, "no", "record_order", "write to DIR/NAME/served-K.log in which order server K served, for replay"),
    TEXT(server, replay, LOCAL, "", 0, "replay_from", "directory with served-K.log of another run, whose order is repeated: the same bits again"),

    TEXT(cluster, nodes, LAYOUT, "", 0, "hosts hostfile machines",
         "every node as host:ranks, comma between, gpu[01-16]:8 for 16; or slurm, or file:HOSTS; empty = this machine alone"),
    TEXT(cluster, racks, LAYOUT, "", 0, "topology switches",
         "nodes that share a switch: 4 racks of as many nodes each, or the nodes of each, 0-3,4-7; empty = all nodes are alike"),
    INT(cluster, joined, LAYOUT, "0", 0, 1024, "nvlink numa sockets",
        "so many neighbouring ranks of a node share faster wires (NVLink): sums are added there first; 0 = all ranks are alike"),
    INT(cluster, port, LAYOUT, "28100", 1, 65535, "master_port",
         "the first node listens here; data connections use the ports above, one for each rank of a node"),
    TEXT(cluster, secret_file, LOCAL, "", 0, "secret",
         "file of mode 0600 with the same 32 or more bytes on every node; empty = systemd's credential `lockstep-secret`"),
    INT(cluster, timeout, LAYOUT, "300", 1, 86400, "",
         "seconds in which the ranks must find each other, and after which one that shows no sign of life is given up"),
    REAL(cluster, heartbeat, LAYOUT, "1", 0.05, 3600, "", "seconds between signs of life"),
    BOOL(cluster, elastic, LAYOUT, "no", "heal self_healing fault_tolerance",
         "yes: a lost rank is started again and the others keep their processes; no: the run ends, and the same command continues"),

    INT(cluster, min_ranks, LAYOUT, "1", 1, TEAM_RANKS_MAX, "min_size min_nodes min_replica_size",
        "an elastic run of several nodes goes on with so many ranks or more; with fewer it waits"),
    REAL(cluster, dead_s, LAYOUT, "2", 0.5, 3600, "", "seconds without a word from a node and its ranks after which an elastic run goes on without it"),
    INT(cluster, give_up_s, LAYOUT, "600", 1, 86400 * 7, "",
        "seconds after which a node of an elastic run ends that has no part in it and can't go on alone; the same command continues"),
    BOOL(cluster, evict_slow, LAYOUT, "no", "drain_slow exclude_stragglers",
         "yes: an elastic run goes on without a rank, or its node, that stays 3 times as slow as others; no: it is named"),
    INT(cluster, slow_s, LAYOUT, "60", 1, 86400, "", "seconds of its computing after which a rank counts as one that stays slow"),

    INT(snapshot, every, LAYOUT, "50", 0, MANY, "",
         "steps between copies of the state in memory, from which an elastic run goes on; 0 = it goes on from the newest checkpoint"),
    BOOL(snapshot, live, LAYOUT, "no", "",
         "yes: without ZeRO it goes on where the ranks that are left are; what a lost one did wrong unnoticed then stays"),

    INT(checkpoint, every, LAYOUT, "250", 0, MANY, "save_every save_interval", "steps between checkpoints; 0 = only at the end, and when asked to stop"),
    INT(checkpoint, keep, LOCAL, "2", 1, 1000000, "save_total_limit", "newest checkpoints that are kept"),
    BOOL(checkpoint, compare, LAYOUT, "yes", "sdc",
         "before anything is saved or hashed, ranks compare what several of them hold, and one that differs is named"),
    BOOL(checkpoint, async, LAYOUT, "no", "async_save background",
         "yes: steps go on while a copy of the state is written, which takes memory; no: they wait"),
    WORD(checkpoint, compress, LAYOUT, "none", COMPRESS_WORDS(WORD_TEXT) + 1, "compression",
         "zstd: files of a fifth or so less, for slow disks; the state in them is the same, and either kind is read"),
    INT(checkpoint, compress_level, LOCAL, "1", 1, 19, "", "of zstd; more than 1 takes more time and hardly makes them smaller"),
    INT(checkpoint, misses, LAYOUT, "10", 0, MANY, "",
         "an elastic run with snapshots ends after so many checkpoints in a row that could not be written; 0 = never"),
    BOOL(checkpoint, keep_best, LAYOUT, "yes", "save_best", "keep also the one with the lowest validation loss"),

    INT(eval, every, LAYOUT, "250", 0, MANY, "eval_interval val_loss_every", "steps between evaluations; 0 = never"),
    INT(eval, patience, LAYOUT, "0", 0, MANY, "early_stopping early_stop early_stopping_patience",
        "end the run after so many evaluations in a row that are no better than the best; 0 = never"),
    TEXT(eval, sets, LOCAL, "", 0, "eval_datasets eval_sets",
         "more data that it is evaluated on, by name: code: code-val-*.bin, law: law-val-*.bin"),
    TEXT(eval, best_of, LAYOUT, "", 0, "metric_for_best_model",
         "name of the set whose loss says which step is best, also to keep_best and patience; empty = the first: [data] val if set"),
    WORD(eval, weights, LAYOUT, "last", EVAL_WORDS(WORD_TEXT) + 1, "",
         "which weights are evaluated, decide what is best and write samples: the last ones, or their mean of [optimizer] ema"),
    INT(eval, batches, LAYOUT, "0", 0, MANY, "eval_iters", "micro-batches of one evaluation; 0 = all of the validation data"),
    TEXT(eval, text, LOCAL, "", 0, "", "bits per byte of this text are computed too: any file, or the member [pack] text_key of a JSONL file's lines"),
    TEXT(eval, choices, LOCAL, "", 0, "", "accuracy on these questions is computed too: a JSONL file, as trainer/README.md says"),
    WORD(eval, protocol, LAYOUT, "lm-eval", PROTOCOL_WORDS(WORD_TEXT) + 1, "", "of the choices: which tokens are compared, and how they are weighed"),

    INT(sample, every, LAYOUT, "0", 0, MANY, "sample_every",
         "steps between samples of what the model writes; 0 = at the end only"),
    INT(sample, tokens, LAYOUT, "400", 0, 1000000, "max_new_tokens length", "length of a sample; 0 = no samples"),
    TEXT(sample, prompt, LAYOUT, "One", 0, "start", "what the model continues"),
    REAL(sample, temperature, LAYOUT, "0.8", 0, 100, "",
         "below 1: more certain, above 1: more daring; 0 = always the likeliest token"),
    INT(sample, top_k, LAYOUT, "40", 0, 16777216, "", "choose among that many likeliest tokens; 0 = all"),
    REAL(sample, top_p, LAYOUT, "1", 0, 1, "", "of those among the likeliest that together have this probability; 1 = all"),
    REAL(sample, min_p, LAYOUT, "0", 0, 1, "", "of those among the ones at least this share as likely as the likeliest; 0 = all"),
    INT(sample, batch, LOCAL, "8", 1, SAMPLE_BATCH_MOST, "", "prompts of a file that are continued at the same time"),
    TEXT(sample, stop, LAYOUT, "", 0, "stop_sequence", "a sample ends before this text, or before the first of several, | between them (|| is a bar); empty = by tokens"),
    TEXT(sample, tokenizer, LOCAL, "bytes", 1, "", 
         "what tokens are, also of [eval] text and choices: bytes, or as the shards of [data] train say; a tokenizer.json or its folder"),
    WORD(sample, template, LAYOUT, "no", CHAT_WORDS(WORD_TEXT) + 1, "", "the prompt is a user's turn, written so, before an answer; as [pack] template"),

    INT(log, every, LOCAL, "10", 1, MANY, "log_interval", "steps between lines of the log"),
    INT(log, hash_every, LAYOUT, "0", 0, MANY, "", "steps between hashes of the weights in the log; 0 = none but in checkpoints"),
    BOOL(log, jsonl, LOCAL, "yes", "", "write DIR/NAME/log.jsonl"),
    BOOL(log, tensorboard, LOCAL, "no", "tfevents", "write DIR/NAME/events.out.tfevents.*, a file for each start, for TensorBoard"),
    BOOL(log, report, LOCAL, "yes", "html", "write DIR/NAME/report.html at every checkpoint and at the end"),
    INT(log, power_every, LAYOUT, "0", 0, MANY, "power_interval",
        "steps between readings of the devices' power, temperature and clocks; 0 = never"),
    INT(log, ranks_every, LOCAL, "100", 0, MANY, "", "steps between records of how each rank spends its time; 0 = never"),
    BOOL(log, watch, LOCAL, "yes", "", "a process beside the ranks looks at run and machine once a second: status.json, machine.jsonl, alarms"),
    INT(log, machine_every, LOCAL, "10", 1, 86400, "", "seconds between lines of machine.jsonl"),
    TEXT(log, http, LOCAL, "", 0, "http_port port", "page, metrics and health of the run at this address, such as 127.0.0.1:28080; empty = none"),
    TEXT(log, http_token, LOCAL, "", 0, "", "file with the page's password, mode 0600; needed unless [log] http is this machine only"),
    TEXT(log, prom_file, LOCAL, "", 0, "textfile", "metrics for node_exporter's textfile collector, such as /var/lib/node_exporter/lockstep.prom; empty = none"),
};
enum { FIRST = sizeof first_keys / sizeof *first_keys, MORE = sizeof more_keys / sizeof *more_keys };

static const struct { const char *name, *comment; } sections[] = {
    {"run", "the run as a whole"},
    {"device", "where it is computed"},
    {"model", "what is trained"},
    {"lora", "adapters that are trained beside frozen weights"},
    {"data", "what it is trained on"},
    {"pack", "how `lockstep pack` makes shards of text, images or clicks"},
    {"batch", "how much of it at a time"},
    {"precision", "how exactly"},
    {"optimizer", "how the weights change"},
    {"schedule", "the learning rate over time"},
    {"parallel", "how the work is dealt to the ranks"},
    {"reduce", "how their gradients are added"},
    {"outer", "groups of ranks that mix their weights every so many steps"},
    {"server", "ranks that keep the optimizer's state for the others"},
    {"cluster", "who takes part"},
    {"snapshot", "what survives a lost rank"},
    {"checkpoint", "what survives a crash"},
    {"eval", "the loss on data that it is not trained on"},
    {"sample", "text that the model writes"},
    {"log", "what is logged of the run"},
};
// clang-format on

const char *config_section(const char *name) {
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (strcmp(sections[i].name, name) == 0) return sections[i].comment;
    return NULL;
}

bool config_word(const char *words, int i, char dst[CONFIG_WORD]) {
    for (; i > 0 && *words; i--) {
        words += strcspn(words, " ");
        words += strspn(words, " ");
    }
    size_t n = strcspn(words, " ");
    if (n == 0 || n >= CONFIG_WORD) return false;
    memcpy(dst, words, n);
    dst[n] = 0;
    return true;
}

// --- the table as a whole --------------------------------------------------------------------------------------------

static int model_rows(void) {
    int n = 0;
    for (int k = 0; k < MODEL_TYPES; k++) n += model_types[k]->keys;
    return n;
}

int config_keys(void) {
    int n = FIRST + model_rows() + MORE;
    assert(n <= CONFIG_KEYS_MAX);
    return n;
}

// A row of an architecture: its number among that one's keys, and which it is; -1: a row of this file.
static int model_of(int row, int *key) {
    *key = row - FIRST;
    for (int k = 0; *key >= 0 && k < MODEL_TYPES; k++) {
        if (*key < model_types[k]->keys) return k;
        *key -= model_types[k]->keys;
    }
    return -1;
}

const setting *config_key(int row) {
    int key, type = model_of(row, &key);
    if (type >= 0) return &model_types[type]->key[key];
    return row < FIRST ? &first_keys[row] : &more_keys[row - FIRST - model_rows()];
}

bool config_applies(const config *c, int row) {
    int key, type = model_of(row, &key);
    return type < 0 || type == (c ? c->model.type : 0);
}

int config_next(const config *c, int row) {
    for (row++; row < config_keys(); row++)
        if (config_applies(c, row)) return row;
    return -1;
}

void *config_at(config *c, int row) {
    int key, type = model_of(row, &key);
    return (type < 0 ? (char *)c : (char *)&c->model.of) + config_key(row)->offset;
}

void *config_in_force(config *c, int row) {
    static const struct {
        size_t read, resolved;
    } open[] = {
        {IN(batch, lanes), IN(resolved, lanes)},
        {IN(schedule, warmup), IN(resolved, warmup)},
        {IN(schedule, decay_steps), IN(resolved, decay_steps)},
    };
    char *at = config_at(c, row);
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        if (at == (char *)c + open[i].read) return (char *)c + open[i].resolved;
    return at;
}

static int find_in(const setting *k, int n, const char *section, const char *key) {
    for (int i = 0; i < n; i++)
        if (strcmp(k[i].key, key) == 0 && strcmp(k[i].section, section) == 0) return i;
    return -1;
}

int config_find(const config *c, const char *section, const char *key) {
    int type = c ? c->model.type : 0, before = FIRST, at = find_in(first_keys, FIRST, section, key);
    if (at >= 0) return at;
    for (int k = 0; k < type; k++) before += model_types[k]->keys;
    if ((at = find_in(model_types[type]->key, model_types[type]->keys, section, key)) >= 0) return before + at;
    return (at = find_in(more_keys, MORE, section, key)) >= 0 ? FIRST + model_rows() + at : -1;
}

int config_row(size_t offset) {
    for (int i = 0; i < FIRST; i++)
        if (first_keys[i].offset == offset) return i;
    for (int i = 0; i < MORE; i++)
        if (more_keys[i].offset == offset) return FIRST + model_rows() + i;
    return 0;  // not reached: the callers name fields of the table
}

const char *config_origin(const config *c, key_origin o, char dst[INI_PLACE]) {
    if (o.file == ORIGIN_COMMAND_LINE) return strcpy(dst, "command line");
    return o.file ? ini_place(dst, c->files[o.file - 1], o.line) : strcpy(dst, "default");
}

const char *config_place(const config *c, int i, char dst[INI_PLACE]) { return config_origin(c, c->origin[i], dst); }
