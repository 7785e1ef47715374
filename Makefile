# lockstep: `make run` trains the default model, `make test` runs every test. Both install what is missing first.
ifeq ($(origin CC),default)
CC      := gcc
endif
BUILD   ?= build
CBUILD  ?= $(BUILD)
LIB     := $(BUILD)/liblockstep.a
BIN     ?= lockstep
CFLAGS  ?= -O3 -g
SAN     ?=
# Bits must not depend on the compiler: no contraction but explicit fma, no fast-math flag of any kind.
FLAGS   := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unknown-warning-option -Wno-format-truncation -ffp-contract=off -fno-math-errno \
           -fno-trapping-math -fno-strict-aliasing -pthread -MMD -MP -I. $(CFLAGS) $(SAN)
LIBS    := -Wl,-Bstatic -liniparser -ljansson -lsodium -lz -Wl,-Bdynamic -lm -ldl -pthread

all: $(BIN)

# --- the binary: kernels are compiled once for each vector width and chosen at run time ---------------------------------------
SIMDS   := portable $(if $(filter x86_64,$(shell uname -m)),avx2 avx512)
# On x86 the portable body is the fallback for old processors; compiling it well costs more than it gives. Elsewhere it is all there is.
SIMD_portable := $(if $(filter x86_64,$(shell uname -m)),-O1 -ftree-vectorize)
SIMD_avx2     := -mavx2 -mfma -mf16c
SIMD_avx512   := $(SIMD_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
SRC     := $(wildcard $(addsuffix /*.c,base data model trainer comm gpu gpu/cpu))
KERNELS := $(wildcard gpu/cpu/kernel/*.c)
OBJ     := $(SRC:%.c=$(CBUILD)/%.o) $(foreach s,$(SIMDS),$(KERNELS:%.c=$(CBUILD)/%.$(s).o))

# --- CUDA: where its toolkit is, unless CUDA=none; with CUDA=sim the same files over the simulator in test/sim -----------------------------
CUDA_HOME ?= /usr/local/cuda
NVCC    := $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard $(CUDA_HOME)/bin/nvcc))
CUDA    ?= $(if $(and $(NVCC),$(wildcard $(CUDA_HOME)/include/cuda_runtime.h),$(wildcard $(CUDA_HOME)/lib64/libcudart_static.a)),yes,none)
ARCH    ?= 80 86 89 90
CUDA_INC := -isystem $(CUDA_HOME)/include
CU_SRC  := $(filter-out gpu/cuda/absent.c $(if $(filter sim,$(CUDA)),gpu/cuda/blas.c),$(wildcard gpu/cuda/*.c))
CU_KERNELS := $(wildcard gpu/cuda/*.cu)
CU_FLAGS := -std=c++17 -I. -g
ifeq ($(CUDA),none)
OBJ     += $(BUILD)/gpu/cuda/absent.o
else
OBJ     += $(CU_SRC:%.c=$(BUILD)/%.o) $(CU_KERNELS:%.cu=$(BUILD)/%.cu.o)
$(CU_SRC:%.c=$(BUILD)/%.o): FLAGS += $(CUDA_INC)
endif
ifeq ($(CUDA),yes)
GENCODE := $(foreach a,$(ARCH),-gencode arch=compute_$(a),code=sm_$(a)) -gencode arch=compute_$(lastword $(ARCH)),code=compute_$(lastword $(ARCH))
LIBS    += -L$(CUDA_HOME)/lib64 -Wl,-Bstatic -lcudart_static -Wl,-Bdynamic -lrt
# A kernel that spills is an error. But FP32 attention, which is for comparing, not for speed, spills 16 bytes on 8.6 and 8.9.
SPILLS  := -Xptxas -warn-spills,-Werror
$(BUILD)/gpu/cuda/attention_fp32.cu.o: SPILLS :=
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(NVCC) $(CU_FLAGS) -O3 -lineinfo -fmad=false -Werror all-warnings $(SPILLS) $(GENCODE) -t 0 -Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-ffp-contract=off -MMD -MP -c -o $@ $<
endif
ifeq ($(CUDA),sim)
SIM_SRC := $(wildcard test/sim/*.cpp)
SIM     := $(CU_FLAGS) $(CUDA_INC) -Wall -Wextra -Wno-unknown-pragmas -ffp-contract=off -MMD -MP $(SAN)
OBJ     += $(SIM_SRC:%.cpp=$(BUILD)/%.o)
LIBS    += -lstdc++
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	g++ $(SIM) -O2 $(SIM_RACE) -include test/sim/simt.h -x c++ -c -o $@ $<
$(BUILD)/%.o: %.cpp
	@mkdir -p $(@D)
	g++ $(SIM) -O2 -mf16c -c -o $@ $<
include $(wildcard test/sim/*.mk)
endif
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

$(BIN): $(CBUILD)/main.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)

$(LIB): $(OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	@ar rcs $@ $^

C_RULE = @mkdir -p $(@D) && echo "$(CC) $<" && $(CC) $(FLAGS) -c -o $@ $<
$(CBUILD)/%.o: %.c
	$(C_RULE)
ifneq ($(CBUILD),$(BUILD))
$(BUILD)/%.o: %.c
	$(C_RULE)
endif

define simd_rule
$(CBUILD)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	$$(CC) $$(FLAGS) $$(SIMD_$(1)) -DSIMD=$(1) -c -o $$@ $$<
endef
$(foreach s,$(SIMDS),$(eval $(call simd_rule,$(s))))

$(CBUILD)/base/version.o: FLAGS += -DGIT_VERSION='"$(VERSION)"'
$(CBUILD)/base/version.o: $(CBUILD)/version-$(VERSION)
$(CBUILD)/version-$(VERSION):
	@mkdir -p $(@D) && rm -f $(CBUILD)/version-* && touch $@

# --- the two commands of the README ---------------------------------------------------------------------------------------------
PACKAGES := gcc make libc6-dev libiniparser-dev libjansson-dev libsodium-dev zlib1g-dev libcmocka-dev $(if $(filter-out none,$(CUDA)),g++)
# What is missing shows when an empty program is linked with all of it.
PROBE    := echo 'int main(void) { return 0; }' | $(CC) -x c - -o /dev/null $(LIBS) -lcmocka

deps:
	@if $(PROBE) 2>/dev/null; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
	  echo "make deps: install gcc, make, and the development files (with static libraries) of iniparser, jansson, libsodium, zlib and cmocka" >&2; exit 1; fi; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; echo "make deps: installing $(PACKAGES)"; \
	$$sudo apt-get update -q && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(PACKAGES)

run: deps
	@$(MAKE) --no-print-directory -j2 $(BIN)
	@ls datasets/self-train-*.bin >/dev/null 2>&1 || ./$(BIN) pack config.ini
	./$(BIN) config.ini

test: deps
	@$(MAKE) --no-print-directory -j2 all tests $(BUILD)/bench_gemm
	@$(MAKE) --no-print-directory -j2 $(ASAN) fuzzers $(ASAN_TESTS)
	@$(MAKE) --no-print-directory sim
	@sh test/run.sh $(SCRIPTS) $(TESTS) $(ASAN_TESTS) $(FUZZERS:$(BUILD)/%=build/asan/%) $(LAST)

# --- tests: each test/test_*.c is one program, test/test_*.sh drives the binary, test/fuzz/fuzz_*.c are fuzz targets -----------------------
TESTS   := $(patsubst test/%.c,$(BUILD)/test/%,$(wildcard test/test_*.c))
FUZZERS := $(patsubst test/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard test/fuzz/fuzz_*.c))
# Scripts come first, for the longest of them end late; but the one that keeps two cores busy by itself runs beside programs that only wait.
LAST    := test/test_sim.sh
SCRIPTS := $(filter-out $(LAST),$(wildcard test/test_*.sh))
tests: $(TESTS) $(BUILD)/test/lossy
fuzzers: $(FUZZERS)
$(BUILD)/test/test_ops $(BUILD)/test/test_profile: $(patsubst %.c,$(CBUILD)/%.o,$(wildcard test/ops/*.c))
$(BUILD)/test/test_vec: $(foreach s,$(SIMDS),$(CBUILD)/test/vec_probe.$(s).o)
# The nccl transport is tested with a stand-in; where NCCL's headers are installed, our declarations are compared with them.
NCCL_INC := $(patsubst %/nccl.h,%,$(firstword $(wildcard /usr/local/cuda/include/nccl.h $(if $(wildcard /usr/include/cuda_runtime.h),/usr/include/nccl.h))))
$(CBUILD)/test/nccl_headers.o: FLAGS += -isystem $(NCCL_INC)
$(BUILD)/test/test_nccl: $(if $(NCCL_INC),$(CBUILD)/test/nccl_headers.o) | $(BUILD)/test/libnccl-standin.so
$(BUILD)/test/libnccl-standin.so: test/standin/nccl.c comm/nccl_api.h
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -fPIC -fvisibility=hidden -shared -o $@ $<
# The same of NVML. Its binding is tested in every build, and needs no CUDA to be compiled.
NVML_INC := $(patsubst %/nvml.h,%,$(firstword $(wildcard $(CUDA_HOME)/include/nvml.h /usr/include/nvml.h)))
$(CBUILD)/test/nvml_headers.o: FLAGS += -isystem $(NVML_INC)
$(BUILD)/test/test_sensors: $(CBUILD)/gpu/cuda/nvml.o $(if $(NVML_INC),$(CBUILD)/test/nvml_headers.o) | $(CBUILD)/test/nvml/libnvidia-ml.so.1
$(CBUILD)/test/nvml/libnvidia-ml.so.1: test/standin/nvml.c gpu/cuda/nvml_api.h
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -fPIC -fvisibility=hidden -shared -o $@ $<
$(BUILD)/test/lossy: test/support/lossy.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $<
$(BUILD)/test/sim/test_wrappers: $(BUILD)/test/sim/test_wrappers.cu.o $(LIB)
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)
$(BUILD)/test/%: $(CBUILD)/test/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS) -lcmocka
$(BUILD)/fuzz/%: $(CBUILD)/test/fuzz/%.o $(CBUILD)/test/fuzz/driver.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)

# Everything under AddressSanitizer and UBSan. `make test` runs the readers of foreign bytes that way, `make asan` every test.
ASAN       := CUDA=none BUILD=build/asan BIN=build/asan/lockstep CFLAGS="-O1 -g" SAN="-fsanitize=address,undefined -fno-sanitize-recover=all"
ASAN_TESTS := $(addprefix build/asan/test/test_,config data safetensors checkpoint checkpoint_crash cluster team team_auth comm checkpoint_ranks ranks)
asan: deps all
	@$(MAKE) --no-print-directory -j2 $(ASAN) all tests fuzzers
	@LOCKSTEP_BIN=build/asan/lockstep sh test/run.sh $(SCRIPTS) $(TESTS:$(BUILD)/%=build/asan/%) $(FUZZERS:$(BUILD)/%=build/asan/%) $(LAST)

# The CUDA backend over the simulator (test/sim): plain, with the race detector, under AddressSanitizer. C objects are those of the other builds.
# build/sim/lockstep is the whole trainer. Nothing is done where the CUDA toolkit's headers are missing; test/test_sim.sh and test_sim_runs.sh then say so.
SIM_OF   = CUDA=sim CBUILD=$(1) BUILD=build/sim$(2) BIN=build/sim$(2)/lockstep
GPU_PROGRAMS := test/test_ops test/test_cublaslt test/test_device test/sim/test_wrappers
SIM_PROGRAMS := $(GPU_PROGRAMS) test/sim/test_simt test/test_cudart
RACE    := SIM_RACE="-fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -fsanitize=alignment"
sim:
ifneq ($(wildcard $(CUDA_HOME)/include/cuda_runtime.h),)
	@$(MAKE) --no-print-directory -j2 $(call SIM_OF,build,) all $(SIM_PROGRAMS:%=build/sim/%)
	@$(MAKE) --no-print-directory -j2 $(call SIM_OF,build,-race) $(RACE) all $(SIM_PROGRAMS:%=build/sim-race/%)
	@$(MAKE) --no-print-directory -j2 $(ASAN) $(call SIM_OF,build/asan,-asan) $(SIM_PROGRAMS:%=build/sim-asan/%)
endif

# On a machine with a GPU: what it has to show, as a page for test/bench/results/. Standard output only. Kernels are compiled for the
# GPUs that are there, unless ARCH says otherwise, and apart from the other builds, which are for all.
OWN_ARCH = nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
           sed -n 's/^\([0-9]*\)\.\([0-9]\)$$/\1\2/p' | sort -nu | tr '\n' ' '
gpu-check:
	@[ -e /dev/nvidiactl ] || command -v nvidia-smi >/dev/null || \
	  { echo "gpu-check: no GPU was found: there is neither nvidia-smi nor /dev/nvidiactl" >&2; exit 69; }
	@$(MAKE) --no-print-directory deps >&2
	@arch=$$($(if $(filter file,$(origin ARCH)),$(OWN_ARCH))); arch=$${arch:-$(ARCH)}; at=$(BUILD)/gpu-$$(echo $$arch | tr ' ' -); \
	$(MAKE) --no-print-directory -j$$(nproc) CBUILD=$(BUILD) BUILD=$$at BIN=$$at/lockstep ARCH="$$arch" all $(GPU_PROGRAMS:%=$$at/%) >&2 && \
	NVCC=$(NVCC) CUDA_HOME=$(CUDA_HOME) sh test/gpu_check.sh $$at $$at/lockstep

# Figures of this machine, on standard output; results that were kept are in test/bench/results/.
$(BUILD)/bench_comm: $(BUILD)/test/bench/bench_comm.o $(LIB)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
$(BUILD)/bench_gemm: $(BUILD)/test/bench/bench_gemm.o $(LIB)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
bench: deps
	@$(MAKE) --no-print-directory -s -j2 all $(BUILD)/bench_gemm $(BUILD)/bench_comm $(BUILD)/test/test_ops
	@sh test/bench/run.sh $(BUILD) ./$(BIN)
	@sh test/bench/ranks.sh $(BUILD) ./$(BIN)
bench-cpu:
	@$(MAKE) --no-print-directory deps >&2
	@$(MAKE) --no-print-directory -j2 all $(BUILD)/bench_gemm $(BUILD)/test/test_ops >&2
	@sh test/bench/cpu.sh $(BUILD) ./$(BIN)
soak: all
	@sh test/soak.sh $(BIN)

# With clang and libFuzzer: make fuzz TARGET=shard SECONDS=600
TARGET  ?= shard
SECONDS ?= 60
fuzz:
	@$(MAKE) --no-print-directory -j2 CC=clang BUILD=build/fuzz BIN=build/fuzz/lockstep CFLAGS="-O1 -g" SAN="-fsanitize=fuzzer-no-link,address,undefined" build/fuzz/test/fuzz/fuzz_$(TARGET).o build/fuzz/liblockstep.a
	clang -fsanitize=fuzzer,address,undefined -o build/fuzz/fuzz_$(TARGET) build/fuzz/test/fuzz/fuzz_$(TARGET).o build/fuzz/liblockstep.a $(LIBS)
	mkdir -p build/fuzz/corpus-$(TARGET) && build/fuzz/fuzz_$(TARGET) -max_total_time=$(SECONDS) build/fuzz/corpus-$(TARGET)

# --- the rest ---------------------------------------------------------------------------------------------------------------------
PREFIX ?= /usr/local
UNITS  ?= $(PREFIX)/lib/systemd/system
install: $(BIN)
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/lockstep
	install -d $(DESTDIR)$(UNITS)
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' trainer/lockstep.service > $(DESTDIR)$(UNITS)/lockstep@.service
	chmod 644 $(DESTDIR)$(UNITS)/lockstep@.service

clean:
	rm -rf build $(BIN)

.PHONY: all deps run test tests sim gpu-check fuzzers asan fuzz bench bench-cpu soak install clean
.PRECIOUS: $(BUILD)/%.o $(CBUILD)/%.o $(BUILD)/%.cu.o
-include $(shell find $(sort $(BUILD) $(CBUILD)) -name '*.d' 2>/dev/null)
