#include "runtime/process/claim.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace ds {

StatusOr<Claim> Claim::Create() {
  UniqueFd event(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return ErrnoError(errno, "eventfd");
  return Claim(std::move(event));
}

bool Claim::Take() const {
  std::uint64_t value = 0;
  return ::read(event_.get(), &value, sizeof(value)) == sizeof(value);
}

}  // namespace ds
