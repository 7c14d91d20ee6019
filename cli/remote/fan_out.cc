#include "cli/remote/fan_out.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/unique_fd.h"

namespace ds::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kNamesShown = 3;
// Attempts that have reached a limit end by themselves within this time, unless they are blocked.
constexpr std::chrono::seconds kPatience{1};

struct Finished {
  int index;
  HostResult<FanOut::Accept> result;
};

// The threads share this object. Each try needs a thread, because libssh 0.10 blocks even in its
// non-blocking mode: when it asks an agent (ssh_userauth_publickey_auto), and when it reads a home
// directory that may hang (ssh_pki_import_privkey_file). getaddrinfo blocks, too. A blocked thread
// cannot be ended, so each thread holds a reference.
struct State {
  int count;
  FanOutOptions options;
  std::shared_ptr<Interrupter> interrupter;
  FanOut::Attempt attempt;
  UniqueFd changed{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  // readable after a change
  std::mutex mutex{};
  // Guarded by mutex, as are the members below.
  int next = 0;
  std::map<int, std::shared_ptr<HostAttempt>> running{};  // without those that were given up
  std::vector<Finished> finished{};                       // not yet accepted
};

// An exception, for example because this machine cannot start another thread, is the failure of
// this one host.
HostResult<FanOut::Accept> AttemptOnce(const State& state, int index, HostAttempt* attempt) {
  try {
    return state.attempt(index, attempt);
  } catch (const std::system_error& error) {
    return HostFailure{.kind = FailureKind::kStart,
                       .message = "this machine cannot start it: " + std::string(error.what())};
  }
}

HostResult<FanOut::Accept> Try(const State& state, int index, HostAttempt* attempt) {
  std::mt19937 random(std::random_device{}());
  std::uniform_real_distribution<double> between(0.0, 1.0);
  const HostAttempt::Deadline deadline = attempt->deadline();
  std::optional<HostFailure> earlier;
  for (int tried = 1;; ++tried) {
    HostResult<FanOut::Accept> result = AttemptOnce(state, index, attempt);
    if (result.ok() || !result.failure().transient) return result;
    // The earlier failure says more than a timeout, because the host answered then.
    if (result.failure().kind == FailureKind::kTimeout && earlier) result = *earlier;
    earlier = result.failure();
    // A server with too many logins hangs up (kHandshake). It is tried again until the deadline.
    if (tried >= state.options.tries && result.failure().kind != FailureKind::kHandshake) {
      return result;
    }
    const auto pause = PauseBefore(state.options, tried, between(random));
    if (SteadyClock::now() + pause >= deadline || !state.interrupter->Sleep(pause)) return result;
    attempt->SetDeadline(deadline);  // the last one may have got further, and more time
  }
}

void Work(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (state->next < state->count) {
    const int index = state->next++;
    const auto attempt = std::make_shared<HostAttempt>(state->interrupter,
                                                       SteadyClock::now() + state->options.timeout);
    state->running.emplace(index, attempt);
    ::eventfd_write(state->changed.get(), 1);
    lock.unlock();
    HostResult<FanOut::Accept> result = Try(*state, index, attempt.get());
    lock.lock();
    if (state->running.erase(index) == 0) return;  // it was given up
    state->finished.push_back({index, std::move(result)});
    ::eventfd_write(state->changed.get(), 1);
  }
}

// One call of FanOut::Run, on its thread.
class HostsRun {
 public:
  explicit HostsRun(std::shared_ptr<State> state)
      : state_(std::move(state)),
        outcomes_(state_->count),
        next_report_(SteadyClock::now() + state_->options.report_every) {}

  std::vector<HostOutcome> AwaitAll(const FanOut::Progress& progress);
  void StartThread() { std::thread(Work, state_).detach(); }

 private:
  void Wait();
  SteadyClock::time_point NextGivingUp();  // requires state_->mutex
  void TakeFinished();
  void GiveUpOverdue();
  void OnInterrupt();
  void ReplaceThread();
  void FailRest(const HostFailure& failure);  // requires state_->mutex
  FanOutProgress Describe();
  void Conclude(int index, HostOutcome outcome) {
    outcomes_[index] = std::move(outcome);
    ++done_;
  }
  SteadyClock::time_point GivingUp(const HostAttempt& attempt) const {
    return std::min(attempt.deadline(), interrupted_.value_or(attempt.deadline())) + kPatience;
  }

