#pragma once

// The table of this process's open files, as it begins: its standard streams, and room for more.

namespace ds {

// Opens /dev/null as standard input, output and error where nobody gave this process one (`<&-`):
// else a socket or a log file would get its number, and what is meant for the terminal.
void FillStandardDescriptors();

// Makes room for descriptors below `count`, or the limit of open files where that is lower. Where
// it cannot be had nothing is lost but time.
//
// The kernel makes a thread that grows a table other threads share wait until every processor has
// passed a quiescent state (expand_files calls synchronize_rcu): 5 to 15 ms each time the table
// doubles. Call it before there is another thread. Children get a table of their own size.
void ReserveDescriptors(int count);

}  // namespace ds
