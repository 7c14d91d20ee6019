#include "runtime/comm/shm/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <utility>

#include "runtime/base/check.h"

namespace ds::comm {
namespace {

StatusOr<std::byte*> Map(std::size_t bytes, int fd) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) {
    return ErrnoError(errno, "mapping " + std::to_string(bytes) + " bytes for collectives");
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::string RegionHandle::ToString() const {
  return std::to_string(pid) + " " + std::to_string(fd) + " " + std::to_string(bytes);
}

StatusOr<RegionHandle> RegionHandle::FromString(const std::string& text) {
  RegionHandle handle;
  std::istringstream in(text);
  if (!(in >> handle.pid >> handle.fd >> handle.bytes) || !in.eof()) {
    return InvalidArgumentError("not a shared memory handle: \"" + text + "\"");
  }
  return handle;
}

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
  DS_ASSIGN_OR_RETURN(std::byte* const data, Map(bytes, -1));
  return SharedRegion(data, bytes, UniqueFd());
}

StatusOr<SharedRegion> SharedRegion::Create(std::size_t bytes) {
  UniqueFd fd(memfd_create("dsrun-collectives", MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, "memfd_create for collectives");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoError(errno, "sizing shared memory to " + std::to_string(bytes) + " bytes");
  }
  DS_ASSIGN_OR_RETURN(std::byte* const data, Map(bytes, fd.get()));
  return SharedRegion(data, bytes, std::move(fd));
}

StatusOr<SharedRegion> SharedRegion::Open(const RegionHandle& handle) {
  const std::string path =
      "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) {
    return ErrnoError(errno, "opening the shared memory of process " + std::to_string(handle.pid) +
                                 " (" + path +
                                 "; the ranks of a host must share its user and process ids)");
  }
  struct stat file = {};
  if (fstat(fd.get(), &file) != 0) return ErrnoError(errno, path);
  if (static_cast<std::size_t>(file.st_size) != handle.bytes) {
    return FailedPreconditionError(path + " holds " + std::to_string(file.st_size) +
                                   " bytes, not the announced " + std::to_string(handle.bytes));
  }
  DS_ASSIGN_OR_RETURN(std::byte* const data, Map(handle.bytes, fd.get()));
  return SharedRegion(data, handle.bytes, UniqueFd());
}

RegionHandle SharedRegion::handle() const {
  DS_CHECK(fd_.valid());
  return {.pid = getpid(), .fd = fd_.get(), .bytes = bytes_};
}

}  // namespace ds::comm
