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

examples := $(filter-out $(left_out),$(examples))
benches  := $(filter-out $(left_out),$(benches))

.PHONY: check-server load-server fuzz-server
check-server: ; @BUILD='$(BUILD)' scripts/check_server.sh ## examples/server by real clients
load-server: ; @BUILD='$(BUILD)' scripts/check_server.sh load ## 64 streams, half of them cut off
fuzz-server: $(BUILD)/examples/fuzz-server ; @$< ## its parser; PKV_FUZZ_SECONDS, VARIANT=asan

$(OBJ)/examples/server/tests/%.o: includes = -Iinclude -Iexamples/support -Iexamples/server
$(BUILD)/examples/fuzz-server: $(call objects,$(wildcard examples/server/tests/fuzz/*.c) \
        $(addprefix examples/server/,api.c nul.c utf8.c codec_pieces.c)) \
        $(BUILD)/examples/libsupport.a
	$(say) LINK $@
	$(link) -o $@ $^ -lcjson -lm $(LDLIBS)
