# lockstep: `make run` trains a first model, `make test` tests what changes most, `make check` the rest. They install
# what is missing first. All cores work, unless -j says how many. The goals of the tests are in test/test.mk.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif
ifeq ($(origin CC),default)
CC      := gcc
endif
# A build keeps the objects of CUDA code in BUILD, those of C in CBUILD, those of the CPU's kernels in KBUILD: what is
# the same is compiled once.
BUILD   ?= build
CBUILD  ?= $(BUILD)
KBUILD  ?= $(CBUILD)
LIB     := $(BUILD)/liblockstep.a
BIN     ?= lockstep
CFLAGS  ?= -O3 -g1
SAN     ?=
# Bits must not depend on the compiler: no contraction but explicit fma, no fast-math flag of any kind.
FLAGS   := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unknown-warning-option -Wno-format-truncation \
           -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-strict-aliasing -pthread -MMD -MP -I. \
           $(CFLAGS) $(SAN)
LIBS    := -Wl,-Bstatic -liniparser -ljansson -lsodium -ljpeg -lpng16 -lz -lzstd -Wl,-Bdynamic -lm -ldl -pthread

all: $(BIN)

# --- the binary: kernels are compiled once for each vector width and chosen at run time -------------------------------
# The processor that the compiler compiles for, which is not always this one: x86_64, aarch64.
CPU     := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
SIMDS   := portable $(if $(filter x86_64,$(CPU)),avx2 avx512) $(if $(filter aarch64,$(CPU)),neon)
# The portable body is the fallback where there is another; compiling it well costs more than it gives.
SIMD_portable := $(if $(filter-out portable,$(SIMDS)),-O1)
# The scheduler of gcc 12 spills the NEON tile: 98 stack accesses in 216 multiply-adds, and 2 without it.
SIMD_neon     := -DVEC_NEON -fno-schedule-insns
SIMD_avx2     := -mavx2 -mfma -mf16c
SIMD_avx512   := $(SIMD_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ROOMS   := base data data/text data/image data/click data/tokenizer \
           model $(patsubst %/,%,$(sort $(dir $(wildcard model/*/*.c)))) \
           trainer $(addprefix trainer/,config checkpoint costs node log plan report session step watch) \
           comm comm/team comm/server comm/tcp comm/nccl gpu gpu/cpu
# The transport over libfabric is compiled where its headers are (FABRIC=yes), else says so (FABRIC=none).
FABRIC  ?= $(shell $(CC) -include rdma/fi_tagged.h -x c -fsyntax-only /dev/null 2>/dev/null && echo yes || echo none)
FABRIC  := $(FABRIC)
SRC     := $(wildcard $(addsuffix /*.c,$(ROOMS))) \
           $(if $(filter yes,$(FABRIC)),$(filter-out %/absent.c,$(wildcard comm/fabric/*.c)),comm/fabric/absent.c)
# Those that multiply are compiled a second time for each width, for [precision] products = bf16-pairs, and for a width
# that has only them.
PAIRED  := $(addprefix gpu/cpu/kernel/,matmul.c attention.c attention_past.c conv.c conv_weights.c pairs.c)
PAIRS   := $(SIMDS) $(if $(filter x86_64,$(CPU)),avx512bf16)
SIMD_avx512bf16 := $(SIMD_avx512) -mavx512bf16
KERNELS := $(filter-out gpu/cpu/kernel/pairs.c,$(wildcard gpu/cpu/kernel/*.c))
# Kernels of the widths in PLAIN are the plain build's: what a build with sanitizers names, of those it won't run.
PLAIN   ?=
PLAIN_PAIRED ?= $(PLAIN)
# $(call KERNELS_OF,WIDTHS,SOURCES,SUFFIX,PLAIN): their objects.
KERNELS_OF = $(foreach s,$(1),$(2:%.c=$(if $(filter $(s),$(4)),build,$(KBUILD))/%.$(s)$(3)))
OBJ     := $(SRC:%.c=$(CBUILD)/%.o) $(call KERNELS_OF,$(SIMDS),$(KERNELS),.o,$(PLAIN)) \
           $(call KERNELS_OF,$(PAIRS),$(PAIRED),.pairs.o,$(PLAIN_PAIRED))

# --- CUDA: CUDA=yes with its toolkit, CUDA=none without it, CUDA=sim over the simulator in test/sim -------------------
# By default the GPUs of this machine decide: code is compiled for them, or for none where there is none. CUDA=yes
# without a GPU is for all that ARCH lists.
CUDA_HOME ?= /usr/local/cuda
NVCC    := $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard $(CUDA_HOME)/bin/nvcc))
CUDART  := $(addprefix $(CUDA_HOME)/,include/cuda_runtime.h lib64/libcudart_static.a)
TOOLKIT := $(and $(NVCC),$(wildcard $(firstword $(CUDART))),$(wildcard $(lastword $(CUDART))))
OWN_ARCH := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
              sed -n 's/^\([0-9]*\)\.\([0-9]\)$$/\1\2/p' | sort -nu)
CUDA    ?= $(if $(and $(TOOLKIT),$(OWN_ARCH)),yes,none)
ARCHS   := 80 86 89 90
ARCH    ?= $(or $(OWN_ARCH),$(ARCHS))
NVFLAGS ?= -g -lineinfo
CUDA_INC := -isystem $(CUDA_HOME)/include
CU_SRC  := $(filter-out gpu/cuda/absent.c $(if $(filter sim,$(CUDA)),gpu/cuda/blas.c),$(wildcard gpu/cuda/*.c))
CU_KERNELS := $(wildcard gpu/cuda/*.cu)
CU_FLAGS := -std=c++17 -I.
ifeq ($(CUDA),none)
OBJ     += $(BUILD)/gpu/cuda/absent.o $(addprefix $(CBUILD)/gpu/cuda/,nvml.o nvlinks.o sensors.o)
else
OBJ     += $(CU_SRC:%.c=$(BUILD)/%.o) $(CU_KERNELS:%.cu=$(BUILD)/%.cu.o)
$(CU_SRC:%.c=$(BUILD)/%.o): FLAGS += $(CUDA_INC)
endif
ifeq ($(CUDA),yes)
# No kernel asks for which GPU it is compiled: PTX for the oldest one is made once, code for each from it, and it is kept
# for later ones.
GENCODE := "-gencode=arch=compute_$(firstword $(ARCH)),code=[$(subst $() ,,$(ARCH:%=sm_%,))compute_$(firstword $(ARCH))]"
LIBS    += -L$(CUDA_HOME)/lib64 -Wl,-Bstatic -lcudart_static -Wl,-Bdynamic -lrt
# A kernel that spills on one of ARCHS is an error. But FP32 attention, which is for comparing, not for speed, spills
# 16 bytes on 8.6 and 8.9.
SPILLS  := $(if $(filter-out $(ARCHS),$(ARCH)),,-Xptxas -warn-spills,-Werror)
$(BUILD)/gpu/cuda/attention_fp32.cu.o $(BUILD)/gpu/cuda/cross_attention.cu.o: SPILLS :=
NV_HOST := -Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-ffp-contract=off
NV       = $(NVCC) $(CU_FLAGS) -O3 $(NVFLAGS) -fmad=false -Werror all-warnings $(SPILLS) $(GENCODE) -t 0
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(NV) -Xcompiler $(NV_HOST) -MMD -MP -c -o $@ $<
endif
ifeq ($(CUDA),sim)
include test/sim/sim.mk
endif
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
# What decides the bits, the same for every kind of build (base/version.h): CUDA's files always, flags only if they are
# more than -O, -g and -W.
MAKES_BITS := $(sort $(wildcard $(addsuffix /*.[ch],$(ROOMS) comm/fabric gpu/cpu/kernel gpu/cuda) \
              gpu/cuda/*.cu main.c Makefile))
OTHER_FLAGS = $(filter-out -O -O0 -O1 -O2 -O3 -Os -Og -g% -W%,$(CFLAGS))
SOURCES := $(shell { sha256sum $(MAKES_BITS); echo '$(OTHER_FLAGS)'; } | sha256sum | cut -c 1-16)

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
PAIRS_FLAGS = -DSIMD=$(1) -DPAIRS -DREST=$(patsubst avx512bf16,avx512,$(1))
define pairs_rule
$(KBUILD)/%.$(1).pairs.o: %.c
	@mkdir -p $$(@D) && echo "$$(CC) $$< ($(1), pairs)"
	@$$(CC) $$(FLAGS) $$(SIMD_$(1)) $(call PAIRS_FLAGS,$(1)) -c -o $$@ $$<
endef
$(foreach s,$(SIMDS),$(eval $(call simd_rule,$(s))))
$(foreach s,$(PAIRS),$(eval $(call pairs_rule,$(s))))

$(CBUILD)/base/version.o: FLAGS += -DGIT_VERSION='"$(VERSION)"' -DSOURCES='"$(SOURCES)"'
$(CBUILD)/base/version.o: $(CBUILD)/version-$(VERSION)-$(SOURCES)
$(CBUILD)/version-$(VERSION)-$(SOURCES):
	@mkdir -p $(@D) && rm -f $(CBUILD)/version-* && touch $@

# --- the first run ----------------------------------------------------------------------------------------------------
# C++ is for nvcc, which calls its compiler, and for the simulator, which needs the toolkit's headers and no more.
CXX_FOR := $(filter-out none,$(CUDA))$(wildcard $(CUDA_HOME)/include/cuda_runtime.h)
PACKAGES := gcc make libc6-dev libiniparser-dev libjansson-dev libsodium-dev libjpeg62-turbo-dev libpng-dev \
            zlib1g-dev libzstd-dev libcmocka-dev $(if $(CXX_FOR),g++)
# What is missing shows when an empty program is linked with all of it.
PROBE    := echo 'int main(void) { return 0; }' | $(CC) -x c - -o /dev/null $(LIBS) -lcmocka \
            $(if $(CXX_FOR),&& echo 'int main() { return 0; }' | g++ -x c++ - -o /dev/null)
WANTED   := gcc, make, and the development files (with static libraries) of iniparser, jansson, libsodium, \
            libjpeg-turbo, libpng, zlib, zstd

# $(call APT,GOAL,PACKAGES) installs them, as root or with sudo; it fails where neither is to be had.
APT = sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	if [ -n "$$sudo" ] && ! command -v sudo >/dev/null; then \
	  echo "make $(1): $(NO_SUDO) As root: apt-get install $(2)" >&2; false; \
	else \
	  echo "make $(1): installing $(2)"; \
	  $$sudo apt-get update -q && $$sudo env DEBIAN_FRONTEND=noninteractive $(INSTALL) $(2); \
	fi
NO_SUDO := something of this is missing, and there is no sudo to install it with.
INSTALL := apt-get install -q -y --no-install-recommends

deps:
	@if { $(PROBE); } 2>/dev/null; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
	  echo "make deps: install $(WANTED) and cmocka" >&2; exit 1; fi; \
	$(call APT,deps,$(PACKAGES))

# Settings of the first run.
FIRST   ?= model/llama/stories.ini
run: deps
	@$(MAKE) --no-print-directory $(BIN)
	@[ -e datasets/stories-about.json ] || ./$(BIN) pack $(FIRST)
	./$(BIN) $(FIRST)

# --- the rest ---------------------------------------------------------------------------------------------------------
# One file for all machines of this kind: code for the GPUs of ARCHS, PTX for later ones, nothing for debuggers.
RELEASE := build/release
CODE_FOR = $(if $(TOOLKIT),GPUs $(ARCHS) and later,for CPUs only: no CUDA toolkit in $(CUDA_HOME))
release: deps
	@$(MAKE) --no-print-directory CUDA=$(if $(TOOLKIT),yes,none) ARCH="$(ARCHS)" NVFLAGS=-Xfatbin=-compress-all \
	  CBUILD=$(CBUILD) BUILD=$(RELEASE) BIN=$(RELEASE)/lockstep $(RELEASE)/lockstep
	@strip $(RELEASE)/lockstep
	@echo "$(RELEASE)/lockstep: $$(($$(wc -c <$(RELEASE)/lockstep) / 1000000)) MB, $(CODE_FOR)"

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
.PHONY: all deps run release install clean FORCE
.PRECIOUS: $(BUILD)/%.o $(CBUILD)/%.o $(BUILD)/%.cu.o
include test/test.mk
-include $(shell find $(sort $(BUILD) $(CBUILD) $(KBUILD)) -name '*.d' 2>/dev/null)
