#include "runtime/checkpoint_format/folder_mark.h"

#include <chrono>
#include <cstdint>
#include <random>
#include <system_error>

#include "runtime/base/files.h"
#include "runtime/base/owner_mark.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = ".shared-";

// No job needs this long from making its mark to starting its ranks.
constexpr std::chrono::hours kAbandonedAfter{24};
constexpr std::uint64_t kLongestOwner = 256;

// Removes marks that are a day old and have an owner that has ended. Marks of another boot stay,
// because they may belong to another host. Ages are relative to the time of the new mark, because
// the file server may have another clock.
void RemoveAbandonedMarks(const fs::path& folder, const std::string& mark) {
  std::error_code error;
  const fs::file_time_type now = fs::last_write_time(folder / mark, error);
  if (error) return;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::directory_entry& entry = *at;
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix)) continue;
    std::error_code gone;
    const fs::file_time_type made = entry.last_write_time(gone);
    if (gone || now - made <= kAbandonedAfter || !entry.is_regular_file(gone)) continue;
    const StatusOr<std::string> owner = ReadFile(entry.path(), kLongestOwner);
    if (owner.ok() && IsOwnerGone(*owner)) RemoveFolderMark(folder, name);
  }
}

}  // namespace

StatusOr<std::string> MakeFolderMark(const fs::path& folder) {
  DS_RETURN_IF_ERROR(MakeDirectories(folder));
  std::random_device random;
  const std::string mark = kPrefix + std::to_string(random()) + "-" + std::to_string(random());
  DS_RETURN_IF_ERROR(WriteFileAtomically(folder / mark, MakeOwnMark(), 0600, Durability::kAtomic));
  RemoveAbandonedMarks(folder, mark);
  return mark;
}

Status FindFolderMark(const fs::path& folder, const std::string& mark) {
  std::error_code error;
  if (fs::exists(folder / mark, error)) return OkStatus();
  if (error) return ErrnoError(error.value(), (folder / mark).string());
  return FailedPreconditionError(
      folder.string() +
      " differs from the folder on the host where the job was started: checkpoints of several "
      "hosts need a folder that all hosts and the host of dsrun share; name it with --run_dir");
}

void RemoveFolderMark(const fs::path& folder, const std::string& mark) {
  std::error_code ignored;
  fs::remove(folder / mark, ignored);
}

}  // namespace ds::checkpoint
