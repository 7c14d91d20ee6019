#pragma once

// LineRows: the lines of a .jsonl file as they are. Threads: one.

#include "runtime/tokenizer/corpus/byte_stream.h"
#include "runtime/tokenizer/corpus/row_source.h"

namespace ds::tokenizer {

class LineRows : public RowSource {
 public:
  explicit LineRows(ByteStream stream) : stream_(std::move(stream)) {}

  StatusOr<std::optional<Rows>> Next() override;
  std::uint64_t position() const override { return stream_.position(); }

 private:
  ByteStream stream_;
  std::string rest_;  // read, but after the last whole line
  std::uint64_t line_ = 1;
  bool at_end_ = false;
};

}  // namespace ds::tokenizer
