#include "runtime/tokenizer/chat/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "runtime/base/parse_number.h"
#include "runtime/base/utf8.h"

namespace ds::tokenizer {
namespace {

// Returns digits and exponent of the shortest text that reads back as the number: 1.25e-7 -> "125",
// -7.
std::pair<std::string, int> ShortestDigits(double value) {
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string text(buffer.data(), end.ptr);
  const std::size_t e = text.find('e');
  const std::size_t exponent = text[e + 1] == '+' ? e + 2 : e + 1;
  std::string digits = text.substr(0, e);
  digits.erase(std::remove(digits.begin(), digits.end(), '.'), digits.end());
  return {digits, ParseNumber<int>(std::string_view(text).substr(exponent)).value()};
}

void AppendHex(char32_t c, int digits, std::string* out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (int i = digits - 1; i >= 0; --i) *out += kHex[(c >> (4 * i)) & 15];
}

std::string JsonText(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 32) {
          out += "\\u";
          AppendHex(static_cast<unsigned char>(c), 4, &out);
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  std::string Write(const Value& value) {
    Append(value, 0);
    return std::move(out_);
  }

 private:
  void NewLine(int depth) {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(style_.indent * depth), ' ');
  }

  void Append(const Value& value, int depth) {
    if (const ValueDict* dict = value.dict()) return AppendDict(*dict, depth);
    if (const ValueList* list = value.list()) return AppendList(*list, depth);
    if (const bool* flag = value.As<bool>()) {
      out_ += *flag ? "true" : "false";
    } else if (const std::string* text = value.text()) {
      out_ += JsonText(*text);
    } else if (value.is_number()) {
      out_ += value.Str();
    } else {
      out_ += "null";
    }
  }

  void AppendList(const ValueList& list, int depth) {
    out_ += '[';
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine(depth + 1);
      Append(list[i], depth + 1);
    }
    if (!list.empty()) NewLine(depth);
    out_ += ']';
  }

  void AppendDict(const ValueDict& dict, int depth) {
    std::vector<std::pair<std::string, const Value*>> entries;
    for (const auto& [key, value] : dict.entries) entries.emplace_back(key.Str(), &value);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    out_ += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine(depth + 1);
      out_ += JsonText(entries[i].first) + style_.key_separator;
      Append(*entries[i].second, depth + 1);
    }
    if (!entries.empty()) NewLine(depth);
    out_ += '}';
  }

  const JsonStyle& style_;
  std::string out_;
};

ValueShape ShapeOf(const ValueDict& dict) {
  ValueShape shape{.weight = sizeof(Value)};
  for (const auto& [key, value] : dict.entries) {
    shape.Add(key.shape());
    shape.Add(value.shape());
  }
  return shape;
}

}  // namespace

const Value* ValueDict::Find(const Value& key) const {
  for (const auto& [each, value] : entries) {
    if (each == key) return &value;
  }
  return nullptr;
}

void ValueDict::Set(const Value& key, Value value) {
  for (auto& [each, old] : entries) {
    if (each == key) {
      old = std::move(value);
      return;
    }
  }
  entries.emplace_back(key, std::move(value));
}

Value Value::FromJson(const nlohmann::ordered_json& json, Origin origin) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
    case nlohmann::ordered_json::value_t::number_unsigned:
      return Value(json.get<std::int64_t>());
    case nlohmann::ordered_json::value_t::number_float:
      return Value(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return Value(json.get<std::string>()).WithOrigin(origin);
    case nlohmann::ordered_json::value_t::array: {
      ValueList list;
      for (const auto& element : json) list.push_back(FromJson(element, origin));
      return Value(std::move(list));
    }
    case nlohmann::ordered_json::value_t::object: {
      ValueDict dict;
      for (const auto& [key, value] : json.items()) {
        dict.entries.emplace_back(key, FromJson(value, origin));
      }
      return Value(std::move(dict));
    }
    default:
      return Value(None{});
  }
}

void ValueShape::Add(const ValueShape& part) {
  weight = std::min(weight + part.weight, kMost);
  depth = std::max(depth, part.depth + 1);
  has_namespace = has_namespace || part.has_namespace;
  origin = MergeOrigins(origin, part.origin);
}

Value::Value(ValueList list) {
  ValueShape shape{.weight = sizeof(Value)};
  for (const Value& element : list) shape.Add(element.shape());
  data_ = std::make_shared<const Shaped<ValueList>>(
      Shaped<ValueList>{std::move(list), shape, kNoOrigin});
}

Value::Value(ValueDict dict) : Value(std::move(dict), kNoOrigin) {}

Value::Value(ValueDict dict, Origin message) {
  const ValueShape shape = ShapeOf(dict);
  data_ =
      std::make_shared<const Shaped<ValueDict>>(Shaped<ValueDict>{std::move(dict), shape, message});
}

ValueShape Value::shape() const {
  if (const auto* list = As<std::shared_ptr<const Shaped<ValueList>>>()) return (*list)->shape;
  if (const auto* dict = As<std::shared_ptr<const Shaped<ValueDict>>>()) return (*dict)->shape;
  ValueShape shape;
  if (const std::string* string = text()) {
    shape.weight += string->size();
    shape.origin = origin_;
  }
  if (const auto* callable = As<Callable>(); callable != nullptr && callable->self != nullptr) {
    shape.Add(callable->self->shape());
  }
  if (const auto* space = As<Namespace>()) {
    shape = ShapeOf(*space->values);
    shape.has_namespace = true;
  }
  return shape;
}

const ValueList* Value::list() const {
  const auto* list = As<std::shared_ptr<const Shaped<ValueList>>>();
  return list == nullptr ? nullptr : &(*list)->value;
}

