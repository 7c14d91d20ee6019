#include "runtime/data/token_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/glob.h"
#include "runtime/checkpoint/format/crc32c.h"
#include "runtime/tokenizer/corpus/row_file.h"

namespace ds::data {
namespace fs = std::filesystem;
namespace {

// So many tokens of both ends of a file go into the fingerprint.
constexpr std::int64_t kEndTokens = 8192;
// And so many between the ends of all files: the blocks of a file, those of all, tokens of each.
constexpr std::int64_t kMostFileBlocks = 64, kMostBlocks = 4096, kBlockTokens = 1024;

// Beyond these a file is opened for every read.
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

bool IsHidden(const fs::path& path) { return path.filename().string().starts_with("."); }

// Tells a file that says something of the .bin file beside it.
bool IsIndex(const fs::path& path) {
  std::error_code error;
  return path.extension() == ".idx" && fs::exists(fs::path(path).replace_extension(".bin"), error);
}

Status AppendFolder(const fs::path& folder, std::vector<fs::path>* files) {
  std::error_code error;
  std::vector<fs::path> found;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (IsHidden(entry->path())) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(error) && !IsIndex(entry->path())) {
      found.push_back(entry->path());
    }
  }
  if (error) return ErrnoError(error.value(), folder.string());
  if (found.empty())
    return InvalidArgumentError(folder.string() + ": the data folder has no files");
  std::sort(found.begin(), found.end());
  files->insert(files->end(), found.begin(), found.end());
  return OkStatus();
}

// Returns the texts of a .jsonl file, each followed by a newline: every line is a JSON object with
// a string under "text"; empty lines are skipped. Errors name the line.
StatusOr<std::string> ReadJsonlTexts(const fs::path& path) {
  DS_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, std::uint64_t{1} << 36));
  std::string texts;
  std::size_t begin = 0;
  for (int line = 1; begin < content.size(); ++line) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    const std::string_view row(content.data() + begin, end - begin);
    begin = end + 1;
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto json = nlohmann::json::parse(row, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("text") || !json["text"].is_string()) {
      return InvalidArgumentError(
          path.string() + ":" + std::to_string(line) +
          ": not a JSON object with a string under \"text\"; without a tokenizer "
          "(--tokenizer) lines are read as bytes, and only such ones");
    }
    texts += json["text"].get_ref<const std::string&>() + "\n";
  }
  return texts;
}

// A file's part of the row's tokens and documents.
struct IndexedPart {
  std::int64_t first_token, first_document;
  std::shared_ptr<const MegatronIndex> index;
};

StatusOr<std::vector<std::uint64_t>> ReadJoinedEnds(const std::vector<IndexedPart>& parts,
                                                    std::int64_t first, std::int64_t count) {
  std::vector<std::uint64_t> ends;
  for (const IndexedPart& part : parts) {
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

StatusOr<std::vector<fs::path>> ListDataFiles(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      DS_RETURN_IF_ERROR(AppendFolder(path, &files));
    } else if (fs::exists(path, error)) {
      files.emplace_back(path);
    } else if (const std::vector<fs::path> matches = ExpandGlob(path); !matches.empty()) {
      for (const fs::path& match : matches) {
        if (fs::is_directory(match, error)) {
          DS_RETURN_IF_ERROR(AppendFolder(match, &files));
        } else if (!IsIndex(match)) {
          files.push_back(match);
        }
      }
    } else {
      return NotFoundError(path + (IsGlob(path) ? ": no data file matches this pattern"
                                                : ": no such data file or folder"));
    }
  }
  return files;
}

StatusOr<TokenWidth> ParseTokenDtype(const std::string& name) {
  if (name == "uint16") return TokenWidth::kUint16;
  if (name == "uint32") return TokenWidth::kUint32;
  return InvalidArgumentError("token dtype '" + name + "' is not supported; use uint16 or uint32");
}

StatusOr<TokenSource> TokenSource::Open(const std::vector<std::string>& paths,
                                        TokenWidth bin_width) {
  DS_ASSIGN_OR_RETURN(const std::vector<fs::path> files, ListDataFiles(paths));
  TokenSource source;
  for (const fs::path& file : files) DS_RETURN_IF_ERROR(source.AddFile(file, bin_width));
  DS_RETURN_IF_ERROR(source.JoinDocuments());
  if (source.size_ > 0) return source;
  std::string names;
  for (const std::string& path : paths) names += (names.empty() ? "" : ", ") + path;
  return InvalidArgumentError("the data is empty: " + (names.empty() ? "no paths" : names));
}

