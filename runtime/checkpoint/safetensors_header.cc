// The header of a file in LibTorch's dtypes.

#include "runtime/checkpoint/format/safetensors_layout.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/safetensors_dtype.h"

namespace ds::checkpoint {
namespace {

constexpr std::pair<std::string_view, at::ScalarType> kDtypes[] = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
    {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
    {"U8", at::kByte},    {"BOOL", at::kBool}};

}  // namespace

std::optional<at::ScalarType> DtypeOfSafetensorsName(std::string_view name) {
  for (const auto& [known, dtype] : kDtypes) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

std::string_view SafetensorsNameOfDtype(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes) {
    if (known == dtype) return name;
  }
  return "";
}

StatusOr<std::map<std::string, SafetensorsEntry>> ReadSafetensorsHeader(int fd) {
  DS_ASSIGN_OR_RETURN(SafetensorsLayout layout, ReadSafetensorsLayout(fd));
  std::map<std::string, SafetensorsEntry> entries;
  for (auto& [name, tensor] : layout) {
    const auto dtype = DtypeOfSafetensorsName(tensor.dtype);
    if (!dtype) {
      return UnimplementedError("tensor '" + name + "': dtype " + tensor.dtype +
                                " is not supported");
    }
    entries.emplace(name, SafetensorsEntry{.dtype = *dtype,
                                           .shape = std::move(tensor.shape),
                                           .offset = tensor.offset,
                                           .bytes = tensor.bytes});
  }
  return entries;
}

}  // namespace ds::checkpoint
