#!/bin/sh
# test/test_home.sh: models of other people from the outside, with ./lockstep or the binary that LOCKSTEP_BIN names:
# directories of Hugging Face are inspected, trained from, and exported again; what does not fit is refused; and a Llama
# has one result however it is dealt.
. test/support/lib.sh
. "$top/test/support/logs.sh"
families=$top/test/golden/families

# run NAME LINE...: NAME.ini with these lines after those of a short run on the families' tokens.
run() {
    name_=$1
    shift
    { printf '%s\n' "[run]" "name = $name_" "steps = 1" "[data]" "train = $families/tokens.bin" "val =" \
        "format = raw16" "[optimizer]" "lr = 0" \
        "[batch]" "global = 2" "micro = 2" "[sample]" "tokens = 0"
      printf '%s\n' "$@"; } >"$name_.ini"
}

hash_of() { sed -n 's/.*  hash \([0-9a-f]*\).*/\1/p' "$out" | tail -n 1; }

# --- there and back ---------------------------------------------------------------------------------------------------

# A step at a rate of 0 leaves the weights, so the hash after it is that of what was read. An export is read back to the
# same.
there_and_back() {
    for family in gpt2 llama llama3 qwen2 qwen3 mistral gemma3; do
        expect 0 "$bin" inspect "$families/$family"
        cp "$out" "$family-model.ini"
        run "$family"
        expect 0 "$bin" "$family-model.ini" "$family.ini"
        was=$(hash_of)
        [ -n "$was" ] || fail "$family: no hash"
        expect 0 "$bin" export "runs/$family" "$family-out" --shard-mb 0.02
        says "exported step 1:" " bytes of F32 in "
        [ -f "$family-out/model.safetensors.index.json" ] || fail "$family: no index"
        expect 0 "$bin" inspect "$family-out"
        grep -v '^;\|^init_from' "$out" >found
        grep -v '^;\|^init_from' "$family-model.ini" >want
        same want found "the [model] section of $family and of its export"
        cp "$out" again-model.ini
        run "$family-again"
        expect 0 "$bin" again-model.ini "$family-again.ini"
        [ "$(hash_of)" = "$was" ] || fail "$family: hash $was, and $(hash_of) after export and init_from"
    done
}

# What the converter of llama.cpp reads beside what transformers does.
read_elsewhere() {
    expect 0 "$bin" inspect "$families/gpt2"
    cp "$out" model.ini
    run elsewhere
    expect 0 "$bin" model.ini elsewhere.ini
    expect 0 "$bin" export runs/elsewhere elsewhere
    grep -q '"n_ctx": 64,' elsewhere/config.json || fail "config.json has no n_ctx: $(cat elsewhere/config.json)"
}

# With which dropout weights were trained is said, and not taken over without a word.
says_dropout() {
    cp -r "$families/gpt2" dropped
    sed -i 's/"resid_pdrop": 0.0/"resid_pdrop": 0.1/; s/"attn_pdrop": 0.0/"attn_pdrop": 0.1/' dropped/config.json
    expect 0 "$bin" inspect dropped
    says "dropout = 0" "; config.json: resid_pdrop = 0.1, attn_pdrop = 0.1. Dropout is a choice of each training run" \
        "with dropout = 0.1"
    cp "$out" dropped.ini
    expect 0 "$bin" config dropped.ini
    cp -r "$families/mistral" dropped-too
    sed -i 's/"attention_dropout": 0.0/"attention_dropout": 0.05/' dropped-too/config.json
    expect 0 "$bin" inspect dropped-too
    says "; config.json: attention_dropout = 0.05. A llama here has no dropout"
    expect 0 "$bin" inspect "$families/gpt2"
    ! grep -q pdrop "$out" || fail "there is no dropout to speak of"
}