StatusOr<TokenSource> TokenSource::Open(const CachedTokens& cached) {
  TokenSource source;
  const TokenWidth width = cached.id_bytes == 2 ? TokenWidth::kUint16 : TokenWidth::kUint32;
  DS_RETURN_IF_ERROR(source.AddFile(cached.ids_file(), width));
  DS_ASSIGN_OR_RETURN(source.documents_,
                      DocumentIndex::Open(cached.documents_file(), cached.documents));
  if (cached.all_learnt) return source;
  File learnt{.path = cached.learnt_file(), .count = source.size_};
  learnt.fd = UniqueFd(::open(learnt.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!learnt.fd.valid()) return ErrnoError(errno, learnt.path.string());
  source.learnt_ = std::move(learnt);
  return source;
}

Status TokenSource::ReadLearnt(std::int64_t first, std::span<std::int64_t> out) const {
  if (learnt_) return ReadTokens(*learnt_, first, out);
  std::fill(out.begin(), out.end(), 1);
  return OkStatus();
}

Status TokenSource::AddFile(const fs::path& path, TokenWidth bin_width) {
  File file;
  file.path = path;
  file.width = path.extension() == ".bin" ? bin_width : TokenWidth::kByte;
  file.first = size_;
  file.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.fd.valid() || ::fstat(file.fd.get(), &info) != 0) {
    return ErrnoError(errno, path.string());
  }
  if (!S_ISREG(info.st_mode)) return InvalidArgumentError(path.string() + ": not a regular file");
  if (tokenizer::RowFile::IsOne(path)) {
    return InvalidArgumentError(path.string() +
                                ": the rows of such a file are texts for a tokenizer "
                                "(--tokenizer); as bytes they are not read");
  }
  auto bytes = static_cast<std::int64_t>(info.st_size);
  if (path.extension() == ".jsonl") {
    DS_ASSIGN_OR_RETURN(file.text, ReadJsonlTexts(path));
    file.fd.Reset();
    bytes = static_cast<std::int64_t>(file.text.size());
  }
  DS_ASSIGN_OR_RETURN(file.width, OpenIndex(&file, bytes, file.width));
  const auto width = static_cast<std::int64_t>(file.width);
  if (bytes % width != 0) {
    return InvalidArgumentError(path.string() + ": " + std::to_string(bytes) +
                                " bytes are no whole number of " + std::to_string(width) +
                                "-byte tokens; is --token_dtype right?");
  }
  file.count = bytes / width;
  if (file.count == 0) return OkStatus();
  if (!files_.empty() && files_.front().width != file.width) {
    return InvalidArgumentError("byte text and .bin tokens cannot be mixed: " +
                                files_.front().path.string() + " and " + path.string());
  }
  if (files_.size() >= kMaxOpenFiles) file.fd.Reset();
  size_ += file.count;
  files_.push_back(std::move(file));
  return OkStatus();
}

// The width of a .bin file's tokens, from its index where it has one.
StatusOr<TokenWidth> TokenSource::OpenIndex(File* file, std::int64_t bytes, TokenWidth bin_width) {
  const fs::path index = MegatronIndex::PathFor(file->path);
  std::error_code error;
  if (file->path.extension() != ".bin" || !fs::exists(index, error)) return bin_width;
  DS_ASSIGN_OR_RETURN(MegatronIndex opened, MegatronIndex::Open(index, bytes));
  file->index = std::make_shared<const MegatronIndex>(std::move(opened));
  return static_cast<TokenWidth>(file->index->token_bytes());
}

// The documents of all files in one row, where indices say them.
Status TokenSource::JoinDocuments() {
  std::vector<IndexedPart> parts;
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
                                " has no .idx beside it, as others of the data's .bin files have: "
                                "where documents end is known of all of them or of none");
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

// Lists where the blocks begin that stand for the file between its ends: in a small file next to
// one another.
std::vector<std::int64_t> TokenSource::ListMiddleBlocks(const File& file) const {
  const std::int64_t middle = file.count - 2 * kEndTokens;
  if (middle <= 0) return {};
  const std::int64_t most =
      std::clamp<std::int64_t>(kMostBlocks / std::ssize(files_), 1, kMostFileBlocks);
  const std::int64_t blocks = std::min(most, (middle + kBlockTokens - 1) / kBlockTokens);
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < blocks; ++i) places.push_back(kEndTokens + middle * i / blocks);
  return places;
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
    for (const std::int64_t place : ListMiddleBlocks(file)) {
      const std::int64_t count = std::min(kBlockTokens, file.count - place);
      DS_RETURN_IF_ERROR(ExtendChecksum(file, place, count, &prints.middles));
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
  DS_RETURN_IF_ERROR(ReadAt(fd, file.path, from * width, bytes));
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
         std::to_string(token * static_cast<std::int64_t>(file.width)) + ")";
}

}  // namespace ds::data
