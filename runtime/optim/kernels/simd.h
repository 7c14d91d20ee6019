#pragma once

// DS_SIMD_CLONES, on a function of plain loops, compiles it once per instruction set and selects at
// load time: one binary runs everywhere and uses the widest vectors of the machine.

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define DS_SIMD_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__)
// Every such machine has NEON. Not compiled or run on any yet.
#define DS_SIMD_CLONES __attribute__((optimize("O3")))
#else
#define DS_SIMD_CLONES
#endif
