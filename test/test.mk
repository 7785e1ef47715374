# test/test.mk: the goals that test, measure and check, included by the Makefile. Each test/test_*.c is one program;
# test/test_*.sh and check_*.sh drive the binary; test/fuzz/fuzz_*.c are fuzz targets. No bit of a run depends on this
# file.

# --- the two tiers ----------------------------------------------------------------------------------------------------
# What fails first when something is wrong: every unit, every reader of foreign bytes (under ASan alone), one cluster,
# one simulated GPU. Not what kills who saves at each step of it, asks of compressed checkpoints what was asked of plain
# ones, or cuts checkpoints in many ways, which `make check` runs under ASan (SAN_ALONE); nor what walks through all
# shapes, orders or histories of something that a shorter test knows, too (LONG), and runs there as it is.
BLOCKS      = checkpoint_blocks checkpoint_blocks_crash checkpoint_blocks_ranks
SAN_ALONE   = checkpoint_crash writer_crash checkpoint_slices checkpoint_ranks $(BLOCKS)
LONG        = $(addprefix $(BUILD)/test/test_,matmul_slices outer proposals council_all council_history) \
              $(addprefix test/test_,slices.sh pairs.sh)
IN_CHECK    = $(SAN_ALONE:%=$(BUILD)/test/test_%) $(LONG)
QUICK       = $(filter-out $(IN_CHECK) $(READERS:build/asan/%=$(BUILD)/%),$(wildcard test/test_*.sh) $(TESTS))
test: deps
	@$(MAKE) --no-print-directory all tests
	@$(MAKE) --no-print-directory $(ASAN) KBUILD=$(KBUILD) $(READERS) fuzzers
	@$(MAKE) --no-print-directory sim
	@LOCKSTEP_FUZZ_SECONDS=1 sh test/run.sh $(QUICK) $(READERS) $(ASAN_FUZZERS)

# All else: other orders of threads and races on the simulated GPU, all layouts of a cluster, ASan, TSan, long fuzzing
# of inputs that follow from the commit (`make test` has the first ones of all), the README, other machines.
FUZZ_FIRST := $(or $(shell git rev-list --count HEAD 2>/dev/null),1)000000000
THE_REST = $(wildcard test/check_*.sh) $(LONG) $(TSAN_TESTS) $(MORE_ASAN) $(ASAN_KERNELS) $(ASAN_FUZZERS)
check: deps
	@$(MAKE) --no-print-directory all tests bench-programs
	@$(MAKE) --no-print-directory $(ASAN) KBUILD=$(KBUILD) all $(MORE_ASAN) fuzzers
	@$(MAKE) --no-print-directory $(ASAN) BUILD=build/asan-kernels CBUILD=build/asan $(ASAN_KERNELS)
	@$(MAKE) --no-print-directory sim sim-race sim-asan
	@$(MAKE) --no-print-directory tsan-programs
	@export LOCKSTEP_FUZZ_SECONDS=10 LOCKSTEP_FUZZ_FIRST=$(FUZZ_FIRST) LOCKSTEP_TEST_LIMIT=1800; \
	$(call RUN_TSAN,$(THE_REST))

