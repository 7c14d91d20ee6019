#include "runtime/tokenizer/text/json_object.h"

#include "runtime/base/json_fault.h"
#include "runtime/base/json_text.h"
#include "runtime/base/printable.h"
#include "runtime/base/utf8.h"

namespace ds::tokenizer {
namespace {

constexpr std::size_t kShownBytes = 60;

std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kShownBytes) {
    text.resize(ValidUtf8Prefix(std::string_view(text).substr(0, kShownBytes)));
    text += "...";
  }
  return Printable(text);
}

}  // namespace

StatusOr<Json> ParseJsonFile(std::string_view text, const std::string& name) {
  Json parsed;
  bool too_deep = false;
  const auto keep = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMostNestedJson;
    return depth <= kMostNestedJson;
  };
  try {
    parsed = Json::parse(text, keep);
  } catch (const Json::exception&) {
    return InvalidArgumentError(name + ": not valid JSON: " + DescribeJsonFault(text));
  }
  if (too_deep) return InvalidArgumentError(name + ": the JSON is nested too deep");
  if (!parsed.is_object()) return InvalidArgumentError(name + " must hold a JSON object");
  return parsed;
}

StatusOr<JsonObject> JsonObject::From(const Json& value, std::string file, std::string path) {
  if (!value.is_object()) {
    return InvalidArgumentError(file + ": " + path + " must be an object, not " + Shown(value));
  }
  return JsonObject(value, std::move(file), std::move(path));
}

std::string JsonObject::Where(std::string_view key) const {
  const std::string shown = Printable(key);
  return file_ + ": " + (path_.empty() || shown.empty() ? path_ + shown : path_ + "." + shown);
}

Status JsonObject::Error(std::string_view key, const std::string& what) const {
  return InvalidArgumentError(Where(key) + " " + what);
}

const Json* JsonObject::Find(std::string_view key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

StatusOr<const Json*> JsonObject::Need(std::string_view key) const {
  const Json* found = Find(key);
  if (found == nullptr) return Error(key, "is missing");
  return found;
}

StatusOr<std::string> JsonObject::Text(std::string_view key) const {
  DS_ASSIGN_OR_RETURN(const Json* value, Need(key));
  if (!value->is_string()) return Error(key, "must be a text, not " + Shown(*value));
  return value->get<std::string>();
}

StatusOr<bool> JsonObject::Flag(std::string_view key) const {
  DS_ASSIGN_OR_RETURN(const Json* value, Need(key));
  if (!value->is_boolean()) return Error(key, "must be true or false, not " + Shown(*value));
  return value->get<bool>();
}

StatusOr<std::uint32_t> JsonObject::Number(std::string_view key) const {
  DS_ASSIGN_OR_RETURN(const Json* value, Need(key));
  const bool good = value->is_number_unsigned() && value->get<std::uint64_t>() <= 0xFFFFFFFFULL;
  if (!good) return Error(key, "must be a whole number from 0 to 4294967295, not " + Shown(*value));
  return static_cast<std::uint32_t>(value->get<std::uint64_t>());
}

StatusOr<char32_t> JsonObject::Character(std::string_view key) const {
  DS_ASSIGN_OR_RETURN(const std::string text, Text(key));
  const std::string what = "must be one character, not '" + Printable(text) + "'";
  if (text.empty()) return Error(key, what);
  const Utf8Character character = FirstUtf8Character(text);
  if (character.length != text.size()) return Error(key, what);
  return character.code_point;
}

StatusOr<std::string> JsonObject::TextOr(std::string_view key, std::string otherwise) const {
  if (Find(key) == nullptr) return otherwise;
  return Text(key);
}

StatusOr<bool> JsonObject::FlagOr(std::string_view key, bool otherwise) const {
  if (Find(key) == nullptr) return otherwise;
  return Flag(key);
}

StatusOr<JsonObject> JsonObject::Object(std::string_view key) const {
  DS_ASSIGN_OR_RETURN(const Json* value, Need(key));
  const std::string name(key);
  return From(*value, file_, path_.empty() ? name : path_ + "." + name);
}

StatusOr<std::vector<JsonObject>> JsonObject::Objects(std::string_view key) const {
  DS_ASSIGN_OR_RETURN(const Json* value, Need(key));
  if (!value->is_array()) return Error(key, "must be a list, not " + Shown(*value));
  std::vector<JsonObject> objects;
  for (std::size_t i = 0; i < value->size(); ++i) {
    const std::string path =
        (path_.empty() ? "" : path_ + ".") + std::string(key) + "[" + std::to_string(i) + "]";
    DS_ASSIGN_OR_RETURN(JsonObject object, From((*value)[i], file_, path));
    objects.push_back(std::move(object));
  }
  return objects;
}

StatusOr<std::string> TypeOf(const JsonObject& component) { return component.TextOr("type", ""); }

Status UnknownType(const JsonObject& component, const std::string& what, const std::string& type) {
  return UnimplementedError(component.Where("type") + ": '" + Printable(type) +
                            "' is not a supported " + what);
}

}  // namespace ds::tokenizer
