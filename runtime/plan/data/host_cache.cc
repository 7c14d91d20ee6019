#include "runtime/plan/data/host_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/files.h"
#include "runtime/base/fnv.h"
#include "runtime/base/owner_mark.h"
#include "runtime/base/unique_fd.h"

namespace ds::data {
namespace {

namespace fs = std::filesystem;
using Json = HostCache::Json;

constexpr std::uint64_t kMostManifestBytes = std::uint64_t{4} << 30;  // of millions of files

// Bytes of a name that are not UTF-8 become U+FFFD.
std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/indent < 0, Json::error_handler_t::replace);
}

std::string NameOf(const Json& description) {
  const std::uint64_t hash = HashFnv1a(Dump(description, -1));
  std::string name;
  for (int shift = 60; shift >= 0; shift -= 4) name += "0123456789abcdef"[(hash >> shift) & 15];
  return name;
}

// The lock of a cache folder.
struct CacheLock {
  UniqueFd file;         // released when the process that opened it ends
  bool is_held = false;  // false: the file system has no locks (Lustre's default, some NFS)
};

bool LacksLocks(int error) {
  return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EINVAL;
}

// Waits until no other process holds the lock.
StatusOr<CacheLock> Lock(const fs::path& path, FileSystem& system) {
  CacheLock lock{UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644))};
  if (!lock.file.valid()) return ErrnoError(errno, ShortenPath(path));
  const int locked = system.Lock(lock.file.get(), LOCK_EX);
  lock.is_held = locked == 0;
  if (lock.is_held || LacksLocks(-locked)) return lock;
  return ErrnoError(-locked, ShortenPath(path));
}

// Makes a new folder with this process's mark (runtime/base/owner_mark.h).
Status MakeMarked(const fs::path& folder) {
  DS_RETURN_IF_ERROR(MakeDirectories(folder));
  const UniqueFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.valid()) return ErrnoError(errno, ShortenPath(folder));
  return LeaveMark(opened.get(), MarkLocation::kFile, MakeOwnMark())
      .WithContext(ShortenPath(folder));
}

// Removes a folder made by dsrun, as proven by its mark; OK if there is none. The caller must know
// that it is unused. A mark that was copied with the cache, or that came over a network where a
// device has other numbers on each host, is also accepted: the name is a hash.
Status RemoveMarked(const fs::path& folder) {
  std::error_code error;
  const fs::file_status mark = fs::symlink_status(folder / kOwnerFile, error);
  const fs::file_status there = fs::symlink_status(folder, error);
  if (there.type() == fs::file_type::not_found) return OkStatus();
  if (fs::is_directory(there) && fs::is_regular_file(mark)) return RemoveTree(folder);
  return FailedPreconditionError(
      ShortenPath(folder) +
      ": an incomplete entry of a token cache, without a mark of dsrun: move it away");
}

// One folder of a cache.
class Entry {
 public:
  Entry(fs::path folder, Json description, const HostCache::IsComplete& is_complete)
      : folder_(std::move(folder)),
        description_(std::move(description)),
        is_complete_(is_complete) {}

  // Returns nullopt if the folder is missing, has another description or is damaged.
  std::optional<HostCache::Folder> Find() const {
    const auto text = ReadFile(folder_ / "manifest.json", kMostManifestBytes);
    if (!text.ok()) return std::nullopt;
    const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || json.value("of", Json()) != description_) return std::nullopt;
    HostCache::Folder found{.path = folder_, .manifest = json, .was_there = true};
    return is_complete_(found) ? std::optional(std::move(found)) : std::nullopt;
  }

  Status WriteManifest(const fs::path& unfinished, const Json& manifest) const {
    Json content{{"of", description_}};
    content.update(manifest);
    return WriteFileAtomically(unfinished / "manifest.json", Dump(content, 1) + "\n");
  }

  // An existing folder with this name was finished by another process, or is damaged.
  Status PutInPlace(const fs::path& unfinished) const {
    const Status placed = RenameDurably(unfinished, folder_);
    if (placed.ok() || Find()) return placed;
    DS_RETURN_IF_ERROR(RemoveMarked(folder_));
    return RenameDurably(unfinished, folder_);
  }

 private:
  const fs::path folder_;
  const Json description_;
  const HostCache::IsComplete& is_complete_;
};

}  // namespace

Status AddLocationAdvice(const Status& status) {
  if (status.ok()) return status;
  return Status(status.code(),
                status.message() + "; --data_cache names another place for the tokens of the data");
}

StatusOr<HostCache::Folder> HostCache::FindOrMake(const Json& description,
                                                  const IsComplete& is_complete,
                                                  const Make& make) const {
  // In the form that a manifest can store.
  const Json readable = Json::parse(Dump(description, -1));
  const fs::path path = root_ / NameOf(readable);
  const Entry entry(path, readable, is_complete);
  if (auto found = entry.Find()) return *std::move(found);
  DS_RETURN_IF_ERROR(AddLocationAdvice(MakeDirectories(root_)));
  const StatusOr<CacheLock> lock = Lock(path.string() + ".lock", system_);
  DS_RETURN_IF_ERROR(AddLocationAdvice(lock.status()));
  if (auto found = entry.Find()) return *std::move(found);
  // With the lock held, no other process of this host is here: leftovers are from a dead process.
  const fs::path unfinished =
      lock->is_held ? fs::path(path.string() + "." + host_ + ".tmp") : NameTemporary(path);
  DS_RETURN_IF_ERROR(AddLocationAdvice(RemoveMarked(unfinished)));
  DS_RETURN_IF_ERROR(AddLocationAdvice(MakeMarked(unfinished)));
  StatusOr<Json> manifest = make(unfinished);
  Status kept = manifest.status();
  if (kept.ok()) kept = AddLocationAdvice(entry.WriteManifest(unfinished, *manifest));
  if (kept.ok()) kept = AddLocationAdvice(entry.PutInPlace(unfinished));
  if (kept.ok()) return Folder{.path = path, .manifest = *std::move(manifest)};
  static_cast<void>(RemoveMarked(unfinished));
  // Without a common lock another process may have finished first.
  if (auto found = entry.Find()) return *std::move(found);
  return kept;
}

StatusOr<Json> DescribeFiles(const std::vector<fs::path>& files) {
  Json described = Json::array();
  for (const fs::path& file : files) {
    std::error_code error;
    const auto size = fs::file_size(file, error);
    if (error) return ErrnoError(error.value(), ShortenPath(file));
    const auto changed = fs::last_write_time(file, error).time_since_epoch().count();
    described.push_back({fs::absolute(file).lexically_normal().string(), size, changed});
  }
  return described;
}

}  // namespace ds::data
