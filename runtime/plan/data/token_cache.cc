#include "runtime/plan/data/token_cache.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "runtime/checkpoint_format/crc32c.h"
#include "runtime/plan/data/host_cache.h"

namespace ds::data {
namespace {

namespace fs = std::filesystem;
using Json = HostCache::Json;

constexpr int kFormat = 3;
constexpr std::uint64_t kMostTokenizerBytes = std::uint64_t{1} << 30;

Json Describe(const tokenizer::DocumentOptions& options) {
  const tokenizer::RowOptions& rows = options.rows;
  return {{"text_field", rows.text_field},           {"messages_field", rows.messages_field},
          {"prompt_field", rows.prompt_field},       {"completion_field", rows.completion_field},
          {"tools_field", rows.tools_field},         {"role_field", rows.role_field},
          {"content_field", rows.content_field},     {"prompt_style", rows.prompt_style},
          {"max_length", options.max_length},        {"keeps_end", options.keeps_end},
          {"assistant_only", options.assistant_only}};
}

// Describes the inputs that determine the content of a cache.
StatusOr<Json> Describe(const TokenRequest& request) {
  Json tokenizer = Json::array();
  DS_ASSIGN_OR_RETURN(Json files, DescribeFiles({request.files.begin(), request.files.end()}));
  for (const fs::path& file : tokenizer::TokenizerFilesIn(request.tokenizer)) {
    DS_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file, kMostTokenizerBytes));
    tokenizer.push_back({file.filename().string(), bytes.size(), checkpoint::Crc32c(bytes)});
  }
  return Json{{"format", kFormat},
              {"files", std::move(files)},
              {"tokenizer", std::move(tokenizer)},
              {"data_field", request.data_field},
              {"documents", Describe(request.documents)},
              {"skip_bad_data", request.skip_bad_data}};
}

// Returns the cache in a folder, or nullopt if it is damaged.
std::optional<CachedTokens> ReadCached(const HostCache::Folder& folder) {
  const Json& json = folder.manifest;
  const auto number = [&](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
  };
  CachedTokens cached{.folder = folder.path,
                      .id_bytes = number("id_bytes"),
                      .tokens = number("tokens"),
                      .documents = number("documents"),
                      .all_in_loss = json.value("all_learnt", Json()) == true,
                      .left_out = {.skipped = number("skipped"),
                                   .rejected = number("rejected"),
                                   .truncated_empty = number("cut_empty"),
                                   .without_loss = number("unlearnt")},
                      .was_there = folder.was_there};
  const Json first = json.value("first_skipped", Json(""));
  if (first.is_string()) cached.left_out.first_skipped = first.get<std::string>();
  const Json first_without_loss = json.value("first_unlearnt", Json(""));
  if (first_without_loss.is_string())
    cached.left_out.first_without_loss = first_without_loss.get<std::string>();
  const auto has = [](const fs::path& file, std::int64_t bytes) {
    std::error_code error;
    return bytes >= 0 && fs::file_size(file, error) == static_cast<std::uintmax_t>(bytes) && !error;
  };
  const bool is_complete = (cached.id_bytes == 2 || cached.id_bytes == 4) &&
                           has(cached.ids_file(), cached.tokens * cached.id_bytes) &&
                           has(cached.documents_file(), cached.documents * 8) &&
                           (cached.all_in_loss || has(cached.loss_mask_file(), cached.tokens));
  return is_complete ? std::optional(std::move(cached)) : std::nullopt;
}

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

void AppendLittleEndian(std::uint64_t number, std::int64_t bytes, std::string* out) {
  for (std::int64_t i = 0; i < bytes; ++i, number >>= 8) *out += static_cast<char>(number & 0xFF);
}

// TokenWriter: writes the files of a token cache, document by document.
class TokenWriter {
 public:
  // Requires the existing folder of `cached` and its id_bytes. Errors of all calls advise about
  // another cache location.
  static StatusOr<TokenWriter> Create(const CachedTokens& cached, FileSystem& system);

