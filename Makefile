# SPDX-License-Identifier: MIT
#
# One Makefile for everything; `make help` lists the targets. Objects of a variant lie under
# build/<variant>/ and never mix; sources are found by wildcard, so a new file needs no line here.
# mk/ holds what stands apart: the library, installing, and programs that need one of their own.
# CC AR CFLAGS CPPFLAGS LDFLAGS LDLIBS are the user's: the flags that the code needs stand apart.

VARIANT ?= release
BUILD   ?= build/$(VARIANT)
OBJ     := $(BUILD)/obj
OPENMP  ?= $(if $(filter tsan,$(VARIANT)),0,1)
INSTALL ?= install
GCOV    ?= gcov
STRIP   ?= strip
OBJCOPY ?= objcopy
PREFIX       ?= /usr/local
prefix       ?= $(PREFIX)
exec_prefix  ?= $(prefix)
libdir       ?= $(exec_prefix)/lib
includedir   ?= $(prefix)/include
mandir       ?= $(prefix)/share/man
pkgconfigdir ?= $(libdir)/pkgconfig
# The version: base.h alone holds it.
version_part = $(shell sed -n 's/^.define PKV_VERSION_$(1) *//p' include/pagedkv/base.h)
major   := $(call version_part,MAJOR)
version := $(major).$(call version_part,MINOR).$(call version_part,PATCH)
# Before 1.0.0 a minor version may change the interface, so it is part of the soname.
soname  := libpagedkv.so.$(major)$(if $(filter 0,$(major)),.$(call version_part,MINOR))

# (gcc takes the checks that a sanitiser adds for conversions of ours.)
sanitize := -g -O1 -fno-omit-frame-pointer -fno-sanitize-recover=all -Wno-conversion
flags_release  := -O2 -g
flags_debug    := -Og -g3 -DPKV_ASSERTIONS
flags_scalar   := -O2 -g -DPKV_SCALAR_ONLY
flags_coverage := -O1 -g --coverage
flags_asan     := $(sanitize) -fsanitize=address,undefined -DPKV_ASSERTIONS
flags_ubsan    := $(sanitize) -fsanitize=undefined -DPKV_ASSERTIONS
flags_tsan     := $(sanitize) -fsanitize=thread -DPKV_ASSERTIONS
variant := $(or $(flags_$(VARIANT)),$(error no VARIANT=$(VARIANT), see make help))
linking := $(filter -fsanitize=% --coverage,$(variant))
# Programs have jemalloc where it can be linked; sanitisers bring an allocator of their own, and
# gcc's OpenMP runtime is opaque to the thread sanitiser.
can_link  = $(shell echo 'int main() {}' | \
                $(CC) $(LDFLAGS) -x c - $(1) -o /dev/null 2>/dev/null && echo 1)
JEMALLOC ?= $(if $(filter asan ubsan tsan,$(VARIANT)),0,$(call can_link,-ljemalloc))

# --- flags
warnings := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes \
            -Wmissing-prototypes -Wundef -Wvla -Wcast-qual $(if $(filter 1,$(WERROR)),-Werror)
language := -std=c17 -D_DEFAULT_SOURCE -fPIC -fvisibility=hidden -ffp-contract=off
includes  = -Iinclude
# OpenMP's pragmas are in src/attn alone; without it they are unknown, and that is all right.
openmp   := $(if $(filter 1,$(OPENMP)),-fopenmp)
comma    := ,
compile   = $(CC) $(language) $(warnings) $(includes) $(variant) $(local) $(CPPFLAGS) $(CFLAGS)
link      = $(CC) $(linking) $(openmp) $(CFLAGS) $(LDFLAGS)
# The references to jemalloc are weak, so the linker must be told to keep it.
jemalloc := $(if $(filter 1,$(JEMALLOC)),-Wl$(comma)--no-as-needed -ljemalloc)
strict   := $(if $(linking),,-Wl$(comma)-z$(comma)defs)
include mk/hiredis.mk
libs      = $(jemalloc) $(hiredis) -lm -lpthread $(LDLIBS)

# --- flags of single files. A row for each kernels_<name>.c: machines that have it, its flags.
machine  := $(if $(filter scalar,$(VARIANT)),none,$(shell $(CC) -dumpmachine 2>/dev/null))
fast     := $(if $(filter release scalar,$(VARIANT)),-O3)
kernels   = $(if $(filter $(2),$(machine)),$(eval isas += $(1)) \
                $(eval $(OBJ)/src/attn/kernels_$(1).o: local = $(fast) $(3)))