# A tokenizer goes along whatever its form: one file, GPT-2's two files, by either pair of names, or a token for each
# byte. The copy has the same ids.
with_tokenizer() {
    run words
    printf '[model]\nvocab = 258\nlayers = 1\nheads = 1\nembed = 4\ncontext = 8\n' >model.ini
    printf '[model]\nvocab = 2000\n' >many-words.ini
    expect 0 "$bin" words.ini model.ini
    expect 0 "$bin" export runs/words bytes-out --tokenizer bytes
    run many
    expect 0 "$bin" many.ini model.ini many-words.ini
    expect 0 "$bin" export runs/many json-out --tokenizer "$top/test/golden/tokenizer/gpt2.json"
    cmp -s "$top/test/golden/tokenizer/gpt2.json" json-out/tokenizer.json ||
        fail "tokenizer.json is not the one that was given"
    mkdir openai
    sed -n '/"vocab": {/,/^ *}/p' bytes-out/tokenizer.json |
        sed '1s/.*/{/; s/^ *}.*/, "in": 256, "<|endoftext|>": 257 }/' >openai/encoder.json
    printf '#version: 0.2\ni n\n' >openai/vocab.bpe
    expect 0 "$bin" export runs/words two-out --tokenizer openai
    cmp -s openai/encoder.json two-out/vocab.json || fail "vocab.json is not encoder.json"
    cmp -s openai/vocab.bpe two-out/merges.txt || fail "merges.txt is not vocab.bpe"
    grep -q '"tokenizer_class": "GPT2Tokenizer"' two-out/tokenizer_config.json ||
        fail "$(cat two-out/tokenizer_config.json)"
    grep -q '"eos_token_id": 257' two-out/config.json || fail "$(cat two-out/config.json)"
    expect 0 "$bin" export runs/words again-out --tokenizer two-out
    for tokenizer in openai two-out again-out; do
        printf 'inside' >text
        "$bin" tokenize $tokenizer <text >found 2>&1
        printf '256\n115\n105\n100\n101\n' >want
        same want found "the ids of $tokenizer"
    done
    # Without a word it is the one that the data was packed with, there or beside the shards.
    head -c 20000 "$top/trainer/train.c" >code.txt
    printf '[pack]\ninput = code.txt\noutput = own/code\ntokenizer = train:300\n[data]\ntrain = own/code-train-*.bin\n[model]\nvocab = 300\n' >own.ini
    expect 0 "$bin" pack own.ini
    expect 0 "$bin" words.ini model.ini own.ini -o run.name=own
    expect 0 "$bin" export runs/own own-out
    says "; with the tokenizer own/code-tokenizer.json"
    cmp -s own/code-tokenizer.json own-out/tokenizer.json || fail "tokenizer.json is not the one of the shards"
    mv own/code-tokenizer.json elsewhere.json
    expect 0 "$bin" export runs/own lost-out
    says "; without a tokenizer (--tokenizer PATH adds it): " "code-tokenizer.json"
    [ ! -e lost-out/tokenizer.json ] || fail "a tokenizer from nowhere"
    rm two-out/merges.txt
    expect 65 "$bin" export runs/words none-out --tokenizer two-out
    says "two-out: no tokenizer in it"
}

# The same weights on any ranks, each of which reads its own.
read_by_ranks() {
    expect 0 "$bin" inspect "$families/llama3"
    cp "$out" model.ini
    run one
    printf '%s\n' "[model]" "context = 32" "[optimizer]" "lr = 1e-2" "[run]" "steps = 4" "[batch]" "global = 8" \
        "lanes = 4" >more.ini
    expect 0 "$bin" model.ini one.ini more.ini
    alone=$(hash_of)
    for deal in "2 0" "3 1" "4 2" "2 3" "4 3"; do
        set -- $deal
        sed "s/^name = .*/name = dealt-$1-$2/" one.ini >dealt.ini
        printf '[device]\nranks = %s\n[parallel]\nzero = %s\n' "$1" "$2" >deal.ini
        expect 0 "$bin" model.ini dealt.ini more.ini deal.ini
        [ "$(hash_of)" = "$alone" ] || fail "$1 ranks, ZeRO $2: hash $(hash_of), expected $alone"
    done
    for deal in "2 0 1f1b 1" "4 3 zb-v 2"; do
        set -- $deal
        sed "s/^name = .*/name = piped-$1-$2/" one.ini >dealt.ini
        printf '[device]\nranks = %s\n[parallel]\npipeline = 2\nzero = %s\nschedule = %s\nchunks = %s\n' "$@" >deal.ini
        expect 0 "$bin" model.ini dealt.ini more.ini deal.ini
        [ "$(hash_of)" = "$alone" ] || fail "$1 ranks, pipelines of 2, ZeRO $2, $3: hash $(hash_of), expected $alone"
    done
}

