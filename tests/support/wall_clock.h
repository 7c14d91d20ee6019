#pragma once

// The wall clock of a test program that links this: it may be set, for that program alone, while
// the time that only ever grows (CLOCK_MONOTONIC) stays as it is.
//
// The program's clock_gettime takes the C library's place, for its libraries as well. What the
// kernel does by the wall clock (an absolute deadline of a condition variable) still goes by the
// machine's.
//
// Threads: safe from any.

#include <chrono>

namespace ds::testing {

// Makes the wall clock say so much more than the machine's from now on.
void SetWallClockAhead(std::chrono::seconds by);

// Sets the wall clock back by so much at each look at it from now on; 0 = no more.
void SetWallClockBackAtEachLook(std::chrono::seconds by);

}  // namespace ds::testing
