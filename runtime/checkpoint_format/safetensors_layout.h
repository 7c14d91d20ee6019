#pragma once

// SafetensorsLayout holds the names, dtypes, shapes and offsets of the tensors in a safetensors
// file, without their data. https://github.com/huggingface/safetensors
//
// A file has eight bytes of header length, a JSON header, then the tensor data. Nothing in it is
// trusted: lengths, offsets and shapes are checked against the file, and the tensors must fill the
// data part without gap or overlap. An unknown dtype is not an error here; it becomes one when such
// a tensor is read. This header does not use LibTorch, so dsrun can count a model's parameters,
// too.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::checkpoint {

struct SafetensorsTensor {
  std::string dtype;  // spelled as in the file: "BF16"
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;

  std::int64_t Elements() const;
};

using SafetensorsLayout = std::map<std::string, SafetensorsTensor>;

// Parses the header's JSON text. The tensor data starts at `data_start`, and the file ends at
// `file_bytes`. Error messages do not name the file.
StatusOr<SafetensorsLayout> ParseSafetensorsLayout(std::string_view json, std::uint64_t data_start,
                                                   std::uint64_t file_bytes);

// Reads and parses the header of an open file. Error messages do not name the file.
StatusOr<SafetensorsLayout> ReadSafetensorsLayout(int fd);

// Prefix of the header of a file that dsrun wrote.
inline constexpr std::string_view kSafetensorsMark =
    R"({"__metadata__":{"format":"pt","writer":"dsrun"})";
// Returns true if the file starts with that header; false also when it cannot be read.
bool HasSafetensorsMark(const std::filesystem::path& path);

// Reads exactly `bytes` bytes at `offset` of the file, or fails.
Status ReadExactly(int fd, std::uint64_t offset, std::uint64_t bytes, void* to);

}  // namespace ds::checkpoint
