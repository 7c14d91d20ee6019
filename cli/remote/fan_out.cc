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

// There are threads, for libssh 0.10 blocks in its non-blocking mode, too: where it asks an agent
// (ssh_userauth_publickey_auto) and where it reads from a home that may hang
// (ssh_pki_import_privkey_file, ssh_options_parse_config, ssh_session_is_known_server); so does
// getaddrinfo. They end with Run, and no loop waits for them (cli/job/job_controller.h).

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  int next = 0;           // guarded by mutex, as what follows
  int done = 0;           // hosts with an outcome
  int ready = 0;          // that is a good one
  std::set<int> running;  // being tried
};

// What a library throws, of a machine without room for another thread for one, is the host's.
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
    // A try that the deadline cut short knows less than the one before it, which was answered.
    if (outcome.failure().kind == FailureKind::kTimeout && earlier) outcome = *earlier;
    earlier = outcome.failure();
    // A server that is busy with others' logins says so by hanging up.
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
    if (workers.empty()) throw;  // else there are fewer at a time
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
