#include "runtime/tokenizer/chat/methods.h"

#include <utf8proc.h>

#include <algorithm>
#include <span>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

constexpr std::string_view kTextMethods[] = {
    "strip",        "lstrip",       "rstrip",  "split",   "rsplit",  "splitlines",
    "startswith",   "endswith",     "replace", "upper",   "lower",   "title",
    "capitalize",   "find",         "rfind",   "index",   "count",   "join",
    "isdigit",      "isalpha",      "isalnum", "isspace", "isupper", "islower",
    "removeprefix", "removesuffix", "zfill",   "ljust",   "rjust",   "format"};
constexpr std::string_view kDictMethods[] = {"items", "keys", "values", "get"};
constexpr std::string_view kListMethods[] = {"index", "count"};
// These exist in Python, but Jinja's sandbox rejects calls to these.
constexpr std::string_view kForbidden[] = {"append",  "extend",     "insert", "pop",
                                           "remove",  "sort",       "update", "clear",
                                           "reverse", "setdefault", "popitem"};

bool OneOf(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsForbidden(const Value& value, std::string_view name) {
  return (value.list() != nullptr || value.dict() != nullptr) && OneOf(kForbidden, name);
}

char32_t UpperCase(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

void AppendUpper(char32_t c, std::string* out) {
  // U+00DF (sharp s) becomes SS. Other characters with an upper case of several letters, such as
  // ligatures, stay unchanged.
  if (c == 0xDF) {
    *out += "SS";
  } else {
    AppendUtf8(UpperCase(c), out);
  }
}

void AppendLower(char32_t c, std::string* out) {
  ForEachLowerCase(c, [&](char32_t lower) { AppendUtf8(lower, out); });
}

bool IsLetter(char32_t c) { return UpperCase(c) != c || LowerCase(c) != c; }

bool IsPythonBlank(char32_t c) {
  return IsWhiteSpace(c) || (c >= 0x1C && c <= 0x1F);  // Python includes these separators
}

// Removes the leading blanks, or with `blanks` false the leading characters that are not blanks.
std::string_view SkipCharacters(std::string_view text, bool blanks) {
  while (!text.empty()) {
    const Utf8Character next = FirstUtf8Character(text);
    if (IsPythonBlank(next.code_point) != blanks) break;
    text.remove_prefix(next.length);
  }
  return text;
}

// Collects the texts of a list. Spends the cost of each text from the budget before storing it.
class TextList {
 public:
  explicit TextList(Budget* budget) : budget_(budget) {}

  std::size_t size() const { return list_.size(); }
  Status Add(std::string_view text) {
    DS_RETURN_IF_ERROR(budget_->Spend(sizeof(Value) + text.size()));
    list_.emplace_back(std::string(text));
    return OkStatus();
  }
  Value Take(bool reversed = false) {
    if (reversed) std::reverse(list_.begin(), list_.end());
    return Value(std::move(list_));
  }

 private:
  Budget* budget_;
  ValueList list_;
};

// Implements str.split() without a separator. `most` is the number of splits; below 0, no limit.
StatusOr<Value> SplitAtBlanks(std::string_view text, std::int64_t most, Budget* budget) {
  TextList parts(budget);
  for (text = SkipCharacters(text, true); !text.empty();) {
    const bool is_last = most >= 0 && static_cast<std::int64_t>(parts.size()) == most;
    if (is_last) {
      DS_RETURN_IF_ERROR(parts.Add(StripText(text, "", false, true)));
      break;
    }
    const std::string_view rest = SkipCharacters(text, false);
    DS_RETURN_IF_ERROR(parts.Add(text.substr(0, text.size() - rest.size())));
    text = SkipCharacters(rest, true);
  }
  return parts.Take();
}

StatusOr<Value> Split(const std::string& text, const Arguments& arguments, bool from_right) {
  DS_ASSIGN_OR_RETURN(const std::int64_t most, arguments.Integer(1, "maxsplit", -1));
  const Value* given = arguments.Find(0, "sep");
  if (given == nullptr || given->is_none()) return SplitAtBlanks(text, most, arguments.budget);
  DS_ASSIGN_OR_RETURN(const std::string separator, arguments.Text(0, "sep", ""));
  if (separator.empty()) return InvalidArgumentError("split needs a separator that is not empty");
  // rfind may compare the whole separator at every position, at eight bytes for the cost of one.
  // FindInText makes one pass.
  DS_RETURN_IF_ERROR(arguments.budget->Spend(text.size(), from_right ? separator.size() / 8 : 0));
  TextList parts(arguments.budget);
  std::string_view rest = text;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t at = from_right ? rest.rfind(separator) : FindInText(rest, separator);
    if (at == std::string_view::npos) break;
    const std::string_view after = rest.substr(at + separator.size());
    DS_RETURN_IF_ERROR(parts.Add(from_right ? after : rest.substr(0, at)));
    rest = from_right ? rest.substr(0, at) : after;
  }
  DS_RETURN_IF_ERROR(parts.Add(rest));
  return parts.Take(from_right);
}

StatusOr<Value> SplitLines(std::string_view text, Budget* budget) {
  TextList lines(budget);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\n\r"), text.size());
    DS_RETURN_IF_ERROR(lines.Add(text.substr(0, end)));
    const bool both = text.substr(end).starts_with("\r\n");
    text.remove_prefix(std::min(end + (both ? 2 : 1), text.size()));
  }
  return lines.Take();
}

