#pragma once

// Memory that only starting needed.

namespace ds {

// Gives back the pages of this program's code that are in memory. What is used again comes back
// from the page cache at a microsecond or so per 64 KiB; what only the start needed (most of it,
// with gRPC linked in) stays out. For a program that will wait for hours.
//
// Threads: any.
void ReleaseStartPages();

}  // namespace ds
