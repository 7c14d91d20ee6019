#pragma once

// Work: a collective that goes on while its caller does something else. Its tensors are the call's
// until wait() has returned: they are kept alive, and nobody may touch them.
//
// Threads: any. Lifetimes: a value; it may outlive its Communicator and need not be waited for.

#include <c10/util/intrusive_ptr.h>

#include "runtime/base/status.h"

namespace c10d {
class Work;
}

namespace ds::comm {

class Work {
 public:
  // Null is a call that has ended: NCCL returns it of one that is not asynchronous, which it has
  // put on the current stream.
  explicit Work(c10::intrusive_ptr<c10d::Work> work);
  Work(const Work&);
  Work(Work&&) noexcept;
  Work& operator=(const Work&);
  Work& operator=(Work&&) noexcept;
  ~Work();

  // Blocks until the tensors may be used (on CUDA: until that is ordered on the current stream).
  // Throws what the call has failed with.
  void wait();
  // The call has ended, well or not; does not block.
  bool done() const;
  // Says what it has failed with; OK while it is not done.
  Status error() const;

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace ds::comm
