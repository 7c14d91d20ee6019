#pragma once

// CopyStreams: asynchronous copies between host and device memory, overlapped with computation.
// There is one stream per direction.
//
// "The computation" is the work queued on the calling thread's current stream of the device. A copy
// to the device starts after that work, because the destination may be in use until then. A copy
// from the device also starts after it, because that work produces the source. Only AwaitOnHost
// blocks the host.
//
// TakeAway keeps the source memory until its copy has ended. It is freed after the computation has
// been made to wait for the copy. The allocator's recordStream is not suitable: it frees memory
// only once the host has seen the end of the copy, and a host that runs ahead of its device would
// allocate new memory for every copy. most_leaving_bytes bounds the kept memory. If copies are
// slower than computation, the device waits, not the host.
//
// Not thread-safe. Host memory should be LibTorch's pinned memory; its allocator tracks copies;
// other memory is copied before the call returns. Destructors of implementations call FreeAll.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/device/memory_ledger.h"

namespace ds::device {

// CopyEnd: the completion event of a copy.
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

  // Starts a copy from host to device memory, after the copies in `after`.
  virtual CopyEndPtr Bring(const at::Tensor& to, const at::Tensor& from,
                           const std::vector<CopyEndPtr>& after) = 0;
  // Starts a copy from device to host memory and takes ownership of `from`; `booked` is its ledger
  // entry.
  CopyEndPtr TakeAway(at::Tensor from, const at::Tensor& to, LedgerEntry booked);

  // Makes work queued on the computation from now on wait for the copy.
  virtual void Await(const CopyEnd& end) = 0;
  virtual void AwaitOnHost(const CopyEnd& end) = 0;
  virtual bool HasEnded(const CopyEnd& end) = 0;

  std::int64_t leaving_bytes() const { return leaving_bytes_; }
  // Frees all memory kept by TakeAway, after making the computation wait for the copies.
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
  std::deque<Leaving> leaving_;  // in the order of their starts
};

// Returns null for the CPU, where computation uses host memory. The device need not be open before
// the first copy.
std::unique_ptr<CopyStreams> OpenCopyStreams(c10::Device device, std::int64_t most_leaving_bytes);

}  // namespace ds::device