$(call kernels,scalar,%)
$(call kernels,avx2,x86_64%,-mavx2 -mfma -mf16c)
$(call kernels,avx512,x86_64%,-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c)
vnni     := -mavx512vnni -mavx512vbmi -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c
$(call kernels,avx512vnni,x86_64%,$(vnni))
$(call kernels,avx512bf16,x86_64%,-mavx512bf16 $(vnni))
$(OBJ)/src/alloc/build_info.o:        local = $(openmp) $(hiredis_info)
$(OBJ)/src/attn/%.o:                  local = $(openmp) -Wno-unknown-pragmas
$(OBJ)/src/%.o:   includes = -Iinclude -Isrc
$(OBJ)/bench/%.o: includes = -Iinclude -Isrc -Ibench -Ibench/support
$(OBJ)/examples/%.o: includes = -Iinclude -Iexamples/support
$(OBJ)/examples/support/%.o: local = $(fast) $(openmp) -Wno-unknown-pragmas
$(OBJ)/bench/%.o:                       local = $(openmp) -Wno-unknown-pragmas
$(OBJ)/tests/%.o: includes = -Iinclude -Isrc -Itests -I.

objects   = $(patsubst %.c,$(OBJ)/%.o,$(1))
sources  := $(filter-out src/attn/kernels_% $(hiredis_left_out),$(wildcard src/*/*.c)) \
            $(patsubst %,src/attn/kernels_%.c,$(isas))
alone    := $(addprefix tests/,vectors numerics kernels stress fuzz dlopen)
unit_src := $(filter-out $(addsuffix %,$(alone) tests/support tests/abi bench/retention/main), \
                $(wildcard tests/*.c tests/*/*.c bench/retention/*.c))
# A program is one file or a folder of them; support is what the programs beside it share.
program   = $(basename $(wildcard $(1)/*.c)) $(patsubst %/,%,$(dir $(wildcard $(1)/*/*.c)))
examples := $(addprefix $(BUILD)/,$(filter-out %/support,$(sort $(call program,examples))))
benches  := $(addprefix $(BUILD)/,$(filter-out %/support,$(sort $(call program,bench))))
include mk/programs.mk
static   := $(BUILD)/libpagedkv.a
objects_archive := $(OBJ)/libobjects.a
shared   := $(BUILD)/libpagedkv.so.$(version)
unit     := $(BUILD)/tests/unit
programs := $(unit) $(examples) $(addprefix $(BUILD)/,$(alone))
gates    := $(addprefix check-,format style structure includes headers stress words docs)
FILES    ?= tests/vectors/*.txt
say = $(if $(filter 1,$(V)),@:,@printf '  %-5s %s\n')
$(if $(filter 1,$(V)),,$(eval .SILENT:))
MAKEFLAGS += --no-print-directory
makefiles := Makefile $(wildcard mk/*.mk)

.PHONY: all lib tests check demo vectors numerics bench bench-peers bench-plot benches asan ubsan \
        tsan stress soak coverage fuzz install uninstall gates $(gates) format \
        check-symbols check-python check-rust help clean deps run-unit FORCE
all: lib $(examples) ## library and examples (the default)
lib: $(static) $(shared) $(BUILD)/pagedkv.pc ## libpagedkv.a, libpagedkv.so, pagedkv.pc
tests: lib $(programs) ## everything that make check runs
benches: $(benches) ## builds the benchmarks

# --- rules. The stamp makes a change of compiler or flags rebuild.
stamp := $(compile) $(openmp) $(jemalloc) $(hiredis)
$(OBJ)/flags: FORCE
	@mkdir -p $(@D) $(addprefix $(BUILD)/,tests examples bench)
	@echo '$(stamp)' | cmp -s - $@ || echo '$(stamp)' > $@
$(OBJ)/%.o: %.c $(OBJ)/flags
	$(say) CC $@
	@mkdir -p $(@D)
	$(compile) -MMD -MP -c -o $@ $<
$(OBJ)/examples/support/embedded.o: examples/train/stories.pkvm
$(unit): $(call objects,$(unit_src)) $(BUILD)/bench/libsupport.a
.SECONDEXPANSION:
$(addprefix $(BUILD)/,$(alone)): $(BUILD)/%: $$(call objects,$$(wildcard $$*.c $$*/*.c))
with_objects := $(unit) $(filter-out %/dlopen,$(addprefix $(BUILD)/,$(alone)))
$(with_objects): $$(@D)/libsupport.a $(objects_archive)
	$(say) LINK $@
	$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcunit $(libs)
