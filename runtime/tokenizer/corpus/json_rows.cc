#include "runtime/tokenizer/corpus/json_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/base/byte_size.h"
#include "runtime/base/files.h"
#include "runtime/base/suggest.h"
#include "runtime/tokenizer/corpus/row_json.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Finds the end of one value by its brackets and quotes.
class ValueEnd {
 public:
  // Returns true when `c` belongs to the value.
  bool Takes(char c) {
    if (in_text_) {
      in_text_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      is_complete_ = !in_text_ && depth_ == 0;
      return true;
    }
    if (is_complete_) return false;
    if (c == '"') {
      in_text_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      if (depth_ == 0) return false;
      is_complete_ = --depth_ == 0;
    } else if (depth_ == 0 && (c == ',' || c == ':' || IsBlank(c))) {
      return false;  // the end of a number or a word
    }
    return true;
  }

  bool in_text() const { return in_text_; }
  bool is_complete() const { return is_complete_; }
  // Returns true if the value may end at the end of the file.
  bool may_end() const { return !in_text_ && depth_ == 0; }

 private:
  bool in_text_ = false, escaped_ = false, is_complete_ = false;
  int depth_ = 0;
};

bool IsMessage(const OrderedJson& value) {
  return value.is_object() && (value.contains("role") || value.contains("from"));
}

bool IsListOf(const OrderedJson& value, bool messages) {
  return value.is_array() && !value.empty() && value[0].is_object() &&
         IsMessage(value[0]) == messages;
}

// Returns the fields of an object that hold lists of objects, comma-separated, if the object is not
// a row itself: it has neither a text nor messages. Empty for a row.
std::string ListsOf(const OrderedJson& object) {
  std::string names;
  for (const auto& [name, value] : object.items()) {
    if (IsListOf(value, /*messages=*/true) || (name == "text" && value.is_string())) return "";
    if (IsListOf(value, /*messages=*/false)) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

}  // namespace

Status JsonRows::Error(const std::string& what) const {
  return InvalidArgumentError(ShortenPath(stream_.path()) + ":" + std::to_string(line_) + ": " +
                              what);
}

StatusOr<bool> JsonRows::Fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  return stream_.ReadMore(kBatchBytes / 4, &buffer_);
}

StatusOr<char> JsonRows::Peek() {
  while (true) {
    for (; at_ < buffer_.size(); ++at_) {
      if (!IsBlank(buffer_[at_])) return buffer_[at_];
      line_ += buffer_[at_] == '\n' ? 1 : 0;
    }
    DS_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) return '\0';
  }
}

StatusOr<std::string> JsonRows::TakeValue() {
  std::string value;
  ValueEnd end;
  while (true) {
    for (; at_ < buffer_.size(); ++at_) {
      const char c = buffer_[at_];
      if (!end.Takes(c)) {
        if (value.empty()) return Error(std::string("a value is missing before '") + c + "'");
        return value;
      }
      if (c == '\n' && end.in_text()) return Error("a text is not closed at the end of the line");
      line_ += c == '\n' ? 1 : 0;
      value += IsBlank(c) && !end.in_text() ? ' ' : c;
    }
    if (end.is_complete()) return value;
    if (value.size() > kLongestRow) {
      return Error("the value that begins here has more than " + ByteSize(kLongestRow) +
                   "; where the rows are a list under a field of it, --data_field names it");
    }
    DS_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more && end.may_end()) return value;
    if (!more) return Error("the file ends inside a value: it is incomplete");
  }
}

