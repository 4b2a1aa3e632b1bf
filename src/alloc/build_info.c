/* SPDX-License-Identifier: MIT
 *
 * The one line about this build. It is put together by the compiler, a literal for each case, so
 * that it needs no buffer that threads would share. Whether metadata comes from jemalloc is known
 * only in the process, from mem. */
#include "alloc/mem.h"
#include "base/build.h"

#define TEXT(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)
#define VERSION VERSION_TEXT(PKV_VERSION_MAJOR, PKV_VERSION_MINOR, PKV_VERSION_PATCH)
#define ISA_TEXT(isa, value, name, machine) machine(" " #name)
#define INFO(rest) "pagedkv " VERSION ", " PKV_COMPILER "," PKV_ISA_LIST(ISA_TEXT) ", " rest

const char *pkv_build_info(void)
{
    static const char *const lines[2][2] = {
        {INFO("no openmp, " PKV_HIREDIS ", metadata: libc"),
         INFO("no openmp, " PKV_HIREDIS ", metadata: jemalloc")},
        {INFO("openmp, " PKV_HIREDIS ", metadata: libc"),
         INFO("openmp, " PKV_HIREDIS ", metadata: jemalloc")},
    };
    return lines[PKV_HAVE_OPENMP][mem_has_jemalloc()];
}
