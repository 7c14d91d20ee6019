// Parses and checks the header, and defines dtype sizes.

#include "runtime/checkpoint_format/safetensors_layout.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "runtime/base/json_events.h"
#include "runtime/base/lfs_pointer.h"
#include "runtime/base/unique_fd.h"

namespace ds::checkpoint {
namespace {

// Searches an object in logarithmic time, unlike ordered_json. A header may name a million tensors.
using Json = nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr std::pair<std::string_view, std::uint64_t> kElementBytes[] = {
    {"F64", 8},     {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1},
    {"F8_E5M2", 1}, {"I64", 8}, {"I32", 4}, {"I16", 2},  {"I8", 1},
    {"U64", 8},     {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}};

Status Malformed(const std::string& what) {
  return DataLossError("not a valid safetensors header: " + what);
}

// Detects names that occur twice at the top level, which a parsed object does not show.
class NameCheck : public JsonEvents<Json> {
 public:
  const std::string& repeated() const { return repeated_; }

  bool start_object(std::size_t) override { return ++depth_ > 0; }
  bool key(string_t& name) override {
    if (depth_ == 1 && !names_.insert(name).second) repeated_ = name;
    return true;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return ++depth_ > 0; }
  bool end_array() override { return --depth_ >= 0; }

 private:
  int depth_ = 0;
  std::set<std::string> names_;
  std::string repeated_;
};

// Parses the complete JSON text and refuses repeated names at the top level. It reads the text
// twice, because a parser with a callback searches all earlier tensors after each one.
StatusOr<Json> ParseJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Malformed("it is not JSON");
  if (!json.is_object()) return Malformed("it is not a JSON object");
  NameCheck names;
  Json::sax_parse(text, &names);
  if (names.repeated().empty()) return json;
  return Malformed("tensor '" + names.repeated() + "' is there twice");
}

bool IsCount(const Json& value) { return value.is_number_unsigned(); }

bool IsListOfCounts(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array() &&
         std::all_of(found->begin(), found->end(), IsCount);
}

std::optional<std::uint64_t> ElementBytes(std::string_view dtype) {
  for (const auto& [known, bytes] : kElementBytes) {
    if (known == dtype) return bytes;
  }
  return std::nullopt;
}

// Returns the bytes of `shape` elements, or nullopt when they exceed the size of any file.
std::optional<std::uint64_t> BytesOf(const std::vector<std::int64_t>& shape, std::uint64_t bytes) {
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) return {};
  }
  return bytes;
}

// Returns true if the byte count fits dtype and shape. Elements of an unknown dtype have at least
// one bit.
bool FillsItsBytes(const SafetensorsTensor& tensor) {
  if (const auto element_bytes = ElementBytes(tensor.dtype)) {
    return BytesOf(tensor.shape, *element_bytes) == tensor.bytes;
  }
  const auto elements = BytesOf(tensor.shape, 1);
  return elements && *elements / 8 + (*elements % 8 > 0 ? 1 : 0) <= tensor.bytes;
}

StatusOr<SafetensorsTensor> ParseTensor(const Json& json) {
  if (!json.is_object() || !IsListOfCounts(json, "shape") ||
      !IsListOfCounts(json, "data_offsets") || json["data_offsets"].size() != 2 ||
      !json.contains("dtype") || !json["dtype"].is_string()) {
    return Malformed("it needs dtype, shape and two data_offsets");
  }
  SafetensorsTensor tensor{.dtype = json["dtype"].get<std::string>()};
  for (const Json& extent : json["shape"]) {
    if (extent.get<std::uint64_t>() > std::uint64_t{1} << 62) return Malformed("a huge shape");
    tensor.shape.push_back(extent.get<std::int64_t>());
  }
  tensor.offset = json["data_offsets"][0].get<std::uint64_t>();
  const auto end = json["data_offsets"][1].get<std::uint64_t>();
  if (end < tensor.offset) return Malformed("data_offsets run backwards");
  tensor.bytes = end - tensor.offset;
  if (!FillsItsBytes(tensor)) {
    return Malformed("data_offsets span " + std::to_string(tensor.bytes) +
                     " bytes, which does not match dtype and shape");
  }
  return tensor;
}

