#include "runtime/python/process.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/rank_link.h"
#include "runtime/comm/join_job.h"
#include "runtime/python/python_errors.h"

namespace ds::python {

std::unique_ptr<Process>& Process::Instance() {
  static std::unique_ptr<Process> instance;
  return instance;
}

void Process::Join(device::DeviceChoice choice) {
  if (Instance() == nullptr) Instance().reset(new Process(choice));
}

Process& Process::Get() {
  DS_CHECK_MSG(IsJoined(), "the process has not joined a job");
  return *Instance();
}

bool Process::IsJoined() { return Instance() != nullptr; }

void Process::Leave() {
  if (Instance() == nullptr) return;
  Instance()->reporter_->ReportEnd(nlohmann::ordered_json::object());
  Instance().reset();
}

void Process::ReportFailure(const std::string& text, bool is_consequence) {
  if (Instance() == nullptr || Instance()->reporter_->link() == nullptr) return;
  Instance()->reporter_->ReportError(
      {.status = is_consequence ? UnavailableError(text) : InternalError(text),
       .absence = Instance()->world_->absence()});
}

bool Process::IsReporter(const void* engine) {
  if (reporting_ == nullptr) reporting_ = engine;
  return reporting_ == engine;
}

void Process::StopReporting(const void* engine) {
  if (reporting_ == engine) reporting_ = nullptr;
}

Process::Process(device::DeviceChoice choice) {
  identity_ = ValueOrThrow(comm::RankIdentityFromEnvironment());
  std::unique_ptr<RankLink> link = ValueOrThrow(RankLink::FromEnvironment());
  reporter_ = std::make_unique<rank::RankReporter>(std::move(link), identity_.rank);
  reporter_->ReportHello();
  reporter_->ReportPhase("connect the ranks");
  device_ = ValueOrThrow(device::OpenRankDevice(choice, identity_.local_rank));
  world_ = ValueOrThrow(comm::JoinJob(identity_, device_, reporter_->link(), /*encrypt=*/false));
  reporter_->ReportPhase("run the script");
}

}  // namespace ds::python
