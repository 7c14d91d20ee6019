#pragma once

// TableRows reads the rows of a .csv or .tsv file (RFC 4180, with a header). Columns get the types
// of datasets.load_dataset("csv"): numbers, True and False, or texts. Empty cells and pandas' words
// for missing values ("NA", "null", "nan", ...) are null.
//
// The first rows (kTypedRows, fewer if rows are large) determine the column types; a later cell of
// another type is an error. Memory holds these rows, at most Limits::typed_bytes and one row. Not
// thread-safe.

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/corpus/byte_stream.h"
#include "runtime/tokenizer/corpus/row_source.h"

namespace ds::tokenizer {

class TableRows : public RowSource {
 public:
  // The number of rows from which `datasets` infers types.
  static constexpr std::size_t kTypedRows = 10'000;

  // Memory limits: a small compressed file can hold a large table.
  struct Limits {
    std::size_t row_bytes = kLongestRow;
    std::size_t columns = 16'384;
    std::size_t typed_bytes = kLongestRow;  // of the rows that determine the types
  };

  TableRows(ByteStream stream, char separator) : TableRows(std::move(stream), separator, {}) {}
  TableRows(ByteStream stream, char separator, Limits limits)
      : stream_(std::move(stream)), separator_(separator), limits_(limits) {}

  StatusOr<std::optional<RowBatch>> Next() override;
  std::uint64_t position() const override { return stream_.position(); }

 private:
  enum class Type { kNull, kBool, kInteger, kUnsigned, kNumber, kText };
  struct Record {
    std::vector<std::string> cells;
    std::uint64_t line = 0;
    std::size_t bytes = 0;  // in memory, without the text of the last cell while it is read
  };

  // -1 at the end of the file.
  StatusOr<int> NextChar();
  void PutBack() { --at_; }
  // Appends buffered characters, up to one of `marks`.
  void TakeRun(std::string_view marks, std::string* cell);
  // Reads the quoted text of the record's last cell.
  Status ReadQuoted(Record* record);
  // Returns the mark after the cell: the separator, '\n' or -1.
  StatusOr<int> ReadCell(Record* record, bool* is_quoted);
  Status CheckSize(const Record& record) const;
  StatusOr<std::optional<Record>> ReadRecord();
  // Returns the next record that is not blank, with a cell for each column.
  StatusOr<std::optional<Record>> ReadRow();
  Status ReadHeader();
  Status Start();
  Type FindType(std::size_t column) const;
  StatusOr<nlohmann::ordered_json> ToJson(const Record& record) const;
  Status Error(std::uint64_t line, const std::string& what) const;

  ByteStream stream_;
  const char separator_;
  const Limits limits_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::uint64_t line_ = 1;
  bool has_started_ = false;
  std::vector<std::string> names_;
  std::vector<Type> types_;
  std::vector<Record> typed_;  // read to infer types and not yet returned
  std::size_t next_typed_ = 0;
  std::size_t typed_rows_ = 0;  // number of rows that determined the types
};

}  // namespace ds::tokenizer
