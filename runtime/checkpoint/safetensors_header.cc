// The header: dtype names, parsing and its checks.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/safetensors_dtype.h"

namespace ds::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<std::string_view, at::ScalarType> kDtypes[] = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
    {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
    {"U8", at::kByte},    {"BOOL", at::kBool}};

Status Malformed(const std::string& what) {
  return DataLossError("not a valid safetensors header: " + what);
}

// The whole JSON text; a name repeated on the top level is refused.
StatusOr<Json> ParseJson(std::string_view text) {
  std::set<std::string> names;
  std::string repeated;
  const auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      if (!names.insert(parsed.get<std::string>()).second) repeated = parsed.get<std::string>();
    }
    return true;
  };
  const Json json = Json::parse(text, callback, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Malformed("it is not JSON");
  if (!json.is_object()) return Malformed("it is not a JSON object");
  if (!repeated.empty()) return Malformed("tensor '" + repeated + "' is there twice");
  return json;
}

bool IsCount(const Json& value) { return value.is_number_unsigned(); }

bool IsListOfCounts(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array() &&
         std::all_of(found->begin(), found->end(), IsCount);
}

// Bytes of `shape` elements of `dtype`, or nothing when they exceed what a file can have.
std::optional<std::uint64_t> BytesOf(const std::vector<std::int64_t>& shape, at::ScalarType dtype) {
  std::uint64_t bytes = c10::elementSize(dtype);
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) return {};
  }
  return bytes;
}

StatusOr<SafetensorsEntry> ParseEntry(const Json& json) {
  if (!json.is_object() || !IsListOfCounts(json, "shape") ||
      !IsListOfCounts(json, "data_offsets") || json["data_offsets"].size() != 2 ||
      !json.contains("dtype") || !json["dtype"].is_string()) {
    return Malformed("it needs dtype, shape and two data_offsets");
  }
  SafetensorsEntry entry;
  const auto name = json["dtype"].get<std::string>();
  const auto dtype = DtypeOfSafetensorsName(name);
  if (!dtype) return UnimplementedError("dtype " + name + " is not supported");
  entry.dtype = *dtype;
  for (const Json& extent : json["shape"]) {
    if (extent.get<std::uint64_t>() > std::uint64_t{1} << 62) return Malformed("a huge shape");
    entry.shape.push_back(extent.get<std::int64_t>());
  }
  entry.offset = json["data_offsets"][0].get<std::uint64_t>();
  const auto end = json["data_offsets"][1].get<std::uint64_t>();
  if (end < entry.offset) return Malformed("data_offsets run backwards");
  entry.bytes = end - entry.offset;
  if (BytesOf(entry.shape, entry.dtype) != entry.bytes) {
    return Malformed("data_offsets span " + std::to_string(entry.bytes) +
                     " bytes, which is not what dtype and shape need");
  }
  return entry;
}

// The entries lie one behind the other and fill `data_bytes`.
Status CheckLayout(const std::map<std::string, SafetensorsEntry>& entries,
                   std::uint64_t data_bytes) {
  std::vector<std::pair<std::string, SafetensorsEntry>> sorted(entries.begin(), entries.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.offset, a.second.bytes) < std::pair(b.second.offset, b.second.bytes);
  });
  std::uint64_t expected = 0;
  for (const auto& [name, entry] : sorted) {
    if (entry.offset != expected) {
      return Malformed("tensor '" + name + "' begins at data byte " + std::to_string(entry.offset) +
                       (entry.offset < expected ? ", inside another one" : ", behind a gap"));
    }
    if (entry.bytes > data_bytes - expected) {
      return DataLossError("the file is truncated: tensor '" + name + "' needs data bytes up to " +
                           std::to_string(entry.offset + entry.bytes) + ", there are " +
                           std::to_string(data_bytes));
    }
    expected += entry.bytes;
  }
  if (expected == data_bytes) return OkStatus();
  return Malformed(std::to_string(data_bytes - expected) + " bytes behind the last tensor");
}

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

StatusOr<std::map<std::string, SafetensorsEntry>> ParseSafetensorsHeader(std::string_view json,
                                                                         std::uint64_t data_start,
                                                                         std::uint64_t file_bytes) {
  DS_ASSIGN_OR_RETURN(const Json header, ParseJson(json));
  std::map<std::string, SafetensorsEntry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    auto entry = ParseEntry(value);
    if (!entry.ok()) return entry.status().WithContext("tensor '" + name + "'");
    entries.emplace(name, *entry);
  }
  DS_RETURN_IF_ERROR(CheckLayout(entries, file_bytes - data_start));
  for (auto& [name, entry] : entries) entry.offset += data_start;
  return entries;
}

}  // namespace ds::checkpoint
