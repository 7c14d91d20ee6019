#pragma once

// Windows gives access to bytes in a file by loading ranges into memory on request.
//
//   StatusOr<WindowUse> use = windows.Acquire({first, count}, Access::kUpdate);
//   ... use->bytes() ...
//   use = WindowUse();                          // ends the use
//   DS_RETURN_IF_ERROR(windows.Release());      // starts to write changes back
//
// Not thread-safe, but a WindowUse may be destroyed on any thread. The tier must outlive this
// object, which must outlive its uses. The destructor waits for transfers in flight and ignores
// their errors.

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
  kOverwrite,  // writes the full range; old values are read only for partial pages
};

// The right to access bytes in memory. The right lasts until the last copy is destroyed.
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
  // Reserves `bytes` of undefined values in the tier.
  static StatusOr<std::unique_ptr<Windows>> Create(FileTier& tier, std::int64_t bytes);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // Returns true if all bytes are zeros because none has been written.
  bool are_zeros() const { return extent_.fresh() && !written_; }

  // Waits until the bytes are in memory. Requires that every window in use that overlaps the range
  // contains the full range. Fails when a read, or an earlier write-back of these bytes, failed.
  StatusOr<WindowUse> Acquire(const ByteRange& range, Access access);
  // Starts to read the bytes ahead of an Acquire of the same range. Does nothing when any of
  // these bytes is in memory already.
  Status Prefetch(const ByteRange& range);
  // Releases unused windows that overlap the range. Starts to write changed ones back, which frees
  // their memory after the write, and drops unchanged ones.
  Status Release(const ByteRange& range);
  Status Release() { return Release({0, extent_.bytes()}); }
  // Waits until all writes have ended. Returns the first error.
  Status Settle();

 private:
  struct Window {
    ByteRange range;  // full pages
    AlignedBuffer buffer;
    FileTransfer read;  // null once the data is in memory
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
  // Creates a window, and starts to read it if `reads`.
  StatusOr<WindowPtr> Open(const ByteRange& range, bool reads);
  // Waits for the writes that overlap the range.
  Status AwaitWrites(const ByteRange& range);
  Status WriteBack(Window& window);

  FileTier& tier_;
  const Extent extent_;
  bool written_ = false;
  std::vector<WindowPtr> windows_;  // disjoint
  std::vector<Write> writes_;       // in flight, or not checked for errors yet
};

}  // namespace ds::offload
