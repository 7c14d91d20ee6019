#pragma once

// TokenWriter: writes the files of a token cache, document by document.
//
// Threads: one.

#include <string>

#include "runtime/base/unique_fd.h"
#include "runtime/data/token_cache.h"
#include "runtime/tokenizer/corpus/document_encoder.h"

namespace ds::data {

class TokenWriter {
 public:
  // Takes the folder of `cached`, which is there, and its id_bytes.
  static StatusOr<TokenWriter> Create(const CachedTokens& cached);

  // Requires ids that fit into id_bytes.
  Status Append(const tokenizer::EncodedDocument& document);
  // Writes out what is left, makes it durable, and fills in the counts.
  Status Finish(CachedTokens* cached);

 private:
  struct File {
    std::filesystem::path path;
    UniqueFd fd;
    std::string buffer;
  };

  explicit TokenWriter(std::int64_t id_bytes) : id_bytes_(id_bytes) {}
  static StatusOr<File> Open(const std::filesystem::path& path);
  static Status Flush(File* file, std::size_t keep);
  Status WriteLearnt(const tokenizer::EncodedDocument& document);

  std::int64_t id_bytes_;
  File ids_, documents_, learnt_;
  bool all_learnt_ = true;  // then learnt_ has no bytes yet
  std::int64_t tokens_ = 0, count_ = 0;
};

}  // namespace ds::data