# What check_fabric.sh, check_models.sh, check_fresh.sh, check_systemd.sh, check_arm64.sh, check_browser.sh, check_promtool.sh and
# test_format.sh want beyond that. CI calls it (.ci/run). Where it can't be had, those scripts say what they skip, so
# this goal never fails.
# Debian's prometheus would start a server on port 9090: its programs are only unpacked, into build/.
ON_X86_HOST    := $(filter x86_64,$(shell uname -m))
CHECK_PACKAGES := clang-format spin debootstrap systemd-container python3 chromium-headless-shell libfabric-dev \
                  libfabric-bin $(if $(ON_X86_HOST),qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
CHECK_TOOLS    := clang-format spin debootstrap systemd-nspawn python3 chromium-headless-shell fi_info \
                  $(if $(ON_X86_HOST),qemu-aarch64-static aarch64-linux-gnu-gcc)
check-deps:
	@missing=; for tool in $(CHECK_TOOLS); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	[ -n "$$missing" ] || exit 0; \
	if ! command -v apt-get >/dev/null; then \
	  echo "make check-deps: there is no apt-get to install$$missing with" >&2; exit 0; fi; \
	{ $(call APT,check-deps,$(CHECK_PACKAGES)); } || :
	@command -v promtool >/dev/null || [ -x build/prometheus/usr/bin/promtool ] || ! command -v apt-get >/dev/null || { \
	  echo "make check-deps: unpacking prometheus into build/prometheus"; \
	  mkdir -p build/prometheus && cd build/prometheus && { apt-get download -q prometheus || \
	  { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get download -q prometheus; }; } && \
	  dpkg --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin && rm -f prometheus_*.deb; } || :

# --- programs ---------------------------------------------------------------------------------------------------------
# There are hundreds of them: gold takes half as long as ld.
LINK     = $(CC) $(FLAGS) $(FAST_LD)
FAST_LD  = $(eval FAST_LD := $(if $(shell $(CC) -fuse-ld=gold -Wl,--version 2>/dev/null),-fuse-ld=gold))$(FAST_LD)
TESTS   := $(patsubst test/%.c,$(BUILD)/test/%,$(wildcard test/test_*.c))
FUZZERS := $(patsubst test/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard test/fuzz/fuzz_*.c))
ASAN_FUZZERS := $(FUZZERS:$(BUILD)/%=build/asan/%)
tests: $(TESTS) $(addprefix $(BUILD)/test/,lossy tokens watching crowd)
# Without optimization the programs of tests compile in a third of the time. Those that compare with long loops of their
# own would then run for longer than that saves.
LOOPS   := attention calls checkpoint_blocks_crash checkpoint_crash conv fmath matmul matmul_slices pairs_attention vec \
           writer_crash
