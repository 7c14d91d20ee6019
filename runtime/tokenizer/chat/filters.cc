#include "runtime/tokenizer/chat/filters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "runtime/base/parse_number.h"
#include "runtime/tokenizer/chat/methods.h"
#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

StatusOr<Value> ToJsonFilter(const Value& value, const Arguments& arguments) {
  // transformers' own tojson: json.dumps with these arguments. Jinja's would escape HTML.
  if (value.is_undefined()) return TypeError("", value);
  JsonStyle style;
  DS_ASSIGN_OR_RETURN(const std::int64_t indent, arguments.Integer(1, "indent", -1));
  if (indent > 64) return InvalidArgumentError("tojson cannot indent by " + std::to_string(indent));
  style.indent = static_cast<int>(indent);
  if (indent >= 0) style.item_separator = ",";
  if (const Value* separators = arguments.Find(2, "separators"); separators != nullptr) {
    if (const ValueList* pair = separators->list(); pair != nullptr && pair->size() == 2) {
      style.item_separator = (*pair)[0].Str();
      style.key_separator = (*pair)[1].Str();
    }
  }
  style.sort_keys = arguments.Truth(3, "sort_keys", false);
  // Each element is preceded by a separator and the indentation of its line.
  const ValueShape shape = value.shape();
  const std::uint64_t blanks = indent < 0 ? 0 : static_cast<std::uint64_t>(indent * shape.depth);
  DS_RETURN_IF_ERROR(arguments.budget->Spend(
      shape.weight, 1 + (blanks + style.item_separator.size() + style.key_separator.size()) / 8));
  return Value(ToJson(value, style));
}

StatusOr<Value> Length(const Value& value) {
  if (value.is_undefined()) return Value(std::int64_t{0});
  if (const std::string* text = value.text()) {
    return Value(static_cast<std::int64_t>(CountCharacters(*text)));
  }
  if (const ValueList* list = value.list()) return Value(static_cast<std::int64_t>(list->size()));
  if (const ValueDict* dict = value.dict()) {
    return Value(static_cast<std::int64_t>(dict->entries.size()));
  }
  return TypeError("only lists, dicts and texts have a length", value);
}

// Indents each line except the first, or all lines; empty lines only on request.
StatusOr<Value> Indent(const Value& value, const Arguments& arguments) {
  const std::string text = value.Str();
  const Value* width = arguments.Find(0, "width");
  std::string blanks = "    ";
  if (width != nullptr && width->text() != nullptr) {
    blanks = *width->text();
  } else {
    DS_ASSIGN_OR_RETURN(const std::int64_t count, arguments.Integer(0, "width", 4));
    blanks.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, 1024)), ' ');
  }
  const auto lines = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  DS_RETURN_IF_ERROR(arguments.budget->Spend(lines, blanks.size()));
  const bool first = arguments.Truth(1, "first", false);
  const bool blank_lines = arguments.Truth(2, "blank", false);
  std::string out;
  bool begins = first;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (begins && (blank_lines || end > at)) out += blanks;
    out += text.substr(at, end - at);
    if (end < text.size()) out += '\n';
    begins = true;
    at = end + 1;
  }
  return Value(std::move(out));
}

StatusOr<Value> ToNumber(const std::string& name, const Value& value, const Arguments& arguments) {
  const Value* otherwise = arguments.Find(0, "default");
  std::optional<double> number;
  if (value.is_number()) number = value.number();
  if (value.text() != nullptr)
    number = ParseNumber<double>(StripText(*value.text(), "", true, true));
  if (name == "float") {
    return number ? Value(*number) : otherwise != nullptr ? *otherwise : Value(0.0);
  }
  if (const auto* integer = value.As<std::int64_t>()) return Value(*integer);
  const bool fits = number && std::fabs(*number) < 9e18;
  if (fits) return Value(static_cast<std::int64_t>(*number));
  return otherwise != nullptr ? *otherwise : Value(std::int64_t{0});
}

StatusOr<Value> Round(const Value& value, const Arguments& arguments) {
  if (!value.is_number()) return TypeError("a number is needed", value);
  DS_ASSIGN_OR_RETURN(const std::int64_t digits, arguments.Integer(0, "precision", 0));
  DS_ASSIGN_OR_RETURN(const std::string method, arguments.Text(1, "method", "common"));
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.number() * scale;
  if (method == "ceil") return Value(std::ceil(scaled) / scale);
  if (method == "floor") return Value(std::floor(scaled) / scale);
  return Value(std::nearbyint(scaled) / scale);
}

