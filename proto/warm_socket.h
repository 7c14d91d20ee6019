#pragma once

// Where `dsrund --serve` takes jobs of this user on this host, and what both ends agree on.

#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace ds {

// A handover holds an environment, which execve bounds at about 2 MiB.
inline constexpr std::size_t kMaxHandoverBytes = std::size_t{8} << 20;

// The folder is 0700 and this user's; the socket in it is called serve.sock.
inline std::filesystem::path WarmFolder() {
  constexpr std::size_t kLongestBase = 64;  // a socket's path may have 107 bytes
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string base = runtime == nullptr ? "" : runtime;
  if (base.starts_with('/') && base.size() <= kLongestBase) {
    return std::filesystem::path(base) / "dsrund-serve";
  }
  return "/tmp/dsrund-serve-" + std::to_string(::geteuid());
}

inline std::filesystem::path WarmSocket() { return WarmFolder() / "serve.sock"; }

}  // namespace ds
