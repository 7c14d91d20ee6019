#pragma once

// SafetensorsLayout: names, dtypes, shapes and offsets of a safetensors file's tensors, without
// their bytes. https://github.com/huggingface/safetensors
//
// Eight bytes of header length, a JSON header, then the tensors' bytes. Nothing in it is trusted:
// lengths, offsets and shapes are checked against the file, and tensors must fill the data part
// without gap or overlap. A dtype that nobody here knows is no error: only who asks for such a
// tensor needs to know it. Torch-free, so that dsrun counts a model's parameters too.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::checkpoint {

struct SafetensorsTensor {
  std::string dtype;  // as the file spells it: "BF16"
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;

  std::int64_t Elements() const;
};

using SafetensorsLayout = std::map<std::string, SafetensorsTensor>;

// Parses the header's JSON text. `data_start` is where the tensors' bytes begin, `file_bytes` where
// the file ends. Errors do not name the file.
StatusOr<SafetensorsLayout> ParseSafetensorsLayout(std::string_view json, std::uint64_t data_start,
                                                   std::uint64_t file_bytes);

// Reads and parses the header of an open file. Errors do not name the file.
StatusOr<SafetensorsLayout> ReadSafetensorsLayout(int fd);

// The header of a file that dsrun wrote begins with this.
inline constexpr std::string_view kSafetensorsMark =
    R"({"__metadata__":{"format":"pt","writer":"dsrun"})";
// False of a file that cannot be read, too.
bool HasSafetensorsMark(const std::filesystem::path& path);

// Exactly `bytes` bytes at `offset` of the file, or an error.
Status ReadExactly(int fd, std::uint64_t offset, std::uint64_t bytes, void* to);

}  // namespace ds::checkpoint
