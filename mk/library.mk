# SPDX-License-Identifier: MIT
#
# library.mk: the static and the shared library, and the file for pkg-config. Included by the
# Makefile.

# Of the static library only what is public can be linked to: its objects become one, whose other
# names are local. Tests and benchmarks, which reach inside, take the archive of all objects.
$(objects_archive): $(call objects,$(sources))
	@rm -f $@.new
	$(AR) rcs $@.new $^ && mv $@.new $@
$(static): $(call objects,$(sources))
	$(say) AR $@
	@rm -f $@.new
	$(LD) -r -o $(OBJ)/pagedkv.o $^ && $(OBJCOPY) --localize-hidden $(OBJ)/pagedkv.o
	$(AR) rcs $@.new $(OBJ)/pagedkv.o && mv $@.new $@
$(shared): $(call objects,$(sources)) src/pagedkv.map
	$(say) LINK $@
	$(link) -shared -Wl,-soname,$(soname) -Wl,--version-script=src/pagedkv.map \
	    $(strict) -o $@ $(filter %.o,$^) $(hiredis) -lm -lpthread $(LDLIBS)
	@ln -sf $(@F) $(BUILD)/$(soname) && ln -sf $(@F) $(BUILD)/libpagedkv.so
$(BUILD)/pagedkv.pc: pagedkv.pc.in $(OBJ)/flags FORCE
	@sed -e 's|@prefix@|$(prefix)|' -e 's|@version@|$(version)|' -e 's|@openmp@|$(openmp)|' \
	    -e 's|@hiredis@|$(hiredis)|' \
	    -e 's|@exec_prefix@|$(patsubst $(prefix)%,$${prefix}%,$(exec_prefix))|' \
	    -e 's|@libdir@|$(patsubst $(exec_prefix)%,$${exec_prefix}%,$(libdir))|' \
	    -e 's|@includedir@|$(patsubst $(prefix)%,$${prefix}%,$(includedir))|' $< > $@
