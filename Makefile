# lockstep: `make run` trains a first model, `make test` tests what changes most, `make check` the rest. They install what is missing first.
# All cores work, unless -j says how many.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif
ifeq ($(origin CC),default)
CC      := gcc
endif
# A build keeps the objects of CUDA code in BUILD, those of C in CBUILD, those of the CPU's kernels in KBUILD: what is the same is compiled once.
BUILD   ?= build
CBUILD  ?= $(BUILD)
KBUILD  ?= $(CBUILD)
LIB     := $(BUILD)/liblockstep.a
BIN     ?= lockstep
CFLAGS  ?= -O3 -g1
SAN     ?=
# Bits must not depend on the compiler: no contraction but explicit fma, no fast-math flag of any kind.
FLAGS   := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unknown-warning-option -Wno-format-truncation -ffp-contract=off -fno-math-errno \
           -fno-trapping-math -fno-strict-aliasing -pthread -MMD -MP -I. $(CFLAGS) $(SAN)
LIBS    := -Wl,-Bstatic -liniparser -ljansson -lsodium -lz -lzstd -Wl,-Bdynamic -lm -ldl -pthread

all: $(BIN)

# --- the binary: kernels are compiled once for each vector width and chosen at run time ---------------------------------------
# The processor that the compiler compiles for, which is not always this one: x86_64, aarch64.
CPU     := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
SIMDS   := portable $(if $(filter x86_64,$(CPU)),avx2 avx512) $(if $(filter aarch64,$(CPU)),neon)
# The portable body is the fallback where there is another; compiling it well costs more than it gives.
SIMD_portable := $(if $(filter-out portable,$(SIMDS)),-O1)
# The scheduler of gcc 12 spills the NEON tile: 98 stack accesses in 216 multiply-adds, and 2 without it.
SIMD_neon     := -DVEC_NEON -fno-schedule-insns
SIMD_avx2     := -mavx2 -mfma -mf16c
SIMD_avx512   := $(SIMD_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ROOMS   := base data data/text data/image data/tokenizer model $(patsubst %/,%,$(sort $(dir $(wildcard model/*/*.c)))) trainer $(addprefix trainer/,config checkpoint node log report step watch) comm comm/team comm/tcp comm/nccl gpu gpu/cpu
SRC     := $(wildcard $(addsuffix /*.c,$(ROOMS)))
# Those that multiply are compiled a second time for each width, for [precision] products = bf16-pairs, and for a width that has only them.
PAIRED  := $(addprefix gpu/cpu/kernel/,matmul.c attention.c attention_past.c pairs.c)
PAIRS   := $(SIMDS) $(if $(filter x86_64,$(CPU)),avx512bf16)
SIMD_avx512bf16 := $(SIMD_avx512) -mavx512bf16
KERNELS := $(filter-out gpu/cpu/kernel/pairs.c,$(wildcard gpu/cpu/kernel/*.c))
# Kernels of the widths in PLAIN are those of the plain build. A build with sanitizers names those that this processor won't run.
PLAIN   ?=
OBJ     := $(SRC:%.c=$(CBUILD)/%.o) $(foreach s,$(SIMDS),$(KERNELS:%.c=$(if $(filter $(s),$(PLAIN)),build,$(KBUILD))/%.$(s).o)) \
           $(foreach s,$(PAIRS),$(PAIRED:%.c=$(if $(filter $(s),$(PLAIN)),build,$(KBUILD))/%.$(s).pairs.o))
CAN     := $(shell sed -n '/^flags/{p;q}' /proc/cpuinfo 2>/dev/null)
HAS      = $(if $(filter-out $(CAN),$(1)),,yes)
WIDEST  := $(if $(filter x86_64,$(CPU)),$(if $(call HAS,avx512f avx512bw avx512dq avx512vl),avx512,$(if $(call HAS,avx2 fma f16c),avx2,portable)),$(lastword $(SIMDS)))

# --- CUDA: CUDA=yes with its toolkit, CUDA=none without it, CUDA=sim over the simulator in test/sim. By default the GPUs of this machine decide:
# code is compiled for them, or for none where there is none. CUDA=yes without a GPU is for all that ARCH lists.
CUDA_HOME ?= /usr/local/cuda
NVCC    := $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard $(CUDA_HOME)/bin/nvcc))
TOOLKIT := $(and $(NVCC),$(wildcard $(CUDA_HOME)/include/cuda_runtime.h),$(wildcard $(CUDA_HOME)/lib64/libcudart_static.a))
OWN_ARCH := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -n 's/^\([0-9]*\)\.\([0-9]\)$$/\1\2/p' | sort -nu)
CUDA    ?= $(if $(and $(TOOLKIT),$(OWN_ARCH)),yes,none)
ARCHS   := 80 86 89 90
ARCH    ?= $(or $(OWN_ARCH),$(ARCHS))
NVFLAGS ?= -g -lineinfo
CUDA_INC := -isystem $(CUDA_HOME)/include
CU_SRC  := $(filter-out gpu/cuda/absent.c $(if $(filter sim,$(CUDA)),gpu/cuda/blas.c),$(wildcard gpu/cuda/*.c))
CU_KERNELS := $(wildcard gpu/cuda/*.cu)
CU_FLAGS := -std=c++17 -I.
ifeq ($(CUDA),none)
OBJ     += $(BUILD)/gpu/cuda/absent.o $(CBUILD)/gpu/cuda/nvml.o $(CBUILD)/gpu/cuda/sensors.o
else
OBJ     += $(CU_SRC:%.c=$(BUILD)/%.o) $(CU_KERNELS:%.cu=$(BUILD)/%.cu.o)
$(CU_SRC:%.c=$(BUILD)/%.o): FLAGS += $(CUDA_INC)
endif
ifeq ($(CUDA),yes)
GENCODE := $(foreach a,$(ARCH),-gencode arch=compute_$(a),code=sm_$(a)) -gencode arch=compute_$(lastword $(ARCH)),code=compute_$(lastword $(ARCH))
LIBS    += -L$(CUDA_HOME)/lib64 -Wl,-Bstatic -lcudart_static -Wl,-Bdynamic -lrt
# A kernel that spills on one of ARCHS is an error. But FP32 attention, which is for comparing, not for speed, spills 16 bytes on 8.6 and 8.9.
SPILLS  := $(if $(filter-out $(ARCHS),$(ARCH)),,-Xptxas -warn-spills,-Werror)
$(BUILD)/gpu/cuda/attention_fp32.cu.o: SPILLS :=
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(NVCC) $(CU_FLAGS) -O3 $(NVFLAGS) -fmad=false -Werror all-warnings $(SPILLS) $(GENCODE) -t 0 -Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-ffp-contract=off -MMD -MP -c -o $@ $<
endif
ifeq ($(CUDA),sim)
SIM_SRC := $(wildcard test/sim/*.cpp)
SIM     := $(CU_FLAGS) -O2 -g1 $(if $(filter x86_64,$(CPU)),-mf16c -mfma) $(CUDA_INC) -Wall -Wextra -Wno-unknown-pragmas -ffp-contract=off -MMD -MP $(SAN)
OBJ     += $(SIM_SRC:%.cpp=$(BUILD)/%.o)
LIBS    += -lstdc++
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	g++ $(SIM) $(SIM_RACE) -include test/sim/simt.h -x c++ -c -o $@ $<
$(BUILD)/%.o: %.cpp
	@mkdir -p $(@D)
	g++ $(SIM) -c -o $@ $<
include $(wildcard test/sim/*.mk)
endif
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
# What decides the bits, the same for every kind of build (base/version.h): CUDA's files always, flags only if they
# are more than -O, -g and -W.
MAKES_BITS := $(sort $(wildcard $(addsuffix /*.[ch],$(ROOMS) gpu/cpu/kernel gpu/cuda) gpu/cuda/*.cu main.c Makefile))
SOURCES := $(shell { sha256sum $(MAKES_BITS); echo '$(filter-out -O -O0 -O1 -O2 -O3 -Os -Og -g% -W%,$(CFLAGS))'; } | sha256sum | cut -c 1-16)

$(BIN): $(CBUILD)/main.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)

$(LIB): $(OBJ) $(BUILD)/objects
	@rm -f $@
	@$(AR) rcs $@ $(OBJ)

# Their names: another CUDA or KBUILD gives another library.
$(BUILD)/objects: FORCE
	@mkdir -p $(@D) && echo $(OBJ) | cmp -s - $@ || echo $(OBJ) >$@

C_RULE = @mkdir -p $(@D) && echo "$(CC) $<" && $(CC) $(FLAGS) -c -o $@ $<
$(CBUILD)/%.o: %.c
	$(C_RULE)
ifneq ($(CBUILD),$(BUILD))
$(BUILD)/%.o: %.c
	$(C_RULE)
endif

define simd_rule
$(KBUILD)/%.$(1).o: %.c
	@mkdir -p $$(@D) && echo "$$(CC) $$< ($(1))"
	@$$(CC) $$(FLAGS) $$(SIMD_$(1)) -DSIMD=$(1) -c -o $$@ $$<
endef
define pairs_rule
$(KBUILD)/%.$(1).pairs.o: %.c
	@mkdir -p $$(@D) && echo "$$(CC) $$< ($(1), pairs)"
	@$$(CC) $$(FLAGS) $$(SIMD_$(1)) -DSIMD=$(1) -DPAIRS -DREST=$(patsubst avx512bf16,avx512,$(1)) -c -o $$@ $$<
endef
$(foreach s,$(SIMDS),$(eval $(call simd_rule,$(s))))
$(foreach s,$(PAIRS),$(eval $(call pairs_rule,$(s))))

$(CBUILD)/base/version.o: FLAGS += -DGIT_VERSION='"$(VERSION)"' -DSOURCES='"$(SOURCES)"'
$(CBUILD)/base/version.o: $(CBUILD)/version-$(VERSION)-$(SOURCES)
$(CBUILD)/version-$(VERSION)-$(SOURCES):
	@mkdir -p $(@D) && rm -f $(CBUILD)/version-* && touch $@

# --- the two commands of the README ---------------------------------------------------------------------------------------------
# C++ is for nvcc, which calls its compiler, and for the simulator, which needs the toolkit's headers and no more.
CXX_FOR := $(filter-out none,$(CUDA))$(wildcard $(CUDA_HOME)/include/cuda_runtime.h)
PACKAGES := gcc make libc6-dev libiniparser-dev libjansson-dev libsodium-dev zlib1g-dev libzstd-dev libcmocka-dev $(if $(CXX_FOR),g++)
# What is missing shows when an empty program is linked with all of it.
PROBE    := echo 'int main(void) { return 0; }' | $(CC) -x c - -o /dev/null $(LIBS) -lcmocka \
            $(if $(CXX_FOR),&& echo 'int main() { return 0; }' | g++ -x c++ - -o /dev/null)

# $(call APT,GOAL,PACKAGES) installs them, as root or with sudo; it fails where neither is to be had.
APT = sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	if [ -n "$$sudo" ] && ! command -v sudo >/dev/null; then \
	  echo "make $(1): something of this is missing, and there is no sudo to install it with. As root: apt-get install $(2)" >&2; false; \
	else \
	  echo "make $(1): installing $(2)"; \
	  $$sudo apt-get update -q && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(2); \
	fi

deps:
	@if { $(PROBE); } 2>/dev/null; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
	  echo "make deps: install gcc, make, and the development files (with static libraries) of iniparser, jansson, libsodium, zlib, zstd and cmocka" >&2; exit 1; fi; \
	$(call APT,deps,$(PACKAGES))

# What check_fresh.sh, check_systemd.sh, check_arm64.sh, check_browser.sh, check_promtool.sh and test_format.sh want beyond that. CI calls it (.ci/run). Where it
# can't be had, those scripts say what they skip, so this goal never fails. Debian's prometheus would start a server on port 9090: its programs are only
# unpacked, into build/.
CHECK_PACKAGES := clang-format debootstrap systemd-container python3 chromium-headless-shell $(if $(filter x86_64,$(shell uname -m)),qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
CHECK_TOOLS    := clang-format debootstrap systemd-nspawn python3 chromium-headless-shell $(if $(filter x86_64,$(shell uname -m)),qemu-aarch64-static aarch64-linux-gnu-gcc)
check-deps:
	@missing=; for tool in $(CHECK_TOOLS); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	[ -n "$$missing" ] || exit 0; \
	if ! command -v apt-get >/dev/null; then echo "make check-deps: there is no apt-get to install$$missing with" >&2; exit 0; fi; \
	{ $(call APT,check-deps,$(CHECK_PACKAGES)); } || :
	@command -v promtool >/dev/null || [ -x build/prometheus/usr/bin/promtool ] || ! command -v apt-get >/dev/null || { \
	  echo "make check-deps: unpacking prometheus into build/prometheus"; mkdir -p build/prometheus && cd build/prometheus && \
	  { apt-get download -q prometheus || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get download -q prometheus; }; } && \
	  dpkg --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin && rm -f prometheus_*.deb; } || :

# Settings of the first run.
FIRST   ?= model/llama/stories.ini

run: deps
	@$(MAKE) --no-print-directory $(BIN)
	@[ -e datasets/stories-about.json ] || ./$(BIN) pack $(FIRST)
	./$(BIN) $(FIRST)

# What fails first when something is wrong: every unit, every reader of foreign bytes (under ASan alone), one cluster, one simulated GPU.
# test_checkpoint_crash, which kills a writer at each of its steps, is in `make check`, under ASan.
test: deps
	@$(MAKE) --no-print-directory all tests
	@$(MAKE) --no-print-directory $(ASAN) KBUILD=$(KBUILD) $(READERS) fuzzers
	@$(MAKE) --no-print-directory sim
	@LOCKSTEP_FUZZ_SECONDS=2 sh test/run.sh $(wildcard test/test_*.sh) $(filter-out %/test_checkpoint_crash $(READERS:build/asan/%=$(BUILD)/%),$(TESTS)) $(READERS) $(FUZZERS:$(BUILD)/%=build/asan/%)

# All else: other orders of threads and races on the simulated GPU, all layouts of a cluster, ASan, TSan, long fuzzing of inputs that follow from the
# commit (`make test` has the first ones of all), the README, other machines.
FUZZ_FIRST := $(or $(shell git rev-list --count HEAD 2>/dev/null),1)000000000
check: deps
	@$(MAKE) --no-print-directory all tests bench-programs
	@$(MAKE) --no-print-directory $(ASAN) all $(MORE_ASAN) fuzzers
	@$(MAKE) --no-print-directory sim sim-race sim-asan
	@$(MAKE) --no-print-directory tsan-programs
	@export LOCKSTEP_FUZZ_SECONDS=10 LOCKSTEP_FUZZ_FIRST=$(FUZZ_FIRST) LOCKSTEP_TEST_LIMIT=1800; $(call RUN_TSAN,$(wildcard test/check_*.sh) $(TSAN_TESTS) $(MORE_ASAN) $(FUZZERS:$(BUILD)/%=build/asan/%))

# --- tests: each test/test_*.c is one program, test/test_*.sh and check_*.sh drive the binary, test/fuzz/fuzz_*.c are fuzz targets ---------
TESTS   := $(patsubst test/%.c,$(BUILD)/test/%,$(wildcard test/test_*.c))
FUZZERS := $(patsubst test/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard test/fuzz/fuzz_*.c))
tests: $(TESTS) $(BUILD)/test/lossy $(BUILD)/test/tokens $(BUILD)/test/watching
$(CBUILD)/test/test_%.o: FLAGS += -O1
fuzzers: $(FUZZERS)
$(BUILD)/test/test_ops $(BUILD)/test/test_profile: $(patsubst %.c,$(CBUILD)/%.o,$(wildcard test/ops/*.c))
# The disk's calls of these go through test/support/journal.h.
WRAPPED := fsync fdatasync rename mkdir symlink unlink remove write pread
$(BUILD)/test/test_durable $(BUILD)/test/test_durable_run: LIBS += $(WRAPPED:%=-Wl,--wrap=%)
# The device's memory is a shadow in test/support/calls.h.
$(BUILD)/test/test_calls: LIBS += -Wl,--wrap=stream_zero
# Rows that are FP32 in 16-bit passes, of a page and operations that know none.
$(BUILD)/test/test_exact: LIBS += -Wl,--wrap=graph_param -Wl,--wrap=device_ops
# With which products devices are opened.
$(BUILD)/test/test_speed: LIBS += -Wl,--wrap=device_open
$(BUILD)/test/test_vec: $(foreach s,$(SIMDS),$(KBUILD)/test/vec_probe.$(s).o)
# The nccl transport is tested with a stand-in; where NCCL's headers are installed, our declarations are compared with them.
NCCL_INC := $(patsubst %/nccl.h,%,$(firstword $(wildcard /usr/local/cuda/include/nccl.h $(if $(wildcard /usr/include/cuda_runtime.h),/usr/include/nccl.h))))
$(CBUILD)/test/nccl_headers.o: FLAGS += -isystem $(NCCL_INC)
$(BUILD)/test/test_library $(BUILD)/test/test_channels: | $(BUILD)/test/libnccl-standin.so
$(BUILD)/test/test_nccl: $(if $(NCCL_INC),$(CBUILD)/test/nccl_headers.o) | $(BUILD)/test/libnccl-standin.so
$(BUILD)/test/libnccl-standin.so: test/standin/nccl.c comm/nccl/api.h
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -fPIC -fvisibility=hidden -shared -o $@ $<
# The same of NVML. Its binding is tested in every build, and needs no CUDA to be compiled.
NVML_INC := $(patsubst %/nvml.h,%,$(firstword $(wildcard $(CUDA_HOME)/include/nvml.h /usr/include/nvml.h)))
$(CBUILD)/test/nvml_headers.o: FLAGS += -isystem $(NVML_INC)
$(BUILD)/test/test_sensors: $(CBUILD)/gpu/cuda/nvml.o $(if $(NVML_INC),$(CBUILD)/test/nvml_headers.o) | $(CBUILD)/test/nvml/libnvidia-ml.so.1
$(BUILD)/test/test_watch: | $(CBUILD)/test/nvml/libnvidia-ml.so.1
$(CBUILD)/test/nvml/libnvidia-ml.so.1: test/standin/nvml.c gpu/cuda/nvml_api.h
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -fPIC -fvisibility=hidden -shared -o $@ $<
$(BUILD)/test/lossy: test/support/lossy.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $<
$(BUILD)/test/tokens $(BUILD)/test/watching: $(BUILD)/test/%: $(CBUILD)/test/support/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $< $(LIB) $(LIBS)
$(BUILD)/test/sim/test_wrappers: $(BUILD)/test/sim/test_wrappers.cu.o $(LIB)
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)
$(BUILD)/test/%: $(CBUILD)/test/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS) -lcmocka
$(BUILD)/fuzz/%: $(CBUILD)/test/fuzz/%.o $(CBUILD)/test/fuzz/driver.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)

# Everything under AddressSanitizer and UBSan is `make asan`. `make test` runs READERS that way, which read foreign bytes, over kernels that are not
# instrumented; `make check` MORE_ASAN, over kernels that are.
ASAN      := CUDA=none BUILD=build/asan BIN=build/asan/lockstep CFLAGS="-O1 -g1" SAN="-fsanitize=address,undefined -fno-sanitize-recover=all" \
             PLAIN="$(filter-out $(WIDEST),$(SIMDS))"
READERS   := $(addprefix build/asan/test/test_,config config_keys runlog runlog_known page data pack_bytes inflate pack questions idx tokenizer megatron safetensors families checkpoint checkpoint_fit cluster team_auth http_parse status)
MORE_ASAN := $(addprefix build/asan/test/test_,checkpoint_crash team comm channels checkpoint_ranks checkpoint_slices ranks pipes pipe_plan slices door durable evaluate likelihood sample log tensorboard watch alarms alarms_slow http metrics tokens)
asan: deps all
	@$(MAKE) --no-print-directory $(ASAN) all tests fuzzers
	@LOCKSTEP_BIN=build/asan/lockstep sh test/run.sh $(wildcard test/test_*.sh) test/check_cluster.sh $(TESTS:$(BUILD)/%=build/asan/%) $(FUZZERS:$(BUILD)/%=build/asan/%)

# Threads and ranks under ThreadSanitizer. A race ends its process and leaves a report, and a report fails the target.
# The fences that -Wno-tsan is about are between processes, which no sanitizer sees; within each, all that they order is atomic.
TSAN       := CUDA=none BUILD=build/tsan BIN=build/tsan/lockstep CFLAGS="-O1 -g1 -Wno-tsan" SAN="-fsanitize=thread" PLAIN="$(filter-out $(WIDEST),$(SIMDS))"
TSAN_TESTS := $(addprefix build/tsan/test/test_,pool loader team channels supervisor async board)
RUN_TSAN   = rm -f build/tsan/race.*; export TSAN_OPTIONS="halt_on_error=1 log_path=$(CURDIR)/build/tsan/race"; \
             sh test/run.sh $(1); rc=$$?; ! cat build/tsan/race.* 2>/dev/null && exit $$rc
tsan-programs: all
	@$(MAKE) --no-print-directory $(TSAN) all $(TSAN_TESTS)
tsan: deps tsan-programs
	@$(call RUN_TSAN,$(TSAN_TESTS) test/check_threads.sh)

# The CUDA backend over the simulator (test/sim): plain, with the race detector, under AddressSanitizer. C objects are those of the other builds.
# build/sim/lockstep is the whole trainer. Nothing is done where the CUDA toolkit's headers are missing; the scripts that want it then say so.
SIM_OF    = CUDA=sim CBUILD=$(1) BUILD=build/sim$(2) BIN=build/sim$(2)/lockstep
GPU_PROGRAMS := test/test_ops test/test_cublaslt test/test_device test/sim/test_wrappers
SIM_PROGRAMS := $(GPU_PROGRAMS) test/sim/test_simt test/test_cudart test/test_families test/test_past test/test_recordings
RACE     := SIM_RACE="-fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -fsanitize=alignment"
ifneq ($(wildcard $(CUDA_HOME)/include/cuda_runtime.h),)
sim:
	@$(MAKE) --no-print-directory $(call SIM_OF,build,) all $(SIM_PROGRAMS:%=build/sim/%)
sim-race:
	@$(MAKE) --no-print-directory $(call SIM_OF,build,-race) $(RACE) all $(SIM_PROGRAMS:%=build/sim-race/%)
sim-asan: all
	@$(MAKE) --no-print-directory $(ASAN) $(call SIM_OF,build/asan,-asan) $(SIM_PROGRAMS:%=build/sim-asan/%)
else
sim sim-race sim-asan:
endif

# On a machine with a GPU: what it has to show, as a page for test/bench/results/. Standard output only. Kernels are compiled for the
# GPUs that are there, unless ARCH says otherwise, and apart from the other builds, which are for all.
GPU_BUILD := $(BUILD)/gpu-$(subst $() ,-,$(strip $(ARCH)))
gpu-check:
	@[ -e /dev/nvidiactl ] || command -v nvidia-smi >/dev/null || \
	  { echo "gpu-check: no GPU was found: there is neither nvidia-smi nor /dev/nvidiactl" >&2; exit 69; }
	@$(MAKE) --no-print-directory deps >&2
	@$(MAKE) --no-print-directory CUDA=yes CBUILD=$(CBUILD) BUILD=$(GPU_BUILD) BIN=$(GPU_BUILD)/lockstep ARCH="$(ARCH)" all $(GPU_PROGRAMS:%=$(GPU_BUILD)/%) >&2
	@NVCC=$(NVCC) CUDA_HOME=$(CUDA_HOME) sh test/gpu_check.sh $(GPU_BUILD) $(GPU_BUILD)/lockstep

include test/kit/kit.mk

# Figures of this machine, on standard output; results that were kept are in test/bench/results/.
$(BUILD)/bench_comm: $(BUILD)/test/bench/bench_comm.o $(LIB)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
$(BUILD)/bench_gemm: $(BUILD)/test/bench/bench_gemm.o $(LIB)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
$(BUILD)/bench_read: $(BUILD)/test/bench/bench_read.o $(LIB)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
$(BUILD)/predict: $(BUILD)/test/bench/predict.o $(LIB)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
$(BUILD)/bench_pipeline: $(BUILD)/test/bench/bench_pipeline.o $(LIB)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
bench-programs: $(BUILD)/bench_gemm $(BUILD)/bench_comm $(BUILD)/bench_pipeline $(BUILD)/bench_read $(BUILD)/predict $(BUILD)/test/test_ops
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

# Models that go to transformers and come back, and to llama.cpp (as above); tokenizers beside other people's; what TensorBoard reads of a run.
interop: all packages
	@build/interop/bin/python test/interop/compare_models.py
	@build/interop/bin/python test/interop/compare_gguf.py
	@build/interop/bin/python test/interop/compare_tokenizers.py
	@build/interop/bin/python test/interop/compare_tensorboard.py
packages:
	@[ -d build/interop ] || python3 -m venv build/interop
	@build/interop/bin/pip install -q -r test/interop/requirements.txt
soak: all
	@sh test/soak.sh $(BIN)

# With clang and libFuzzer: make fuzz TARGET=shard SECONDS=600
TARGET  ?= shard
SECONDS ?= 60
fuzz:
	@$(MAKE) --no-print-directory CC=clang BUILD=build/fuzz BIN=build/fuzz/lockstep CFLAGS="-O1 -g" SAN="-fsanitize=fuzzer-no-link,address,undefined" build/fuzz/test/fuzz/fuzz_$(TARGET).o build/fuzz/liblockstep.a
	clang -fsanitize=fuzzer,address,undefined -o build/fuzz/fuzz_$(TARGET) build/fuzz/test/fuzz/fuzz_$(TARGET).o build/fuzz/liblockstep.a $(LIBS)
	mkdir -p build/fuzz/corpus-$(TARGET) && build/fuzz/fuzz_$(TARGET) -max_total_time=$(SECONDS) build/fuzz/corpus-$(TARGET)

# Do the tests notice small mistakes? make mutate AT="comm trainer/plan.c" N=20 SEED=1 JOBS=2 (test/mutate/run.sh)
mutate: deps
	@sh test/mutate/run.sh

# --- the rest ---------------------------------------------------------------------------------------------------------------------
# One file for every machine of this kind: code for all GPUs that ARCHS lists, PTX for later ones, without what only a debugger wants.
RELEASE := build/release
release: deps
	@$(MAKE) --no-print-directory CUDA=$(if $(TOOLKIT),yes,none) ARCH="$(ARCHS)" NVFLAGS=-Xfatbin=-compress-all CBUILD=$(CBUILD) BUILD=$(RELEASE) \
	  BIN=$(RELEASE)/lockstep $(RELEASE)/lockstep
	@strip $(RELEASE)/lockstep
	@echo "$(RELEASE)/lockstep: $$(($$(wc -c <$(RELEASE)/lockstep) / 1000000)) MB, $(if $(TOOLKIT),GPUs $(ARCHS) and later,for CPUs only: no CUDA toolkit in $(CUDA_HOME))"

PREFIX ?= /usr/local
UNITS  ?= $(PREFIX)/lib/systemd/system
install: $(BIN)
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/lockstep
	install -d $(DESTDIR)$(UNITS)
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' trainer/node/lockstep.service > $(DESTDIR)$(UNITS)/lockstep@.service
	chmod 644 $(DESTDIR)$(UNITS)/lockstep@.service

clean:
	rm -rf build $(BIN)

FORCE:
.PHONY: all deps check-deps run test check tests sim sim-race sim-asan gpu-check interop fuzzers asan tsan tsan-programs fuzz bench bench-programs bench-cpu bench-sample packages soak mutate release install clean FORCE
.PRECIOUS: $(BUILD)/%.o $(CBUILD)/%.o $(BUILD)/%.cu.o
-include $(shell find $(sort $(BUILD) $(CBUILD) $(KBUILD)) -name '*.d' 2>/dev/null)
