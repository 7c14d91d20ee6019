#pragma once

// A host's daemon and the observer of a job, for tests of the controller.

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/host/host_daemon.h"
#include "cli/job/bounded_queue.h"
#include "cli/job/job_observer.h"
#include "tests/unit/cli/events.h"

namespace ds::cli::testing {

// A daemon whose ranks do as they are told: each generation plays `script`, then waits for a Stop
// when it has none of its own end.
class FakeDaemon : public HostDaemon {
 public:
  explicit FakeDaemon(std::vector<std::vector<v1::Event>> scripts)
      : scripts_(std::move(scripts)), stops_(16) {}

  StatusOr<v1::PrepareResponse> Prepare(const v1::PrepareRequest& request) override {
    prepared = request;
    if (on_start) on_start();
    if (starts_cancelled) return CancelledError("not wanted any more");
    return prepare_answer;
  }
  std::future<StatusOr<v1::LaunchResponse>> BeginLaunch(const v1::LaunchRequest& request) override {
    launched.push_back(request);
    std::promise<StatusOr<v1::LaunchResponse>> answer;
    if (on_start) on_start();
    if (starts_cancelled) {
      answer.set_value(CancelledError("not wanted any more"));
    } else if (launch_answer.ok()) {
      answer.set_value(v1::LaunchResponse());
    } else {
      answer.set_value(launch_answer);
    }
    return answer.get_future();
  }
  StatusOr<v1::StopResponse> Stop(const v1::StopRequest& request) override {
    if (unanswered_stops-- > 0) return UnavailableError("connection reset");
    stops_.Put(request);
    return v1::StopResponse();
  }
  StatusOr<v1::SignalResponse> Signal(const v1::SignalRequest& request) override {
    signals.push_back(request.signal());
    return v1::SignalResponse();
  }
  StatusOr<v1::InputResponse> Input(const v1::InputRequest&) override {
    return UnavailableError("no input here");
  }
  StatusOr<v1::ShareResponse> Share(const v1::ShareRequest& request) override {
    for (const v1::SharedValue& each : request.values()) shared.Put(each);
    return v1::ShareResponse();
  }
  Status Watch(int generation, const EventCallback& on_event) override {
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

  void Abandon() override {
    abandoned = true;
    stops_.Put({});
  }

  void CancelStarts() override { starts_cancelled = true; }
  bool leased() const override { return lease_from.has_value(); }
  std::chrono::nanoseconds LeaseFrom() const override { return *lease_from; }

  std::atomic<bool> abandoned = false;
  std::atomic<bool> starts_cancelled = false;
  std::function<void()> on_start;  // of a Prepare or a Launch, before its answer
  std::optional<std::chrono::nanoseconds> lease_from;
  v1::PrepareResponse prepare_answer;
  Status launch_answer;
  v1::PrepareRequest prepared;
  std::vector<v1::LaunchRequest> launched;
  std::vector<double> graces;
  std::atomic<int> unanswered_stops = 0;
  std::vector<int> signals;
  BoundedQueue<v1::SharedValue> shared{1000};
  std::string awaited_key;

 private:
  const std::vector<std::vector<v1::Event>> scripts_;
  BoundedQueue<v1::StopRequest> stops_;
};

// The stream breaks here.
inline v1::Event Cut() {
  v1::Event event;
  event.mutable_heartbeat();
  return event;
}

class RecordingObserver : public JobObserver {
 public:
  void OnPrepared(const std::string& host, const v1::PrepareResponse&) override {
    prepared.push_back(host);
  }
  Status OnEvent(const HostEvent& event) override {
    if (event.event.has_rank_output()) {
      output += event.event.rank_output().data();
      if (on_output) on_output();
      return output_answer;
    }
    return OkStatus();
  }
  void OnNotice(const std::string& text) override { notices.push_back(text); }
  void OnQuiet() override {}

  std::vector<std::string> prepared;
  std::vector<std::string> notices;
  std::string output;
  std::function<void()> on_output;
  Status output_answer;
};

}  // namespace ds::cli::testing
