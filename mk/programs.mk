# SPDX-License-Identifier: MIT
#
# programs.mk: programs that need a library beside pagedkv's. One whose library cannot be linked is
# left out of `make`, so that a machine without it builds all the rest. Included by the Makefile.
#
#   $(call program_needs,FOLDER/NAME,FLAGS)    a row a program: where it is, what the linker is told

# This file comes before the first target of the Makefile.
.DEFAULT_GOAL := all

program_needs = $(if $(call can_link,$(2)),$(eval $(BUILD)/$(1): own_libs = $(2)), \
                    $(eval left_out += $(BUILD)/$(1)))

$(call program_needs,examples/server,-lmicrohttpd -lcjson)
# What Open MPI's compiler would add to the compiler's flags.
mpi := $(shell mpicc --showme:compile 2>/dev/null)
mpi_link := $(or $(shell mpicc --showme:link 2>/dev/null),-lmpicc_is_missing)
$(call program_needs,examples/context_parallel,$(mpi_link))
$(OBJ)/examples/context_parallel/%.o: includes += $(patsubst -I%,-isystem %,$(mpi))
$(call program_needs,bench/disk_io,-luring)
$(BUILD)/bench/tiers: $(OBJ)/tests/support/redis_server.o
$(OBJ)/bench/tiers/%.o: includes += -Itests

examples := $(filter-out $(left_out),$(examples))
benches  := $(filter-out $(left_out),$(benches))

.PHONY: check-server check-tiers check-page load-server fuzz-server context-parallel check-mpi
check-server: ; @BUILD='$(BUILD)' scripts/check_server.sh ## examples/server by real clients
check-tiers: ; @BUILD='$(BUILD)' scripts/check_tiers.sh ## examples/server with tiers that fail
check-page: ; @BUILD='$(BUILD)' scripts/check_server.sh page ## its live page in a browser
context-parallel: $(BUILD)/examples/context_parallel ## several processes on one sequence, by MPI
check-mpi: $(filter %/context_parallel,$(examples)) ## runs it with 1 to 4 processes
	@BUILD='$(BUILD)' scripts/check_mpi.sh
load-server: ; @BUILD='$(BUILD)' scripts/check_server.sh load ## 64 streams, half of them cut off
fuzz-server: $(BUILD)/examples/fuzz-server ; @$< ## its parser; PKV_FUZZ_SECONDS, VARIANT=asan

# The server's parts that read models, for examples/server/tests/models.py.
probe       := $(BUILD)/examples/server_probe
probe_parts := bpe bpe_file bpe_split codec_bpe folder_config folder_model json_file mapped_file \
               safetensors tests/probe unicode_kind utf8 weight_files
$(probe): $(probe_parts:%=$(OBJ)/examples/server/%.o) $(BUILD)/examples/libsupport.a \
          $(BUILD)/libpagedkv.a
	$(say) LINK $@
	$(link) -o $@ $^ -lcjson $(libs)

$(OBJ)/examples/server/page.o: examples/server/page.html

# The parser of requests, for examples/server/tests/fuzz.
fuzz_parts  := api codec_pieces nul tests/fuzz/main utf8
$(OBJ)/examples/server/tests/fuzz/%.o: includes += -Iexamples/support -Iexamples/server
$(BUILD)/examples/fuzz-server: $(fuzz_parts:%=$(OBJ)/examples/server/%.o) \
        $(BUILD)/examples/libsupport.a
	$(say) LINK $@
	$(link) -o $@ $^ -lcjson -lm $(LDLIBS)

# Its products of weights beside a BLAS's, for the table in examples/server/README.md.
$(BUILD)/examples/server_products: $(OBJ)/examples/server/tests/products.o \
                                   $(BUILD)/examples/libsupport.a $(BUILD)/libpagedkv.a
	$(say) LINK $@
	$(link) -o $@ $^ -ldl $(libs)
