// Serializes and parses the text of a manifest.

#include <fmt/format.h>

#include <limits>

#include "runtime/base/parse_number.h"
#include "runtime/checkpoint_format/crc32c.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/checkpoint_format/reading.h"

namespace ds::checkpoint {
namespace {

constexpr std::string_view kFormatName = "dsrun-checkpoint";
constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 31;

// The text is `{...,` + this with eight hex digits: the checksum of everything before it.
constexpr std::string_view kChecksumHead = "\n\"crc32c\":\"";
constexpr std::string_view kChecksumTail = "\"}\n";
constexpr std::size_t kChecksumDigits = 8;
constexpr std::size_t kTrailerSize = kChecksumHead.size() + kChecksumDigits + kChecksumTail.size();

std::string ChecksumText(std::uint32_t crc) { return fmt::format("{:08x}", crc); }

std::string ChecksumsText(std::span<const std::uint32_t> crcs) {
  std::string text;
  for (const std::uint32_t crc : crcs) text += ChecksumText(crc);
  return text;
}

nlohmann::json ShardToJson(const StoredShard& shard) {
  nlohmann::json json = {{"file", shard.file},
                         {"offset", shard.offset},
                         {"length", shard.length},
                         {"crc32c", ChecksumsText(shard.crc32c)},
                         {"start", shard.region.flat_start},
                         {"count", shard.region.flat_count}};
  nlohmann::json boxes = nlohmann::json::array();
  for (const Box& box : shard.region.boxes) {
    boxes.push_back({{"offset", box.offset}, {"shape", box.shape}});
  }
  if (!boxes.empty()) json["box"] = boxes.size() == 1 ? boxes[0] : boxes;
  return json;
}

nlohmann::json TensorToJson(const StoredTensor& tensor) {
  nlohmann::json shards = nlohmann::json::array();
  for (const StoredShard& shard : tensor.shards) shards.push_back(ShardToJson(shard));
  return {{"name", tensor.name},
          {"dtype", tensor.dtype},
          {"shape", tensor.shape},
          {"shards", std::move(shards)}};
}

Status BadField(std::string_view key, std::string_view wanted) {
  return InvalidArgumentError(fmt::format("field '{}' is missing or not {}", key, wanted));
}

StatusOr<const nlohmann::json*> GetField(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return InvalidArgumentError("an object was expected");
  const auto found = object.find(key);
  if (found == object.end()) return InvalidArgumentError(fmt::format("field '{}' is missing", key));
  return &*found;
}

StatusOr<std::int64_t> AsInteger(const nlohmann::json& value, std::string_view key) {
  // The JSON library stores every number without a sign as unsigned.
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() &&
       value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})) {
    return BadField(key, "an integer");
  }
  return value.get<std::int64_t>();
}

StatusOr<std::int64_t> GetInteger(const nlohmann::json& object, const char* key) {
  DS_ASSIGN_OR_RETURN(const nlohmann::json* value, GetField(object, key));
  return AsInteger(*value, key);
}

StatusOr<std::uint64_t> GetUnsigned(const nlohmann::json& object, const char* key) {
  DS_ASSIGN_OR_RETURN(const std::int64_t value, GetInteger(object, key));
  if (value < 0) return BadField(key, "a count");
  return static_cast<std::uint64_t>(value);
}

StatusOr<std::string> GetString(const nlohmann::json& object, const char* key) {
  DS_ASSIGN_OR_RETURN(const nlohmann::json* value, GetField(object, key));
  if (!value->is_string()) return BadField(key, "a string");
  return value->get<std::string>();
}

StatusOr<Shape> GetShape(const nlohmann::json& object, const char* key) {
  DS_ASSIGN_OR_RETURN(const nlohmann::json* value, GetField(object, key));
  if (!value->is_array()) return BadField(key, "a list of integers");
  Shape shape;
  for (const nlohmann::json& extent : *value) {
    DS_ASSIGN_OR_RETURN(const std::int64_t number, AsInteger(extent, key));
    shape.push_back(number);
  }
  return shape;
}

