#pragma once

// TokenizeFiles: the texts of files as one file of token ids. Batches of texts are cut by several
// threads and written in the order of the files.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/document_options.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::cli {

struct TokenizeJob {
  std::vector<std::string> files;
  std::string out;
  std::string data_field;      // of .json files: where the rows are
  tokenizer::RowOptions rows;  // of files with rows
  bool special_tokens = true;
  std::optional<std::uint32_t> separator;  // an id behind every text
  int id_bytes = 2;
  int threads = 1;
};

struct TokenizeCounts {
  std::uint64_t texts = 0;
  std::uint64_t tokens = 0;
  std::uint64_t partly_learnt = 0;   // texts with prompts or messages, which training leaves out
  std::uint64_t rejected = 0;        // rows that are left out: their label is false
  std::uint64_t bytes = 0;           // of the files, as far as they are done
  std::uint64_t total_bytes = 0;     // of all files
  std::vector<std::string> notices;  // of the folders that are read
};

// A row is written as training reads it (tokenizer/corpus/row.h). Requires that every id of the
// tokenizer fits into id_bytes. `progress` is called from this thread
// after every batch. On an error there is no file, or the one that was there before.
StatusOr<TokenizeCounts> TokenizeFiles(const tokenizer::TokenizerFolder& folder,
                                       const TokenizeJob& job,
                                       const std::function<void(const TokenizeCounts&)>& progress);

}  // namespace ds::cli
