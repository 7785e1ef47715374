# test/sim/cudart.mk: the tests of the stand-ins for the host's libraries, and the one for NCCL, included where
# CUDA=sim. It calls back into the program that opens it: programs are linked with -rdynamic.
LIBS    += -rdynamic
SIM_HOST := $(addprefix $(BUILD)/test/sim/host/,test_cudart.o test_nccl.o kernels.cu.o)
$(BUILD)/test/libnccl-sim.so: test/sim/host/nccl.cpp comm/nccl/api.h test/sim/simt_rt.h
	@mkdir -p $(@D)
	g++ $(SIM) -O2 -fPIC -fvisibility=hidden -shared -o $@ $<
$(BUILD)/test/test_recordings: | $(BUILD)/test/libnccl-sim.so
$(BUILD)/test/test_cudart: $(SIM_HOST) $(LIB) | $(BUILD)/test/libnccl-sim.so $(CBUILD)/test/nvml/libnvidia-ml.so.1
	g++ $(SAN) -o $@ $(SIM_HOST) $(LIB) $(LIBS)