StatusOr<std::vector<std::uint32_t>> ParseChecksums(std::string_view text) {
  std::vector<std::uint32_t> crcs;
  for (std::size_t at = 0; at < text.size(); at += kChecksumDigits) {
    const std::string_view digits = text.substr(at, kChecksumDigits);
    const std::optional<std::uint32_t> crc = ParseNumber<std::uint32_t>(digits, 16);
    // Accept only one spelling per value: eight lower-case digits.
    if (!crc.has_value() || ChecksumText(*crc) != digits) {
      return BadField("crc32c", "8 hex digits a chunk");
    }
    crcs.push_back(*crc);
  }
  return crcs;
}

StatusOr<StoredShard> ShardFromJson(const nlohmann::json& json) {
  StoredShard shard;
  DS_ASSIGN_OR_RETURN(shard.file, GetString(json, "file"));
  DS_ASSIGN_OR_RETURN(shard.offset, GetUnsigned(json, "offset"));
  DS_ASSIGN_OR_RETURN(shard.length, GetUnsigned(json, "length"));
  DS_ASSIGN_OR_RETURN(shard.region.flat_start, GetInteger(json, "start"));
  DS_ASSIGN_OR_RETURN(shard.region.flat_count, GetInteger(json, "count"));
  DS_ASSIGN_OR_RETURN(const std::string checksums, GetString(json, "crc32c"));
  DS_ASSIGN_OR_RETURN(shard.crc32c, ParseChecksums(checksums));
  if (const auto boxes = json.find("box"); boxes != json.end()) {
    if (boxes->is_array() && boxes->size() < 2) return BadField("box", "a box or several");
    const nlohmann::json one = nlohmann::json::array({*boxes});
    for (const nlohmann::json& box_json : boxes->is_array() ? *boxes : one) {
      Box box;
      DS_ASSIGN_OR_RETURN(box.offset, GetShape(box_json, "offset"));
      DS_ASSIGN_OR_RETURN(box.shape, GetShape(box_json, "shape"));
      shard.region.boxes.push_back(std::move(box));
    }
  }
  return shard;
}

StatusOr<StoredTensor> TensorFromJson(const nlohmann::json& json) {
  StoredTensor tensor;
  DS_ASSIGN_OR_RETURN(tensor.name, GetString(json, "name"));
  DS_ASSIGN_OR_RETURN(tensor.dtype, GetString(json, "dtype"));
  DS_ASSIGN_OR_RETURN(tensor.shape, GetShape(json, "shape"));
  DS_ASSIGN_OR_RETURN(const nlohmann::json* shards, GetField(json, "shards"));
  if (!shards->is_array()) return BadField("shards", "a list");
  for (const nlohmann::json& shard_json : *shards) {
    DS_ASSIGN_OR_RETURN(StoredShard shard, ShardFromJson(shard_json));
    tensor.shards.push_back(std::move(shard));
  }
  return tensor;
}

