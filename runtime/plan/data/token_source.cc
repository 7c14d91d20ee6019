#include "runtime/plan/data/token_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/checkpoint_format/crc32c.h"
#include "runtime/tokenizer/corpus/arrow_values.h"
#include "runtime/tokenizer/corpus/byte_stream.h"
#include "runtime/tokenizer/corpus/documents.h"
#include "runtime/tokenizer/corpus/row_json.h"

namespace ds::data {
namespace fs = std::filesystem;
namespace {

// The number of tokens at each end of a file that are part of the fingerprint.
constexpr std::int64_t kEndTokens = 8192;
// The blocks between the ends: the most per file, the most of all files, and tokens per block.
constexpr std::int64_t kMostFileBlocks = 64, kMostBlocks = 4096, kBlockTokens = 1024;

// Further files are opened for every read.
constexpr std::size_t kMaxOpenFiles = 128;

static_assert(std::endian::native == std::endian::little, ".bin token files are little-endian");

template <typename Id>
void Widen(const char* bytes, std::span<std::int64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Id id;
    std::memcpy(&id, bytes + i * sizeof(Id), sizeof(Id));
    out[i] = static_cast<std::int64_t>(id);
  }
}

Status ReadAt(int fd, const fs::path& path, std::int64_t offset, std::span<char> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, path.string());
    if (got == 0) {
      return DataLossError(path.string() + ": the file shrank while it was used; byte " +
                           std::to_string(offset) + " is gone");
    }
    offset += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return OkStatus();
}

// Returns the offset of the text in a plain file, and whether the file is compressed instead.
struct TextLocation {
  std::int64_t offset = 0;
  bool compressed = false;
};

TextLocation FindText(int fd) {
  constexpr std::string_view kMark = tokenizer::kByteOrderMark;
  std::array<char, kMark.size()> begin{};
  const std::string_view bytes(begin.data(), begin.size());
  if (::pread(fd, begin.data(), begin.size(), 0) < 2) return {};
  return {.offset = bytes == kMark ? std::ssize(kMark) : 0,
          .compressed = bytes.starts_with(tokenizer::kGzipStart)};
}

// Returns the text of a file; for rows the "text" fields, each followed by a newline. Errors name
// the line.
StatusOr<std::string> ReadTexts(const fs::path& path, const std::string& data_field) {
  DS_ASSIGN_OR_RETURN(auto reader, tokenizer::DocumentReader::Open({path.string()}, data_field));
  std::string texts;
  while (true) {
    DS_ASSIGN_OR_RETURN(const auto batch, reader.Next());
    if (!batch) return texts;
    DS_RETURN_IF_ERROR(tokenizer::ForEachDocument(
        *batch, [&](std::string_view text, const std::string& location) -> Status {
          if (!batch->lines) {
            texts += text;
            return OkStatus();
          }
          DS_ASSIGN_OR_RETURN(const std::string row, ReadRowText(text, location));
          texts += row;
          return OkStatus();
        }));
  }
}

// A file's range of the row's tokens and documents.
struct IndexedSegment {
  std::int64_t first_token, first_document;
  std::shared_ptr<const MegatronIndex> index;
};

StatusOr<std::vector<std::uint64_t>> ReadJoinedEnds(const std::vector<IndexedSegment>& parts,
                                                    std::int64_t first, std::int64_t count) {
  std::vector<std::uint64_t> ends;
  for (const IndexedSegment& part : parts) {
    const std::int64_t begin = std::max(first, part.first_document);
    const std::int64_t end = std::min(first + count, part.first_document + part.index->documents());
    if (begin >= end) continue;
    DS_ASSIGN_OR_RETURN(const auto own,
                        part.index->ReadEnds(begin - part.first_document, end - begin));
    for (const std::uint64_t each : own) {
      ends.push_back(each + static_cast<std::uint64_t>(part.first_token));
    }
  }
  return ends;
}

}  // namespace

