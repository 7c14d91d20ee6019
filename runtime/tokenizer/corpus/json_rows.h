#pragma once

// JsonRows: the rows of a .json file, as datasets.load_dataset("json") reads it: an array of
// objects, objects one after the other, or, with a field, one object that has the array under it.
// A text in an array is a row {"text": ...}.
//
// A row is found by its brackets and quotes, so that memory holds one batch; its content is
// judged by its reader. Threads: one.

#include "runtime/tokenizer/corpus/byte_stream.h"
#include "runtime/tokenizer/corpus/row_source.h"

namespace ds::tokenizer {

class JsonRows : public RowSource {
 public:
  // `field`: where the array is; empty: the file itself holds the rows.
  JsonRows(ByteStream stream, std::string field)
      : stream_(std::move(stream)), field_(std::move(field)) {}

  StatusOr<std::optional<Rows>> Next() override;
  std::uint64_t position() const override { return stream_.position(); }

 private:
  enum class State { kStart, kArray, kValues, kEnd };

  // The next character that is no blank, which stays; 0 at the end of the file.
  StatusOr<char> Peek();
  StatusOr<bool> Fill();
  Status Start();
  Status FindField();
  // The value at the position, without line breaks.
  StatusOr<std::string> TakeValue();
  // The next row; nothing after the last.
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
