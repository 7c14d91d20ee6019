#include "runtime/offload/windows.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace ds::offload {

StatusOr<std::unique_ptr<Windows>> Windows::Create(FileTier& tier, std::int64_t bytes) {
  DS_ASSIGN_OR_RETURN(Extent extent, tier.Allocate(bytes));
  return std::unique_ptr<Windows>(new Windows(tier, std::move(extent)));
}

Windows::Windows(FileTier& tier, Extent extent) : tier_(tier), extent_(std::move(extent)) {}

Windows::~Windows() {
  DS_CHECK_MSG(!is_used(), "bytes in a file end before their user");
  for (const WindowPtr& window : windows_) {
    if (window->read) static_cast<void>(window->read->Wait());
  }
  for (const Write& write : writes_) static_cast<void>(write.transfer->Wait());
}

ByteRange Windows::Widen(const ByteRange& range) const {
  const std::int64_t page = tier_.alignment();
  const std::int64_t first = range.first / page * page;
  return {first, (range.end() - first + page - 1) / page * page};
}

bool Windows::is_used() const {
  return std::any_of(windows_.begin(), windows_.end(),
                     [](const WindowPtr& window) { return window.use_count() > 1; });
}

bool Windows::MeetsWindow(const ByteRange& range) const {
  return std::any_of(windows_.begin(), windows_.end(),
                     [&](const WindowPtr& window) { return window->range.Meets(range); });
}

Windows::WindowPtr Windows::Find(const ByteRange& range) const {
  const auto found = std::find_if(windows_.begin(), windows_.end(), [&](const WindowPtr& window) {
    return window->range.Contains(range);
  });
  return found == windows_.end() ? nullptr : *found;
}

Status Windows::AwaitWrites(const ByteRange& range) {
  Status first;
  std::erase_if(writes_, [&](const Write& write) {
    if (!write.range.Meets(range) && !write.transfer->done()) return false;
    const Status written = tier_.Wait(write.transfer);
    if (first.ok()) first = written;
    return written.ok();  // keep a failed write to report it again: the bytes are lost
  });
  return first;
}

StatusOr<Windows::WindowPtr> Windows::Open(const ByteRange& range, bool reads) {
  for (const WindowPtr& window : windows_) {
    DS_CHECK_MSG(!window->range.Meets(range) || window.use_count() == 1,
                 "a part of these bytes is in use");
  }
  DS_RETURN_IF_ERROR(Release(range));
  DS_RETURN_IF_ERROR(AwaitWrites(range));
  auto window = std::make_shared<Window>();
  window->range = range;
  window->buffer = tier_.TakeBuffer(range.count);
  if (reads) window->read = tier_.Read(extent_, range.first, window->buffer, range.count);
  windows_.push_back(window);
  return window;
}

StatusOr<WindowUse> Windows::Acquire(const ByteRange& range, Access access) {
  DS_CHECK(range.first >= 0 && range.count > 0 && range.end() <= extent_.bytes());
  WindowPtr window = Find(range);
  if (!window) {
    const ByteRange wide = Widen(range);
    // The rest of the page after the last byte is unused.
    const bool is_full =
        wide.first == range.first && (wide.end() == range.end() || range.end() == extent_.bytes());
    DS_ASSIGN_OR_RETURN(window, Open(wide, access != Access::kOverwrite || !is_full));
  }
  if (window->read) {
    const Status read = tier_.Wait(std::exchange(window->read, nullptr));
    if (!read.ok()) {
      std::erase(windows_, window);
      return read;
    }
  }
  window->changed = window->changed || access != Access::kRead;
  WindowUse use;
  use.bytes_ =
      window->buffer.bytes().subspan(static_cast<std::size_t>(range.first - window->range.first),
                                     static_cast<std::size_t>(range.count));
  use.window_ = std::move(window);
  return use;
}

Status Windows::Prefetch(const ByteRange& range) {
  const ByteRange wide = Widen(range);
  if (MeetsWindow(wide)) return OkStatus();
  const StatusOr<WindowPtr> window = Open(wide, /*reads=*/true);
  return window.ok() ? OkStatus() : window.status();
}

Status Windows::WriteBack(Window& window) {
  DS_RETURN_IF_ERROR(AwaitWrites(window.range));
  written_ = true;
  writes_.push_back(
      {window.range, tier_.WriteBehind(extent_, window.range.first, std::move(window.buffer),
                                       window.range.count)});
  return OkStatus();
}

Status Windows::Release(const ByteRange& range) {
  for (auto window = windows_.begin(); window != windows_.end();) {
    if (window->use_count() > 1 || !(*window)->range.Meets(range)) {
      ++window;
      continue;
    }
    if ((*window)->read) static_cast<void>((*window)->read->Wait());  // prefetched but never used
    if ((*window)->changed) DS_RETURN_IF_ERROR(WriteBack(**window));
    window = windows_.erase(window);
  }
  return OkStatus();
}

Status Windows::Settle() { return AwaitWrites({0, extent_.bytes()}); }

}  // namespace ds::offload
