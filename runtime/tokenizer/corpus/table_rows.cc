#include "runtime/tokenizer/corpus/table_rows.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "runtime/base/byte_size.h"
#include "runtime/base/files.h"
#include "runtime/base/utf8.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kEnd = -1;

// pandas' STR_NA_VALUES.
bool IsMissing(std::string_view cell) {
  static constexpr auto kWords = std::to_array<std::string_view>(
      {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
       "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"});
  return std::find(kWords.begin(), kWords.end(), cell) != kWords.end();
}

std::optional<bool> ReadBool(std::string_view cell) {
  if (cell == "True" || cell == "TRUE" || cell == "true") return true;
  if (cell == "False" || cell == "FALSE" || cell == "false") return false;
  return std::nullopt;
}

std::string_view TrimCell(std::string_view cell) {
  const std::size_t begin = cell.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return cell.substr(begin, cell.find_last_not_of(" \t") - begin + 1);
}

template <typename Number>
std::optional<Number> ReadNumber(std::string_view cell) {
  std::string_view digits = TrimCell(cell);
  if (digits.starts_with('+')) {
    digits.remove_prefix(1);
    if (digits.starts_with('-')) return std::nullopt;
  }
  Number number{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

bool IsBlank(const std::vector<std::string>& cells) {
  return cells.size() == 1 && cells[0].find_first_not_of(" \t") == std::string::npos;
}

}  // namespace

Status TableRows::Error(std::uint64_t line, const std::string& what) const {
  return InvalidArgumentError(ShortenPath(stream_.path()) + ":" + std::to_string(line) + ": " +
                              what);
}

StatusOr<int> TableRows::NextChar() {
  if (at_ == buffer_.size()) {
    // The last character is kept for PutBack.
    buffer_.erase(0, buffer_.empty() ? 0 : buffer_.size() - 1);
    at_ = buffer_.size();
    DS_ASSIGN_OR_RETURN(const bool more, stream_.ReadMore(kBatchBytes / 4, &buffer_));
    if (!more) return kEnd;
  }
  return static_cast<unsigned char>(buffer_[at_++]);
}

void TableRows::TakeRun(std::string_view marks, std::string* cell) {
  const auto begin = buffer_.begin() + static_cast<std::ptrdiff_t>(at_);
  const auto end = std::find_if(begin, buffer_.end(),
                                [&](char c) { return marks.find(c) != std::string_view::npos; });
  line_ += static_cast<std::uint64_t>(std::count(begin, end, '\n'));
  cell->append(begin, end);
  at_ += static_cast<std::size_t>(end - begin);
}

Status TableRows::CheckSize(const Record& record) const {
  if (record.bytes + record.cells.back().size() > limits_.row_bytes) {
    return Error(record.line,
                 "the row that begins here has more than " + ByteSize(limits_.row_bytes));
  }
  if (record.cells.size() > limits_.columns) {
    return Error(record.line, "the row that begins here has more than " +
                                  std::to_string(limits_.columns) + " cells");
  }
  return OkStatus();
}

// Reads from after the opening quote to the closing one.
Status TableRows::ReadQuoted(Record* record) {
  std::string* const cell = &record->cells.back();
  while (true) {
    TakeRun("\"", cell);
    DS_RETURN_IF_ERROR(CheckSize(*record));
    DS_ASSIGN_OR_RETURN(const int c, NextChar());
    if (c == kEnd)
      return Error(record->line, "the file ends inside a quoted cell of the row that begins here");
    if (c == '"') {
      DS_ASSIGN_OR_RETURN(const int next, NextChar());
      if (next != '"') {
        if (next != kEnd) PutBack();
        return OkStatus();
      }
    }
    if (c == '\n') ++line_;
    *cell += static_cast<char>(c);
  }
}

StatusOr<int> TableRows::ReadCell(Record* record, bool* is_quoted) {
  std::string* const cell = &record->cells.back();
  const std::array marks{separator_, '\n', '\r'};
  DS_ASSIGN_OR_RETURN(int c, NextChar());
  if (c == '"') {
    *is_quoted = true;
    DS_RETURN_IF_ERROR(ReadQuoted(record));
    DS_ASSIGN_OR_RETURN(c, NextChar());
  }
  while (c != kEnd && c != separator_ && c != '\n' && c != '\r') {
    *cell += static_cast<char>(c);
    TakeRun({marks.data(), marks.size()}, cell);
    DS_RETURN_IF_ERROR(CheckSize(*record));
    DS_ASSIGN_OR_RETURN(c, NextChar());
  }
  if (c == '\r') {
    DS_ASSIGN_OR_RETURN(const int next, NextChar());
    if (next != '\n' && next != kEnd) PutBack();
    c = '\n';
  }
  if (c == '\n') ++line_;
  return c;
}

StatusOr<std::optional<TableRows::Record>> TableRows::ReadRecord() {
  while (true) {
    Record record{.cells = {}, .line = line_, .bytes = 0};
    bool is_quoted = false;
    int mark = separator_;
    while (mark == separator_) {
      record.cells.emplace_back();
      record.bytes += sizeof(std::string);
      DS_RETURN_IF_ERROR(CheckSize(record));
      DS_ASSIGN_OR_RETURN(mark, ReadCell(&record, &is_quoted));
      record.bytes += record.cells.back().size();
    }
    if (!IsBlank(record.cells) || is_quoted) return std::optional(std::move(record));
    if (mark == kEnd) return std::optional<Record>();
  }
}

StatusOr<std::optional<TableRows::Record>> TableRows::ReadRow() {
  DS_ASSIGN_OR_RETURN(auto record, ReadRecord());
  if (record && record->cells.size() > names_.size()) {
    return Error(record->line, "the row has " + std::to_string(record->cells.size()) +
                                   " cells, and the header names " + std::to_string(names_.size()) +
                                   " columns");
  }
  if (record) {
    record->bytes += (names_.size() - record->cells.size()) * sizeof(std::string);
    record->cells.resize(names_.size());
  }
  return record;
}

// A column without a name, or with a duplicate name, is named as in pandas.
Status TableRows::ReadHeader() {
  DS_ASSIGN_OR_RETURN(auto header, ReadRecord());
  if (!header) return OkStatus();
  std::vector<std::string> given = std::move(header->cells);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].empty()) given[i] = "Unnamed: " + std::to_string(i);
    if (ValidUtf8Prefix(given[i]) != given[i].size()) {
      return Error(header->line, "the header is not UTF-8 text: save the file as UTF-8");
    }
  }
  std::unordered_set<std::string> taken;
  std::unordered_map<std::string, int> copies;  // the number of the last copy, by name
  for (const std::string& name : given) {
    std::string unique = name;
    int& copy = copies[name];
    while (!taken.insert(unique).second) unique = name + "." + std::to_string(++copy);
    names_.push_back(std::move(unique));
  }
  return OkStatus();
}

