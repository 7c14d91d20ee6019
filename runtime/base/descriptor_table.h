#pragma once

// ReserveDescriptors: room in this process's table of open files, so that it need not grow later.
//
// The kernel makes a thread that grows a table other threads share wait until every processor has
// passed a quiescent state (expand_files calls synchronize_rcu): 5 to 15 ms each time the table
// doubles. Call it before there is another thread. Children get a table of their own size.

namespace ds {

// For descriptors below `count`, or the limit of open files where that is lower. Where it cannot be
// had nothing is lost but that time.
void ReserveDescriptors(int count);

}  // namespace ds
