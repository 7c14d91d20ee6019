#pragma once

// A host's daemon, for tests of the controller.

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/host/host_daemon.h"
#include "tests/support/bounded_queue.h"
#include "tests/unit/cli/events.h"
#include "tests/unit/cli/recording_observer.h"

namespace ds::cli::testing {

// A daemon whose ranks do as they are told: each generation plays `script`, then waits for a Stop
// when it has none of its own end.
class FakeDaemon : public HostDaemon {
 public:
  explicit FakeDaemon(std::vector<std::vector<v1::Event>> scripts)
      : scripts_(std::move(scripts)), stops_(16) {}

  void Begin(const v1::PrepareRequest& request, AnswerCallback<v1::PrepareResponse> done) override {
    prepared = request;
    if (on_start) on_start();
    if (starts_cancelled) return done(CancelledError("not wanted any more"));
    done(prepare_answer);
  }
  void Begin(const v1::LaunchRequest& request, AnswerCallback<v1::LaunchResponse> done) override {
    launched.push_back(request);
    if (on_start) on_start();
    if (starts_cancelled) return done(CancelledError("not wanted any more"));
    done(launch_answer);
  }
  void Begin(const v1::StopRequest& request, AnswerCallback<v1::StopResponse> done) override {
    if (unanswered_stops-- > 0) return done(stop_failure);
    stops_.Put(request);
    done(v1::StopResponse());
  }
  void Begin(const v1::SignalRequest& request, AnswerCallback<v1::SignalResponse> done) override {
    signals.push_back(request.signal());
    done(v1::SignalResponse());
  }
  StatusOr<v1::InputResponse> Input(const v1::InputRequest&) override {
    return UnavailableError("no input here");
  }
  void Begin(const v1::ShareRequest& request, AnswerCallback<v1::ShareResponse> done) override {
    for (const v1::SharedValue& each : request.values()) shared.Put(each);
    done(v1::ShareResponse());
  }
  void Begin(const v1::InspectRequest&, AnswerCallback<v1::InspectResponse> done) override {
    done(v1::InspectResponse());
  }
  void BeginWatch(const WatchedGeneration& generation, WatchCallbacks callbacks) override {
    watched_again = generation.again;
    player_ = std::jthread([this, generation, callbacks = std::move(callbacks)] {
      callbacks.on_end(Play(generation.number, [&](const v1::Event& event) {
        // The next is read when this has been dealt with.
        const auto taken = std::make_shared<std::promise<void>>();
        auto* const batch = new v1::EventBatch;
        *batch->add_events() = event;
        callbacks.on_events(
            std::shared_ptr<const v1::EventBatch>(batch, [taken](const v1::EventBatch* done) {
              delete done;
              taken->set_value();
            }));
        taken->get_future().wait();
      }));
    });
  }

  void Abandon() override {
    abandoned = true;
    stops_.Put({});
  }

  void AwaitProcesses(const NoticeCallback& notice) override {
    if (on_await) on_await();
    if (notice) notice("waiting for a process");
  }
  void Renew(const RenewCall& call, DoneCallback done) override {
    if (call.release) released = true;
    done(OkStatus());
  }
  void CancelStarts() override { starts_cancelled = true; }
  bool leased() const override { return lease_from.has_value(); }
  std::chrono::nanoseconds LeaseFrom() const override { return *lease_from; }
  std::optional<HostClock::Offset> ClockOffset() const override { return clock; }

  std::atomic<bool> abandoned = false;
  std::atomic<bool> released = false;
  std::atomic<bool> starts_cancelled = false;
  std::function<void()> on_start;  // of a Prepare or a Launch, before its answer
  std::function<void()> on_await;  // of the end of its processes
  std::optional<std::chrono::nanoseconds> lease_from;
  std::optional<HostClock::Offset> clock;
  v1::PrepareResponse prepare_answer;
  StatusOr<v1::LaunchResponse> launch_answer = v1::LaunchResponse();
  v1::PrepareRequest prepared;
  std::vector<v1::LaunchRequest> launched;
  std::vector<double> graces;
  std::atomic<int> unanswered_stops = 0;
  Status stop_failure = UnavailableError("connection reset");  // of those
  std::vector<int> signals;
  bool watched_again = false;
  ds::testing::BoundedQueue<v1::SharedValue> shared{1000};
  std::string awaited_key;

 private:
  Status Play(int generation, const std::function<void(const v1::Event&)>& on_event) {
    const int first = static_cast<int>(launched.front().generation());
    while (!awaited_key.empty()) {  // its ranks do nothing before they know it
      const auto value = shared.Take(std::chrono::seconds(60));
      if (!value.has_value()) return DeadlineExceededError("nobody shared " + awaited_key);
      if (value->key() == awaited_key) break;
    }
    for (const v1::Event& event : scripts_.at(generation - first)) {
      if (event.has_heartbeat()) return UnavailableError("connection reset");
      on_event(event);
      if (event.has_generation_ended()) return OkStatus();
    }
    // The ranks run on until a stop; a grace above 1 s is one that they sit out.
    for (;;) {
      const auto stop = stops_.Take(std::chrono::seconds(60));
      if (!stop.has_value()) return DeadlineExceededError("nobody stopped the ranks");
      if (abandoned) return CancelledError("given up");
      graces.push_back(stop->grace_seconds());
      if (stop->grace_seconds() <= 1) break;
    }
    on_event(Exited(0, 0, SIGKILL, true));
    on_event(Ended());
    return OkStatus();
  }

  const std::vector<std::vector<v1::Event>> scripts_;
  ds::testing::BoundedQueue<v1::StopRequest> stops_;
  std::jthread player_;  // last: it uses the rest
};

// The stream breaks here.
inline v1::Event Cut() {
  v1::Event event;
  event.mutable_heartbeat();
  return event;
}

// Returns the daemons by their numbers, which are their places in the list.
template <typename Daemons>
std::map<int, HostDaemon*> ByNumber(const Daemons& daemons) {
  std::map<int, HostDaemon*> by_number;
  for (const auto& daemon : daemons)
    by_number.emplace(static_cast<int>(by_number.size()), &*daemon);
  return by_number;
}

}  // namespace ds::cli::testing
