#pragma once

// SharedRegion: zeroed memory that several ranks see, without a name in any file system.
//
// Between processes it is a memfd: no file in /dev/shm, no limit by that mount's size, and the
// kernel frees it with its last user, however that one ends. Between threads it is private memory.
//
// Pages are taken from the machine when they are first written, not when the region is made.
// Threads: the object is used by one thread; the memory's users synchronise among themselves.

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::comm {

// Where another process finds a region; travels through the rendezvous store as text.
struct RegionHandle {
  pid_t pid = 0;
  int fd = -1;
  std::size_t bytes = 0;

  std::string ToString() const;
  static StatusOr<RegionHandle> FromString(const std::string& text);
};

class SharedRegion {
 public:
  // Memory of this process only.
  static StatusOr<SharedRegion> Private(std::size_t bytes);
  // Memory that other processes of this user can map by its handle while this descriptor is open.
  static StatusOr<SharedRegion> Create(std::size_t bytes);
  // Maps what another process created.
  static StatusOr<SharedRegion> Open(const RegionHandle& handle);

  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // Requires: made by Create, and CloseDescriptor has not been called.
  RegionHandle handle() const;
  // No further process can map the region; those that have keep it.
  void CloseDescriptor() { fd_.Reset(); }

 private:
  SharedRegion(std::byte* data, std::size_t bytes, UniqueFd fd);

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  UniqueFd fd_;
};

}  // namespace ds::comm
