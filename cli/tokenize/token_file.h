#pragma once

// TokenFile: a file of token ids, little-endian uint16 or uint32, that is there when it is whole.
// Until Commit it has another name in the same folder, and is gone with the object.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

class TokenFile {
 public:
  // `id_bytes` is 2 or 4.
  static StatusOr<TokenFile> Create(const std::filesystem::path& path, int id_bytes);
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;
  ~TokenFile();

  // Requires ids that fit.
  Status Append(std::span<const std::uint32_t> ids);
  // Puts the file in its place; what was there is replaced.
  Status Commit();

  std::uint64_t count() const { return count_; }

 private:
  TokenFile(std::filesystem::path path, std::filesystem::path temporary, UniqueFd file,
            int id_bytes);

  std::filesystem::path path_, temporary_;  // temporary_ is empty once there is no such file
  UniqueFd file_;
  int id_bytes_;
  std::string buffer_;
  std::uint64_t count_ = 0;
};

}  // namespace ds::cli