// Implements str.startswith, or str.endswith without `start`. The argument is a text or a list of
// texts, of which one has to match.
StatusOr<Value> MatchesEnd(const std::string& text, const Arguments& arguments, bool start) {
  const Value* given = arguments.Find(0, "");
  if (given == nullptr) return InvalidArgumentError("startswith and endswith need a text");
  const ValueList all = given->list() != nullptr ? *given->list() : ValueList{*given};
  for (const Value& each : all) {
    if (each.text() == nullptr) return TypeError("startswith and endswith need a text", each);
    if (start ? text.starts_with(*each.text()) : text.ends_with(*each.text())) return Value(true);
  }
  return Value(false);
}

StatusOr<Value> FindText(const std::string& text, const std::string& name,
                         const Arguments& arguments) {
  DS_ASSIGN_OR_RETURN(const std::string what, arguments.Text(0, "", ""));
  // rfind may compare all of `what` at every position (see Split).
  const std::uint64_t tries = name == "rfind" ? what.size() / 8 : 0;
  DS_RETURN_IF_ERROR(arguments.budget->Spend(text.size(), tries));
  const std::size_t at = name == "rfind" ? text.rfind(what) : FindInText(text, what);
  if (at != std::string::npos) {
    return Value(static_cast<std::int64_t>(CountCharacters(std::string_view(text).substr(0, at))));
  }
  if (name == "index") return InvalidArgumentError("the text has no '" + what + "'");
  return Value(std::int64_t{-1});
}

StatusOr<Value> CountText(const std::string& text, const Arguments& arguments) {
  DS_ASSIGN_OR_RETURN(const std::string what, arguments.Text(0, "", ""));
  // In Python "" occurs before every character and at the end.
  if (what.empty()) return Value(static_cast<std::int64_t>(CountCharacters(text) + 1));
  std::int64_t count = 0;
  for (std::size_t at = FindInText(text, what); at != std::string::npos;
       at = FindInText(text, what, at + what.size())) {
    ++count;
  }
  return Value(count);
}

StatusOr<Value> JoinText(const std::string& separator, const Arguments& arguments) {
  if (arguments.positional.empty()) return InvalidArgumentError("join needs a list");
  DS_RETURN_IF_ERROR(arguments.budget->Spend(ElementsCost(arguments.positional[0])));
  DS_ASSIGN_OR_RETURN(const ValueList elements, ElementsOf(arguments.positional[0]));
  DS_RETURN_IF_ERROR(arguments.budget->Spend(elements.size(), separator.size()));
  DS_RETURN_IF_ERROR(arguments.budget->Spend(arguments.positional[0].shape().weight));
  std::string joined;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (elements[i].text() == nullptr) return TypeError("join needs texts", elements[i]);
    if (i > 0) joined += separator;
    joined += *elements[i].text();
  }
  return Value(std::move(joined));
}

Value AllCharactersAre(std::string_view text, const std::string& name) {
  bool all = !text.empty();
  bool cased = false;
  ForEachCharacter(text, [&](char32_t c) {
    cased = cased || IsLetter(c);
    if (name == "isdigit") all = all && IsNumeric(c);
    if (name == "isspace") all = all && IsWhiteSpace(c);
    if (name == "isalpha") all = all && IsWordCharacter(c) && !IsNumeric(c) && c != '_';
    if (name == "isalnum") all = all && IsWordCharacter(c) && c != '_';
    if (name == "isupper") all = all && (!IsLetter(c) || LowerCase(c) != c);
    if (name == "islower") all = all && (!IsLetter(c) || UpperCase(c) != c);
  });
  const bool needs_case = name == "isupper" || name == "islower";
  return Value(all && (!needs_case || cased));
}

