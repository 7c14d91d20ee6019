#pragma once

// HostWindows: values that lie in host memory, pinned where the rank computes on a device, and come
// range by range to where it computes, as those of files do (offload/windows.h).
//
// A window is memory where the rank computes, with the values of a range. Those of the host stay
// where they are, for as long as this lives: a window that nobody has written goes without a copy.
//
// With Context::copies nobody waits on the host for a copy but AcquireOnHost, for what it lends;
// without, whoever opens or closes a window copies. Every byte is in the memory ledger, under both
// tiers while it is in both.
//
// Threads: one thread at a time. Lifetimes: the context outlives this, this what it has lent.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/device/copy_streams.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/offload/windows.h"
#include "runtime/plan/zero/flat_layout.h"
#include "runtime/zero/storage/context.h"

namespace ds::zero {

using offload::Access;

class HostWindows {
 public:
  // Takes host memory for `count` undefined values.
  HostWindows(const Context& context, std::int64_t count, c10::ScalarType dtype,
              device::MemoryUse use);
  ~HostWindows();
  HostWindows(const HostWindows&) = delete;
  HostWindows& operator=(const HostWindows&) = delete;

  // Is in use as long as a copy of `use` lives.
  struct Lent {
    at::Tensor values;
    std::shared_ptr<const void> use;
  };
  // Lends a range where the rank computes: what the computation is given from here on finds it
  // there. Requires that nobody uses a part of it with other values.
  Lent Acquire(const FlatRange& range, Access access);
  // Lends it where it lies, once copies have ended; what somebody has been lent there, there. As
  // long as it is lent nothing comes.
  Lent AcquireOnHost(const FlatRange& range, Access access);
  // Begins to bring it, unless somebody uses a part of it already.
  void Prefetch(const FlatRange& range);
  // Begins to take all windows that meet the range away. Requires that nobody uses these.
  void Stow(const FlatRange& range);
  void Zero();

 private:
  struct Window {
    FlatRange range;
    device::LedgerEntry booked;
    at::Tensor here;
    device::CopyEndPtr came;  // null: by no stream
    bool changed = false;
  };
  using WindowPtr = std::shared_ptr<Window>;
  struct Copy {
    FlatRange range;
    device::CopyEndPtr end;
    bool to_host = false;
  };

  at::Tensor OnHost(const FlatRange& range) const;
  WindowPtr Find(const FlatRange& range) const;
  bool IsUsed(const FlatRange& range) const;
  WindowPtr Open(const FlatRange& range, bool reads);
  void Close(Window& window);
  void Note(Copy begun);

  const Context& context_;
  const device::MemoryUse use_;
  const device::LedgerEntry booked_;
  const at::Tensor host_;
  std::vector<WindowPtr> windows_;  // no two meet
  std::vector<Copy> copies_;        // that may be under way, the first begun first
  std::shared_ptr<int> host_users_ = std::make_shared<int>();
};

}  // namespace ds::zero
