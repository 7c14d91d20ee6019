#include "cli/agent/agent_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ds::cli {
namespace {

// A state contains the program with its files, and each host's answer to Prepare with its cores.
// Pages that are never written cost nothing.
constexpr std::size_t kProgramBytes = std::size_t{16} << 20;
constexpr std::size_t kHostBytes = std::size_t{32} << 10;
constexpr std::size_t kAlignment = 64;

std::size_t Align(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::size_t AreaBytes(std::size_t host_count) { return kProgramBytes + host_count * kHostBytes; }

}  // namespace

StatusOr<AgentMemory> AgentMemory::Make(std::size_t host_count) {
  const std::size_t bytes =
      Align(sizeof(Header)) + Align(WriteLedger::BytesFor(host_count)) + 2 * AreaBytes(host_count);
  void* const mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return ErrnoError(errno, "memory for the agent of the job");
  return AgentMemory(static_cast<char*>(mapping), bytes, host_count);
}

AgentMemory::AgentMemory(char* mapping, std::size_t bytes, std::size_t host_count)
    : mapping_(mapping),
      bytes_(bytes),
      areas_(mapping + Align(sizeof(Header)) + Align(WriteLedger::BytesFor(host_count))),
      area_bytes_(AreaBytes(host_count)),
      ledger_(mapping + Align(sizeof(Header)), host_count) {}

AgentMemory::AgentMemory(AgentMemory&& other) noexcept { *this = std::move(other); }

AgentMemory& AgentMemory::operator=(AgentMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(bytes_, other.bytes_);
  std::swap(areas_, other.areas_);
  std::swap(area_bytes_, other.area_bytes_);
  std::swap(ledger_, other.ledger_);
  return *this;
}

AgentMemory::~AgentMemory() {
  if (mapping_ != nullptr) ::munmap(mapping_, bytes_);
}

// A process that is killed in between leaves the previous state.
void AgentMemory::Keep(const std::optional<v1::JobState>& state) {
  const std::size_t size = state.has_value() ? state->ByteSizeLong() : 0;
  if (!state.has_value() || size > area_bytes_) {
    header()->current = 0;
    return;
  }
  const int next = header()->current == 1 ? 2 : 1;
  state->SerializeToArray(area(next), static_cast<int>(size));
  header()->sizes[static_cast<std::size_t>(next - 1)] = size;
  header()->current = next;
}

std::optional<v1::JobState> AgentMemory::Read() const {
  const int current = header()->current;
  v1::JobState state;
  if (current == 0 ||
      !state.ParseFromArray(
          area(current), static_cast<int>(header()->sizes[static_cast<std::size_t>(current - 1)])))
    return std::nullopt;
  return state;
}

void AgentMemory::OnStop(int signal) {
  const int place = header()->stop_count++;
  if (place < static_cast<int>(header()->stops.size())) {
    header()->stops[static_cast<std::size_t>(place)] = signal;
  }
}

std::vector<int> AgentMemory::stop_signals() const {
  std::vector<int> signals;
  for (const int signal : header()->stops) {
    if (signal != 0) signals.push_back(signal);
  }
  return signals;
}

}  // namespace ds::cli
