#include "runtime/tokenizer/corpus/data_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "runtime/base/files.h"
#include "runtime/base/glob.h"
#include "runtime/base/path_exists.h"
#include "runtime/base/unique_fd.h"
#include "runtime/tokenizer/corpus/byte_stream.h"
#include "runtime/tokenizer/corpus/dataset_folder.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;

// Returns the first bytes on disk, before decompression.
StatusOr<std::string> ReadRaw(const fs::path& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoError(errno, ShortenPath(path));
  std::string bytes(kJudgedBytes, '\0');
  const ssize_t got = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  if (got < 0) return ErrnoError(errno, ShortenPath(path));
  bytes.resize(static_cast<std::size_t>(got));
  return bytes;
}

StatusOr<std::string> ReadBegin(const fs::path& path) {
  const auto group = GroupOf(path);
  const bool has_own_format =
      group == DataGroup::kTokens || group == DataGroup::kParquet || group == DataGroup::kArrow;
  if (has_own_format) return ReadRaw(path);
  DS_ASSIGN_OR_RETURN(ByteStream stream, ByteStream::Open(path));
  std::string begin;
  bool more = true;
  while (more && begin.size() < kJudgedBytes) {
    DS_ASSIGN_OR_RETURN(more, stream.ReadMore(kJudgedBytes - begin.size(), &begin));
  }
  return begin;
}

StatusOr<DataFile> Judge(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return ErrnoError(errno, ShortenPath(path));
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgumentError(ShortenPath(path) + ": not a regular file");
  }
  DS_ASSIGN_OR_RETURN(const std::string begin, ReadBegin(path));
  return JudgeDataFile(path, begin);
}

bool IsEmpty(const fs::path& path) {
  std::error_code error;
  return fs::file_size(path, error) == 0 && !error;
}

Status AddFolder(const fs::path& folder, DataUse use, DataFiles* data) {
  DS_ASSIGN_OR_RETURN(const FolderData found, ListFolder(folder, use));
  for (const fs::path& path : found.files) {
    DS_ASSIGN_OR_RETURN(DataFile file, Judge(path));
    data->files.push_back(std::move(file));
  }
  if (!found.notice.empty()) data->notices.push_back(found.notice);
  return OkStatus();
}

Status AddPath(const fs::path& path, DataUse use, DataFiles* data) {
  std::error_code error;
  if (fs::is_directory(path, error)) return AddFolder(path, use, data);
  if (IsEmpty(path)) return InvalidArgumentError(ShortenPath(path) + ": the file is empty");
  DS_ASSIGN_OR_RETURN(DataFile file, Judge(path));
  data->files.push_back(std::move(file));
  return OkStatus();
}

// Returns true for the index of the .bin file next to it, which lists the ends of documents.
bool IsIndex(const fs::path& path) {
  std::error_code error;
  return path.extension() == ".idx" && fs::exists(fs::path(path).replace_extension(".bin"), error);
}

}  // namespace

StatusOr<DataFiles> ListDataFiles(const std::vector<std::string>& paths, DataUse use) {
  DataFiles data;
  for (const std::string& path : paths) {
    DS_ASSIGN_OR_RETURN(const bool exists, PathExists(path));
    if (exists) {
      DS_RETURN_IF_ERROR(AddPath(path, use, &data));
      continue;
    }
    const std::vector<fs::path> matches = ExpandGlob(path);
    if (matches.empty()) {
      return NotFoundError(path + (IsGlob(path) ? ": no data file matches this pattern"
                                                : ": no such data file or folder"));
    }
    const std::size_t before = data.files.size();
    for (const fs::path& match : matches) {
      if (!IsIndex(match) && !IsEmpty(match)) DS_RETURN_IF_ERROR(AddPath(match, use, &data));
    }
    if (data.files.size() == before) {
      return InvalidArgumentError(path + ": all files of this pattern are empty");
    }
  }
  return data;
}

}  // namespace ds::tokenizer
