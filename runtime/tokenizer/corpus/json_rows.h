#pragma once

// JsonRows reads the rows of a .json file as datasets.load_dataset("json") does: an array of
// objects, concatenated objects, or, with a field, one object with the array under that field. A
// text in an array is a row {"text": ...}.
//
// Rows are delimited by their brackets and quotes only, so that memory holds one batch. The reader
// of a row validates its content. Not thread-safe.

#include "runtime/tokenizer/corpus/byte_stream.h"
#include "runtime/tokenizer/corpus/row_source.h"

namespace ds::tokenizer {

class JsonRows : public RowSource {
 public:
  // `field` holds the array; empty: the file itself holds the rows.
  JsonRows(ByteStream stream, std::string field)
      : stream_(std::move(stream)), field_(std::move(field)) {}

  StatusOr<std::optional<RowBatch>> Next() override;
  std::uint64_t position() const override { return stream_.position(); }

 private:
  enum class State { kStart, kArray, kValues, kEnd };

  // Returns the next character that is not blank, without consuming it; 0 at the end of the file.
  StatusOr<char> Peek();
  StatusOr<bool> Fill();
  Status Start();
  Status FindField();
  // Returns the value at the current position, without line breaks.
  StatusOr<std::string> TakeValue();
  // Returns the next row; nothing after the last.
  StatusOr<std::optional<std::string>> TakeRow();
  Status EndElement();
  StatusOr<std::optional<std::string>> TakeFromValues();
  Status Error(const std::string& what) const;

  ByteStream stream_;
  const std::string field_;
  State state_ = State::kStart;
  std::string buffer_;
  std::size_t at_ = 0;
  std::uint64_t line_ = 1;
  std::uint64_t row_line_ = 1;  // where the last row begins
  std::uint64_t rows_ = 0;
};

}  // namespace ds::tokenizer
