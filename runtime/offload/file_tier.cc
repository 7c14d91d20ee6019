#include "runtime/offload/file_tier.h"

#include <algorithm>
#include <utility>

#include "runtime/base/byte_size.h"
#include "runtime/base/check.h"

namespace ds::offload {
namespace {

std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Extent& Extent::operator=(Extent&& other) noexcept {
  std::swap(tier_, other.tier_);
  std::swap(first_, other.first_);
  std::swap(units_, other.units_);
  std::swap(bytes_, other.bytes_);
  std::swap(fresh_, other.fresh_);
  return *this;
}

Extent::~Extent() {
  if (tier_ != nullptr) tier_->GiveBack(first_, units_);
}

FileTier::FileTier(const TierOptions& options, std::vector<ScratchFile> files, ChosenQueue queue)
    : io_(options.io),
      files_(std::move(files)),
      why_not_ring_(std::move(queue.why_not_ring)),
      queue_(std::move(queue.queue)),
      pool_(*queue_, options.most_idle_bytes, options.book, options.pinning),
      most_writing_(options.most_writing_bytes) {
  for (const ScratchFile& file : files_) alignment_ = std::max(alignment_, file.facts().alignment);
  unit_bytes_ = files_.size() == 1 ? alignment_ : RoundUp(io_.block_bytes, alignment_);
}

StatusOr<std::unique_ptr<FileTier>> FileTier::Open(const TierOptions& options) {
  DS_CHECK(!options.folders.empty());
  std::vector<ScratchFile> files;
  for (const std::filesystem::path& folder : options.folders) {
    StatusOr<ScratchFile> file = ScratchFile::Create(folder, options.system);
    if (!file.ok()) return file.status();
    files.push_back(*std::move(file));
  }
  std::unique_ptr<FileTier> tier(new FileTier(
      options, std::move(files), ChooseQueue(options.io, options.queue, options.system)));
  DS_RETURN_IF_ERROR(tier->TryFiles());
  return tier;
}

FileTier::~FileTier() {
  for (const Writing& each : writing_) static_cast<void>(each.transfer->Wait());
}

// A file system may accept O_DIRECT and then refuse such transfers, or have no space. Fails now
// rather than at the first transfer.
Status FileTier::TryFiles() {
  const auto files = static_cast<std::int64_t>(files_.size());
  StatusOr<Extent> extent = Allocate(unit_bytes_ * files);
  if (!extent.ok()) return extent.status();
  AlignedBuffer buffer = pool_.Take(alignment_);
  const AlignedBuffer back = pool_.Take(alignment_);
  for (std::int64_t file = 0; file < files; ++file) {
    for (std::size_t i = 0; i < buffer.bytes().size(); ++i) {
      buffer.bytes()[i] = std::byte((i * 7 >> 3) + static_cast<std::size_t>(file));
    }
    DS_RETURN_IF_ERROR(Wait(Write(*extent, file * unit_bytes_, buffer, alignment_)));
    DS_RETURN_IF_ERROR(Wait(Read(*extent, file * unit_bytes_, back, alignment_)));
    if (!std::ranges::equal(buffer.bytes(), back.bytes())) {
      return DataLossError("data written to the offload file of " +
                           files_[static_cast<std::size_t>(file)].facts().folder.string() +
                           " reads back differently");
    }
  }
  return OkStatus();
}

std::int64_t FileTier::TakeUnits(std::int64_t units) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [&](const auto& free) { return free.second >= units; });
  if (found == free_.end()) return std::exchange(end_, end_ + units);
  const auto [first, count] = *found;
  free_.erase(found);
  if (count > units) free_.emplace(first + units, count - units);
  return first;
}

void FileTier::GiveBack(std::int64_t first, std::int64_t units) {
  const std::lock_guard lock(mutex_);
  auto [freed, added] = free_.emplace(first, units);
  DS_CHECK(added);
  if (const auto next = std::next(freed);
      next != free_.end() && freed->first + freed->second == next->first) {
    freed->second += next->second;
    free_.erase(next);
  }
  if (freed == free_.begin()) return;
  const auto before = std::prev(freed);
  if (before->first + before->second != freed->first) return;
  before->second += freed->second;
  free_.erase(freed);
}