  // Requires ids that fit into id_bytes.
  Status Append(const tokenizer::EncodedDocument& document);
  // Flushes the files, makes them durable, and fills in the counts.
  Status Finish(CachedTokens* cached);

 private:
  struct File {
    std::filesystem::path path;
    UniqueFd fd;
    std::string buffer;
    std::uint64_t written = 0;
  };

  TokenWriter(std::int64_t id_bytes, FileSystem& system) : id_bytes_(id_bytes), system_(&system) {}
  StatusOr<File> Open(const std::filesystem::path& path) const;
  Status Flush(File* file, std::size_t keep);
  Status WriteLossMask(const tokenizer::EncodedDocument& document);

  std::int64_t id_bytes_;
  FileSystem* system_;
  File ids_, documents_, loss_mask_;
  bool all_in_loss_ = true;  // while true, loss_mask_ has no bytes
  std::int64_t tokens_ = 0, count_ = 0;
};

StatusOr<TokenWriter::File> TokenWriter::Open(const std::filesystem::path& path) const {
  const int opened = system_->Open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (opened < 0) return AddLocationAdvice(ErrnoError(-opened, ShortenPath(path)));
  return File{.path = path, .fd = UniqueFd(opened)};
}

StatusOr<TokenWriter> TokenWriter::Create(const CachedTokens& cached, FileSystem& system) {
  TokenWriter writer(cached.id_bytes, system);
  DS_ASSIGN_OR_RETURN(writer.ids_, writer.Open(cached.ids_file()));
  DS_ASSIGN_OR_RETURN(writer.documents_, writer.Open(cached.documents_file()));
  DS_ASSIGN_OR_RETURN(writer.loss_mask_, writer.Open(cached.loss_mask_file()));
  return writer;
}

// Writes the buffer if it holds more than `keep` bytes.
Status TokenWriter::Flush(File* file, std::size_t keep) {
  if (file->buffer.size() <= keep) return OkStatus();
  DS_RETURN_IF_ERROR(AddLocationAdvice(WriteAllAt(file->fd.get(), file->written,
                                                  std::as_bytes(std::span(file->buffer)),
                                                  ShortenPath(file->path), *system_)));
  file->written += file->buffer.size();
  file->buffer.clear();
  return OkStatus();
}

Status TokenWriter::WriteLossMask(const tokenizer::EncodedDocument& document) {
  const bool all =
      std::find(document.in_loss.begin(), document.in_loss.end(), false) == document.in_loss.end();
  if (all && all_in_loss_) return OkStatus();
  // At the first token outside the loss, all earlier tokens get their byte.
  for (std::int64_t written = 0; all_in_loss_ && written < tokens_;) {
    const std::int64_t size = std::min<std::int64_t>(tokens_ - written, kBufferBytes);
    loss_mask_.buffer.assign(static_cast<std::size_t>(size), '\1');
    DS_RETURN_IF_ERROR(Flush(&loss_mask_, 0));
    written += size;
  }
  all_in_loss_ = false;
  for (std::size_t i = 0; i < document.ids.size(); ++i) {
    loss_mask_.buffer += document.in_loss.empty() || document.in_loss[i] ? '\1' : '\0';
  }
  return Flush(&loss_mask_, kBufferBytes);
}

Status TokenWriter::Append(const tokenizer::EncodedDocument& document) {
  if (document.ids.empty()) return OkStatus();
  DS_RETURN_IF_ERROR(WriteLossMask(document));
  for (const std::uint32_t id : document.ids) AppendLittleEndian(id, id_bytes_, &ids_.buffer);
  tokens_ += static_cast<std::int64_t>(document.ids.size());
  ++count_;
  AppendLittleEndian(static_cast<std::uint64_t>(tokens_), 8, &documents_.buffer);
  DS_RETURN_IF_ERROR(Flush(&ids_, kBufferBytes));
  return Flush(&documents_, kBufferBytes);
}