StatusOr<std::string> ReadRowText(std::string_view text, const std::string& location) {
  const auto row = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) DS_RETURN_IF_ERROR(tokenizer::CheckRow(text).WithContext(location));
  if (row.contains("text") && row["text"].is_string()) {
    return row["text"].get_ref<const std::string&>() + "\n";
  }
  const nlohmann::ordered_json ordered(row);
  DS_RETURN_IF_ERROR(tokenizer::CheckArrowColumns(ordered).WithContext(location));
  return InvalidArgumentError(location +
                              ": there is no text under \"text\"; without a tokenizer "
                              "(--tokenizer) only rows with it are read, as bytes" +
                              tokenizer::AdviseOnArrowTypes(ordered, {"text"}));
}

StatusOr<TokenWidth> ParseTokenDtype(const std::string& name) {
  if (name == "uint16") return TokenWidth::kUint16;
  if (name == "uint32") return TokenWidth::kUint32;
  return InvalidArgumentError("token dtype '" + name + "' is not supported; use uint16 or uint32");
}

StatusOr<TokenSource> TokenSource::Open(const std::vector<std::string>& paths, TokenWidth bin_width,
                                        const std::string& data_field) {
  DS_ASSIGN_OR_RETURN(const tokenizer::DataFiles data, tokenizer::ListDataFiles(paths));
  TokenSource source;
  for (const tokenizer::DataFile& file : data.files) {
    DS_RETURN_IF_ERROR(source.AddFile(file, bin_width, data_field));
  }
  DS_RETURN_IF_ERROR(source.JoinDocuments());
  if (source.size_ > 0) return source;
  std::string names;
  for (const std::string& path : paths) names += (names.empty() ? "" : ", ") + path;
  return InvalidArgumentError("the data is empty: " + (names.empty() ? "no paths" : names));
}

StatusOr<TokenSource> TokenSource::Open(const CachedTokens& cached) {
  TokenSource source;
  const TokenWidth width = cached.id_bytes == 2 ? TokenWidth::kUint16 : TokenWidth::kUint32;
  DS_RETURN_IF_ERROR(
      source.AddFile({.path = cached.ids_file(), .kind = tokenizer::DataKind::kTokens}, width, ""));
  DS_ASSIGN_OR_RETURN(source.documents_,
                      DocumentIndex::Open(cached.documents_file(), cached.documents));
  if (cached.all_in_loss) return source;
  File in_loss{.path = cached.loss_mask_file(), .count = source.size_};
  in_loss.fd = UniqueFd(::open(in_loss.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!in_loss.fd.valid()) return ErrnoError(errno, in_loss.path.string());
  source.loss_mask_ = std::move(in_loss);
  return source;
}

Status TokenSource::ReadLossMask(std::int64_t first, std::span<std::int64_t> out) const {
  if (loss_mask_) return ReadTokens(*loss_mask_, first, out);
  std::fill(out.begin(), out.end(), 1);
  return OkStatus();
}

Status TokenSource::AddFile(const tokenizer::DataFile& data, TokenWidth bin_width,
                            const std::string& data_field) {
  const bool holds_tokens = data.kind == tokenizer::DataKind::kTokens;
  File file;
  file.path = data.path;
  file.width = holds_tokens ? bin_width : TokenWidth::kByte;
  file.first = size_;
  file.fd = UniqueFd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.fd.valid() || ::fstat(file.fd.get(), &info) != 0) {
    return ErrnoError(errno, file.path.string());
  }
  const TextLocation location = holds_tokens ? TextLocation() : FindText(file.fd.get());
  file.offset = location.offset;
  auto bytes = static_cast<std::int64_t>(info.st_size) - file.offset;
  if (location.compressed || !(holds_tokens || data.kind == tokenizer::DataKind::kText)) {
    DS_ASSIGN_OR_RETURN(file.text, ReadTexts(file.path, data_field));
    file.fd.Reset();
    file.offset = 0;
    bytes = static_cast<std::int64_t>(file.text.size());
  }
  DS_ASSIGN_OR_RETURN(file.width, OpenIndex(&file, bytes, file.width));
  const auto width = static_cast<std::int64_t>(file.width);
  if (bytes % width != 0) {
    return InvalidArgumentError(file.path.string() + ": " + std::to_string(bytes) +
                                " bytes are not a multiple of " + std::to_string(width) +
                                "-byte tokens; is --token_dtype right?");
  }
  file.count = bytes / width;
  if (file.count == 0) return OkStatus();
  if (!files_.empty() && files_.front().width != file.width) {
    return InvalidArgumentError("byte text and .bin tokens cannot be mixed: " +
                                files_.front().path.string() + " and " + file.path.string());
  }
  if (files_.size() >= kMaxOpenFiles) file.fd.Reset();
  size_ += file.count;
  files_.push_back(std::move(file));
  return OkStatus();
}

