#pragma once

// LimitMallocArenas limits the number of malloc arenas of this process.

#include <malloc.h>

namespace ds {

// Allows two arenas: one for the main thread and one for all others. By default glibc makes one for
// every thread that allocates. Each is a mapping of 128 MiB: glibc unmaps half and makes the rest
// accessible step by step, and each step holds the lock that page faults of all other threads wait
// for. In a program that starts a dozen idle threads this costs a quarter of a millisecond at the
// start and another at the end. With a single arena the main thread would wait for the others. Call
// this before the process starts a second thread.
inline void LimitMallocArenas() { ::mallopt(M_ARENA_MAX, 2); }

}  // namespace ds
