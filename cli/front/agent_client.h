#pragma once

// AgentClient asks a running agent for the state of its job, and stops or detaches the job.
//
// Not thread-safe. The calls block until the agent replies; an agent that does not reply within 10
// s is reported as kDeadlineExceeded.

#include <chrono>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/front/agent_link.h"
#include "proto/agent.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

class AgentClient {
 public:
  // Connects to the agent of the run folder; errors as in ConnectToAgent.
  static StatusOr<std::unique_ptr<AgentClient>> Connect(const std::filesystem::path& run_directory);

  // Returns the state of the job (agent/job_status.h).
  StatusOr<nlohmann::ordered_json> AskStatus();
  Status Detach();
  void SendSignal(int signal) {
    signals_.push_back(signal);
    link_.SendSignal(signal);
  }
  // Blocks until the job has ended, without a limit. An agent that takes over gets the signals that
  // none has received. kUnavailable: the agent has gone.
  StatusOr<v1::JobEnded> AwaitEnd();

 private:
  // Blocks until a message of this kind, for at most 10 s.
  StatusOr<v1::FromAgent> AwaitReply(v1::FromAgent::WhatCase kind);

  std::filesystem::path run_directory_;
  std::vector<int> signals_;
  AgentLink link_;
};

}  // namespace ds::cli