// Returns the width of a .bin file's tokens, from its index if it has one.
StatusOr<TokenWidth> TokenSource::OpenIndex(File* file, std::int64_t bytes, TokenWidth bin_width) {
  const fs::path index = MegatronIndex::PathFor(file->path);
  std::error_code error;
  if (file->path.extension() != ".bin" || !fs::exists(index, error)) return bin_width;
  DS_ASSIGN_OR_RETURN(MegatronIndex opened, MegatronIndex::Open(index, bytes));
  file->index = std::make_shared<const MegatronIndex>(std::move(opened));
  return static_cast<TokenWidth>(file->index->token_bytes());
}

// Joins the documents of all files in one row, if indices provide them.
Status TokenSource::JoinDocuments() {
  std::vector<IndexedSegment> parts;
  std::int64_t documents = 0;
  const File* without = nullptr;
  for (const File& file : files_) {
    if (file.index == nullptr) {
      without = &file;
      continue;
    }
    parts.push_back({file.first, documents, file.index});
    documents += file.index->documents();
  }
  if (parts.empty()) return OkStatus();
  if (without != nullptr) {
    return InvalidArgumentError(without->path.string() +
                                " has no .idx next to it, unlike other .bin files of the data: "
                                "give the ends of documents for all of them or for none");
  }
  DS_ASSIGN_OR_RETURN(documents_,
                      DocumentIndex::Create("the indices of the .bin files", documents,
                                            [parts](std::int64_t first, std::int64_t count) {
                                              return ReadJoinedEnds(parts, first, count);
                                            }));
  return OkStatus();
}

const TokenSource::File& TokenSource::FileAt(std::int64_t position) const {
  DS_CHECK(position >= 0 && position < size_);
  const auto after =
      std::upper_bound(files_.begin(), files_.end(), position,
                       [](std::int64_t p, const File& file) { return p < file.first; });
  return *std::prev(after);
}

Status TokenSource::Read(std::int64_t first, std::span<std::int64_t> out) const {
  while (!out.empty()) {
    const File& file = FileAt(first);
    const std::int64_t from = first - file.first;
    const auto count = std::min(static_cast<std::size_t>(file.count - from), out.size());
    DS_RETURN_IF_ERROR(ReadTokens(file, from, out.first(count)));
    first += static_cast<std::int64_t>(count);
    out = out.subspan(count);
  }
  return OkStatus();
}

// Lists the starts of the blocks that sample the file between its ends; in a small file they are
// adjacent.
std::vector<std::int64_t> TokenSource::ListMiddleBlocks(const File& file) const {
  const std::int64_t middle = file.count - 2 * kEndTokens;
  if (middle <= 0) return {};
  const std::int64_t most =
      std::clamp<std::int64_t>(kMostBlocks / std::ssize(files_), 1, kMostFileBlocks);
  const std::int64_t blocks = std::min(most, (middle + kBlockTokens - 1) / kBlockTokens);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < blocks; ++i) positions.push_back(kEndTokens + middle * i / blocks);
  return positions;
}

Status TokenSource::ExtendChecksum(const File& file, std::int64_t from, std::int64_t count,
                                   std::uint32_t* crc) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
  DS_RETURN_IF_ERROR(ReadTokens(file, from, tokens));
  *crc = checkpoint::ExtendCrc32c(*crc, std::as_bytes(std::span(tokens)));
  return OkStatus();
}

