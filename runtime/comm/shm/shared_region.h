#pragma once

// SharedRegion: zeroed memory that several ranks see, without a name in any file system.
//
// Between processes it is a memfd: no file in /dev/shm, no limit by that mount's size, and the
// kernel frees it with its last user, however that one ends. Between threads it is private memory.
//
// Pages are taken from the machine when they are first written, not when the region is made.
// Threads: the object is used by one thread; the memory's users synchronise among themselves.

#include <cstddef>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::comm {

class SharedRegion {
 public:
  // Memory of this process only.
  static StatusOr<SharedRegion> Private(std::size_t bytes);
  // Memory that processes which are given its descriptor can map (region_exchange.h).
  static StatusOr<SharedRegion> Create(std::size_t bytes);
  // Maps a region that another process created; it must hold `bytes`.
  static StatusOr<SharedRegion> Map(const UniqueFd& fd, std::size_t bytes);

  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // Valid for what Create made, until CloseDescriptor.
  const UniqueFd& fd() const { return fd_; }
  // No further process can be given the region; those that have mapped it keep it.
  void CloseDescriptor() { fd_.Reset(); }

 private:
  SharedRegion(std::byte* data, std::size_t bytes, UniqueFd fd);

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  UniqueFd fd_;
};

}  // namespace ds::comm
