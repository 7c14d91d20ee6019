#include "runtime/checkpoint/safetensors.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/checkpoint_format/safetensors_layout.h"

namespace ds::checkpoint {
namespace {

constexpr std::int64_t kStagingBytes = std::int64_t{16} << 20;

constexpr std::pair<std::string_view, at::ScalarType> kDtypes[] = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
    {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
    {"U8", at::kByte},    {"BOOL", at::kBool}};

// Maps "BF16" to at::kBFloat16; nullopt for a name without a supported LibTorch dtype.
std::optional<at::ScalarType> DtypeOfSafetensorsName(std::string_view name) {
  for (const auto& [known, dtype] : kDtypes) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

// Returns "" for a dtype that this writer does not support.
std::string_view SafetensorsNameOfDtype(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes) {
    if (known == dtype) return name;
  }
  return "";
}

std::string ShapeText(at::IntArrayRef shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return text + "]";
}

// Returns the length and the JSON, padded so that the data after it is aligned to eight bytes.
std::string HeaderText(const std::vector<SafetensorsDeclaration>& declarations) {
  // transformers requires the metadata's format to load a file. A later run checks the writer
  // before it replaces a file (kSafetensorsMark).
  nlohmann::ordered_json json = {{"__metadata__", {{"format", "pt"}, {"writer", "dsrun"}}}};
  std::uint64_t begin = 0;
  for (const SafetensorsDeclaration& declared : declarations) {
    const std::uint64_t end = begin + declared.Bytes();
    json[declared.name] = {{"dtype", SafetensorsNameOfDtype(declared.dtype)},
                           {"shape", declared.shape},
                           {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

// Checks all values in one pass without a copy: aminmax returns NaN if any value is NaN.
Status CheckFinite(const at::Tensor& values) {
  if (!c10::isFloatingType(values.scalar_type()) || values.numel() == 0) return OkStatus();
  const auto [least, most] = at::aminmax(values.view({-1}));
  if (std::isfinite(least.item<double>()) && std::isfinite(most.item<double>())) return OkStatus();
  return InvalidArgumentError(
      std::string("it has values that are NaN or infinite as ") +
      c10::toString(values.scalar_type()) +
      ": the file is damaged, or the training that wrote it diverged; take other weights");
}

}  // namespace

StatusOr<std::map<std::string, SafetensorsEntry>> ReadSafetensorsHeader(int fd) {
  DS_ASSIGN_OR_RETURN(SafetensorsLayout layout, ReadSafetensorsLayout(fd));
  std::map<std::string, SafetensorsEntry> entries;
  for (auto& [name, tensor] : layout) {
    const auto dtype = DtypeOfSafetensorsName(tensor.dtype);
    entries.emplace(name, SafetensorsEntry{.dtype = dtype.value_or(at::ScalarType::Undefined),
                                           .dtype_name = std::move(tensor.dtype),
                                           .shape = std::move(tensor.shape),
                                           .offset = tensor.offset,
                                           .bytes = tensor.bytes});
  }
  return entries;
}

StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, path.string());
  SafetensorsFile file(path, std::move(fd));
  auto entries = ReadSafetensorsHeader(file.fd_.get());
  if (!entries.ok()) return entries.status().WithContext(path.string());
  file.entries_ = *std::move(entries);
  return file;
}

std::string SafetensorsFile::NameOf(const std::string& tensor) const {
  return path_.string() + ": tensor '" + tensor + "'";
}

StatusOr<const SafetensorsEntry*> SafetensorsFile::Find(const std::string& name,
                                                        at::ScalarType wanted) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return NotFoundError(NameOf(name) + " is missing");
  const SafetensorsEntry& entry = found->second;
  if (entry.dtype == at::ScalarType::Undefined) {
    return UnimplementedError(NameOf(name) + " has dtype " + entry.dtype_name +
                              ", which is not supported");
  }
  const bool both_float = c10::isFloatingType(entry.dtype) && c10::isFloatingType(wanted);
  if (entry.dtype == wanted || both_float) return &entry;
  return InvalidArgumentError(NameOf(name) + " has dtype " + c10::toString(entry.dtype) +
                              ", expected " + c10::toString(wanted));
}

Status SafetensorsFile::CheckReadable(const std::string& name, at::IntArrayRef shape,
                                      at::ScalarType dtype) const {
  DS_ASSIGN_OR_RETURN(const SafetensorsEntry* entry, Find(name, dtype));
  if (shape == at::IntArrayRef(entry->shape)) return OkStatus();
  return InvalidArgumentError(NameOf(name) + " has shape " + ShapeText(entry->shape) +
                              ", expected " + ShapeText(shape));
}

Status SafetensorsFile::Read(const std::string& name, std::int64_t first,
                             const at::Tensor& out) const {
  const c10::NoGradGuard no_grad;
  DS_CHECK_MSG(out.is_contiguous(), "values are read in the order of the file");
  DS_ASSIGN_OR_RETURN(const SafetensorsEntry* entry, Find(name, out.scalar_type()));
  const std::int64_t count = c10::multiply_integers(entry->shape);
  if (first < 0 || out.numel() > count - first) {
    return InvalidArgumentError(NameOf(name) + " has " + std::to_string(count) + " elements, not " +
                                std::to_string(out.numel()) + " after element " +
                                std::to_string(first));
  }
  DS_RETURN_IF_ERROR(ReadElements(*entry, first, out.view({-1})).WithContext(NameOf(name)));
  return CheckFinite(out).WithContext(NameOf(name));
}

Status SafetensorsFile::ReadElements(const SafetensorsEntry& entry, std::int64_t first,
                                     const at::Tensor& out) const {
  const auto size = static_cast<std::int64_t>(c10::elementSize(entry.dtype));
  const bool direct = out.is_cpu() && out.scalar_type() == entry.dtype;
  const std::int64_t most = direct ? out.numel() : kStagingBytes / size;
  for (std::int64_t done = 0; done < out.numel(); done += most) {
    const std::int64_t count = std::min(most, out.numel() - done);
    const at::Tensor values = direct ? out : at::empty({count}, entry.dtype);
    DS_RETURN_IF_ERROR(
        ReadExactly(fd_.get(), entry.offset + static_cast<std::uint64_t>((first + done) * size),
                    static_cast<std::uint64_t>(count * size), values.mutable_data_ptr()));
    if (!direct) out.narrow(0, done, count).copy_(values);
  }
  return OkStatus();
}

std::uint64_t SafetensorsDeclaration::Bytes() const {
  std::uint64_t bytes = c10::elementSize(dtype);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::filesystem::path& path, const std::vector<SafetensorsDeclaration>& declarations,
    FileSystem& system) {
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(path, system));
  if (Status status = writer->Start(declarations); !status.ok()) {
    return status.WithContext(path.string());
  }
  return writer;
}

Status SafetensorsWriter::Start(const std::vector<SafetensorsDeclaration>& declarations) {
  const std::string temporary = NameTemporary(path_);
  const int created = system_.Open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (created < 0) return ErrnoError(-created, "create");
  fd_ = UniqueFd(created);
  temporary_ = temporary;
  const std::string header = HeaderText(declarations);
  std::uint64_t offset = header.size();
  for (const SafetensorsDeclaration& declared : declarations) {
    DS_CHECK_MSG(!SafetensorsNameOfDtype(declared.dtype).empty(), "a dtype of safetensors");
    const SafetensorsEntry entry{declared.dtype,
                                 std::string(SafetensorsNameOfDtype(declared.dtype)),
                                 declared.shape, offset, declared.Bytes()};
    DS_CHECK_MSG(declared_.emplace(declared.name, Declared{entry}).second,
                 "names are declared once");
    offset += entry.bytes;
  }
  return WriteAllAt(fd_.get(), 0, std::as_bytes(std::span(header)), "write", system_);
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!temporary_.empty()) system_.Unlink(temporary_, 0);
}

