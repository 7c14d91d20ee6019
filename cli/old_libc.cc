// arc4random for hosts with a C library older than glibc 2.36.
//
// libstdc++.a refers to it for std::random_device. Without this definition dsrun would not start on
// such hosts (scripts/check_libc.py).

#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

extern "C" std::uint32_t arc4random() {
  std::uint32_t value = 0;
  while (::getrandom(&value, sizeof(value), 0) != sizeof(value)) {
    if (errno != EINTR) std::abort();  // the kernel has no getrandom: nothing random is left
  }
  return value;
}
