#pragma once

// One malloc arena for all threads of this process.

#include <malloc.h>

namespace ds {

// glibc makes an arena of its own for every thread that allocates: a mapping of 128 MiB, of which
// it gives half back and makes the rest usable bit by bit, each time with the lock that page faults
// of all other threads wait for. For a program that starts a dozen threads to be idle it is a
// quarter of a millisecond at its start and another at its end. Call it before there is another
// thread.
inline void ShareMallocArena() { ::mallopt(M_ARENA_MAX, 1); }

}  // namespace ds