steps_of_cut() { cat runs/cut/log.jsonl 2>/dev/null | grep -c '"t":"step"'; }

# A Llama with all that its families add has one result, however often it is killed and whichever ranks go on.
killed() {
    ini >llama.ini <<'INI'
model type=llama layers=2 heads=4 kv_heads=2 head_dim=10 embed=24 hidden=36 vocab=61 context=40 bias=all qk_norm=yes window=12 rope_scaling=llama3 rope_original=16
schedule type=constant
checkpoint every=30
log every=1
INI
    printf '%s\n' "[optimizer]" "lr = 1e-3" "[run]" "steps = 240" "[batch]" "global = 8" "lanes = 4" >more.ini
    run whole
    expect 0 "$bin" whole.ini llama.ini more.ini
    alone=$(hash_of)
    run cut
    kills=0  # on a busy machine a run may have ended before it is killed
    for deal in "1 0" "2 3" "4 2"; do
        set -- $deal
        printf '[device]\nranks = %s\n[parallel]\nzero = %s\n' "$1" "$2" >deal.ini
        enough=$(($(steps_of_cut) + 15))
        [ $enough -lt 240 ] || enough=239
        start "$bin" cut.ini llama.ini more.ini deal.ini
        until_true 20 eval '[ "$(steps_of_cut)" -gt $enough ]'
        kill -9 "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
        [ $? -ne 137 ] || kills=$((kills + 1))
        pid=
        sleep 0.3
    done
    [ $kills -gt 0 ] || fail "each run had ended before it was killed"
    expect 0 "$bin" cut.ini llama.ini more.ini
    [ "$(hash_of)" = "$alone" ] || fail "killed $kills times: hash $(hash_of), expected $alone"
    sed 's/^steps = 240/steps = 120/' more.ini >half-steps.ini
    run half
    printf '[device]\nranks = 3\n[parallel]\nzero = 3\n' >deal.ini
    expect 0 "$bin" half.ini llama.ini half-steps.ini deal.ini
    expect 0 "$bin" half.ini llama.ini more.ini
    [ "$(hash_of)" = "$alone" ] || fail "3 ranks, then one: hash $(hash_of), expected $alone"
}

sixteen_bits() {
    expect 0 "$bin" inspect "$families/qwen3"
    cp "$out" model.ini
    run wide
    expect 0 "$bin" model.ini wide.ini
    for type in bf16 f16; do
        expect 0 "$bin" export runs/wide "$type" --dtype "$type"
        [ "$(wc -c <"$type/model.safetensors")" -lt 40000 ] || fail "$type: $(wc -c <"$type/model.safetensors") bytes"
        expect 0 "$bin" inspect "$type"
        says "numbers; $(echo "$type" | tr a-z A-Z)"
        cp "$out" narrow-model.ini
        run "$type"
        expect 0 "$bin" narrow-model.ini "$type.ini"
        first=$(hash_of)
        expect 0 "$bin" export "runs/$type" "$type-again" --dtype "$type"
        cmp -s "$type/model.safetensors" "$type-again/model.safetensors" ||
            fail "$type: rounded twice, the weights are others"
    done
}

# --- a checkpoint of llm.c --------------------------------------------------------------------------------------------

# word N...: as little-endian int32.
word() {
    for n_; do
        printf "\\$(printf %o $((n_ & 255)))\\$(printf %o $((n_ >> 8 & 255)))\\$(printf %o $((n_ >> 16 & 255)))\\$(printf %o $((n_ >> 24 & 255)))"
    done
}

