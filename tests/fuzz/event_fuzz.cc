// Feeds arbitrary batches of events to what the controller makes of a daemon's messages: the blame,
// the journal, the console, the cores a host has told of, the answer of a daemon that SSH has
// started. The first byte chooses.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/console/line_collapser.h"
#include "cli/console/progress.h"
#include "cli/job/run_directory.h"
#include "cli/job/verdict/failure_judge.h"
#include "cli/job/wire_requests.h"
#include "cli/remote/remote_daemon.h"
#include "runtime/base/check.h"

namespace {

namespace v1 = ::dsrun::v1;

void TryEvents(const std::string& bytes) {
  v1::EventBatch batch;
  if (!batch.ParseFromString(bytes)) return;
  const std::string host = "h";
  ds::cli::FailureJudge judge(0);
  ds::cli::Progress progress(10);
  ds::cli::LineCollapser collapser;
  std::chrono::seconds now{0};
  for (const v1::Event& event : batch.events()) {
    judge.OnEvent(host, event);
    progress.OnEvent(event, ++now);
    if (const auto json = ds::cli::ToJson({host, 0, event}); json.has_value()) {
      static_cast<void>(json->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
    if (!event.has_rank_output()) continue;
    collapser.Add({.text = event.rank_output().data(),
                   .rank = static_cast<int>(event.rank_output().rank()),
                   .host = host,
                   .unix_nanos = event.unix_nanos()});
    static_cast<void>(collapser.TakeRipe(event.unix_nanos()));
  }
  static_cast<void>(collapser.TakeAll());
  static_cast<void>(progress.Line());
  static_cast<void>(judge.Conclude());
}

void TryCores(const std::string& bytes) {
  v1::PrepareResponse response;
  if (!response.ParseFromString(bytes)) return;
  ds::cli::JobPlan job{.flags = {.bind_cores_to_rank = true},
                       .world = ds::cli::PlanWorld({{.host = "h", .slots = {0, 1, 2}}})};
  if (!BindHost(response, 0, &job).ok()) return;
  static_cast<void>(ds::cli::MakeLaunchRequest(job, {.argv = {"p"}}, {.core_count = 2}));
}

void TryListenResponse(const std::string& printed) {
  const ds::cli::HostResult<ds::cli::StartedDaemon> started = ds::cli::ParseListenResponse(printed);
  if (!started.ok()) return;
  DS_CHECK(started->port > 0 && started->port < 65536 && started->pid > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 0) TryEvents(bytes);
  if (data[0] % 3 == 1) TryCores(bytes);
  if (data[0] % 3 == 2) TryListenResponse(bytes);
  return 0;
}