Status SafetensorsWriter::Write(const std::string& name, const at::Tensor& tensor) {
  const auto found = declared_.find(name);
  if (found == declared_.end()) {
    return InvalidArgumentError(path_.string() + ": tensor '" + name + "' was not declared");
  }
  const SafetensorsEntry& entry = found->second.entry;
  DS_CHECK_MSG(tensor.sizes() == at::IntArrayRef(entry.shape), "the declared shape");
  const at::Tensor values = tensor.detach().to(at::kCPU, entry.dtype).contiguous();
  const std::span bytes(static_cast<const std::byte*>(values.const_data_ptr()), entry.bytes);
  found->second.written = true;
  return WriteAllAt(fd_.get(), entry.offset, bytes, path_.string(), system_);
}

Status SafetensorsWriter::Commit() {
  for (const auto& [name, tensor] : declared_) {
    if (!tensor.written) {
      return FailedPreconditionError(path_.string() + ": tensor '" + name + "' was never written");
    }
  }
  int result = system_.Sync(fd_.get());
  if (result == 0) result = system_.Close(fd_.Release());
  if (result == 0) result = system_.Rename(temporary_, path_, 0);
  if (result != 0) return ErrnoError(-result, path_.string());
  temporary_.clear();
  return SyncDirectory(path_.has_parent_path() ? path_.parent_path() : ".", system_);
}

}  // namespace ds::checkpoint