$(CBUILD)/test/test_%.o: FLAGS += -O0
$(LOOPS:%=$(CBUILD)/test/test_%.o): FLAGS += -O1
fuzzers: $(FUZZERS)
# The table of operations and its references may be those of another build.
OPS_OF  ?= $(CBUILD)
$(BUILD)/test/test_ops $(BUILD)/test/test_profile: $(patsubst %.c,$(OPS_OF)/%.o,$(wildcard test/ops/*.c))
# What judges the planner by published tables.
FOREIGN := $(patsubst %.c,$(CBUILD)/%.o,$(wildcard test/bench/foreign*.c))
$(BUILD)/test/test_published $(BUILD)/test/test_foreign_by_hand: $(FOREIGN)
# The disk's calls of these go through test/support/journal.h.
WRAPPED := fsync fdatasync rename mkdir symlink unlink remove write pread
$(BUILD)/test/test_durable $(BUILD)/test/test_durable_run $(BUILD)/test/test_durable_pack: LIBS += $(WRAPPED:%=-Wl,--wrap=%)
# The device's memory is a shadow in test/support/calls.h.
$(BUILD)/test/test_calls: LIBS += -Wl,--wrap=stream_zero
# Rows that are FP32 in 16-bit passes, of a page and operations that know none.
$(BUILD)/test/test_exact: LIBS += -Wl,--wrap=graph_param -Wl,--wrap=device_ops
# What libfabric is given is changed on its way (test_fabric).
$(BUILD)/test/test_fabric: LIBS += -Wl,--wrap=endpoint_send
# With which products devices are opened, and how long their operations take.
$(BUILD)/test/test_speed: LIBS += -Wl,--wrap=device_open -Wl,--wrap=device_ops -Wl,--wrap=chains_pairs_pay \
    -Wl,--wrap=cpu_native_pairs_pay
$(BUILD)/test/test_vec: $(foreach s,$(SIMDS),$(KBUILD)/test/vec_probe.$(s).o)
# The nccl transport is tested with a stand-in; where NCCL's headers are installed, our declarations are compared.
# $(call HEADER,FILE...): the first of these that is there.
HEADER  = $(firstword $(wildcard $(1)))
NCCL_H := $(call HEADER,/usr/local/cuda/include/nccl.h \
            $(if $(wildcard /usr/include/cuda_runtime.h),/usr/include/nccl.h))
$(CBUILD)/test/nccl_headers.o: FLAGS += -isystem $(NCCL_H:%/nccl.h=%)
$(BUILD)/test/test_library $(BUILD)/test/test_channels $(BUILD)/test/test_nccl: | $(BUILD)/test/libnccl-standin.so
$(BUILD)/test/test_nccl_library: $(if $(NCCL_H),$(CBUILD)/test/nccl_headers.o) | $(BUILD)/test/libnccl-standin.so
$(BUILD)/test/libnccl-standin.so: test/standin/nccl.c comm/nccl/api.h
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -fPIC -fvisibility=hidden -shared -o $@ $<
# The same of NVML. Its binding is tested in every build, and needs no CUDA to be compiled.
NVML_H := $(call HEADER,$(CUDA_HOME)/include/nvml.h /usr/include/nvml.h)
NVML   := $(CBUILD)/test/nvml/libnvidia-ml.so.1
$(CBUILD)/test/nvml_headers.o: FLAGS += -isystem $(NVML_H:%/nvml.h=%)
$(BUILD)/test/test_sensors: $(CBUILD)/gpu/cuda/nvml.o $(if $(NVML_H),$(CBUILD)/test/nvml_headers.o) | $(NVML)
$(BUILD)/test/test_watch: | $(NVML)
$(NVML): test/standin/nvml.c gpu/cuda/nvml_api.h
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -fPIC -fvisibility=hidden -shared -o $@ $<
$(BUILD)/test/lossy: test/support/lossy.c
	@mkdir -p $(@D)
	$(LINK) -o $@ $<
$(BUILD)/test/tokens $(BUILD)/test/watching $(BUILD)/test/crowd: $(BUILD)/test/%: $(CBUILD)/test/support/%.o $(LIB)
	@mkdir -p $(@D)
	$(LINK) -o $@ $< $(LIB) $(LIBS)
$(BUILD)/test/sim/test_wrappers: $(BUILD)/test/sim/test_wrappers.cu.o $(LIB)
	$(LINK) -o $@ $^ $(LIBS)
$(BUILD)/test/%: $(CBUILD)/test/%.o $(LIB)
	@mkdir -p $(@D)
	$(LINK) -o $@ $(filter %.o,$^) $(LIB) $(LIBS) -lcmocka
$(BUILD)/fuzz/%: $(CBUILD)/test/fuzz/%.o $(CBUILD)/test/fuzz/driver.o $(LIB)
	@mkdir -p $(@D)
	$(LINK) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)

# --- sanitizers -------------------------------------------------------------------------------------------------------
CAN     := $(shell sed -n '/^flags/{p;q}' /proc/cpuinfo 2>/dev/null)
HAS      = $(if $(filter-out $(CAN),$(1)),,yes)
AVX      = $(if $(call HAS,avx2 fma f16c),avx2,portable)
ON_X86   = $(if $(call HAS,avx512f avx512bw avx512dq avx512vl),avx512,$(AVX))
WIDEST  := $(if $(filter x86_64,$(CPU)),$(ON_X86),$(lastword $(SIMDS)))
WIDE    := $(WIDEST) $(if $(filter avx512,$(WIDEST)),$(if $(call HAS,avx512_bf16),avx512bf16))
NARROW  := $(filter-out $(WIDE),$(PAIRS))
# Everything under AddressSanitizer and UBSan is `make asan`. `make test` runs READERS that way, which read foreign
# bytes, and `make check` MORE_ASAN, over kernels that are not instrumented: those would take four times as long. What
# calls kernels in many shapes is ASAN_KERNELS, over kernels that are, but those of pairs, which none of it calls.
ASAN      := CUDA=none BUILD=build/asan BIN=build/asan/lockstep CFLAGS="-O1 -g1" \
             SAN="-fsanitize=address,undefined -fno-sanitize-recover=all" PLAIN="$(NARROW)" PLAIN_PAIRED="$(PAIRS)"
READERS   := $(addprefix build/asan/test/test_,config config_keys serving runlog runlog_known page page_answers data pack_bytes inflate pack \
             questions idx picture images image_pack clicks ratings tokenizer tokenizer_words megatron safetensors blocks families checkpoint checkpoint_fit cluster team_auth \
             council_bytes council_net http_parse status flight_verdict costs failures cluster_file published labels answered \
             fields pieces foreign_members)
MORE_ASAN := $(addprefix build/asan/test/test_,$(SAN_ALONE) writer team comm channels \
             ranks pipes pipe_plan door durable evaluate answers log tensorboard watch alarms alarms_slow http metrics \
             spill price search table table_file step_rows)
ASAN_KERNELS := $(addprefix build/asan-kernels/test/test_,slices tokens sample likelihood)
asan: deps all
	@$(MAKE) --no-print-directory $(ASAN) PLAIN_PAIRED="$(NARROW)" all tests fuzzers
	@LOCKSTEP_BIN=build/asan/lockstep \
	sh test/run.sh $(wildcard test/test_*.sh) test/check_cluster.sh $(TESTS:$(BUILD)/%=build/asan/%) \
	  $(ASAN_FUZZERS)

# Threads and ranks under ThreadSanitizer. A race ends its process and leaves a report, and a report fails the target.
# The fences that -Wno-tsan is about are between processes, which no sanitizer sees; within each, all that they order
# is atomic.
TSAN       := CUDA=none BUILD=build/tsan BIN=build/tsan/lockstep CFLAGS="-O1 -g1 -Wno-tsan" SAN="-fsanitize=thread" \
              PLAIN="$(NARROW)" PLAIN_PAIRED="$(PAIRS)"
TSAN_TESTS := $(addprefix build/tsan/test/test_,pool loader team channels supervisor async board flight spill table \
              table_file step_rows)
RUN_TSAN   = rm -f build/tsan/race.*; export TSAN_OPTIONS="halt_on_error=1 log_path=$(CURDIR)/build/tsan/race"; \
             sh test/run.sh $(1); rc=$$?; ! cat build/tsan/race.* 2>/dev/null && exit $$rc
tsan-programs: all
	@$(MAKE) --no-print-directory $(TSAN) all $(TSAN_TESTS)
tsan: deps tsan-programs
	@$(call RUN_TSAN,$(TSAN_TESTS) test/check_threads.sh)

# --- GPUs -------------------------------------------------------------------------------------------------------------
# The CUDA backend over the simulator (test/sim): plain, with the race detector, under AddressSanitizer. C objects are
# those of the other builds. build/sim/lockstep is the whole trainer. Nothing is done where the CUDA toolkit's headers
# are missing; the scripts that want it then say so.
SIM_OF    = CUDA=sim CBUILD=$(1) BUILD=build/sim$(2) BIN=build/sim$(2)/lockstep
GPU_PROGRAMS := test/test_ops test/test_cublaslt test/test_device test/sim/test_wrappers
SIM_PROGRAMS := $(GPU_PROGRAMS) test/sim/test_simt test/test_cudart test/test_families test/test_past \
                test/test_recordings
CHECKED_SIM  := $(GPU_PROGRAMS) test/sim/test_simt test/test_cudart
RACE     := SIM_RACE="-fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -fsanitize=alignment"
ifneq ($(wildcard $(CUDA_HOME)/include/cuda_runtime.h),)
sim:
	@$(MAKE) --no-print-directory $(call SIM_OF,build,) all $(SIM_PROGRAMS:%=build/sim/%)
sim-race:
	@$(MAKE) --no-print-directory $(call SIM_OF,build,-race) $(RACE) $(CHECKED_SIM:%=build/sim-race/%)
# References are not what AddressSanitizer is asked about here, and would take it longer than the kernels: they are the
# plain build's.
sim-asan: all $(BUILD)/test/test_ops
	@$(MAKE) --no-print-directory $(ASAN) $(call SIM_OF,build/asan,-asan) OPS_OF=build \
	  $(CHECKED_SIM:%=build/sim-asan/%)
else
sim sim-race sim-asan:
endif

# On a machine with a GPU: what it has to show, as a page for test/bench/results/. Standard output only. Kernels are
# compiled for the GPUs that are there, unless ARCH says otherwise, and apart from the other builds, which are for all.
GPU_BUILD := $(BUILD)/gpu-$(subst $() ,-,$(strip $(ARCH)))
gpu-check:
	@[ -e /dev/nvidiactl ] || command -v nvidia-smi >/dev/null || \
	  { echo "gpu-check: no GPU was found: there is neither nvidia-smi nor /dev/nvidiactl" >&2; exit 69; }
	@$(MAKE) --no-print-directory deps >&2
	@$(MAKE) --no-print-directory CUDA=yes CBUILD=$(CBUILD) BUILD=$(GPU_BUILD) BIN=$(GPU_BUILD)/lockstep \
	  ARCH="$(ARCH)" all $(GPU_PROGRAMS:%=$(GPU_BUILD)/%) >&2
	@NVCC=$(NVCC) CUDA_HOME=$(CUDA_HOME) sh test/gpu_check.sh $(GPU_BUILD) $(GPU_BUILD)/lockstep

include test/kit/kit.mk

# --- figures of this machine, on standard output; those that were kept are in test/bench/results/ ---------------------
BENCHES := $(addprefix $(BUILD)/,bench_gemm bench_comm bench_pipeline bench_read bench_images bench_blocks bench_spill bench_rows \
             predict planner_check)
$(BUILD)/planner_check: $(FOREIGN)
$(BENCHES): $(BUILD)/%: $(BUILD)/test/bench/%.o $(LIB)
	$(LINK) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
bench-programs: $(BENCHES) $(BUILD)/test/test_ops
bench: deps
	@$(MAKE) --no-print-directory -s all bench-programs
	@sh test/bench/run.sh $(BUILD) ./$(BIN)
	@sh test/bench/ranks.sh $(BUILD) ./$(BIN)
bench-cpu:
	@$(MAKE) --no-print-directory deps >&2
	@$(MAKE) --no-print-directory all bench-programs >&2
	@sh test/bench/cpu.sh $(BUILD) ./$(BIN)
# How fast text is written, beside llama.cpp (LLAMA_CPP: a checkout with a build) and PyTorch.
bench-sample:
	@$(MAKE) --no-print-directory all bench-programs packages >&2
	@build/interop/bin/python test/bench/sample.py

# The planner's terms against published steps of other trainers: tables of DIR, such as dev-vtrain-multi.csv. ARGS:
# --folds, --fit, --rows (test/bench/planner_check.c)
planner-check:
	@[ -n "$(DIR)" ] || { echo "make planner-check: expected DIR=FOLDER, with tables such as dev-vtrain-multi.csv" >&2; exit 64; }
	@$(MAKE) --no-print-directory $(BUILD)/planner_check >&2
	@$(BUILD)/planner_check $(ARGS) $(DIR)

# --- other programs, chance, hours ------------------------------------------------------------------------------------
# Models that go to transformers and come back, and to llama.cpp (as above); tokenizers beside other people's; what
# TensorBoard reads of a run.
interop: all packages
	@build/interop/bin/python test/interop/compare_models.py
	@$(MAKE) --no-print-directory $(BUILD)/test/test_bert
	@build/interop/bin/python test/interop/compare_bert.py
	@build/interop/bin/python test/interop/compare_torchvision.py
	@build/interop/bin/python test/interop/compare_gguf.py
	@build/interop/bin/python test/interop/compare_tokenizers.py
	@build/interop/bin/python test/interop/compare_tensorboard.py
packages:
	@[ -d build/interop ] || python3 -m venv build/interop
	@build/interop/bin/pip install -q -r test/interop/requirements.txt
soak: all
	@sh test/models/run.sh all
	@sh test/soak.sh $(BIN)

# 200 kills in one run that heals itself, in each of six layouts, and in runs of two and three nodes: SEED=n, KILLS=n
chaos: all
	@LOCKSTEP_BIN=$(BIN) sh test/chaos.sh
	@LOCKSTEP_BIN=$(BIN) sh test/chaos_nodes.sh

# With clang and libFuzzer: make fuzz TARGET=shard SECONDS=600
TARGET  ?= shard
SECONDS ?= 60
FUZZ    := build/fuzz/test/fuzz/fuzz_$(TARGET).o build/fuzz/liblockstep.a
fuzz:
	@$(MAKE) --no-print-directory CC=clang BUILD=build/fuzz BIN=build/fuzz/lockstep CFLAGS="-O1 -g" \
	  SAN="-fsanitize=fuzzer-no-link,address,undefined" $(FUZZ)
	clang -fsanitize=fuzzer,address,undefined -o build/fuzz/fuzz_$(TARGET) $(FUZZ) $(LIBS)
	mkdir -p build/fuzz/corpus-$(TARGET) && \
	  build/fuzz/fuzz_$(TARGET) -max_total_time=$(SECONDS) build/fuzz/corpus-$(TARGET)

# Do the tests notice small mistakes? make mutate AT="comm trainer/plan/plan.c" N=20 SEED=1 JOBS=2 (test/mutate/run.sh)
mutate: deps
	@sh test/mutate/run.sh

.PHONY: check-deps test check tests sim sim-race sim-asan gpu-check interop fuzzers asan tsan tsan-programs fuzz \
        bench bench-programs bench-cpu bench-sample planner-check packages soak chaos mutate
