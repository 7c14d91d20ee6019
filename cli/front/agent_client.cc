#include "cli/front/agent_client.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/agent/agent_address.h"
#include "cli/host/deadlines.h"

namespace ds::cli {

StatusOr<std::unique_ptr<AgentClient>> AgentClient::Connect(
    const std::filesystem::path& run_directory) {
  DS_ASSIGN_OR_RETURN(UniqueFd connection, ConnectToAgent(run_directory));
  auto client = std::make_unique<AgentClient>();
  client->link_.Open(std::move(connection));
  DS_ASSIGN_OR_RETURN(const v1::FromAgent hello, client->AwaitReply(v1::FromAgent::kHello));
  if (hello.hello().protocol() != v1::AGENT_PROTOCOL_CURRENT) {
    return FailedPreconditionError("the agent of the job is of another version of dsrun");
  }
  client->run_directory_ = run_directory;
  client->link_.SendHello();
  return client;
}

StatusOr<v1::FromAgent> AgentClient::AwaitReply(v1::FromAgent::WhatCase kind) {
  link_.SetReceiveTimeout(deadlines::kReply);
  for (;;) {
    std::optional<v1::FromAgent> message = link_.Receive();
    if (!message.has_value()) {
      return link_.timed_out() ? DeadlineExceededError("the agent of the job does not reply")
                               : UnavailableError("the agent of the job has gone");
    }
    if (message->what_case() == kind) return *std::move(message);
  }
}

StatusOr<nlohmann::ordered_json> AgentClient::AskStatus() {
  v1::FromFront message;
  message.mutable_status();
  link_.Send(message);
  DS_ASSIGN_OR_RETURN(const v1::FromAgent reply, AwaitReply(v1::FromAgent::kStatus));
  nlohmann::ordered_json json =
      nlohmann::ordered_json::parse(reply.status().json(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InternalError("the agent of the job sent a damaged status");
  return json;
}

Status AgentClient::Detach() {
  v1::FromFront message;
  message.mutable_detach();
  link_.Send(message);
  // Messages are handled in order: the reply shows that the request was.
  return AskStatus().status();
}

StatusOr<v1::JobEnded> AgentClient::AwaitEnd() {
  link_.SetReceiveTimeout({});
  for (;;) {
    while (std::optional<v1::FromAgent> message = link_.Receive()) {
      if (message->has_ended()) return std::move(*message->mutable_ended());
      if (!message->has_hello()) continue;
      for (std::size_t i = message->hello().stop_count(); i < signals_.size(); ++i) {
        link_.SendSignal(signals_[i]);
      }
    }
    StatusOr<UniqueFd> next = AwaitNextAgent(run_directory_);
    if (!next.ok()) return UnavailableError("the agent of the job has gone without an outcome");
    link_.Open(*std::move(next));
    link_.SendHello();
  }
}

}  // namespace ds::cli
