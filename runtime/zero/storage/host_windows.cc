#include "runtime/zero/storage/host_windows.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace ds::zero {
namespace {

// An empty range overlaps nothing.
bool Meet(const FlatRange& a, const FlatRange& b) {
  return std::max(a.start, b.start) < std::min(a.end(), b.end());
}
bool Contains(const FlatRange& a, const FlatRange& b) {
  return a.start <= b.start && b.end() <= a.end();
}

std::int64_t BytesOf(std::int64_t count, c10::ScalarType dtype) {
  return count * static_cast<std::int64_t>(c10::elementSize(dtype));
}

}  // namespace

HostWindows::HostWindows(const Context& context, std::int64_t count, c10::ScalarType dtype,
                         device::MemoryUse use)
    : context_(context),
      use_(use),
      booked_(context.ledger, use,
              context.device.is_cpu() ? device::MemoryTier::kHost : device::MemoryTier::kPinned,
              BytesOf(count, dtype)),
      host_(at::empty({count},
                      at::TensorOptions().dtype(dtype).pinned_memory(!context.device.is_cpu()))) {}

HostWindows::~HostWindows() {
  DS_CHECK_MSG(host_users_.use_count() == 1 && !IsUsed({0, host_.numel()}),
               "a store ends before a lease of it");
  try {
    for (const WindowPtr& window : windows_) {
      if (window->came) context_.copies->Await(*window->came);
    }
  } catch (const c10::Error&) {
    // A failed device computes nothing more, and the caller of that computation has the error.
  }
}

at::Tensor HostWindows::OnHost(const FlatRange& range) const {
  return host_.narrow(0, range.start, range.count);
}

HostWindows::WindowPtr HostWindows::Find(const FlatRange& range) const {
  for (const WindowPtr& window : windows_) {
    if (Contains(window->range, range)) return window;
  }
  return nullptr;
}

bool HostWindows::IsUsed(const FlatRange& range) const {
  return std::any_of(windows_.begin(), windows_.end(), [&](const WindowPtr& window) {
    return Meet(window->range, range) && window.use_count() > 1;
  });
}

HostWindows::WindowPtr HostWindows::Open(const FlatRange& range, bool reads) {
  DS_CHECK_MSG(host_users_.use_count() == 1, "bytes are brought back from under a lease");
  Offload(range);
  device::LedgerEntry booked(context_.ledger, use_, context_.tier(),
                             BytesOf(range.count, host_.scalar_type()));
  auto window = std::make_shared<Window>(
      Window{.range = range,
             .booked = std::move(booked),
             .here = at::empty({range.count},
                               at::TensorOptions().dtype(host_.dtype()).device(context_.device)),
             .came = nullptr});
  if (reads && context_.copies) {
    std::vector<device::CopyEndPtr> after;
    for (const Copy& copy : copies_) {
      if (copy.to_host && Meet(copy.range, range)) after.push_back(copy.end);
    }
    window->came = context_.copies->Bring(window->here, OnHost(range), after);
    Note({.range = range, .end = window->came});
  } else if (reads) {
    window->here.copy_(OnHost(range));
  }
  return windows_.emplace_back(std::move(window));
}

HostWindows::BorrowedRange HostWindows::Acquire(const FlatRange& range, Access access) {
  if (range.count == 0) return {host_.narrow(0, 0, 0).to(context_.device), nullptr};
  WindowPtr window = Find(range);
  if (!window) window = Open(range, access != Access::kOverwrite);
  if (window->came) context_.copies->Await(*window->came);
  window->changed |= access != Access::kRead;
  const std::int64_t first = range.start - window->range.start;
  return {window->here.narrow(0, first, range.count), window};
}

HostWindows::BorrowedRange HostWindows::AcquireOnHost(const FlatRange& range, Access access) {
  if (const WindowPtr window = Find(range); window && window.use_count() > 2) {
    return Acquire(range, access);
  }
  const bool writes = access != Access::kRead;
  Offload(range);
  for (const Copy& copy : copies_) {
    // Concurrent reads of host memory are fine; a write must not overlap with any other access.
    if (Meet(copy.range, range) && (writes || copy.to_host)) {
      context_.copies->AwaitOnHost(*copy.end);
    }
  }
  return {OnHost(range), host_users_};
}

void HostWindows::Prefetch(const FlatRange& range) {
  if (range.count == 0 || IsUsed(range) || Find(range)) return;
  Open(range, /*reads=*/true);
}

void HostWindows::Offload(const FlatRange& range) {
  DS_CHECK_MSG(!IsUsed(range), "bytes are taken away from under a lease");
  for (const WindowPtr& window : windows_) {
    if (Meet(window->range, range)) Close(*window);
  }
  std::erase_if(windows_, [&](const WindowPtr& window) { return Meet(window->range, range); });
}

// A prefetched window that was never lent may still be loading; the computation may reuse its
// memory only after that.
void HostWindows::Close(Window& window) {
  if (!window.changed) {
    if (window.came) context_.copies->Await(*window.came);
  } else if (context_.copies) {
    Note({.range = window.range,
          .end = context_.copies->TakeAway(std::move(window.here), OnHost(window.range),
                                           std::move(window.booked)),
          .to_host = true});
  } else {
    OnHost(window.range).copy_(window.here);
  }
}

void HostWindows::Note(Copy begun) {
  std::erase_if(copies_, [&](const Copy& copy) { return context_.copies->HasEnded(*copy.end); });
  copies_.push_back(std::move(begun));
}

void HostWindows::Zero() { AcquireOnHost({0, host_.numel()}, Access::kOverwrite).values.zero_(); }

}  // namespace ds::zero
