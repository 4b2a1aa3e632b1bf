/* SPDX-License-Identifier: MIT
 *
 * base.c: names of statuses, sizes of types, the version. */
#include "pagedkv/base.h"

const char *pkv_status_name(enum pkv_status status)
{
    switch (status) {
    case PKV_OK: return "PKV_OK";
    case PKV_INVALID_ARGUMENT: return "PKV_INVALID_ARGUMENT";
    case PKV_NO_MEMORY: return "PKV_NO_MEMORY";
    case PKV_NO_BLOCKS: return "PKV_NO_BLOCKS";
    case PKV_NEVER_FITS: return "PKV_NEVER_FITS";
    case PKV_NOT_RESIDENT: return "PKV_NOT_RESIDENT";
    case PKV_STALE_HANDLE: return "PKV_STALE_HANDLE";
    case PKV_BUSY: return "PKV_BUSY";
    case PKV_UNSUPPORTED: return "PKV_UNSUPPORTED";
    case PKV_CORRUPT: return "PKV_CORRUPT";
    case PKV_IO: return "PKV_IO";
    case PKV_NOT_FOUND: return "PKV_NOT_FOUND";
    }
    return "unknown status";
}

size_t pkv_dtype_bytes(enum pkv_dtype dtype)
{
    switch (dtype) {
    case PKV_F32: return 4;
    case PKV_F16:
    case PKV_BF16: return 2;
    case PKV_INT8:
    case PKV_E4M3: return 1;
    }
    return 0;
}

#define TEXT(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *pkv_version(void)
{
    return VERSION_TEXT(PKV_VERSION_MAJOR, PKV_VERSION_MINOR, PKV_VERSION_PATCH);
}