  const std::shared_ptr<State> state_;
  std::vector<HostOutcome> outcomes_;
  int done_ = 0;
  int ready_ = 0;
  SteadyClock::time_point next_report_;
  std::optional<SteadyClock::time_point> interrupted_;  // when this was noticed
};

std::vector<HostOutcome> HostsRun::AwaitAll(const FanOut::Progress& progress) {
  while (done_ < state_->count) {
    Wait();
    TakeFinished();
    GiveUpOverdue();
    if (done_ == state_->count || SteadyClock::now() < next_report_) continue;
    progress(Describe());
    next_report_ = SteadyClock::now() + state_->options.report_every;
  }
  return std::move(outcomes_);
}

SteadyClock::time_point HostsRun::NextGivingUp() {
  SteadyClock::time_point next = SteadyClock::time_point::max();
  for (const auto& [index, attempt] : state_->running) next = std::min(next, GivingUp(*attempt));
  return next;
}

void HostsRun::Wait() {
  SteadyClock::time_point until = next_report_;
  {
    const std::lock_guard lock(state_->mutex);
    until = std::min(until, NextGivingUp());
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now());
  pollfd watched[] = {{state_->changed.get(), POLLIN, 0},
                      {interrupted_.has_value() ? -1 : state_->interrupter->fd(), POLLIN, 0}};
  const auto millis = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
  if (::poll(watched, std::size(watched), millis) <= 0) return;
  eventfd_t ignored = 0;
  ::eventfd_read(state_->changed.get(), &ignored);
  if (watched[1].revents != 0) OnInterrupt();
}

// Hosts that are being tried end by themselves. Nobody begins with the others.
void HostsRun::OnInterrupt() {
  interrupted_ = SteadyClock::now();
  const std::lock_guard lock(state_->mutex);
  FailRest(InterruptedFailure());
}

void HostsRun::FailRest(const HostFailure& failure) {
  for (; state_->next < state_->count; ++state_->next) Conclude(state_->next, failure);
}

void HostsRun::TakeFinished() {
  std::vector<Finished> finished;
  {
    const std::lock_guard lock(state_->mutex);
    finished.swap(state_->finished);
  }
  for (const Finished& each : finished) {
    if (each.result.ok()) {
      (*each.result)();
      ++ready_;
    }
    Conclude(each.index, each.result.ok() ? HostOutcome() : each.result.failure());
  }
}

void HostsRun::GiveUpOverdue() {
  const SteadyClock::time_point now = SteadyClock::now();
  int given_up = 0;
  {
    const std::lock_guard lock(state_->mutex);
    for (auto each = state_->running.begin(); each != state_->running.end();) {
      const auto& [index, attempt] = *each;
      if (now < GivingUp(*attempt)) {
        ++each;
        continue;
      }
      Conclude(index, attempt->DescribeHang(interrupted_.has_value()));
      each = state_->running.erase(each);
      ++given_up;
    }
  }
  for (; given_up > 0; --given_up) ReplaceThread();
}

// The thread of the given-up attempt takes no other host.
void HostsRun::ReplaceThread() {
  try {
    StartThread();
  } catch (const std::system_error& error) {
    const std::lock_guard lock(state_->mutex);
    if (!state_->running.empty()) return;  // their threads go on with the other hosts
    FailRest({.kind = FailureKind::kStart,
              .message = "this machine cannot start it: " + std::string(error.what())});
  }
}

FanOutProgress HostsRun::Describe() {
  FanOutProgress now{.ready = ready_, .total = state_->count};
  const std::lock_guard lock(state_->mutex);
  for (const auto& [index, attempt] : state_->running) {
    if (now.waiting_for.size() < kNamesShown) now.waiting_for.push_back(index);
  }
  return now;
}

}  // namespace

std::chrono::milliseconds PauseBefore(const FanOutOptions& options, int next, double random) {
  const auto pause = std::min(options.first_pause * (1 << std::min(next - 1, 16)),
                              std::max(options.longest_pause, options.first_pause));
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(static_cast<double>(pause.count()) * (0.5 + random)));
}

std::vector<HostOutcome> FanOut::Run(int count, const FanOutOptions& options,
                                     const std::shared_ptr<Interrupter>& interrupter,
                                     const Attempt& attempt, const Progress& progress) {
  const std::shared_ptr<State> state(new State{count, options, interrupter, attempt});
  HostsRun run(state);
  for (int i = 0; i < std::min(count, options.at_once); ++i) {
    try {
      run.StartThread();
    } catch (const std::system_error&) {
      if (i == 0) throw;
      break;  // fewer hosts are tried at a time
    }
  }
  return run.AwaitAll(progress);
}

}  // namespace ds::cli
