#pragma once

// FileTier stores memory of one rank in files, on one drive or striped over several.
//
//   StatusOr<Extent> extent = tier->Allocate(bytes);
//   FileTransfer write = tier->Write(*extent, 0, buffer);     // runs in the background
//   Status written = tier->Wait(write);
//
// Extents consist of units; unit u is stored in file u % files. A unit is `alignment()` bytes with
// one file, and one block with several files.
//
// Any thread may take and transfer buffers, and destroy extents and buffers. Call all other methods
// from one thread at a time. The tier must outlive its extents, buffers and transfers.

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

// A range of the tier. The destructor frees it. Move-only.
class Extent {
 public:
  Extent() = default;
  Extent(Extent&& other) noexcept { *this = std::move(other); }
  Extent& operator=(Extent&& other) noexcept;
  ~Extent();

  std::int64_t bytes() const { return bytes_; }
  // Returns true if the range has never been written, so that it reads as zeros.
  bool fresh() const { return fresh_; }

 private:
  friend class FileTier;
  FileTier* tier_ = nullptr;
  std::int64_t first_ = 0;  // in units
  std::int64_t units_ = 0;
  std::int64_t bytes_ = 0;
  bool fresh_ = false;
};

using FileTransfer = std::shared_ptr<IoTransfer>;

struct TierOptions {
  std::vector<std::filesystem::path> folders;  // one file in each; at least one
  IoOptions io = {};
  QueueChoice queue = QueueChoice::kAuto;
  std::int64_t most_idle_bytes = std::int64_t{64} << 20;     // limit of idle buffers
  std::int64_t most_writing_bytes = std::int64_t{64} << 20;  // limit of buffers in WriteBehind
  AlignedPool::BookBytes book = [](std::int64_t) {};         // see AlignedPool
  AlignedPool::Pinning pinning = {};
  FileSystem& system = FileSystem::System();
};

class FileTier {
 public:
  // Creates the files, and tests in each that a page can be written and read like later blocks.
  static StatusOr<std::unique_ptr<FileTier>> Open(const TierOptions& options);
  ~FileTier();
  FileTier(const FileTier&) = delete;
  FileTier& operator=(const FileTier&) = delete;

  // Offsets and lengths of transfers must be multiples of this.
  std::int64_t alignment() const { return alignment_; }
  const std::vector<ScratchFile>& files() const { return files_; }
  const IoQueue& queue() const { return *queue_; }
  // Returns the reason why io_uring is not used, or "".
  const std::string& why_not_ring() const { return why_not_ring_; }
  AlignedPool& pool() { return pool_; }

  // Takes a buffer from the pool, after returning the buffers of finished WriteBehind calls to it.
  AlignedBuffer TakeBuffer(std::int64_t bytes);

  // Reserves `bytes` on the disks.
  StatusOr<Extent> Allocate(std::int64_t bytes);

  // Starts to transfer the first `bytes` of the buffer at `offset` of the extent. Do not modify or
  // free the buffer until the transfer has ended.
  FileTransfer Read(const Extent& extent, std::int64_t offset, const AlignedBuffer& buffer,
                    std::int64_t bytes);
  FileTransfer Write(const Extent& extent, std::int64_t offset, const AlignedBuffer& buffer,
                     std::int64_t bytes);
  // Writes a buffer and owns it until the write has ended. Waits for earlier writes when more than
  // `most_writing_bytes` would be in flight.
  FileTransfer WriteBehind(const Extent& extent, std::int64_t offset, AlignedBuffer buffer,
                           std::int64_t bytes);
  // Waits until the transfer has ended. An error names the operation, file and host, and the free
  // disk space.
  Status Wait(const FileTransfer& transfer) const;

 private:
  friend class Extent;

  FileTier(const TierOptions& options, std::vector<ScratchFile> files, ChosenQueue queue);
  Status TryFiles();
  FileTransfer Begin(bool writes, const Extent& extent, std::int64_t offset,
                     const AlignedBuffer& buffer, std::int64_t bytes);
  void ForgetWritten();
  // Takes free units, or units after the last one. Space for the latter is not reserved yet.
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
  std::deque<Writing> writing_;  // guarded by writing_mutex_
  std::int64_t alignment_ = AlignedPool::kPage;
  std::int64_t unit_bytes_ = AlignedPool::kPage;
  std::mutex mutex_;                           // guards the fields below
  std::map<std::int64_t, std::int64_t> free_;  // first unit to count; no two are adjacent
  std::int64_t end_ = 0;                       // in units
};

}  // namespace ds::offload
