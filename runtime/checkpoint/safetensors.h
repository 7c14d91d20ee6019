#pragma once

// safetensors files: eight bytes of header length, a JSON header, then the tensors' bytes.
// https://github.com/huggingface/safetensors
//
// The reader trusts nothing: lengths, offsets and shapes are checked against the file before a byte
// is used, tensors must fill the data part without gap or overlap, and data is read by offset, so
// that a file that shrinks meanwhile is an error and not a signal. Only what is asked for is read.
// The writer's file appears whole under its name or not at all.
//
// Threads: Read is safe to call concurrently; a writer belongs to one thread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::checkpoint {

struct SafetensorsEntry {
  at::ScalarType dtype = at::kFloat;  // Undefined for one that cannot be read here
  std::string dtype_name;             // as the file spells it: "BF16"
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
};

// Reads and checks the header (format/safetensors_layout.h). Errors do not name the file.
StatusOr<std::map<std::string, SafetensorsEntry>> ReadSafetensorsHeader(int fd);

class SafetensorsFile {
 public:
  static StatusOr<SafetensorsFile> Open(const std::filesystem::path& path);

  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  const std::filesystem::path& path() const { return path_; }

  // OK when Read could fill all of a tensor: the file's has its shape, and its dtype or, both being
  // floating-point, another. Refuses one whose dtype cannot be read here. Reads nothing.
  Status CheckReadable(const std::string& name, at::IntArrayRef shape, at::ScalarType dtype) const;

  // Fills `out`, contiguous, with the elements [first, first + out.numel()) of the tensor `name`,
  // and reads no others. Rounds when the floating-point dtypes differ; then, and for other devices,
  // it needs 16 MiB beside `out`. NotFound, Unimplemented (a dtype that cannot be read) and
  // InvalidArgument (another dtype, a range past the end, values that are NaN or infinite) name
  // file and tensor.
  Status Read(const std::string& name, std::int64_t first, const at::Tensor& out) const;

 private:
  SafetensorsFile(std::filesystem::path path, UniqueFd fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}
  StatusOr<const SafetensorsEntry*> Find(const std::string& name, at::ScalarType wanted) const;
  Status ReadElements(const SafetensorsEntry& entry, std::int64_t first,
                      const at::Tensor& out) const;
  std::string NameOf(const std::string& tensor) const;  // for messages

  std::filesystem::path path_;
  UniqueFd fd_;
  std::map<std::string, SafetensorsEntry> entries_;
};

struct SafetensorsDeclaration {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;

  std::uint64_t Bytes() const;
};

// Writes one file tensor by tensor, in any order, holding none of them.
class SafetensorsWriter {
 public:
  // Starts a temporary file beside `path` that Commit renames to it; without Commit it is removed.
  static StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::filesystem::path& path, const std::vector<SafetensorsDeclaration>& declarations,
      FileSystem& system = FileSystem::System());
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Writes a declared tensor, from any device, converted to its declared dtype.
  Status Write(const std::string& name, const at::Tensor& tensor);

  // Makes the file durable under its name. Refuses while a declared tensor is missing.
  Status Commit();

 private:
  struct Declared {
    SafetensorsEntry entry;
    bool written = false;
  };
  SafetensorsWriter(std::filesystem::path path, FileSystem& system)
      : path_(std::move(path)), system_(system) {}
  Status Start(const std::vector<SafetensorsDeclaration>& declarations);

  std::filesystem::path path_;
  FileSystem& system_;
  std::string temporary_;  // empty once committed
  UniqueFd fd_;
  std::map<std::string, Declared> declared_;
};

}  // namespace ds::checkpoint
