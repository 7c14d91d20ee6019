#pragma once

// Work: a pending collective. The call owns its tensors until wait() has returned: it keeps them
// alive, and other code must not access them.
//
// Thread-safe. A value type; it may outlive its Communicator and need not be waited for.

#include <c10/util/intrusive_ptr.h>

#include "runtime/base/status.h"

namespace c10d {
class Work;
}

namespace ds::comm {

class Work {
 public:
  // `work` is null for a finished call: NCCL returns null for calls that are not asynchronous,
  // which it has queued on the current stream.
  explicit Work(c10::intrusive_ptr<c10d::Work> work);
  Work(const Work&);
  Work(Work&&) noexcept;
  Work& operator=(const Work&);
  Work& operator=(Work&&) noexcept;
  ~Work();

  // Blocks until the tensors may be used (on CUDA: until that is ordered on the current stream).
  // Throws the error of a failed call.
  void wait();
  // Returns whether the call has ended, with or without an error. Does not block.
  bool done() const;
  // Returns the error of a failed call; OK while it is pending.
  Status error() const;

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace ds::comm
