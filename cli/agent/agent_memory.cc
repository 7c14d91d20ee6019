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
// A moment contains a verdict with its last lines, and the clock of each host.
constexpr std::size_t kVerdictBytes = std::size_t{4} << 20;
constexpr std::size_t kClockBytes = 64;
constexpr std::size_t kAlignment = 64;

std::size_t Align(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::size_t StateBytes(std::size_t host_count) { return kProgramBytes + host_count * kHostBytes; }

std::size_t MomentBytes(std::size_t host_count) { return kVerdictBytes + host_count * kClockBytes; }

}  // namespace

StatusOr<AgentMemory> AgentMemory::Make(std::size_t host_count) {
  const std::size_t bytes = Align(sizeof(Header)) + Align(WriteLedger::BytesFor(host_count)) +
                            2 * (Align(StateBytes(host_count)) + MomentBytes(host_count));
  void* const mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return ErrnoError(errno, "memory for the agent of the job");
  return AgentMemory(static_cast<char*>(mapping), bytes, host_count);
}

AgentMemory::AgentMemory(char* mapping, std::size_t bytes, std::size_t host_count)
    : mapping_(mapping),
      bytes_(bytes),
      states_{.first = mapping + Align(sizeof(Header)) + Align(WriteLedger::BytesFor(host_count)),
              .bytes = Align(StateBytes(host_count))},
      moments_{.first = states_.first + 2 * states_.bytes, .bytes = MomentBytes(host_count)},
      ledger_(mapping + Align(sizeof(Header)), host_count) {}

AgentMemory::AgentMemory(AgentMemory&& other) noexcept { *this = std::move(other); }

AgentMemory& AgentMemory::operator=(AgentMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(bytes_, other.bytes_);
  std::swap(states_, other.states_);
  std::swap(moments_, other.moments_);
  std::swap(ledger_, other.ledger_);
  return *this;
}

AgentMemory::~AgentMemory() {
  if (mapping_ != nullptr) ::munmap(mapping_, bytes_);
}

void AgentMemory::Store(const google::protobuf::MessageLite& message, Pair* pair,
                        const Areas& areas) {
  const std::size_t size = message.ByteSizeLong();
  if (size > areas.bytes) {
    pair->current = 0;
    return;
  }
  const int next = pair->current == 1 ? 2 : 1;
  const auto index = static_cast<std::size_t>(next - 1);
  message.SerializeToArray(areas.first + index * areas.bytes, static_cast<int>(size));
  pair->sizes[index] = size;
  pair->current = next;
}

bool AgentMemory::Load(const Pair& pair, const Areas& areas,
                       google::protobuf::MessageLite* message) {
  const int current = pair.current;
  if (current == 0) return false;
  const auto index = static_cast<std::size_t>(current - 1);
  return message->ParseFromArray(areas.first + index * areas.bytes,
                                 static_cast<int>(pair.sizes[index]));
}

void AgentMemory::Keep(const std::optional<v1::JobState>& state) {
  if (state.has_value()) return Store(*state, &header()->state, states_);
  header()->state.current = 0;
}

void AgentMemory::KeepMoment(const v1::JobMoment& moment) {
  Store(moment, &header()->moment, moments_);
}

std::optional<v1::JobState> AgentMemory::Read() const {
  v1::JobState state;
  if (!Load(header()->state, states_, &state)) return std::nullopt;
  v1::JobMoment moment;
  if (Load(header()->moment, moments_, &moment)) *state.mutable_moment() = std::move(moment);
  return state;
}

void AgentMemory::OnStop(int signal) {
  const int place = header()->stop_count++;
  if (place < static_cast<int>(header()->stops.size())) {
    header()->stops[static_cast<std::size_t>(place)] = signal;
  }
}

void AgentMemory::OnFrontStop(int signal) {
  OnStop(signal);
  ++header()->front_stop_count;
}

std::vector<int> AgentMemory::stop_signals() const {
  std::vector<int> signals;
  for (const int signal : header()->stops) {
    if (signal != 0) signals.push_back(signal);
  }
  return signals;
}

}  // namespace ds::cli
