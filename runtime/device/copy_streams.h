#pragma once

// CopyStreams: copies between host memory and a device's that go on beside its computation, one
// stream for each way, and what has to wait for them.
//
// "The computation" is what the calling thread's current stream of the device has been given. A
// copy to the device begins behind it, as the memory that it writes may have been its until now; a
// copy from there too, as it reads what that has written. Nothing here waits on the host but
// AwaitOnHost.
//
// Memory that leaves (TakeAway) is nobody else's before its copy has ended: it is held here until
// the computation has been told to wait for that, and then freed to it. The allocator's own
// recordStream would not do: it frees once the host has seen the end, and a host that is ahead of
// its device would take new memory for every copy. So most_leaving_bytes bounds what is held, and
// the device, not the host, waits where copies are slower than the computation.
//
// Threads: one thread at a time. Lifetimes: host memory is LibTorch's pinned memory, whose
// allocator knows its copies; without being pinned it is copied before the call returns. An
// implementation's destructor calls FreeAll.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/device/memory_ledger.h"

namespace ds::device {

// CopyEnd is the moment when a copy has ended.
class CopyEnd {
 public:
  virtual ~CopyEnd() = default;
};
using CopyEndPtr = std::shared_ptr<const CopyEnd>;

class CopyStreams {
 public:
  explicit CopyStreams(std::int64_t most_leaving_bytes) : most_leaving_bytes_(most_leaving_bytes) {}
  virtual ~CopyStreams() = default;
  CopyStreams(const CopyStreams&) = delete;
  CopyStreams& operator=(const CopyStreams&) = delete;

  // Begins to copy host memory to the device's, behind other copies too.
  virtual CopyEndPtr Bring(const at::Tensor& to, const at::Tensor& from,
                           const std::vector<CopyEndPtr>& behind) = 0;
  // Begins to copy the device's memory to the host's, and takes it: `booked` are its bytes.
  CopyEndPtr TakeAway(at::Tensor from, const at::Tensor& to, LedgerEntry booked);

  // Makes what the computation is given from here on wait for the copy.
  virtual void Await(const CopyEnd& end) = 0;
  virtual void AwaitOnHost(const CopyEnd& end) = 0;
  virtual bool HasEnded(const CopyEnd& end) = 0;

  std::int64_t leaving_bytes() const { return leaving_bytes_; }
  // Frees all that leaves, once the computation has been told to wait for it.
  void FreeAll();

 protected:
  virtual CopyEndPtr Take(const at::Tensor& to, const at::Tensor& from) = 0;

 private:
  void FreeOldest();

  struct Leaving {
    at::Tensor memory;
    LedgerEntry booked;
    CopyEndPtr end;
  };
  const std::int64_t most_leaving_bytes_;
  std::int64_t leaving_bytes_ = 0;
  std::deque<Leaving> leaving_;  // the first began to first
};

// Null for the CPU, where the host's memory is that of the computation. The device need not be
// open before the first copy.
std::unique_ptr<CopyStreams> OpenCopyStreams(c10::Device device, std::int64_t most_leaving_bytes);

}  // namespace ds::device