// Checks that the entries are adjacent and fill `data_bytes`.
Status CheckLayout(const SafetensorsLayout& entries, std::uint64_t data_bytes) {
  std::vector<std::pair<std::string, SafetensorsTensor>> sorted(entries.begin(), entries.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.offset, a.second.bytes) < std::pair(b.second.offset, b.second.bytes);
  });
  std::uint64_t expected = 0;
  for (const auto& [name, entry] : sorted) {
    if (entry.offset != expected) {
      return Malformed("tensor '" + name + "' begins at data byte " + std::to_string(entry.offset) +
                       (entry.offset < expected ? ", inside another one" : ", after a gap"));
    }
    if (entry.bytes > data_bytes - expected) {
      return DataLossError("the file is truncated: tensor '" + name + "' needs data bytes up to " +
                           std::to_string(entry.offset + entry.bytes) + ", there are " +
                           std::to_string(data_bytes));
    }
    expected += entry.bytes;
  }
  if (expected == data_bytes) return OkStatus();
  return Malformed(std::to_string(data_bytes - expected) + " bytes after the last tensor");
}

}  // namespace

std::int64_t SafetensorsTensor::Elements() const {
  std::int64_t elements = 1;  // the parser has bounded them by the number of bits in a file
  for (const std::int64_t extent : shape) elements *= extent;
  return elements;
}

StatusOr<SafetensorsLayout> ParseSafetensorsLayout(std::string_view json, std::uint64_t data_start,
                                                   std::uint64_t file_bytes) {
  DS_ASSIGN_OR_RETURN(const Json header, ParseJson(json));
  SafetensorsLayout layout;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    auto tensor = ParseTensor(value);
    if (!tensor.ok()) return tensor.status().WithContext("tensor '" + name + "'");
    layout.emplace(name, *std::move(tensor));
  }
  DS_RETURN_IF_ERROR(CheckLayout(layout, file_bytes - data_start));
  for (auto& [name, tensor] : layout) tensor.offset += data_start;
  return layout;
}

Status ReadExactly(int fd, std::uint64_t offset, std::uint64_t bytes, void* to) {
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "read");
    if (got == 0) return DataLossError("the file ends at byte " + std::to_string(offset));
    out += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return OkStatus();
}

bool HasSafetensorsMark(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string start(kSafetensorsMark.size(), ' ');
  return fd.valid() && ReadExactly(fd.get(), kLengthBytes, start.size(), start.data()).ok() &&
         start == kSafetensorsMark;
}

StatusOr<SafetensorsLayout> ReadSafetensorsLayout(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoError(errno, "fstat");
  const auto file_bytes = static_cast<std::uint64_t>(info.st_size);
  char start[kLfsPointerStart.size()] = {};
  if (S_ISREG(info.st_mode) && file_bytes >= sizeof(start)) {
    DS_RETURN_IF_ERROR(ReadExactly(fd, 0, sizeof(start), start));
    DS_RETURN_IF_ERROR(CheckNoLfsPointer({start, sizeof(start)}));
  }
  if (!S_ISREG(info.st_mode) || file_bytes < kLengthBytes) {
    return DataLossError("not a safetensors file: " + std::to_string(file_bytes) + " bytes long");
  }
  std::uint64_t header_bytes = 0;
  DS_RETURN_IF_ERROR(ReadExactly(fd, 0, kLengthBytes, &header_bytes));
  if (header_bytes > kMaxHeaderBytes || header_bytes > file_bytes - kLengthBytes) {
    return DataLossError("truncated, or not a safetensors file: it declares a header of " +
                         std::to_string(header_bytes) + " bytes in a file of " +
                         std::to_string(file_bytes));
  }
  std::string header(header_bytes, '\0');
  DS_RETURN_IF_ERROR(ReadExactly(fd, kLengthBytes, header_bytes, header.data()));
  return ParseSafetensorsLayout(header, kLengthBytes + header_bytes, file_bytes);
}

}  // namespace ds::checkpoint