const ValueDict* Value::dict() const {
  if (const auto* dict = As<std::shared_ptr<const Shaped<ValueDict>>>()) return &(*dict)->value;
  const auto* space = As<Namespace>();
  return space == nullptr ? nullptr : space->values.get();
}

bool Value::is_number() const {
  return As<bool>() != nullptr || As<std::int64_t>() != nullptr || As<double>() != nullptr;
}

double Value::number() const {
  if (const bool* flag = As<bool>()) return *flag ? 1 : 0;
  if (const auto* integer = As<std::int64_t>()) return static_cast<double>(*integer);
  return *As<double>();
}

bool Value::Truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (const std::string* string = text()) return !string->empty();
  if (const ValueList* elements = list()) return !elements->empty();
  if (As<Namespace>() != nullptr) return true;
  if (const ValueDict* entries = dict()) return !entries->entries.empty();
  return true;
}

std::string Value::Str() const {
  if (is_undefined()) return "";
  if (const std::string* string = text()) return *string;
  return Repr();
}

std::string Value::Repr() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (const bool* flag = As<bool>()) return *flag ? "True" : "False";
  if (const auto* integer = As<std::int64_t>()) return std::to_string(*integer);
  if (const double* real = As<double>()) return ReprOfFloat(*real);
  if (const std::string* string = text()) return ReprOfText(*string);
  std::string out;
  if (const ValueList* elements = list()) {
    for (const Value& element : *elements) out += (out.empty() ? "" : ", ") + element.Repr();
    return "[" + out + "]";
  }
  if (const ValueDict* entries = dict()) {
    for (const auto& [key, value] : entries->entries) {
      out += (out.empty() ? "" : ", ") + key.Repr() + ": " + value.Repr();
    }
    return "{" + out + "}";
  }
  return "<" + As<Callable>()->name + ">";
}

std::string Value::TypeName() const {
  if (is_undefined()) return "undefined";
  if (is_none()) return "None";
  if (As<bool>() != nullptr) return "bool";
  if (As<std::int64_t>() != nullptr) return "int";
  if (As<double>() != nullptr) return "float";
  if (text() != nullptr) return "str";
  if (list() != nullptr) return "list";
  if (dict() != nullptr) return "dict";
  return "function";
}

bool operator==(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.data_.index() != b.data_.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.text() != nullptr) return *a.text() == *b.text();
  if (a.list() != nullptr) return *a.list() == *b.list();
  if (a.dict() != nullptr) {
    const auto& entries = a.dict()->entries;
    return entries.size() == b.dict()->entries.size() &&
           std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
             const Value* other = b.dict()->Find(entry.first);
             return other != nullptr && *other == entry.second;
           });
  }
  return false;
}

std::string ReprOfFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  const std::string sign = value < 0 ? "-" : "";
  auto [digits, exponent] = ShortestDigits(std::fabs(value));
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string text = sign + digits.substr(0, 1);
    if (count > 1) text += "." + digits.substr(1);
    const int size = std::abs(exponent);
    return text + (exponent < 0 ? "e-" : "e+") + (size < 10 ? "0" : "") + std::to_string(size);
  }
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  }
  if (count <= exponent + 1) {
    return sign + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto integer = static_cast<std::size_t>(exponent + 1);
  return sign + digits.substr(0, integer) + "." + digits.substr(integer);
}

std::string ReprOfText(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 32 || c == 127) {
      out += "\\x";
      AppendHex(static_cast<unsigned char>(c), 2, &out);
    } else {
      out += c;
    }
  }
  return out + quote;
}

std::string ToJson(const Value& value, const JsonStyle& style) {
  return JsonWriter(style).Write(value);
}

Origin MergeOrigins(Origin a, Origin b) {
  if (a == kNoOrigin || a == b) return b;
  return b == kNoOrigin ? a : kManyOrigins;
}

namespace {

// Adds the names under which templates read the model's thinking, as transformers does for each of
// the three names in use. Returns nothing for a message without thinking.
std::optional<nlohmann::ordered_json> WithReasoning(const nlohmann::ordered_json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    nlohmann::ordered_json aliased;
    aliased["thinking"] = *found;
    aliased.update(message);
    aliased["reasoning_content"] = *found;
    return aliased;
  }
  return std::nullopt;
}

}  // namespace

Value Value::FromMessages(const nlohmann::ordered_json& messages) {
  if (!messages.is_array()) return FromJson(messages);
  ValueList list;
  for (const auto& message : messages) {
    if (!message.is_object()) {
      list.push_back(FromJson(message));
      continue;
    }
    const auto index = static_cast<Origin>(list.size());
    ValueDict dict;
    const auto renamed = WithReasoning(message);
    for (const auto& [key, value] : (renamed ? *renamed : message).items()) {
      // Gemma's format keeps tool results in the message that calls the tools.
      const Origin origin = key == "tool_responses" ? kManyOrigins : index;
      dict.entries.emplace_back(key, FromJson(value, key == "role" ? kNoOrigin : origin));
    }
    list.push_back(Value(std::move(dict), index));
  }
  return Value(std::move(list));
}

Value&& Value::WithOrigin(Origin origin) && {
  if (origin == kNoOrigin) return std::move(*this);
  if (text() != nullptr) origin_ = MergeOrigins(origin_, origin);
  if (list() == nullptr) return std::move(*this);
  ValueList marked = *list();
  for (Value& element : marked) {
    if (element.text() != nullptr) element.origin_ = MergeOrigins(element.origin_, origin);
  }
  *this = Value(std::move(marked));
  return std::move(*this);
}

Origin Value::message() const {
  const auto* dict = As<std::shared_ptr<const Shaped<ValueDict>>>();
  return dict == nullptr ? kNoOrigin : (*dict)->message;
}

}  // namespace ds::tokenizer
