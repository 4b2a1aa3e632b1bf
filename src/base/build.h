/* SPDX-License-Identifier: MIT
 *
 * build.h: what this build of the library is: its compiler, OpenMP, the machine, and what only
 * some compilers have: a hint to the machine, the number of a bit. It is no part of a public header
 * because a caller's compiler and flags may be others. */
#ifndef PKV_BASE_BUILD_H
#define PKV_BASE_BUILD_H

/* 1 in a build with OpenMP, on whose threads attention runs; 0 in one without. Only
 * files that are compiled with OpenMP's flag see the 1: build_info.c and those of src/attn. */
#if defined(_OPENMP)
#define PKV_HAVE_OPENMP 1
#else
#define PKV_HAVE_OPENMP 0
#endif
/* "hiredis 0.14.1" in a build with the Redis tier; build_info.c alone sees it. */
#if !defined(PKV_HIREDIS)
#define PKV_HIREDIS "no hiredis"
#endif
/* PKV_ON_<machine>(text) is text in a build with kernels for that machine, and nothing in others;
 * PKV_ON_ANY(text) is text everywhere. For the library's one list of instruction sets. */
#define PKV_ON_ANY(...) __VA_ARGS__
#if defined(__x86_64__) && !defined(PKV_SCALAR_ONLY)
#define PKV_ON_X86(...) __VA_ARGS__
#else
#define PKV_ON_X86(...)
#endif
#if defined(__aarch64__) && !defined(PKV_SCALAR_ONLY)
#define PKV_ON_ARM64(...) __VA_ARGS__
#else
#define PKV_ON_ARM64(...)
#endif
/* The compiler, as pkv_build_info names it. */
#if defined(__clang__)
#define PKV_COMPILER __VERSION__
#elif defined(__GNUC__)
#define PKV_COMPILER "gcc " __VERSION__
#else
#define PKV_COMPILER "C17"
#endif

/* Starts loading memory that will be read soon. gcc leaves out calls of functions that do nothing
 * else, as if they had no effect: the empty statement of assembly is one. */
#if defined(__GNUC__)
#define PKV_PREFETCH(address) (__builtin_prefetch(address), pkv_prefetched())
static inline void pkv_prefetched(void)
{
    __asm__ volatile("");
}
#else
#define PKV_PREFETCH(address) ((void)(address))
#endif

/* The number of the lowest and of the highest bit that is set in a word of 64 that is not 0. */
#if defined(__GNUC__)
#define PKV_LOWEST_BIT(word) __builtin_ctzll(word)
#define PKV_HIGHEST_BIT(word) (63 - __builtin_clzll(word))
#else
#define PKV_LOWEST_BIT(word) pkv_highest_bit((word) & (~(word) + 1))
#define PKV_HIGHEST_BIT(word) pkv_highest_bit(word)
static inline int pkv_highest_bit(unsigned long long word)
{
    int bit = 0;
    while (word >>= 1) {
        bit++;
    }
    return bit;
}
#endif

#endif
