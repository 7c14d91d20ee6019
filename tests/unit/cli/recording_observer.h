#pragma once

// The observer of a job, for tests of the controller.

#include <functional>
#include <string>
#include <vector>

#include "cli/job/job_observer.h"

namespace ds::cli::testing {

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
  void OnNotice(const std::string& text) override {
    notices.push_back(text);
    if (on_notice) on_notice(text);
  }

  std::vector<std::string> prepared;
  std::vector<std::string> notices;
  std::string output;
  std::function<void()> on_output;
  std::function<void(const std::string&)> on_notice;
  Status output_answer;
};

}  // namespace ds::cli::testing
