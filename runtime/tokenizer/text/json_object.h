#pragma once

// JsonObject: an object of a tokenizer's file, read key by key, with errors that name the file and
// the key: "tokenizer.json: model.unk_token must be a text, not 7".
//
// Views the parsed file, which must outlive it.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::tokenizer {

using Json = nlohmann::json;

// The largest file of a tokenizer that is read.
inline constexpr std::uint64_t kMaxTokenizerBytes = std::uint64_t{256} << 20;

// Parses a whole file; `name` is how errors call it. Refuses invalid UTF-8 and what is no object.
StatusOr<Json> ParseJsonFile(std::string_view text, const std::string& name);

class JsonObject {
 public:
  // `file` and `path` name the object: "tokenizer.json", "model"; the root's path is "".
  static StatusOr<JsonObject> From(const Json& value, std::string file, std::string path);

  const Json& json() const { return *value_; }

  // "tokenizer.json: model.vocab".
  std::string Where(std::string_view key) const;
  // An error about the value of a key.
  Status Error(std::string_view key, const std::string& what) const;

  // Null when the key is absent, or its value is null.
  const Json* Find(std::string_view key) const;
  StatusOr<const Json*> Need(std::string_view key) const;

  // The value of a key that must be there.
  StatusOr<std::string> Text(std::string_view key) const;
  StatusOr<bool> Flag(std::string_view key) const;
  StatusOr<std::uint32_t> Number(std::string_view key) const;
  // A text of exactly one character.
  StatusOr<char32_t> Character(std::string_view key) const;

  // The same where an absent key, or null, means `otherwise`.
  StatusOr<std::string> TextOr(std::string_view key, std::string otherwise) const;
  StatusOr<bool> FlagOr(std::string_view key, bool otherwise) const;

  // Objects below: of a key, and of a list of them.
  StatusOr<JsonObject> Object(std::string_view key) const;
  StatusOr<std::vector<JsonObject>> Objects(std::string_view key) const;

 private:
  JsonObject(const Json& value, std::string file, std::string path)
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const Json* value_;
  std::string file_, path_;
};

// The component's "type"; "" when it has none.
StatusOr<std::string> TypeOf(const JsonObject& component);

// The error about a "type" that is none of these.
Status UnknownType(const JsonObject& component, const std::string& what, const std::string& type);

}  // namespace ds::tokenizer
