# test/kit/kit.mk: `make gpu-kit`: a folder that checks a GPU where nothing can be built. For this machine's GPUs, or
# ARCH, or else for 9.0. KIT=sim makes it of the simulator's programs, for its own test.
KIT      ?= cuda
KIT_ARCH := $(if $(filter command environment,$(firstword $(origin ARCH))),$(ARCH),$(or $(OWN_ARCH),90))
# For all GPUs of a release it is made of the release's objects, which are compiled alike.
KIT_AT   := $(subst $() ,-,$(strip $(KIT_ARCH)))
KIT_CUDA := $(if $(filter $(subst $() ,-,$(ARCHS)),$(KIT_AT)),$(RELEASE),$(BUILD)/kit-$(KIT_AT))
KIT_BUILD := $(if $(filter sim,$(KIT)),build/sim,$(KIT_CUDA))
KIT_OUT  := build/gpu-kit$(if $(filter sim,$(KIT)),-sim)
gpu-kit: deps
ifeq ($(KIT),sim)
	@$(MAKE) --no-print-directory sim >&2
else
	@[ -n "$(TOOLKIT)" ] || \
	  { echo "gpu-kit: there is no CUDA toolkit in $(CUDA_HOME): name its folder in CUDA_HOME" >&2; exit 69; }
	@$(MAKE) --no-print-directory CUDA=yes CBUILD=$(CBUILD) BUILD=$(KIT_BUILD) BIN=$(KIT_BUILD)/lockstep \
	  ARCH="$(KIT_ARCH)" NVFLAGS=-Xfatbin=-compress-all all $(GPU_PROGRAMS:%=$(KIT_BUILD)/%) >&2
endif
	@sh test/kit/make.sh $(KIT_BUILD) $(KIT_OUT)
.PHONY: gpu-kit
