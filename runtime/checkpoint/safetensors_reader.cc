#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fcntl.h>

#include <cerrno>

#include "runtime/checkpoint/format/safetensors_layout.h"
#include "runtime/checkpoint/safetensors.h"

namespace ds::checkpoint {
namespace {

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
  auto entries = ReadSafetensorsHeader(file.fd_.get());
  if (!entries.ok()) return entries.status().WithContext(path.string());
  file.entries_ = *std::move(entries);
  return file;
}

Status SafetensorsFile::ReadBytes(std::uint64_t offset, std::uint64_t bytes, void* to) const {
  return ReadExactly(fd_.get(), offset, bytes, to);
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
