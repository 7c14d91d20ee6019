#pragma once

// Limits the malloc arenas that the threads of this process make.

#include <malloc.h>

namespace ds {

// One for the main thread and one for all others. glibc makes one for every thread that allocates:
// a mapping of 128 MiB, of which it gives half back and makes the rest usable bit by bit, each time
// with the lock that page faults of all other threads wait for. For a program that starts a dozen
// threads to be idle it is a quarter of a millisecond at its start and another at its end; with a
// single arena the main thread would wait for the others. Call it before there is another thread.
inline void LimitMallocArenas() { ::mallopt(M_ARENA_MAX, 2); }

}  // namespace ds