StatusOr<Fingerprints> TokenSource::TakeFingerprints() const {
  Fingerprints prints;
  for (const File& file : files_) {
    prints.ends = checkpoint::ExtendCrc32c(prints.ends, std::as_bytes(std::span(&file.count, 1)));
    const std::int64_t end = std::min(file.count, kEndTokens);
    DS_RETURN_IF_ERROR(ExtendChecksum(file, 0, end, &prints.ends));
    DS_RETURN_IF_ERROR(ExtendChecksum(file, file.count - end, end, &prints.ends));
    for (const std::int64_t location : ListMiddleBlocks(file)) {
      const std::int64_t count = std::min(kBlockTokens, file.count - location);
      DS_RETURN_IF_ERROR(ExtendChecksum(file, location, count, &prints.middles));
    }
  }
  return prints;
}

Status TokenSource::ReadTokens(const File& file, std::int64_t from, std::span<std::int64_t> out) {
  const auto width = static_cast<std::int64_t>(file.width);
  if (!file.text.empty()) {
    Widen<std::uint8_t>(file.text.data() + from, out);
    return OkStatus();
  }
  UniqueFd opened;
  if (!file.fd.valid()) {
    opened = UniqueFd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened.valid()) return ErrnoError(errno, file.path.string());
  }
  const int fd = opened.valid() ? opened.get() : file.fd.get();
  std::vector<char> bytes(out.size() * static_cast<std::size_t>(width));
  DS_RETURN_IF_ERROR(ReadAt(fd, file.path, file.offset + from * width, bytes));
  switch (file.width) {
    case TokenWidth::kByte:
      Widen<std::uint8_t>(bytes.data(), out);
      break;
    case TokenWidth::kUint16:
      Widen<std::uint16_t>(bytes.data(), out);
      break;
    case TokenWidth::kUint32:
      Widen<std::uint32_t>(bytes.data(), out);
      break;
    case TokenWidth::kInt64:
      Widen<std::int64_t>(bytes.data(), out);
      break;
  }
  return OkStatus();
}

Status TokenSource::CheckTokens(std::span<const std::int64_t> tokens, std::int64_t first,
                                std::int64_t vocabulary) const {
  const auto bad =
      std::find_if(tokens.begin(), tokens.end(), [&](std::int64_t id) { return id >= vocabulary; });
  if (bad == tokens.end()) return OkStatus();
  return OutOfRangeError(DescribePosition(first + (bad - tokens.begin())) + ": token id " +
                         std::to_string(*bad) + " is outside the model's vocabulary of " +
                         std::to_string(vocabulary) + " tokens");
}

Status TokenSource::CheckStarts(std::int64_t file_tokens, std::int64_t vocabulary) const {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 16;
  std::vector<std::int64_t> tokens;
  for (const File& file : files_) {
    const std::int64_t end = std::min(file.count, file_tokens);
    for (std::int64_t from = 0; from < end; from += kAtOnce) {
      tokens.resize(static_cast<std::size_t>(std::min(kAtOnce, end - from)));
      DS_RETURN_IF_ERROR(ReadTokens(file, from, tokens));
      DS_RETURN_IF_ERROR(CheckTokens(tokens, file.first + from, vocabulary));
    }
  }
  return OkStatus();
}

std::vector<std::filesystem::path> TokenSource::ListFiles() const {
  std::vector<std::filesystem::path> paths;
  for (const File& file : files_) {
    paths.push_back(file.path);
    if (file.index) paths.push_back(std::filesystem::path(file.path).replace_extension(".idx"));
  }
  return paths;
}

std::string TokenSource::DescribePosition(std::int64_t position) const {
  const File& file = FileAt(position);
  const std::int64_t token = position - file.first;
  return file.path.string() + ", token " + std::to_string(token) + " (byte " +
         std::to_string(file.offset + token * static_cast<std::int64_t>(file.width)) + ")";
}

}  // namespace ds::data
