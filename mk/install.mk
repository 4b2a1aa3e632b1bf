# SPDX-License-Identifier: MIT
#
# install.mk: installing to DESTDIR and prefix, and taking it away again; the archive of a release.
# Included by the Makefile.

dest_lib := $(DESTDIR)$(libdir)
manpages := $(wildcard docs/man/*.3)
dest_cmake := $(dest_lib)/cmake/pagedkv
cmakes   := $(addprefix $(BUILD)/,pagedkv-config.cmake pagedkv-config-version.cmake)
# From the folder of the library to that of the headers: cmake's files name no absolute path.
to_include = $(shell realpath -m --relative-to='$(libdir)' '$(includedir)')
# The numbers in the soname, as a regular expression.
compatible := $(subst .,\\\\.,$(soname:libpagedkv.so.%=%))
.PHONY: check-cmake check-debian dist
$(cmakes): $(BUILD)/%: cmake/%.in $(OBJ)/flags FORCE
	@sed -e 's|@version@|$(version)|' -e 's|@compatible@|$(compatible)|' \
	    -e 's|@shared@|$(notdir $(shared))|' -e 's|@soname@|$(soname)|' -e 's|@openmp@|$(openmp)|' \
	    -e 's|@hiredis@|$(hiredis:-l%=;%)|' \
	    -e 's|@lib_to_include@|$(to_include)|' $< > $@
install: lib $(cmakes) ## to DESTDIR and prefix
	$(INSTALL) -d $(dest_lib) $(DESTDIR)$(includedir)/pagedkv $(DESTDIR)$(pkgconfigdir)
	$(INSTALL) -m 644 include/pagedkv.h $(DESTDIR)$(includedir)
	$(INSTALL) -m 644 include/pagedkv/*.h $(DESTDIR)$(includedir)/pagedkv
	$(INSTALL) -m 644 $(BUILD)/pagedkv.pc $(DESTDIR)$(pkgconfigdir)
	$(INSTALL) -m 644 -D -t $(dest_cmake) $(cmakes)
	$(INSTALL) -m 644 $(static) $(dest_lib)
	$(INSTALL) -m 755 $(shared) $(dest_lib)
	$(STRIP) --strip-debug $(addprefix $(dest_lib)/,$(notdir $(shared) $(static)))
	cd $(dest_lib) && ln -sf $(notdir $(shared)) $(soname) && ln -sf $(soname) libpagedkv.so
	$(if $(manpages),$(INSTALL) -m 644 -D -t $(DESTDIR)$(mandir)/man3 $(manpages))
uninstall: ## removes what install put there
	rm -f $(dest_lib)/libpagedkv.* $(DESTDIR)$(pkgconfigdir)/pagedkv.pc
	rm -rf $(dest_cmake)
	rm -f $(addprefix $(DESTDIR)$(mandir)/man3/,$(notdir $(manpages)))
	rm -rf $(addprefix $(DESTDIR)$(includedir)/,pagedkv pagedkv.h)
check-cmake: lib ; @BUILD='$(BUILD)' scripts/check_cmake.sh ## a client by find_package
check-debian: ; @scripts/check_debian.sh ## builds the Debian packages, and lintian
dist: ; @scripts/dist.sh $(version) ## build/pagedkv-VERSION.tar.xz, the tracked files