Status TokenWriter::Finish(CachedTokens* cached) {
  for (File* file : {&ids_, &documents_, &loss_mask_}) {
    DS_RETURN_IF_ERROR(Flush(file, 0));
    const int synced = system_->Sync(file->fd.get());
    if (synced != 0) return AddLocationAdvice(ErrnoError(-synced, ShortenPath(file->path)));
  }
  cached->tokens = tokens_;
  cached->documents = count_;
  cached->all_in_loss = all_in_loss_;
  return OkStatus();
}

StatusOr<CachedTokens> TokenizeFiles(const TokenRequest& request, const fs::path& folder,
                                     const std::function<void(double)>& progress,
                                     FileSystem& system) {
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<TextTokenizer> cutter, TextTokenizer::Open(request));
  DS_ASSIGN_OR_RETURN(auto reader,
                      tokenizer::DocumentReader::Open(request.files, request.data_field));
  CachedTokens cached{.folder = folder};
  cached.id_bytes = cutter->id_limit() <= (1U << 16) ? 2 : 4;
  DS_ASSIGN_OR_RETURN(TokenWriter writer, TokenWriter::Create(cached, system));
  const TextTokenizer::Keep keep = [&](const tokenizer::EncodedDocument& document,
                                       const std::string&) { return writer.Append(document); };
  std::uint64_t done = 0;
  while (true) {
    progress(static_cast<double>(done) /
             static_cast<double>(std::max<std::uint64_t>(reader.total_bytes(), 1)));
    DS_ASSIGN_OR_RETURN(const auto batch, reader.Next());
    if (!batch) break;
    DS_RETURN_IF_ERROR(
        tokenizer::ForEachDocument(*batch, [&](std::string_view text, const std::string& location) {
          return cutter->Tokenize(text, batch->lines, location, keep);
        }));
    done = batch->done_bytes;
  }
  DS_RETURN_IF_ERROR(writer.Finish(&cached));
  cached.left_out = cutter->left_out();
  DS_RETURN_IF_ERROR(cutter->CheckHasLoss());
  return cached;
}

Json ManifestOf(const CachedTokens& cached) {
  return {{"id_bytes", cached.id_bytes},
          {"tokens", cached.tokens},
          {"documents", cached.documents},
          {"all_learnt", cached.all_in_loss},
          {"skipped", cached.left_out.skipped},
          {"first_skipped", cached.left_out.first_skipped},
          {"rejected", cached.left_out.rejected},
          {"cut_empty", cached.left_out.truncated_empty},
          {"unlearnt", cached.left_out.without_loss},
          {"first_unlearnt", cached.left_out.first_without_loss}};
}

}  // namespace

StatusOr<fs::path> DefaultCacheRoot() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && fs::path(cache).is_absolute()) return fs::path(cache) / "dsrun";
  const char* home = std::getenv("HOME");
  if (home != nullptr && fs::path(home).is_absolute()) return fs::path(home) / ".cache/dsrun";
  return FailedPreconditionError(
      "there is no place for the tokens of the data: neither XDG_CACHE_HOME nor HOME is set; name "
      "one with --data_cache");
}

StatusOr<CachedTokens> FindOrTokenize(const TokenRequest& request, const fs::path& root,
                                      const std::function<void(double)>& progress,
                                      FileSystem& system) {
  DS_ASSIGN_OR_RETURN(const Json description, Describe(request));
  const auto found =
      HostCache(root, system)
          .FindOrMake(
              description,
              [](const HostCache::Folder& folder) { return ReadCached(folder).has_value(); },
              [&](const fs::path& folder) -> StatusOr<Json> {
                DS_ASSIGN_OR_RETURN(const CachedTokens tokenized,
                                    TokenizeFiles(request, folder, progress, system));
                return ManifestOf(tokenized);
              });
  DS_RETURN_IF_ERROR(found.status());
  return *ReadCached(*found);
}

}  // namespace ds::data
