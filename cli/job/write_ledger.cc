#include "cli/job/write_ledger.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>

namespace ds::cli {
namespace {

// Sequences begin again in each generation.
constexpr int kSequenceBits = 40;

std::uint64_t PositionOf(const HostEvent& event) {
  return (static_cast<std::uint64_t>(event.generation) << kSequenceBits) | event.event.sequence();
}

}  // namespace

std::size_t WriteLedger::SlotsFor(std::size_t host_count) { return std::bit_ceil(2 * host_count); }

std::size_t WriteLedger::BytesFor(std::size_t host_count) {
  return sizeof(Header) + SlotsFor(host_count) * sizeof(Host);
}

WriteLedger::WriteLedger(void* memory, std::size_t host_count)
    : header_(static_cast<Header*>(memory)),
      hosts_(reinterpret_cast<Host*>(header_ + 1)),
      slots_(SlotsFor(host_count)) {}

WriteLedger::Host* WriteLedger::Find(const HostEvent& event) const {
  const std::uint64_t name = std::max<std::uint64_t>(std::hash<std::string>()(event.host), 1);
  for (std::size_t i = 0; i < slots_; ++i) {
    Host& host = hosts_[(name + i) % slots_];
    if (host.name == 0) host.name = name;
    if (host.name == name) return &host;
  }
  return nullptr;
}

bool WriteLedger::OnEvent(const HostEvent& event) {
  writing_ = Find(event);
  if (writing_ == nullptr) return true;
  const std::uint64_t position = PositionOf(event);
  if (position <= writing_->written) return false;
  header_->appends = false;
  header_->slot = static_cast<std::size_t>(writing_ - hosts_);
  header_->position = position;
  return true;
}

void WriteLedger::OnAppend(const std::filesystem::path& file, std::uint64_t size) {
  const std::string& path = file.native();
  if (header_ == nullptr || path.size() >= kLongestPath) return;
  header_->appends = false;
  std::memcpy(header_->path, path.c_str(), path.size() + 1);
  header_->size = size;
  header_->appends = true;
}

void WriteLedger::OnWritten() {
  if (writing_ == nullptr) return;
  writing_->written = header_->position;
  header_->appends = false;
}

Status WriteLedger::Undo() {
  const bool is_pending =
      header_ != nullptr && header_->appends && hosts_[header_->slot].written < header_->position;
  if (!is_pending) return OkStatus();
  struct stat info {};
  if (::stat(header_->path, &info) != 0) {
    return errno == ENOENT ? OkStatus() : ErrnoError(errno, header_->path);  // in a rotation
  }
  if (static_cast<std::uint64_t>(info.st_size) > header_->size &&
      ::truncate(header_->path, static_cast<off_t>(header_->size)) != 0) {
    return ErrnoError(errno, header_->path);
  }
  header_->appends = false;
  return OkStatus();
}

}  // namespace ds::cli
