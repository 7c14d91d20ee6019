#include "runtime/data/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/files.h"

namespace ds::data {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

void AppendLittleEndian(std::uint64_t number, std::int64_t bytes, std::string* out) {
  for (std::int64_t i = 0; i < bytes; ++i, number >>= 8) *out += static_cast<char>(number & 0xFF);
}

}  // namespace

StatusOr<TokenWriter::File> TokenWriter::Open(const std::filesystem::path& path) {
  File file{.path = path,
            .fd = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644))};
  if (!file.fd.valid()) return ErrnoError(errno, ShortenPath(path));
  return file;
}

StatusOr<TokenWriter> TokenWriter::Create(const CachedTokens& cached) {
  TokenWriter writer(cached.id_bytes);
  DS_ASSIGN_OR_RETURN(writer.ids_, Open(cached.ids_file()));
  DS_ASSIGN_OR_RETURN(writer.documents_, Open(cached.documents_file()));
  DS_ASSIGN_OR_RETURN(writer.learnt_, Open(cached.learnt_file()));
  return writer;
}

// Writes the buffer when it holds more than `keep` bytes.
Status TokenWriter::Flush(File* file, std::size_t keep) {
  if (file->buffer.size() <= keep) return OkStatus();
  DS_RETURN_IF_ERROR(WriteAll(file->fd.get(), file->buffer, ShortenPath(file->path)));
  file->buffer.clear();
  return OkStatus();
}

Status TokenWriter::WriteLearnt(const tokenizer::EncodedDocument& document) {
  const bool all =
      std::find(document.learnt.begin(), document.learnt.end(), false) == document.learnt.end();
  if (all && all_learnt_) return OkStatus();
  // With the first token that is not learnt all that came before get their byte.
  for (std::int64_t written = 0; all_learnt_ && written < tokens_;) {
    const std::int64_t size = std::min<std::int64_t>(tokens_ - written, kBufferBytes);
    learnt_.buffer.assign(static_cast<std::size_t>(size), '\1');
    DS_RETURN_IF_ERROR(Flush(&learnt_, 0));
    written += size;
  }
  all_learnt_ = false;
  for (std::size_t i = 0; i < document.ids.size(); ++i) {
    learnt_.buffer += document.learnt.empty() || document.learnt[i] ? '\1' : '\0';
  }
  return Flush(&learnt_, kBufferBytes);
}

Status TokenWriter::Append(const tokenizer::EncodedDocument& document) {
  if (document.ids.empty()) return OkStatus();
  DS_RETURN_IF_ERROR(WriteLearnt(document));
  for (const std::uint32_t id : document.ids) AppendLittleEndian(id, id_bytes_, &ids_.buffer);
  tokens_ += static_cast<std::int64_t>(document.ids.size());
  ++count_;
  AppendLittleEndian(static_cast<std::uint64_t>(tokens_), 8, &documents_.buffer);
  DS_RETURN_IF_ERROR(Flush(&ids_, kBufferBytes));
  return Flush(&documents_, kBufferBytes);
}

Status TokenWriter::Finish(CachedTokens* cached) {
  for (File* file : {&ids_, &documents_, &learnt_}) {
    DS_RETURN_IF_ERROR(Flush(file, 0));
    if (::fsync(file->fd.get()) != 0) return ErrnoError(errno, ShortenPath(file->path));
  }
  cached->tokens = tokens_;
  cached->documents = count_;
  cached->all_learnt = all_learnt_;
  return OkStatus();
}

}  // namespace ds::data
