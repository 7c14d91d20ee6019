#pragma once

// HostWindows: values in host memory (pinned if the rank computes on a GPU) that are brought, range
// by range, to the device that computes. offload/windows.h does the same for files.
//
// A window is memory on the computing device with the values of a range. The host copy stays
// allocated while this object lives; a window that was not written is dropped without a copy.
//
// With Context::copies all copies are asynchronous: only AcquireOnHost waits on the host, for the
// range it lends. Without it, opening or closing a window copies synchronously. Every byte is in
// the memory ledger, under both tiers while it is in both.
//
// Threads: one thread at a time. Lifetimes: the context must outlive this object, and this object
// everything it has lent.

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
  // Allocates host memory for `count` undefined values.
  HostWindows(const Context& context, std::int64_t count, c10::ScalarType dtype,
              device::MemoryUse use);
  ~HostWindows();
  HostWindows(const HostWindows&) = delete;
  HostWindows& operator=(const HostWindows&) = delete;

  // A range counts as in use while a copy of `use` lives.
  struct BorrowedRange {
    at::Tensor values;
    std::shared_ptr<const void> use;
  };
  // Lends a range on the computing device; work enqueued from here on sees the values. Requires
  // that no part of it is in use together with other values.
  BorrowedRange Acquire(const FlatRange& range, Access access);
  // Lends the range in host memory, once its copies have ended; if its window is in use, lends the
  // window instead. While it is lent no window may be opened.
  BorrowedRange AcquireOnHost(const FlatRange& range, Access access);
  // Starts loading the range, unless a part of it is in use.
  void Prefetch(const FlatRange& range);
  // Starts writing back all windows that overlap the range. Requires that they are not in use.
  void Offload(const FlatRange& range);
  void Zero();

 private:
  struct Window {
    FlatRange range;
    device::LedgerEntry booked;
    at::Tensor here;
    device::CopyEndPtr came;  // null: copied synchronously
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
  std::vector<WindowPtr> windows_;  // never overlapping
  std::vector<Copy> copies_;        // possibly still running, oldest first
  std::shared_ptr<int> host_users_ = std::make_shared<int>();
};

}  // namespace ds::zero
