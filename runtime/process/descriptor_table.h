#pragma once

// Initial setup of this process's descriptor table: standard streams and reserved capacity.

namespace ds {

// Opens /dev/null as standard input, output and error where they are closed (`<&-`). Otherwise a
// socket or a log file would get such a number and receive text meant for the terminal.
void FillStandardDescriptors();

// Grows the table for descriptors below `count`, or below the limit of open files if that is lower.
// A failure costs only time.
//
// When threads share a table, the thread that grows it waits until every processor has passed a
// quiescent state (expand_files calls synchronize_rcu): 5 to 15 ms each time the table doubles.
// Call this before the process starts a second thread. Children get a table of their own size.
void ReserveDescriptors(int count);

}  // namespace ds
