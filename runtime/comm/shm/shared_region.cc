#include "runtime/comm/shm/shared_region.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace ds::comm {
namespace {

StatusOr<std::byte*> MapPages(std::size_t bytes, int fd) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) {
    return ErrnoError(errno, "mapping " + std::to_string(bytes) + " bytes for collectives");
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

SharedRegion::SharedRegion(std::byte* data, std::size_t bytes, UniqueFd fd)
    : data_(data), bytes_(bytes), fd_(std::move(fd)) {}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      fd_(std::move(other.fd_)) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

SharedRegion::~SharedRegion() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

StatusOr<SharedRegion> SharedRegion::Private(std::size_t bytes) {
  DS_ASSIGN_OR_RETURN(std::byte* const data, MapPages(bytes, -1));
  return SharedRegion(data, bytes, UniqueFd());
}

StatusOr<SharedRegion> SharedRegion::Create(std::size_t bytes) {
  UniqueFd fd(memfd_create("dsrun-collectives", MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, "memfd_create for collectives");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoError(errno, "sizing shared memory to " + std::to_string(bytes) + " bytes");
  }
  DS_ASSIGN_OR_RETURN(std::byte* const data, MapPages(bytes, fd.get()));
  return SharedRegion(data, bytes, std::move(fd));
}

StatusOr<SharedRegion> SharedRegion::Map(const UniqueFd& fd, std::size_t bytes) {
  struct stat file = {};
  if (fstat(fd.get(), &file) != 0) return ErrnoError(errno, "looking at shared memory");
  if (static_cast<std::size_t>(file.st_size) != bytes) {
    return FailedPreconditionError("the shared memory holds " + std::to_string(file.st_size) +
                                   " bytes where " + std::to_string(bytes) +
                                   " are expected; the ranks run different versions of dsrun");
  }
  DS_ASSIGN_OR_RETURN(std::byte* const data, MapPages(bytes, fd.get()));
  return SharedRegion(data, bytes, UniqueFd());
}

}  // namespace ds::comm
