#pragma once

// SharedRegion: zeroed memory that several ranks share, without a name in any file system.
//
// Between processes it is a memfd: it needs no file in /dev/shm and is not limited by the size of
// that mount. The kernel frees it when its last user ends, for any reason. Between threads it is
// private memory.
//
// Pages are allocated when they are first written, not when the region is created. Threads: the
// object is used by one thread; users of the memory synchronise among themselves.

#include <cstddef>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::comm {

class SharedRegion {
 public:
  // Allocates memory of this process only.
  static StatusOr<SharedRegion> Private(std::size_t bytes);
  // Creates memory that other processes can map if they receive its descriptor (region_exchange.h).
  static StatusOr<SharedRegion> Create(std::size_t bytes);
  // Maps a region that another process created. The region must hold `bytes`.
  static StatusOr<SharedRegion> Map(const UniqueFd& fd, std::size_t bytes);

  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // Returns the descriptor of a region made by Create, valid until CloseDescriptor.
  const UniqueFd& fd() const { return fd_; }
  // Prevents passing the region to further processes; existing mappings stay valid.
  void CloseDescriptor() { fd_.Reset(); }

 private:
  SharedRegion(std::byte* data, std::size_t bytes, UniqueFd fd);

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  UniqueFd fd_;
};

}  // namespace ds::comm
