#pragma once

// Initial setup of this process's descriptor table: standard streams, its limit and reserved
// capacity.

#include <sys/resource.h>

namespace ds {

// Opens /dev/null as standard input, output and error where they are closed (`<&-`). Otherwise a
// socket or a log file would get such a number and receive text meant for the terminal.
void FillStandardDescriptors();

// Raises the soft limit of open files to the hard one. Returns the limit that this process began
// with, also when called again: its programs get that one back, because some of them use select(2)
// or close every number below the limit.
//
// Thread-safe.
rlimit RaiseOpenFilesLimit();

// Grows the table for descriptors below `count`, or below the limit of open files if that is lower.
// A failure costs only time.
//
// When threads share a table, the thread that grows it waits until every processor has passed a
// quiescent state (expand_files calls synchronize_rcu): 5 to 15 ms each time the table doubles.
// Call this before the process starts a second thread. Children get a table of their own size.
void ReserveDescriptors(int count);

}  // namespace ds