StatusOr<Value> Pad(const std::string& text, const std::string& name, const Arguments& arguments) {
  DS_ASSIGN_OR_RETURN(const std::int64_t width, arguments.Integer(0, "", 0));
  DS_ASSIGN_OR_RETURN(const std::string fill, arguments.Text(1, "", name == "zfill" ? "0" : " "));
  const auto missing = std::max<std::int64_t>(
      0, std::max<std::int64_t>(width, 0) - static_cast<std::int64_t>(CountCharacters(text)));
  DS_RETURN_IF_ERROR(arguments.budget->Spend(static_cast<std::uint64_t>(missing), fill.size() + 1));
  std::string padding;
  for (std::int64_t i = 0; i < missing; ++i) padding += fill;
  return Value(name == "ljust" ? text + padding : padding + text);
}

StatusOr<Value> CallStripOrCase(const std::string& text, const std::string& name,
                                const Arguments& arguments) {
  if (name == "upper") return Value(UpperText(text));
  if (name == "lower") return Value(LowerText(text));
  if (name == "title") return Value(TitleText(text));
  if (name == "capitalize") return Value(CapitalizeText(text));
  const Value* given = arguments.Find(0, "");
  const bool blanks = given == nullptr || given->is_none();
  DS_ASSIGN_OR_RETURN(const std::string characters,
                      blanks ? StatusOr<std::string>(std::string()) : arguments.Text(0, "", ""));
  if (!blanks && characters.empty()) return Value(text);
  DS_RETURN_IF_ERROR(arguments.budget->Spend(text.size(), characters.size() / 8));
  return Value(StripText(text, characters, name != "rstrip", name != "lstrip"));
}

StatusOr<Value> CallTextMethod(const std::string& text, const std::string& name,
                               const Arguments& arguments) {
  if (name == "split" || name == "rsplit") return Split(text, arguments, name == "rsplit");
  if (name == "splitlines") return SplitLines(text, arguments.budget);
  if (name == "startswith" || name == "endswith") {
    return MatchesEnd(text, arguments, name == "startswith");
  }
  if (name == "find" || name == "rfind" || name == "index") return FindText(text, name, arguments);
  if (name == "count") return CountText(text, arguments);
  if (name == "join") return JoinText(text, arguments);
  if (name == "format") return UnimplementedError("str.format is none that dsrun's templates have");
  if (name.starts_with("is")) return AllCharactersAre(text, name);
  if (name == "zfill" || name == "ljust" || name == "rjust") return Pad(text, name, arguments);
  if (name == "removeprefix" || name == "removesuffix") {
    DS_ASSIGN_OR_RETURN(const std::string end, arguments.Text(0, "", ""));
    if (name == "removeprefix" && text.starts_with(end)) return Value(text.substr(end.size()));
    if (name == "removesuffix" && text.ends_with(end)) {
      return Value(text.substr(0, text.size() - end.size()));
    }
    return Value(text);
  }
  if (name == "replace") {
    DS_ASSIGN_OR_RETURN(const std::string what, arguments.Text(0, "old", ""));
    DS_ASSIGN_OR_RETURN(const std::string with, arguments.Text(1, "new", ""));
    DS_ASSIGN_OR_RETURN(const std::int64_t most, arguments.Integer(2, "count", -1));
    DS_ASSIGN_OR_RETURN(std::string made, ReplaceText(text, what, with, most, arguments.budget));
    return Value(std::move(made));
  }
  return CallStripOrCase(text, name, arguments);
}

StatusOr<Value> CallDictMethod(const ValueDict& dict, const std::string& name,
                               const Arguments& arguments) {
  if (name == "get") {
    if (arguments.positional.empty()) return InvalidArgumentError("get needs a key");
    const Value& key = arguments.positional[0];
    // Comparing eight keys costs as much as copying a byte of each.
    DS_RETURN_IF_ERROR(
        arguments.budget->Spend(dict.entries.size() / 8, 1 + ComparisonCost(key, key)));
    if (const Value* found = dict.Find(key)) return *found;
    const Value* otherwise = arguments.Find(1, "default");
    return otherwise == nullptr ? Value(Value::None{}) : *otherwise;
  }
  DS_RETURN_IF_ERROR(arguments.budget->Spend(dict.entries.size(), 3 * sizeof(Value)));
  ValueList list;
  for (const auto& [key, value] : dict.entries) {
    if (name == "keys") list.push_back(key);
    if (name == "values") list.push_back(value);
    if (name == "items") list.emplace_back(ValueList{key, value});
  }
  return Value(std::move(list));
}