StatusOr<Extent> FileTier::Allocate(std::int64_t bytes) {
  Extent extent;
  const auto files = static_cast<std::int64_t>(files_.size());
  extent.units_ = std::max<std::int64_t>(1, RoundUp(bytes, unit_bytes_) / unit_bytes_);
  extent.bytes_ = bytes;
  extent.first_ = TakeUnits(extent.units_);
  extent.tier_ = this;
  const std::int64_t file_bytes =
      RoundUp(extent.first_ + extent.units_, files) / files * unit_bytes_;
  // Files only grow, and nothing has been written after their ends.
  extent.fresh_ = extent.first_ / files * unit_bytes_ >= files_.back().size();
  for (ScratchFile& file : files_) DS_RETURN_IF_ERROR(file.Grow(file_bytes));
  return extent;
}

FileTransfer FileTier::Begin(bool writes, const Extent& extent, std::int64_t offset,
                             const AlignedBuffer& buffer, std::int64_t bytes) {
  DS_CHECK(extent.tier_ == this && offset % alignment_ == 0 && bytes > 0);
  const std::int64_t padded = RoundUp(bytes, alignment_);
  DS_CHECK(padded <= static_cast<std::int64_t>(buffer.bytes().size()) &&
           offset + padded <= extent.units_ * unit_bytes_);
  const auto files = static_cast<std::int64_t>(files_.size());
  const std::int64_t block_bytes = files == 1 ? RoundUp(io_.block_bytes, alignment_) : unit_bytes_;
  std::vector<IoBlock> blocks;
  for (std::int64_t done = 0; done < padded;) {
    const std::int64_t byte_offset = extent.first_ * unit_bytes_ + offset + done;
    const std::int64_t in_block = files == 1 ? 0 : byte_offset % unit_bytes_;
    const std::int64_t count = std::min(block_bytes - in_block, padded - done);
    const std::int64_t unit = byte_offset / unit_bytes_;
    blocks.push_back({.writes = writes,
                      .fd = files_[static_cast<std::size_t>(unit % files)].fd(),
                      .offset = unit / files * unit_bytes_ + byte_offset % unit_bytes_,
                      .bytes = buffer.bytes().subspan(static_cast<std::size_t>(done),
                                                      static_cast<std::size_t>(count)),
                      .registered = buffer.registered()});
    done += count;
  }
  auto transfer = std::make_shared<IoTransfer>(blocks.size());
  queue_->Begin(std::move(blocks), transfer);
  return transfer;
}

FileTransfer FileTier::Read(const Extent& extent, std::int64_t offset, const AlignedBuffer& buffer,
                            std::int64_t bytes) {
  return Begin(/*writes=*/false, extent, offset, buffer, bytes);
}

FileTransfer FileTier::Write(const Extent& extent, std::int64_t offset, const AlignedBuffer& buffer,
                             std::int64_t bytes) {
  return Begin(/*writes=*/true, extent, offset, buffer, bytes);
}

void FileTier::ForgetWritten() {
  while (!writing_.empty() && writing_.front().transfer->done()) writing_.pop_front();
}

AlignedBuffer FileTier::TakeBuffer(std::int64_t bytes) {
  {
    const std::lock_guard lock(writing_mutex_);
    ForgetWritten();
  }
  return pool_.Take(bytes);
}

FileTransfer FileTier::WriteBehind(const Extent& extent, std::int64_t offset, AlignedBuffer buffer,
                                   std::int64_t bytes) {
  const std::lock_guard lock(writing_mutex_);
  ForgetWritten();
  std::int64_t in_flight = bytes;
  for (const Writing& each : writing_) {
    in_flight += static_cast<std::int64_t>(each.buffer.bytes().size());
  }
  while (in_flight > most_writing_ && !writing_.empty()) {
    static_cast<void>(writing_.front().transfer->Wait());  // its owner receives the error
    in_flight -= static_cast<std::int64_t>(writing_.front().buffer.bytes().size());
    writing_.pop_front();
  }
  FileTransfer transfer = Write(extent, offset, buffer, bytes);
  writing_.push_back({std::move(buffer), transfer});
  return transfer;
}

Status FileTier::Wait(const FileTransfer& transfer) const {
  const std::optional<IoFailure> failure = transfer->Wait();
  if (!failure) return OkStatus();
  const IoBlock& block = failure->block;
  const auto file = std::find_if(files_.begin(), files_.end(),
                                 [&](const ScratchFile& each) { return each.fd() == block.fd; });
  return file->DescribeError(failure->error,
                             std::string(block.writes ? "writing " : "reading ") +
                                 ByteSize(block.bytes.size()) + " at " +
                                 ByteSize(static_cast<std::uint64_t>(block.offset)));
}

}  // namespace ds::offload