# Weights that are all zero make every token as likely as any other, so the loss is the logarithm of their number.
# (test_families reads one with values.)
llm_c() {
    # 1 layer, 2 heads, 8 channels, 11 tokens in 16 rows, 4 positions: all zeros but the header.
    { word 20240326 3 4 11 1 2 8 16; head -c $(((256 - 8) * 4)) /dev/zero; head -c \
        $(((16 * 8 + 4 * 8 + 12 * 8 * 8 + 13 * 8 + 2 * 8) * 4)) /dev/zero; } >zeros.bin
    expect 0 "$bin" inspect zeros.bin
    says "type = gpt" "layers = 1" "heads = 2" "embed = 8" "vocab = 11" "context = 4" "init_from = zeros.bin" \
        "16 tensors, "
    cp "$out" model.ini
    head -c 44 /dev/zero >data.bin
    run llmc
    printf '[data]\ntrain = data.bin\n' >data.ini
    expect 0 "$bin" model.ini llmc.ini data.ini
    says "loss 2.3979"
    truncate -s -4 zeros.bin
    expect 65 "$bin" inspect zeros.bin
    says "zeros.bin: has " " bytes, and its header needs "
}

# --- what is refused --------------------------------------------------------------------------------------------------

refused() {
    expect 0 "$bin" inspect "$families/llama"
    cp "$out" model.ini
    run bad
    sed 's/^rope_theta = .*/rope_theta = 500/; s/^norm_eps.*/norm_eps = 1e-3/' model.ini >other.ini
    expect 78 "$bin" other.ini bad.ini
    says "norm_eps = 0.001, and the weights are of norm_eps = 0.01" \
        "rope_theta = 500, and the weights are of rope_theta = 10000"
    sed 's/^vocab = .*/vocab = 64/' model.ini >other.ini
    expect 65 "$bin" other.ini bad.ini
    says "model.embed_tokens.weight is (61,24), expected (64,24)" "init_resize"
    echo "init_resize = yes" >>other.ini
    expect 0 "$bin" other.ini bad.ini
    sed 's/^layers = .*/layers = 3/' model.ini >other.ini
    cp -r "$families/llama" three
    sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' three/config.json
    sed -i 's#^init_from.*#init_from = three#' other.ini
    rm -rf runs
    expect 65 "$bin" other.ini bad.ini
    says "model.layers.2.input_layernorm.weight is missing" "model.layers.2.mlp.down_proj.weight is missing"
    sed -i 's/"model_type": "llama"/"model_type": "mamba"/' three/config.json
    expect 65 "$bin" inspect three
    says 'model_type "mamba": expected gpt2, llama'
    rm -rf runs
    expect 0 "$bin" model.ini bad.ini
    mkdir there
    expect 64 "$bin" export runs/bad there
    says "there is there already"
    expect 65 "$bin" export there elsewhere
    says "neither a run's directory"
    expect 64 "$bin" export runs/bad elsewhere --dtype f64
    says "expected f32, bf16 or f16"
    expect 65 "$bin" inspect "$work"
    says "neither model.safetensors nor"
}

# An index is not trusted: names of files stay in the directory, and what it says must be so.
index_is_checked() {
    cp -r "$families/llama3" dir
    index=dir/model.safetensors.index.json
    cp "$index" right.json
    sed 's#model-00001-of-00003#../model-00001-of-00003#' right.json >"$index"
    expect 65 "$bin" inspect dir
    says "expected the name of a file in the same directory"
    sed 's#model-00002-of-00003#model-00001-of-00003#' right.json >"$index"
    expect 65 "$bin" inspect dir
    says "should be in dir/model-00001-of-00003.safetensors and is not"
    grep -v '"model.norm.weight"' right.json | sed ':a;N;$!ba;s/,\n  }/\n  }/' >"$index"
    expect 65 "$bin" inspect dir
    says "model.norm.weight is in dir/model-0000" "and the index has it nowhere"
    echo '{"weight_map": []}' >"$index"
    expect 65 "$bin" inspect dir
    says "no weight_map"
}

try there_and_back
try read_elsewhere
try says_dropout
try with_tokenizer
try read_by_ranks
try killed
try sixteen_bits
try llm_c
try refused
try index_is_checked
finish
