#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>

#include "runtime/base/files.h"
#include "runtime/checkpoint/safetensors.h"

namespace ds::checkpoint {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

std::string ShapeText(at::IntArrayRef shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return text + "]";
}

}  // namespace

StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, path.string());
  SafetensorsFile file(path, std::move(fd));
  if (Status status = file.ReadHeader(); !status.ok()) return status.WithContext(path.string());
  return file;
}

Status SafetensorsFile::ReadHeader() {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return ErrnoError(errno, "fstat");
  const auto file_bytes = static_cast<std::uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || file_bytes < kLengthBytes) {
    return DataLossError("not a safetensors file: " + std::to_string(file_bytes) + " bytes long");
  }
  std::uint64_t header_bytes = 0;
  DS_RETURN_IF_ERROR(ReadBytes(0, kLengthBytes, &header_bytes));
  if (header_bytes > kMaxHeaderBytes || header_bytes > file_bytes - kLengthBytes) {
    return DataLossError("truncated, or not a safetensors file: it declares a header of " +
                         std::to_string(header_bytes) + " bytes in a file of " +
                         std::to_string(file_bytes));
  }
  std::string header(header_bytes, '\0');
  DS_RETURN_IF_ERROR(ReadBytes(kLengthBytes, header_bytes, header.data()));
  DS_ASSIGN_OR_RETURN(entries_,
                      ParseSafetensorsHeader(header, kLengthBytes + header_bytes, file_bytes));
  return OkStatus();
}

Status SafetensorsFile::ReadBytes(std::uint64_t offset, std::uint64_t bytes, void* to) const {
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_.get(), out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "read");
    if (got == 0) return DataLossError("the file ends at byte " + std::to_string(offset));
    out += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return OkStatus();
}

Status SafetensorsFile::CheckReadable(const std::string& name, const at::Tensor& out) const {
  const std::string where = path_.string() + ": tensor '" + name + "'";
  const auto found = entries_.find(name);
  if (found == entries_.end()) return NotFoundError(where + " is missing");
  const SafetensorsEntry& entry = found->second;
  if (out.sizes() != at::IntArrayRef(entry.shape)) {
    return InvalidArgumentError(where + " has shape " + ShapeText(entry.shape) + ", expected " +
                                ShapeText(out.sizes()));
  }
  const bool both_float = c10::isFloatingType(entry.dtype) && out.is_floating_point();
  if (entry.dtype != out.scalar_type() && !both_float) {
    return InvalidArgumentError(where + " has dtype " + c10::toString(entry.dtype) + ", expected " +
                                c10::toString(out.scalar_type()));
  }
  return OkStatus();
}

Status SafetensorsFile::Read(const std::string& name, at::Tensor& out) const {
  DS_RETURN_IF_ERROR(CheckReadable(name, out));
  const SafetensorsEntry& entry = entries_.at(name);
  c10::NoGradGuard no_grad;
  const bool direct = out.is_cpu() && out.is_contiguous() && out.scalar_type() == entry.dtype;
  at::Tensor values = direct ? out : at::empty(entry.shape, entry.dtype);
  if (Status status = ReadBytes(entry.offset, entry.bytes, values.data_ptr()); !status.ok()) {
    return status.WithContext(path_.string() + ": tensor '" + name + "'");
  }
  if (!direct) out.copy_(values);
  return OkStatus();
}

}  // namespace ds::checkpoint