$(BUILD)/tests/dlopen:
	$(say) LINK $@
	$(CC) $(linking) $(CFLAGS) $(LDFLAGS) -o $@ $^ -ldl $(LDLIBS)
$(examples) $(benches): $$(@D)/libsupport.a
$(BUILD)/%/libsupport.a: $$(call objects,$$(wildcard $$*/support/*.c))
	@rm -f $@.new
	$(AR) rcs $@.new $^ && mv $@.new $@
$(examples): $(static)
$(benches): $(objects_archive)
$(examples) $(benches): $(BUILD)/%: $$(call objects,$$(wildcard $$*.c $$*/*.c))
	$(say) LINK $@
	$(link) -o $@ $(filter %.o,$^) $(filter %/libsupport.a,$^) $(filter-out %/libsupport.a, \
	    $(filter %.a,$^)) $(own_libs) $(libs)
include mk/library.mk

# --- running
check: ## unit tests and vectors on every ISA level, greedy decoding, dlopen
	@scripts/deps.sh check
	@$(MAKE) tests
	@BUILD='$(BUILD)' LIBRARY='$(shared)' VECTORS='$(FILES)' scripts/check.sh
demo: ## a model in this repository writes stories, the pool beside them; three ways agree
	@scripts/deps.sh demo
	@$(MAKE) $(BUILD)/examples/demo
	@BUILD='$(BUILD)' scripts/demo.sh
vectors: $(BUILD)/tests/vectors ## the golden vectors; FILES="..." chooses
	@$(if $(FILES),$< $(FILES),echo 'vectors: no files found' >&2; exit 1)
numerics: $(BUILD)/tests/numerics ; @$< ## measured errors, the tables of docs/numerics.md
bench bench-peers bench-plot: $(benches) ## shares of the limit; beside peers of npm; charts in docs
	@BUILD='$(BUILD)' scripts/bench.sh $@
asan ubsan: ; @$(MAKE) VARIANT=$@ BUILD=build/$@ run-unit ## the unit tests under a sanitiser
tsan: ; @$(MAKE) VARIANT=$@ BUILD=build/$@ CC=clang run-unit stress ## clang's; the stress too
stress: $(BUILD)/tests/stress ; @$< ## request life from 8 threads, PKV_STRESS_SECONDS long
soak: tests ; @BUILD='$(BUILD)' scripts/soak.sh ## models, stress and random calls, 25 minutes
coverage: ## the unit tests, then lines and branches that they reach, by file
	@$(MAKE) VARIANT=coverage BUILD=build/coverage run-unit
	@GCOV='$(GCOV)' scripts/coverage.sh build/coverage
fuzz: $(BUILD)/tests/fuzz ; @$< ## random calls, valid and not; PKV_FUZZ_SECONDS long
run-unit: $(unit) ; @$(unit)

# --- gates
format: ; @scripts/check_format.sh --fix ## clang-format decides
check-symbols: lib $(objects_archive) ## what the library exports
	@scripts/check_symbols.sh $(shared) $(static) $(objects_archive)
	@scripts/check_abidiff.sh $(shared)
check-python: ; @BUILD='$(BUILD)' scripts/check_python.sh ## bindings/python
check-rust: ; @BUILD='$(BUILD)' scripts/check_rust.sh ## bindings/rust, by cargo
check-docs: deps ## what README and docs show is run and compiled
gates: $(filter-out %-docs %-words,$(gates)) ## check-format -style -structure -includes ..
$(gates): ; @BUILD='$(BUILD)' scripts/$(subst -,_,$@).sh
deps: ; @scripts/deps.sh ci ## installs the packages that any target needs
compile_commands.json: FORCE ## for editors and clangd
	@$(MAKE) -nB V=1 tests benches | scripts/compile_commands.sh > $@

include mk/install.mk
clean: ; @rm -rf build compile_commands.json ## removes every variant
help: ## this list
	@sed -n 's/^\([a-z][a-z_. -]*\):.*## /\1:/p' $(makefiles) | \
	    awk -F: '{printf "%-22s %s\n", $$1, $$2}'
	@echo 'VARIANT=release|debug|scalar|coverage|asan|ubsan|tsan OPENMP=0 JEMALLOC=0 HIREDIS=0'
	@echo 'WERROR=1 V=1'
FORCE:
-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)