StatusOr<Value> Absolute(const Value& value) {
  if (const auto* integer = value.As<std::int64_t>()) {
    if (*integer == std::numeric_limits<std::int64_t>::min()) {
      return InvalidArgumentError("a number is too large");
    }
    return Value(*integer < 0 ? -*integer : *integer);
  }
  if (!value.is_number()) return TypeError("a number is needed", value);
  return Value(std::fabs(value.number()));
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

StatusOr<std::optional<Value>> ApplyTextFilter(const std::string& name, const Value& value,
                                               const Arguments& arguments) {
  using FilterResult = std::optional<Value>;
  if (name == "upper") return FilterResult(UpperText(value.Str()));
  if (name == "lower") return FilterResult(LowerText(value.Str()));
  if (name == "title") return FilterResult(TitleText(value.Str()));
  if (name == "capitalize") return FilterResult(CapitalizeText(value.Str()));
  if (name == "string" || name == "safe")
    return FilterResult(name == "safe" && value.text() == nullptr ? value : Value(value.Str()));
  if (name == "escape" || name == "e") return FilterResult(EscapeHtml(value.Str()));
  if (name == "trim") {
    DS_ASSIGN_OR_RETURN(const std::string characters, arguments.Text(0, "chars", ""));
    const std::string text = value.Str();
    DS_RETURN_IF_ERROR(arguments.budget->Spend(text.size(), 1 + characters.size() / 8));
    return FilterResult(StripText(text, characters, true, true));
  }
  if (name == "replace") {
    DS_ASSIGN_OR_RETURN(const std::string what, arguments.Text(0, "old", ""));
    DS_ASSIGN_OR_RETURN(const std::string with, arguments.Text(1, "new", ""));
    DS_ASSIGN_OR_RETURN(const std::int64_t most, arguments.Integer(2, "count", -1));
    DS_ASSIGN_OR_RETURN(std::string made,
                        ReplaceText(value.Str(), what, with, most, arguments.budget));
    return FilterResult(std::move(made));
  }
  if (name == "wordcount") {
    DS_ASSIGN_OR_RETURN(const Value words,
                        CallMethod(Value(value.Str()), "split", {arguments.budget, {}, {}}));
    return FilterResult(static_cast<std::int64_t>(words.list()->size()));
  }
  return FilterResult();
}

// These convert their value to text, at a cost of its full size.
constexpr std::string_view kReadAll[] = {"string", "safe",       "upper",   "lower",  "title",
                                         "trim",   "capitalize", "replace", "escape", "e",
                                         "indent", "wordcount",  "join"};

StatusOr<Value> FilterValue(const std::string& name, const Value& value,
                            const Arguments& arguments) {
  const bool reads_all =
      std::find(std::begin(kReadAll), std::end(kReadAll), name) != std::end(kReadAll);
  DS_RETURN_IF_ERROR(
      arguments.budget->Spend(reads_all || value.text() != nullptr ? value.shape().weight : 0));
  DS_RETURN_IF_ERROR(arguments.budget->Spend(arguments.text_bytes()));
  if (name == "default" || name == "d") {
    const bool missing =
        value.is_undefined() || (arguments.Truth(1, "boolean", false) && !value.Truth());
    const Value* otherwise = arguments.Find(0, "default_value");
    return missing ? (otherwise == nullptr ? Value("") : *otherwise) : value;
  }
  if (name == "tojson") return ToJsonFilter(value, arguments);
  if (name == "length" || name == "count") return Length(value);
  if (name == "indent") return Indent(value, arguments);
  if (name == "int" || name == "float") return ToNumber(name, value, arguments);
  if (name == "round") return Round(value, arguments);
  if (name == "abs") return Absolute(value);
  DS_ASSIGN_OR_RETURN(std::optional<Value> made, ApplyTextFilter(name, value, arguments));
  if (made) return *std::move(made);
  return ApplyListFilter(name, value, arguments);
}

}  // namespace

StatusOr<Value> ApplyFilter(const std::string& name, const Value& value,
                            const Arguments& arguments) {
  DS_ASSIGN_OR_RETURN(Value made, FilterValue(name, value, arguments));
  const bool picks = name == "first" || name == "last" || name == "min" || name == "max";
  if (picks) return made;
  return KeepOrigin(std::move(made), value, arguments);
}

}  // namespace ds::tokenizer
