# SPDX-License-Identifier: MIT
#
# install.mk: installing to DESTDIR and prefix, and taking it away again. Included by the Makefile.

dest_lib := $(DESTDIR)$(libdir)
manpages := $(wildcard docs/man/*.3)
install: lib ## to DESTDIR and prefix
	$(INSTALL) -d $(dest_lib) $(DESTDIR)$(includedir)/pagedkv $(DESTDIR)$(pkgconfigdir)
	$(INSTALL) -m 644 include/pagedkv.h $(DESTDIR)$(includedir)
	$(INSTALL) -m 644 include/pagedkv/*.h $(DESTDIR)$(includedir)/pagedkv
	$(INSTALL) -m 644 $(BUILD)/pagedkv.pc $(DESTDIR)$(pkgconfigdir)
	$(INSTALL) -m 644 $(static) $(dest_lib)
	$(INSTALL) -m 755 $(shared) $(dest_lib)
	$(STRIP) --strip-debug $(addprefix $(dest_lib)/,$(notdir $(shared) $(static)))
	cd $(dest_lib) && ln -sf $(notdir $(shared)) $(soname) && ln -sf $(soname) libpagedkv.so
	$(if $(manpages),$(INSTALL) -m 644 -D -t $(DESTDIR)$(mandir)/man3 $(manpages))
uninstall: ## removes what install put there
	rm -f $(dest_lib)/libpagedkv.* $(DESTDIR)$(pkgconfigdir)/pagedkv.pc
	rm -f $(addprefix $(DESTDIR)$(mandir)/man3/,$(notdir $(manpages)))
	rm -rf $(addprefix $(DESTDIR)$(includedir)/,pagedkv pagedkv.h)
