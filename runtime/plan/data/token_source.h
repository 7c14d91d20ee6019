#pragma once

// TokenSource: the training data as one long row of token ids, read from its files on demand.
//
// Paths come from tokenizer::ListDataFiles: text files (every byte is a token), files of rows
// (the "text" of every row, each followed by a newline) or flat .bin files of little-endian uint16
// or uint32 ids. They are joined in the order given; byte tokens and .bin tokens must not be mixed.
// .bin files with an .idx of the same name are Megatron-LM's: the index has their width and
// documents (megatron_index.h).
//
// Files are read by offset for every sample. Only the texts of rows and of compressed files are
// held in memory. A file that shrinks while open is an error. Threads: Read may be called
// concurrently.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/plan/data/document_index.h"
#include "runtime/plan/data/megatron_index.h"
#include "runtime/plan/data/token_cache.h"
#include "runtime/tokenizer/corpus/data_kind.h"

namespace ds::data {

// The width of ids in .bin files: "uint16" or "uint32".
enum class TokenWidth : std::uint8_t { kByte = 1, kUint16 = 2, kUint32 = 4, kInt64 = 8 };
StatusOr<TokenWidth> ParseTokenDtype(const std::string& name);

// Checksums that distinguish changed data from the same data at another location.
struct Fingerprints {
  std::uint32_t ends = 0;  // of every file's length and the tokens at both ends
  // Covers blocks of tokens between those ends, at equal distances: 64 per file, fewer with more
  // than 64 files. It detects a run of changed tokens that is longer than such a distance.
  std::uint32_t middles = 0;
};

// Returns the bytes of a row: its text and a line break. Errors begin with `location`.
StatusOr<std::string> ReadRowText(std::string_view row, const std::string& location);

class TokenSource {
 public:
  // Refuses paths that are missing, unreadable, of mixed kinds or without tokens, and .bin files
  // with a size that is not a multiple of the token size. `data_field`: the field with the rows of
  // .json files.
  static StatusOr<TokenSource> Open(const std::vector<std::string>& paths, TokenWidth bin_width,
                                    const std::string& data_field = "");

  // Opens the tokens of texts, with their documents and marks of the tokens in the loss.
  static StatusOr<TokenSource> Open(const CachedTokens& cached);

  std::int64_t size() const { return size_; }
  // False if only the row of tokens is known.
  bool has_documents() const { return documents_.has_value(); }
  // Requires has_documents().
  const DocumentIndex& documents() const { return *documents_; }

  // Fills `out` with the tokens from `first`. Requires first + out.size() <= size().
  Status Read(std::int64_t first, std::span<std::int64_t> out) const;

  // Sets the document numbers of the tokens from `first` on (DocumentIndex). Requires
  // has_documents().
  Status ReadDocuments(std::int64_t first, std::span<std::int64_t> out) const {
    return documents_->Number(first, out);
  }
  // Sets 1 for the tokens that contribute to the loss, 0 for the others.
  Status ReadLossMask(std::int64_t first, std::span<std::int64_t> out) const;

  // Refuses a token outside the vocabulary; the error names file and offset. `first` is the
  // position of the tokens.
  Status CheckTokens(std::span<const std::int64_t> tokens, std::int64_t first,
                     std::int64_t vocabulary) const;
  // Like CheckTokens, for the first `file_tokens` tokens of every file.
  Status CheckStarts(std::int64_t file_tokens, std::int64_t vocabulary) const;

  StatusOr<Fingerprints> TakeFingerprints() const;

  // Returns the files with the tokens and their documents, in order.
  std::vector<std::filesystem::path> ListFiles() const;

  // Returns "FILE, token 5 (byte 10)" for messages.
  std::string DescribePosition(std::int64_t position) const;

 private:
  // One file: tokens [first, first + count) of the row.
  struct File {
    std::filesystem::path path;
    UniqueFd fd;       // of the first files only, to limit open descriptors
    std::string text;  // of rows or a compressed file; then read from here
    TokenWidth width = TokenWidth::kByte;
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t offset = 0;                          // of the first token, in bytes
    std::shared_ptr<const MegatronIndex> index = {};  // null if there is none
  };

  TokenSource() = default;
  Status AddFile(const tokenizer::DataFile& data, TokenWidth bin_width,
                 const std::string& data_field);
  static StatusOr<TokenWidth> OpenIndex(File* file, std::int64_t bytes, TokenWidth bin_width);
  Status JoinDocuments();
  const File& FileAt(std::int64_t position) const;
  std::vector<std::int64_t> ListMiddleBlocks(const File& file) const;
  static Status ExtendChecksum(const File& file, std::int64_t from, std::int64_t count,
                               std::uint32_t* crc);
  static Status ReadTokens(const File& file, std::int64_t from, std::span<std::int64_t> out);

  std::vector<File> files_;  // none empty
  std::optional<DocumentIndex> documents_;
  std::optional<File> loss_mask_;  // absent: all tokens contribute to the loss
  std::int64_t size_ = 0;
};

}  // namespace ds::data