StatusOr<std::vector<StoredTensor>> TensorsFromJson(const nlohmann::json& json) {
  if (!json.is_array()) return BadField("tensors", "a list");
  std::vector<StoredTensor> tensors;
  for (const nlohmann::json& tensor_json : json) {
    DS_ASSIGN_OR_RETURN(StoredTensor tensor, TensorFromJson(tensor_json));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Returns the version.
StatusOr<int> CheckHeader(const nlohmann::json& json) {
  DS_ASSIGN_OR_RETURN(const std::string format, GetString(json, "format"));
  if (format != kFormatName) return BadField("format", fmt::format("'{}'", kFormatName));
  DS_ASSIGN_OR_RETURN(const std::int64_t version, GetInteger(json, "version"));
  if (version < kOldestFormatVersion || version > kFormatVersion) {
    return UnimplementedError(fmt::format(
        "format version {} was written by another dsrun; this one reads versions {} to {}", version,
        kOldestFormatVersion, kFormatVersion));
  }
  return static_cast<int>(version);
}

// Returns the text without its trailer if the trailer's checksum is right.
StatusOr<std::string_view> CheckedBody(std::string_view text) {
  const Status damaged =
      DataLossError("its text does not match its checksum: it is truncated or changed");
  if (text.size() < kTrailerSize) return damaged;
  const std::string_view body = text.substr(0, text.size() - kTrailerSize);
  const std::string trailer =
      fmt::format("{}{}{}", kChecksumHead, ChecksumText(Crc32c(body)), kChecksumTail);
  if (text.substr(body.size()) != trailer) return damaged;
  return body;
}

StatusOr<Manifest> FromJson(const nlohmann::json& json) {
  Manifest manifest;
  DS_ASSIGN_OR_RETURN(manifest.version, CheckHeader(json));
  DS_ASSIGN_OR_RETURN(manifest.step, GetInteger(json, "step"));
  DS_ASSIGN_OR_RETURN(const nlohmann::json* state, GetField(json, "state"));
  if (!state->is_object()) return BadField("state", "an object");
  manifest.state = *state;
  DS_ASSIGN_OR_RETURN(const nlohmann::json* written_by, GetField(json, "written_by"));
  if (!written_by->is_object()) return BadField("written_by", "an object");
  manifest.written_by = *written_by;
  if (const auto lineage = json.find("lineage"); lineage != json.end()) {
    DS_ASSIGN_OR_RETURN(manifest.lineage, LineageFromJson(*lineage));
  }
  DS_ASSIGN_OR_RETURN(const nlohmann::json* tensors, GetField(json, "tensors"));
  DS_ASSIGN_OR_RETURN(manifest.tensors, TensorsFromJson(*tensors));
  DS_RETURN_IF_ERROR(CheckManifest(manifest));
  return manifest;
}

}  // namespace

std::string SerializeTensors(std::span<const StoredTensor> tensors) {
  // One tensor per line keeps the file readable without the cost of full indentation.
  std::string text = "[";
  std::string_view separator = "\n";
  for (const StoredTensor& tensor : tensors) {
    text.append(separator).append(TensorToJson(tensor).dump());
    separator = ",\n";
  }
  return text.append("]");
}

StatusOr<std::vector<StoredTensor>> ParseTensors(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgumentError("it is not JSON");
  return TensorsFromJson(json);
}

std::string SerializeManifest(const Manifest& manifest) {
  const std::string lineage =
      manifest.lineage ? fmt::format("\"lineage\":{},\n", LineageToJson(*manifest.lineage).dump())
                       : "";
  std::string text = fmt::format(
      "{{\"format\":\"{}\",\"version\":{},\"step\":{},\n{}\"written_by\":{},\n\"state\":{},\n"
      "\"tensors\":{},",
      kFormatName, manifest.version, manifest.step, lineage, manifest.written_by.dump(),
      manifest.state.dump(), SerializeTensors(manifest.tensors));
  const std::uint32_t crc = Crc32c(text);
  return text.append(kChecksumHead).append(ChecksumText(crc)).append(kChecksumTail);
}

StatusOr<Manifest> ParseManifest(std::string_view text) {
  DS_RETURN_IF_ERROR(CheckedBody(text).status());
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgumentError("it is not JSON");
  return FromJson(json);
}

StatusOr<Manifest> ReadManifest(const std::filesystem::path& directory, FileSystem& system) {
  const std::filesystem::path path = directory / kManifestFile;
  DS_ASSIGN_OR_RETURN(const std::string text, ReadText(path, kMaxManifestBytes, system));
  StatusOr<Manifest> manifest = ParseManifest(text);
  if (manifest.ok() || manifest.status().code() == StatusCode::kUnimplemented) return manifest;
  return DataLossError(manifest.status().WithContext(path.string()).message());
}

}  // namespace ds::checkpoint
