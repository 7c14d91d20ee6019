#pragma once

// Windows: bytes that lie in a file, and come into memory range by range for who uses them.
//
//   StatusOr<WindowUse> use = windows.Acquire({first, count}, Access::kUpdate);
//   ... use->bytes() ...
//   use = WindowUse();                          // nobody uses them now
//   DS_RETURN_IF_ERROR(windows.Release());      // what was changed is being written back
//
// Threads: one thread at a time; a use may end on any. Lifetimes: the tier outlives this, this its
// uses. The destructor waits for what is under way, whose outcome nobody asks about any more.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/offload/file_tier.h"

namespace ds::offload {

struct ByteRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  std::int64_t end() const { return first + count; }
  bool Contains(const ByteRange& other) const {
    return first <= other.first && other.end() <= end();
  }
  bool Meets(const ByteRange& other) const { return first < other.end() && other.first < end(); }
};

enum class Access {
  kRead,
  kUpdate,     // reads and writes
  kOverwrite,  // writes all of it: the values before are not read, where no page is cut
};

// The right to use bytes in memory, for as long as a copy of it lives.
class WindowUse {
 public:
  WindowUse() = default;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  friend class Windows;
  std::span<std::byte> bytes_;
  std::shared_ptr<const void> window_;
};

class Windows {
 public:
  // Takes room in the tier for `bytes` of undefined values.
  static StatusOr<std::unique_ptr<Windows>> Create(FileTier& tier, std::int64_t bytes);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // They are zeros, as nobody has written any.
  bool are_zeros() const { return extent_.fresh() && !written_; }

  // Waits until the bytes are in memory. Requires that nobody uses a part of them with others.
  // Fails where they could not be read, or be written back before.
  StatusOr<WindowUse> Acquire(const ByteRange& range, Access access);
  // Begins to read them, ahead of an Acquire of the same range. Does nothing where a part of them
  // is in memory already.
  Status Prefetch(const ByteRange& range);
  // Takes care of what meets the range and nobody uses: begins to write back what has been changed,
  // whose memory is free once it is written, and drops the rest.
  Status Release(const ByteRange& range);
  Status Release() { return Release({0, extent_.bytes()}); }
  // Waits until it is.
  Status Settle();

 private:
  struct Window {
    ByteRange range;  // of whole pages
    AlignedBuffer buffer;
    FileTransfer read;  // null: it is there
    bool changed = false;
  };
  using WindowPtr = std::shared_ptr<Window>;
  struct Write {
    ByteRange range;
    FileTransfer transfer;
  };

  Windows(FileTier& tier, Extent extent);
  bool is_used() const;
  bool MeetsWindow(const ByteRange& range) const;
  ByteRange Widen(const ByteRange& range) const;
  WindowPtr Find(const ByteRange& range) const;
  // Makes a window, which is read unless its values do not matter.
  StatusOr<WindowPtr> Open(const ByteRange& range, bool reads);
  // Waits for the writes that meet the range.
  Status AwaitWrites(const ByteRange& range);
  Status WriteBack(Window& window);

  FileTier& tier_;
  const Extent extent_;
  bool written_ = false;
  std::vector<WindowPtr> windows_;  // no two meet
  std::vector<Write> writes_;       // under way, or not asked about yet
};

}  // namespace ds::offload