Status JsonRows::FindField() {
  ++at_;  // the brace
  std::vector<std::string> names;
  while (true) {
    DS_ASSIGN_OR_RETURN(const char first, Peek());
    if (first == '}') break;
    if (first != '"') return Error("a field's name in quotes is missing");
    DS_ASSIGN_OR_RETURN(const std::string quoted, TakeValue());
    const OrderedJson name = OrderedJson::parse(quoted, nullptr, /*allow_exceptions=*/false);
    DS_ASSIGN_OR_RETURN(const char colon, Peek());
    if (!name.is_string() || colon != ':') return Error("':' after a field's name is missing");
    ++at_;
    DS_ASSIGN_OR_RETURN(const char begin, Peek());
    if (name == field_) {
      if (begin != '[') return Error("--data_field " + field_ + ": the field is no list");
      return OkStatus();
    }
    names.push_back(name.get<std::string>());
    DS_RETURN_IF_ERROR(TakeValue().status());
    DS_ASSIGN_OR_RETURN(const char next, Peek());
    if (next == ',') ++at_;
    if (next != ',' && next != '}') return Error("',' or '}' is missing");
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return Error("--data_field " + field_ + ": the object has no such field (it has: " + list + ")" +
               DidYouMean(field_, names));
}

Status JsonRows::Start() {
  DS_ASSIGN_OR_RETURN(const char first, Peek());
  if (first == '\0') {
    state_ = State::kEnd;
    return OkStatus();
  }
  if (first != '[' && first != '{') {
    return Error("JSON rows begin with '[' or '{', not with '" + std::string(1, first) + "'");
  }
  if (!field_.empty()) {
    if (first == '[') {
      return Error("--data_field " + field_ + ": the file is an array, which has no fields");
    }
    DS_RETURN_IF_ERROR(FindField());
  }
  state_ = first == '{' && field_.empty() ? State::kValues : State::kArray;
  if (state_ == State::kArray) ++at_;
  return OkStatus();
}

// Moves past the ',' after an element, or past the end of the array.
Status JsonRows::EndElement() {
  DS_ASSIGN_OR_RETURN(const char next, Peek());
  if (next == ',') {
    ++at_;
    DS_ASSIGN_OR_RETURN(const char element, Peek());
    return element == ']' ? Error("a row is missing between ',' and ']'") : OkStatus();
  }
  if (next == '\0') return Error("the file ends inside the array: it is incomplete");
  if (next != ']') return Error("',' or ']' is missing after a row");
  return OkStatus();
}

// Rejects a file that is one object with lists; the error explains how to name the list with the
// rows.
StatusOr<std::optional<std::string>> JsonRows::TakeFromValues() {
  DS_ASSIGN_OR_RETURN(const char first, Peek());
  if (first == '\0') {
    state_ = State::kEnd;
    return std::optional<std::string>();
  }
  if (first != '{')
    return Error("an object begins with '{', not with '" + std::string(1, first) + "'");
  row_line_ = line_;
  DS_ASSIGN_OR_RETURN(std::string row, TakeValue());
  if (rows_++ > 0) return std::optional(std::move(row));
  DS_ASSIGN_OR_RETURN(const char next, Peek());
  if (next != '\0') return std::optional(std::move(row));
  const auto object = ParseNested(row);  // its errors are reported when the row is read
  const std::string lists = object.ok() && object->is_object() ? ListsOf(*object) : "";
  if (lists.empty()) return std::optional(std::move(row));
  return InvalidArgumentError(ShortenPath(stream_.path()) +
                              ": the file is one object, with a list of objects under: " + lists +
                              "; name the one with the rows by --data_field NAME");
}

StatusOr<std::optional<std::string>> JsonRows::TakeRow() {
  if (state_ == State::kStart) DS_RETURN_IF_ERROR(Start());
  if (state_ == State::kEnd) return std::optional<std::string>();
  if (state_ == State::kValues) return TakeFromValues();
  DS_ASSIGN_OR_RETURN(const char first, Peek());
  if (first == ']') {
    ++at_;
    state_ = State::kEnd;
    DS_ASSIGN_OR_RETURN(const char next, Peek());
    if (next != '\0' && field_.empty()) return Error("there is more after the array's end");
    return std::optional<std::string>();
  }
  row_line_ = line_;
  DS_ASSIGN_OR_RETURN(std::string row, TakeValue());
  DS_RETURN_IF_ERROR(EndElement());
  if (first == '"') row = "{\"text\":" + row + "}";
  return std::optional(std::move(row));
}

StatusOr<std::optional<RowBatch>> JsonRows::Next() {
  RowBatch rows;
  while (rows.lines.size() < kBatchBytes) {
    DS_ASSIGN_OR_RETURN(const auto row, TakeRow());
    if (!row) break;
    rows.lines += *row + "\n";
    rows.line_numbers.push_back(row_line_);
  }
  if (rows.line_numbers.empty()) return std::optional<RowBatch>();
  return std::optional(std::move(rows));
}

}  // namespace ds::tokenizer
