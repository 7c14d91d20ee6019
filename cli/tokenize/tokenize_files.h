#pragma once

// TokenizeFiles tokenizes the texts of files into one file of token ids. Several threads tokenize
// batches of texts; the output has the order of the files.

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
  std::string data_field;      // for .json files: the location of the rows
  tokenizer::RowOptions rows;  // for files with rows
  bool special_tokens = true;
  std::optional<std::uint32_t> separator;  // an id after every text
  int id_bytes = 2;
  int threads = 1;
};

struct TokenizeCounts {
  std::uint64_t texts = 0;
  std::uint64_t tokens = 0;
  std::uint64_t partly_in_loss = 0;  // texts with prompts or messages: trained in part
  std::uint64_t rejected = 0;        // rows skipped because their label is false
  std::uint64_t bytes = 0;           // size of the processed part of the files
  std::uint64_t total_bytes = 0;     // size of all files
  std::vector<std::string> notices;  // about the folders read
};

// Writes each row as training reads it (tokenizer/corpus/row.h). Every id of the tokenizer must fit
// into id_bytes. Calls `progress` from this thread after every batch. On an error no file is
// written; a previous file is kept.
StatusOr<TokenizeCounts> TokenizeFiles(const tokenizer::TokenizerFolder& folder,
                                       const TokenizeJob& job,
                                       const std::function<void(const TokenizeCounts&)>& progress);

}  // namespace ds::cli
