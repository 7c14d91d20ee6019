#pragma once

// Reads and writes safetensors files: eight bytes of header length, a JSON header, then the tensor
// data. https://github.com/huggingface/safetensors
//
// The reader treats files as untrusted. It checks lengths, offsets and shapes against the file
// before it uses a byte, and the tensors must fill the data part without gap or overlap. It reads
// data by offset, so that a file that shrinks meanwhile causes an error and not a signal. It reads
// only the requested elements. The writer's file appears complete under its name or not at all.
//
// Read is thread-safe. Use a writer from one thread only.

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
  at::ScalarType dtype = at::kFloat;  // Undefined if unsupported
  std::string dtype_name;             // spelled as in the file: "BF16"
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
};

// Reads and checks the header (checkpoint_format/safetensors_layout.h). Error messages do not name
// the file.
StatusOr<std::map<std::string, SafetensorsEntry>> ReadSafetensorsHeader(int fd);

class SafetensorsFile {
 public:
  static StatusOr<SafetensorsFile> Open(const std::filesystem::path& path);

  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  const std::filesystem::path& path() const { return path_; }

  // Returns OK when Read could fill a complete tensor of this shape and dtype. The shapes must be
  // equal. The dtypes must be equal or both floating-point. Refuses a stored dtype that is not
  // supported. Does not read the data.
  Status CheckReadable(const std::string& name, at::IntArrayRef shape, at::ScalarType dtype) const;

  // Fills the contiguous tensor `out` with the elements [first, first + out.numel()) of the tensor
  // `name`, and reads no others. Rounds when the floating-point dtypes differ. In that case, and
  // for other devices, it needs 16 MiB in addition to `out`. Fails with NotFound, Unimplemented (an
  // unsupported dtype) or InvalidArgument (another dtype, a range past the end, values that are NaN
  // or infinite); the message names file and tensor.
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

// Writes a file tensor by tensor, in any order, without keeping a tensor in memory.
class SafetensorsWriter {
 public:
  // Creates a temporary file in the folder of `path`, which Commit renames to `path`. Without
  // Commit, the destructor removes it.
  static StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::filesystem::path& path, const std::vector<SafetensorsDeclaration>& declarations,
      FileSystem& system = FileSystem::System());
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Writes a declared tensor from any device, converted to its declared dtype.
  Status Write(const std::string& name, const at::Tensor& tensor);

  // Syncs the file and renames it to its final name. Fails when a declared tensor is missing.
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
