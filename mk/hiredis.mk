# SPDX-License-Identifier: MIT
#
# hiredis.mk: the Redis tier is built where hiredis is; HIREDIS=0 leaves it out. Included by the
# Makefile.
#
#   hiredis              what the linker is told; empty without the tier
#   hiredis_info         what build_info.c is told
#   hiredis_left_out     sources that this build is without

# "0 14 1", as the header says that the compiler finds; nothing where there is none.
hiredis_header  := $(shell echo HIREDIS_MAJOR HIREDIS_MINOR HIREDIS_PATCH | \
                       $(CC) $(CPPFLAGS) -include hiredis/hiredis.h -E -P -x c - 2>/dev/null | \
                       tail -n 1 | grep '^[0-9. ]*$$')
HIREDIS         ?= $(if $(hiredis_header),$(call can_link,-lhiredis))
empty           :=
hiredis_version := $(subst $(empty) ,.,$(strip $(hiredis_header)))
hiredis_sources := $(filter-out %/redis_absent.c %/redis_slots.c %/redis_address.c, \
                       $(wildcard src/tiers/redis*.c))
ifeq ($(HIREDIS),1)
hiredis         := -lhiredis
hiredis_info    := -DPKV_HIREDIS='"hiredis $(hiredis_version)"'
hiredis_left_out := src/tiers/redis_absent.c
else
hiredis_left_out := $(hiredis_sources)
endif