StatusOr<Value> CallListMethod(const ValueList& list, const std::string& name,
                               const Arguments& arguments) {
  if (arguments.positional.empty()) return InvalidArgumentError(name + " needs an element");
  const Value& element = arguments.positional[0];
  DS_RETURN_IF_ERROR(arguments.budget->Spend(list.size(), 1 + ComparisonCost(element, element)));
  if (name == "count") return Value(std::int64_t{std::count(list.begin(), list.end(), element)});
  const auto found = std::find(list.begin(), list.end(), element);
  if (found == list.end()) return InvalidArgumentError(element.Repr() + " is not in the list");
  return Value(std::int64_t{found - list.begin()});
}

}  // namespace

bool HasMethod(const Value& value, const std::string& name) {
  if (value.text() != nullptr) return OneOf(kTextMethods, name);
  if (IsForbidden(value, name)) return true;
  if (value.dict() != nullptr) return OneOf(kDictMethods, name);
  return value.list() != nullptr && OneOf(kListMethods, name);
}

StatusOr<Value> CallMethod(const Value& value, const std::string& name,
                           const Arguments& arguments) {
  if (IsForbidden(value, name)) {
    return PermissionDeniedError("a template may not change a " + value.TypeName() + " (" + name +
                                 ")");
  }
  DS_RETURN_IF_ERROR(arguments.budget->Spend(arguments.text_bytes()));
  if (const std::string* text = value.text()) {
    DS_RETURN_IF_ERROR(arguments.budget->Spend(text->size()));
    DS_ASSIGN_OR_RETURN(Value made, CallTextMethod(*text, name, arguments));
    return KeepOrigin(std::move(made), value, arguments);
  }
  if (value.dict() != nullptr) return CallDictMethod(*value.dict(), name, arguments);
  return CallListMethod(*value.list(), name, arguments);
}

std::string StripText(std::string_view text, std::string_view characters, bool left, bool right) {
  // Returns true for a character to remove.
  const auto goes = [&](std::string_view character) {
    if (!characters.empty()) return characters.find(character) != std::string_view::npos;
    return IsPythonBlank(FirstUtf8Character(character).code_point);
  };
  while (left && !text.empty()) {
    const std::size_t length = Utf8Length(text.front());
    if (!goes(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    std::size_t last = text.size() - 1;
    while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!goes(text.substr(last))) break;
    text.remove_suffix(text.size() - last);
  }
  return std::string(text);
}

StatusOr<std::string> ReplaceText(std::string_view text, std::string_view what,
                                  std::string_view with, std::int64_t most, Budget* budget) {
  DS_RETURN_IF_ERROR(budget->Spend(text.size()));
  std::string out;
  if (what.empty()) {  // Python inserts `with` before every character and at the end
    DS_RETURN_IF_ERROR(budget->Spend(CountCharacters(text) + 1, with.size()));
    while (!text.empty()) {
      if (most != 0) out += with;
      if (most > 0) --most;
      const std::size_t length = Utf8Length(text.front());
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
    return most != 0 ? out + std::string(with) : out;
  }
  for (; most != 0; --most) {
    const std::size_t at = FindInText(text, what);
    if (at == std::string_view::npos) break;
    DS_RETURN_IF_ERROR(budget->Spend(with.size()));
    out += text.substr(0, at);
    out += with;
    text.remove_prefix(at + what.size());
  }
  return out + std::string(text);
}

std::string UpperText(std::string_view text) {
  std::string out;
  ForEachCharacter(text, [&](char32_t c) { AppendUpper(c, &out); });
  return out;
}

std::string LowerText(std::string_view text) {
  std::string out;
  ForEachCharacter(text, [&](char32_t c) { AppendLower(c, &out); });
  return out;
}

std::string TitleText(std::string_view text) {
  std::string out;
  bool inside = false;
  ForEachCharacter(text, [&](char32_t c) {
    if (inside) {
      AppendLower(c, &out);
    } else {
      AppendUpper(c, &out);
    }
    inside = IsLetter(c);
  });
  return out;
}

std::string CapitalizeText(std::string_view text) {
  std::string out;
  ForEachCharacter(text, [&](char32_t c) {
    if (out.empty()) {
      AppendUpper(c, &out);
    } else {
      AppendLower(c, &out);
    }
  });
  return out;
}

}  // namespace ds::tokenizer
