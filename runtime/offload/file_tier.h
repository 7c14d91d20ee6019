#pragma once

// FileTier: memory of one rank that lies in files, on one drive or striped over several.
//
//   StatusOr<Extent> extent = tier->Allocate(bytes);
//   FileTransfer write = tier->Write(*extent, 0, buffer);     // goes on by itself
//   Status written = tier->Wait(write);
//
// Extents are made of units; unit u lies in file u % files. With one file a unit is what it aligns
// to, with several a block.
//
// Threads: buffers are taken and transferred, and extents and buffers end, on any; the rest is one
// thread's at a time. Lifetimes: the tier outlives its extents, buffers and transfers.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/offload/aligned_pool.h"
#include "runtime/offload/choose_queue.h"
#include "runtime/offload/io_queue.h"
#include "runtime/offload/scratch_file.h"

namespace ds::offload {

class FileTier;

// A piece of the tier; free again with its destructor. Move-only.
class Extent {
 public:
  Extent() = default;
  Extent(Extent&& other) noexcept { *this = std::move(other); }
  Extent& operator=(Extent&& other) noexcept;
  ~Extent();

  std::int64_t bytes() const { return bytes_; }
  // Nobody has written here: it reads as zeros.
  bool fresh() const { return fresh_; }

 private:
  friend class FileTier;
  FileTier* tier_ = nullptr;
  std::int64_t first_ = 0;  // unit
  std::int64_t units_ = 0;
  std::int64_t bytes_ = 0;
  bool fresh_ = false;
};

using FileTransfer = std::shared_ptr<IoTransfer>;

struct TierOptions {
  std::vector<std::filesystem::path> folders;  // of the files, at least one
  IoOptions io = {};
  QueueChoice queue = QueueChoice::kAuto;
  std::int64_t most_idle_bytes = std::int64_t{64} << 20;     // of buffers
  std::int64_t most_writing_bytes = std::int64_t{64} << 20;  // of buffers that are written behind
  AlignedPool::BookBytes book = [](std::int64_t) {};         // of buffers (AlignedPool)
  AlignedPool::Pinning pinning = {};
  FileSystem& system = FileSystem::System();
};

class FileTier {
 public:
  // Makes the files, and tries in each that a page can be written and read as blocks will be.
  static StatusOr<std::unique_ptr<FileTier>> Open(const TierOptions& options);
  ~FileTier();
  FileTier(const FileTier&) = delete;
  FileTier& operator=(const FileTier&) = delete;

  // Offsets and lengths of transfers are multiples of this.
  std::int64_t alignment() const { return alignment_; }
  const std::vector<ScratchFile>& files() const { return files_; }
  const IoQueue& queue() const { return *queue_; }
  // Says why io_uring is not used, or "".
  const std::string& why_not_ring() const { return why_not_ring_; }
  AlignedPool& pool() { return pool_; }

  // Takes a buffer of the pool, which has what has been written behind by now again.
  AlignedBuffer TakeBuffer(std::int64_t bytes);

  // Takes room on the disks for `bytes`.
  StatusOr<Extent> Allocate(std::int64_t bytes);

  // Begin to transfer all of the buffer's first `bytes` at `offset` of the extent. The buffer stays
  // as it is until the transfer has ended.
  FileTransfer Read(const Extent& extent, std::int64_t offset, const AlignedBuffer& buffer,
                    std::int64_t bytes);
  FileTransfer Write(const Extent& extent, std::int64_t offset, const AlignedBuffer& buffer,
                     std::int64_t bytes);
  // Writes a buffer that is the tier's from here on, until it is written. Waits for earlier ones
  // where more than `most_writing_bytes` would be under way.
  FileTransfer WriteBehind(const Extent& extent, std::int64_t offset, AlignedBuffer buffer,
                           std::int64_t bytes);
  // Waits for the transfer's end. Says what has failed, in which file, on which host, and how much
  // room there is.
  Status Wait(const FileTransfer& transfer) const;

 private:
  friend class Extent;

  FileTier(const TierOptions& options, std::vector<ScratchFile> files, ChosenQueue queue);
  Status TryFiles();
  FileTransfer Begin(bool writes, const Extent& extent, std::int64_t offset,
                     const AlignedBuffer& buffer, std::int64_t bytes);
  void ForgetWritten();
  // Takes units that are free, or the ones behind the last; the latter without room yet.
  std::int64_t TakeUnits(std::int64_t units);
  void GiveBack(std::int64_t first, std::int64_t units);

  const IoOptions io_;
  std::vector<ScratchFile> files_;
  const std::string why_not_ring_;
  std::unique_ptr<IoQueue> queue_;
  AlignedPool pool_;
  struct Writing {
    AlignedBuffer buffer;
    FileTransfer transfer;
  };
  const std::int64_t most_writing_;
  std::mutex writing_mutex_;
  std::deque<Writing> writing_;  // guarded by it
  std::int64_t alignment_ = AlignedPool::kPage;
  std::int64_t unit_bytes_ = AlignedPool::kPage;
  std::mutex mutex_;                           // guards what follows
  std::map<std::int64_t, std::int64_t> free_;  // units, by the first; no two touch
  std::int64_t end_ = 0;                       // units
};

}  // namespace ds::offload
