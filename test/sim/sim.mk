# test/sim/sim.mk: how CUDA is compiled over the simulator, and the test of the simulator itself, included where
# CUDA=sim. Planted bugs are kernels beside their correct twins.
# Under AddressSanitizer kernels compile at -O1, for half as long as at -O2, and run for up to half as long again.
SIM_SRC := $(wildcard test/sim/*.cpp)
SIM     := $(CU_FLAGS) $(if $(SAN),-O1,-O2) -g1 $(if $(filter x86_64,$(CPU)),-mf16c -mfma) $(CUDA_INC) -Wall -Wextra \
           -Wno-unknown-pragmas -ffp-contract=off -MMD -MP $(SAN)
OBJ     += $(SIM_SRC:%.cpp=$(BUILD)/%.o)
LIBS    += -lstdc++
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	g++ $(SIM) $(SIM_RACE) -include test/sim/simt.h -x c++ -c -o $@ $<
$(BUILD)/%.o: %.cpp
	@mkdir -p $(@D)
	g++ $(SIM) -c -o $@ $<
SIM_BUGS := $(patsubst %,$(BUILD)/%.o,$(wildcard test/sim/bugs/*.cu)) $(BUILD)/test/sim/bugs/test_simt.o
$(BUILD)/test/sim/test_simt: $(SIM_BUGS) $(LIB)
	g++ $(SAN) -o $@ $(SIM_BUGS) $(LIB) $(LIBS)
include test/sim/cudart.mk
