# lockstep: `make run` trains the default model, `make test` runs every test. Both install what is missing first.
ifeq ($(origin CC),default)
CC      := gcc
endif
BUILD   ?= build
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
SRC     := $(wildcard $(addsuffix /*.c,base data model trainer comm gpu gpu/cpu gpu/cuda))
KERNELS := $(wildcard gpu/cpu/kernel/*.c)
OBJ     := $(SRC:%.c=$(BUILD)/%.o) $(foreach s,$(SIMDS),$(KERNELS:%.c=$(BUILD)/%.$(s).o))
LIB     := $(BUILD)/liblockstep.a
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

$(BIN): $(BUILD)/main.o $(LIB)
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)

$(LIB): $(OBJ)
	@rm -f $@
	@ar rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -c -o $@ $<

define simd_rule
$(BUILD)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	$$(CC) $$(FLAGS) $$(SIMD_$(1)) -DSIMD=$(1) -c -o $$@ $$<
endef
$(foreach s,$(SIMDS),$(eval $(call simd_rule,$(s))))

$(BUILD)/base/version.o: FLAGS += -DGIT_VERSION='"$(VERSION)"'
$(BUILD)/base/version.o: $(BUILD)/version-$(VERSION)
$(BUILD)/version-$(VERSION):
	@mkdir -p $(@D) && rm -f $(BUILD)/version-* && touch $@

# --- the two commands of the README ---------------------------------------------------------------------------------------------
PACKAGES := gcc make libc6-dev libiniparser-dev libjansson-dev libsodium-dev zlib1g-dev libcmocka-dev
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
	@$(MAKE) --no-print-directory -j2 all tests
	@$(MAKE) --no-print-directory -j2 $(ASAN) fuzzers $(ASAN_TESTS)
	@sh test/run.sh $(TESTS) $(ASAN_TESTS) $(FUZZERS:$(BUILD)/%=build/asan/%) $(wildcard test/test_*.sh)

# --- tests: each test/test_*.c is one program, test/test_*.sh drives the binary, test/fuzz/fuzz_*.c are fuzz targets -----------------------
TESTS   := $(patsubst test/%.c,$(BUILD)/test/%,$(wildcard test/test_*.c))
FUZZERS := $(patsubst test/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard test/fuzz/fuzz_*.c))
tests: $(TESTS) $(BUILD)/test/lossy
fuzzers: $(FUZZERS)
$(BUILD)/test/test_ops: $(patsubst %.c,$(BUILD)/%.o,$(wildcard test/ops/*.c))
$(BUILD)/test/test_vec: $(foreach s,$(SIMDS),$(BUILD)/test/vec_probe.$(s).o)
# The nccl transport is tested with a stand-in; where NCCL's headers are installed, our declarations are compared with them.
NCCL_INC := $(patsubst %/nccl.h,%,$(firstword $(wildcard /usr/local/cuda/include/nccl.h $(if $(wildcard /usr/include/cuda_runtime.h),/usr/include/nccl.h))))
$(BUILD)/test/nccl_headers.o: FLAGS += -isystem $(NCCL_INC)
$(BUILD)/test/test_nccl: $(if $(NCCL_INC),$(BUILD)/test/nccl_headers.o) | $(BUILD)/test/libnccl-standin.so
$(BUILD)/test/libnccl-standin.so: test/standin/nccl.c comm/nccl_api.h
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -fPIC -fvisibility=hidden -shared -o $@ $<
$(BUILD)/test/lossy: test/support/lossy.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $<
$(BUILD)/test/%: $(BUILD)/test/%.o $(LIB)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS) -lcmocka
$(BUILD)/fuzz/%: $(BUILD)/test/fuzz/%.o $(BUILD)/test/fuzz/driver.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)

# Everything under AddressSanitizer and UBSan. `make test` runs the readers of foreign bytes that way, `make asan` every test.
ASAN       := BUILD=build/asan BIN=build/asan/lockstep CFLAGS="-O1 -g" SAN="-fsanitize=address,undefined -fno-sanitize-recover=all"
ASAN_TESTS := $(addprefix build/asan/test/test_,config data safetensors checkpoint checkpoint_crash cluster team team_auth comm checkpoint_ranks ranks)
asan: deps all
	@$(MAKE) --no-print-directory -j2 $(ASAN) all tests fuzzers
	@LOCKSTEP_BIN=build/asan/lockstep sh test/run.sh $(TESTS:$(BUILD)/%=build/asan/%) $(FUZZERS:$(BUILD)/%=build/asan/%) $(wildcard test/test_*.sh)

# Figures of this machine, on standard output; results that were kept are in test/bench/results/.
$(BUILD)/bench_comm: $(BUILD)/test/bench/bench_comm.o $(LIB)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
$(BUILD)/bench_gemm: $(BUILD)/test/bench/bench_gemm.o $(LIB)
	$(CC) $(FLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
bench: deps
	@$(MAKE) --no-print-directory -s -j2 all $(BUILD)/bench_gemm $(BUILD)/bench_comm $(BUILD)/test/test_ops
	@sh test/bench/run.sh $(BUILD) ./$(BIN)
	@sh test/bench/ranks.sh $(BUILD) ./$(BIN)
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

.PHONY: all deps run test tests fuzzers asan fuzz bench soak install clean
.PRECIOUS: $(BUILD)/%.o
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
