# test/sim/sim.mk: the test of the simulator itself, included where CUDA=sim. Planted bugs are kernels beside their correct twins.
SIM_BUGS := $(patsubst %,$(BUILD)/%.o,$(wildcard test/sim/bugs/*.cu)) $(BUILD)/test/sim/bugs/test_simt.o
$(BUILD)/test/sim/test_simt: $(SIM_BUGS) $(LIB)
	g++ $(SAN) -o $@ $(SIM_BUGS) $(LIB) $(LIBS)
