#pragma once

// LineRows reads the lines of a .jsonl file unchanged. Not thread-safe.

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
  std::string rest_;  // bytes read after the last complete line
  std::uint64_t line_ = 1;
  bool at_end_ = false;
};

}  // namespace ds::tokenizer
