#pragma once

// JsonObject reads an object of a tokenizer's file key by key. Its errors name the file and the
// key: "tokenizer.json: model.unk_token must be a text, not 7".
//
// The parsed file must outlive this object.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::tokenizer {

using Json = nlohmann::json;

// Maximum size of a tokenizer's file.
inline constexpr std::uint64_t kMaxTokenizerBytes = std::uint64_t{256} << 20;

// Parses a full file; errors call it `name`. Rejects invalid UTF-8 and values that are not objects.
StatusOr<Json> ParseJsonFile(std::string_view text, const std::string& name);

class JsonObject {
 public:
  // `file` and `path` name the object: "tokenizer.json", "model"; the root's path is "".
  static StatusOr<JsonObject> From(const Json& value, std::string file, std::string path);

  const Json& json() const { return *value_; }

  // Returns "tokenizer.json: model.vocab".
  std::string Where(std::string_view key) const;
  // Returns an error about the value of a key.
  Status Error(std::string_view key, const std::string& what) const;

  // Returns null when the key is absent, or its value is null.
  const Json* Find(std::string_view key) const;
  StatusOr<const Json*> Need(std::string_view key) const;

  // Return the value of a required key.
  StatusOr<std::string> Text(std::string_view key) const;
  StatusOr<bool> Flag(std::string_view key) const;
  StatusOr<std::uint32_t> Number(std::string_view key) const;
  // Returns a text of exactly one character.
  StatusOr<char32_t> Character(std::string_view key) const;

  // Return `otherwise` where the key is absent or null.
  StatusOr<std::string> TextOr(std::string_view key, std::string otherwise) const;
  StatusOr<bool> FlagOr(std::string_view key, bool otherwise) const;

  // Return nested objects: the object under a key, and the list of objects under a key.
  StatusOr<JsonObject> Object(std::string_view key) const;
  StatusOr<std::vector<JsonObject>> Objects(std::string_view key) const;

 private:
  JsonObject(const Json& value, std::string file, std::string path)
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const Json* value_;
  std::string file_, path_;
};

// Returns the component's "type"; "" when it has none.
StatusOr<std::string> TypeOf(const JsonObject& component);

// Returns the error for an unknown "type".
Status UnknownType(const JsonObject& component, const std::string& what, const std::string& type);

}  // namespace ds::tokenizer