TableRows::Type TableRows::FindType(std::size_t column) const {
  std::size_t cells = 0, missing = 0, bools = 0, integers = 0, unsigneds = 0, numbers = 0;
  for (const Record& record : typed_) {
    const std::string& cell = record.cells[column];
    ++cells;
    missing += IsMissing(cell) ? 1 : 0;
    bools += ReadBool(cell) ? 1 : 0;
    integers += ReadNumber<std::int64_t>(cell) ? 1 : 0;
    unsigneds += ReadNumber<std::uint64_t>(cell) ? 1 : 0;
    numbers += !IsMissing(cell) && ReadNumber<double>(cell) ? 1 : 0;
  }
  if (missing == cells) return Type::kNull;
  if (bools + missing == cells) return Type::kBool;
  if (integers == cells) return Type::kInteger;
  if (unsigneds == cells) return Type::kUnsigned;
  return numbers + missing == cells ? Type::kNumber : Type::kText;
}

Status TableRows::Start() {
  has_started_ = true;
  DS_RETURN_IF_ERROR(ReadHeader());
  if (names_.empty()) return OkStatus();
  std::size_t bytes = 0;
  while (typed_.size() < kTypedRows && bytes < limits_.typed_bytes) {
    DS_ASSIGN_OR_RETURN(auto record, ReadRow());
    if (!record) break;
    bytes += record->bytes;
    typed_.push_back(std::move(*record));
  }
  typed_rows_ = typed_.size();
  for (std::size_t column = 0; column < names_.size(); ++column) {
    types_.push_back(FindType(column));
  }
  return OkStatus();
}

StatusOr<OrderedJson> TableRows::ToJson(const Record& record) const {
  OrderedJson::object_t row;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const std::string& cell = record.cells[i];
    OrderedJson value;
    if (!IsMissing(cell)) {
      const Type type = types_[i];
      if (type == Type::kBool && ReadBool(cell)) value = *ReadBool(cell);
      if (type == Type::kInteger) {
        if (const auto number = ReadNumber<std::int64_t>(cell)) value = *number;
      }
      if (type == Type::kUnsigned) {
        if (const auto number = ReadNumber<std::uint64_t>(cell)) value = *number;
      }
      if (type == Type::kNumber) {
        if (const auto number = ReadNumber<double>(cell)) value = *number;
      }
      if (type == Type::kText) {
        if (ValidUtf8Prefix(cell) != cell.size()) {
          return Error(record.line,
                       "column \"" + names_[i] + "\" is not UTF-8 text: save the file as UTF-8");
        }
        value = cell;
      }
      if (value.is_null()) {
        return Error(record.line, "column \"" + names_[i] +
                                      "\" has another type here than in the "
                                      "first " +
                                      std::to_string(typed_rows_) + " rows");
      }
    }
    // Appends without a search: the names differ, and searching would take quadratic time.
    row.emplace_back(names_[i], std::move(value));
  }
  return OrderedJson(std::move(row));
}

StatusOr<std::optional<RowBatch>> TableRows::Next() {
  if (!has_started_) DS_RETURN_IF_ERROR(Start());
  RowBatch rows;
  while (!names_.empty() && rows.lines.size() < kBatchBytes) {
    std::optional<Record> record;
    if (next_typed_ < typed_.size()) {
      record = std::move(typed_[next_typed_++]);
    } else {
      typed_.clear();
      next_typed_ = 0;
      DS_ASSIGN_OR_RETURN(record, ReadRow());
    }
    if (!record) break;
    DS_ASSIGN_OR_RETURN(const OrderedJson row, ToJson(*record));
    rows.lines += row.dump() + "\n";
    rows.line_numbers.push_back(record->line);
  }
  if (rows.line_numbers.empty()) return std::optional<RowBatch>();
  return std::optional(std::move(rows));
}

}  // namespace ds::tokenizer
