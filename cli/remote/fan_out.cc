#include "cli/remote/fan_out.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <system_error>
#include <thread>

namespace ds::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kNamesShown = 3;

// Each try needs a thread, because libssh 0.10 blocks even in its non-blocking mode: when it asks
// an agent (ssh_userauth_publickey_auto), and when it reads a home directory that may hang
// (ssh_pki_import_privkey_file, ssh_options_parse_config, ssh_session_is_known_server). getaddrinfo
// blocks, too. The threads end with Run, before the job's event loop (cli/job/job_controller.h).

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  int next = 0;           // guarded by mutex, as are the members below
  int done = 0;           // number of hosts with an outcome
  int ready = 0;          // number of hosts with a good outcome
  std::set<int> running;  // being tried
};

// An exception, for example because this machine cannot start another thread, is the failure of
// this one host.
HostOutcome AttemptOnce(const FanOut::Attempt& attempt, int index, Interrupter::Deadline deadline) {
  try {
    return attempt(index, deadline);
  } catch (const std::system_error& error) {
    return HostFailure{.kind = FailureKind::kStart,
                       .message = "this machine cannot start it: " + std::string(error.what())};
  }
}

HostOutcome Try(int index, const FanOutOptions& options, Interrupter* interrupter,
                const FanOut::Attempt& attempt) {
  std::mt19937 random(std::random_device{}());
  std::uniform_real_distribution<double> between(0.0, 1.0);
  const Interrupter::Deadline deadline = SteadyClock::now() + options.timeout;
  std::optional<HostFailure> earlier;
  for (int tried = 1;; ++tried) {
    HostOutcome outcome = AttemptOnce(attempt, index, deadline);
    if (outcome.ok() || !outcome.failure().transient) return outcome;
    // The earlier failure says more than a timeout, because the host answered then.
    if (outcome.failure().kind == FailureKind::kTimeout && earlier) outcome = *earlier;
    earlier = outcome.failure();
    // A server with too many logins hangs up (kHandshake). It is tried again until the deadline.
    if (tried >= options.tries && outcome.failure().kind != FailureKind::kHandshake) {
      return outcome;
    }
    const std::chrono::milliseconds pause = PauseBefore(options, tried, between(random));
    if (SteadyClock::now() + pause >= deadline || !interrupter->Sleep(pause)) return outcome;
  }
}

}  // namespace

std::chrono::milliseconds PauseBefore(const FanOutOptions& options, int next, double random) {
  const auto pause = std::min(options.first_pause * (1 << std::min(next - 1, 16)),
                              std::max(options.longest_pause, options.first_pause));
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(static_cast<double>(pause.count()) * (0.5 + random)));
}

std::vector<HostOutcome> FanOut::Run(int count, const FanOutOptions& options,
                                     Interrupter* interrupter, const Attempt& attempt,
                                     const Progress& progress) {
  std::vector<HostOutcome> outcomes(count);
  State state;
  const auto work = [&] {
    std::unique_lock lock(state.mutex);
    while (state.next < count) {
      const int index = state.next++;
      state.running.insert(index);
      lock.unlock();
      HostOutcome outcome = Try(index, options, interrupter, attempt);
      lock.lock();
      state.running.erase(index);
      state.ready += outcome.ok() ? 1 : 0;
      ++state.done;
      outcomes[index] = std::move(outcome);
      state.changed.notify_all();
    }
  };
  std::vector<std::jthread> workers;
  try {
    for (int i = 0; i < std::min(count, options.at_once); ++i) workers.emplace_back(work);
  } catch (const std::system_error&) {
    if (workers.empty()) throw;  // otherwise fewer hosts are tried at a time
  }
  std::unique_lock lock(state.mutex);
  const auto all_done = [&] { return state.done == count; };
  while (!state.changed.wait_for(lock, options.report_every, all_done)) {
    FanOutProgress now{.ready = state.ready, .total = count};
    for (const int index : state.running) {
      if (now.waiting_for.size() < kNamesShown) now.waiting_for.push_back(index);
    }
    lock.unlock();
    progress(now);
    lock.lock();
  }
  return outcomes;
}

}  // namespace ds::cli
