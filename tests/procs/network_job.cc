#include "tests/procs/network_job.h"

#include "proto/peer_name.h"

namespace ds::procs {

Status JobListener::OnEvent(const cli::HostEvent& event) {
  if (!event.event.has_rank_output()) return OkStatus();
  const v1::RankOutput& output = event.event.rank_output();
  text[output.rank()] += output.data();
  if (on_output) on_output();
  if (output.data() == "ready\n" && --expected == 0 && on_ready) on_ready();
  return OkStatus();
}

void JobListener::OnNotice(const std::string& notice) {
  notices.push_back(notice);
  if (on_notice) on_notice(notice);
}

void NetworkJob::StartDaemon(int number, const NetworkJobHost& host) {
  const auto lease = static_cast<double>(lease_.count());
  const ListenAnswer answer = Listen({.address = host.address, .wrapper = host.wrapper},
                                     ListenLine(authority_->IssueDaemon(number).value(), lease));
  ASSERT_GT(answer.port, 0) << answer.error;
  pids_.push_back(answer.pid);
  const cli::TlsOptions tls{.credentials = authority_->IssueController().value(),
                            .daemon_name = v1::DaemonPeerName(kJob, number),
                            .lease = lease_};
  const std::string target =
      host.way ? host.way(answer.port) : "ipv4:" + host.address + ":" + std::to_string(answer.port);
  daemons_.push_back(std::make_unique<cli::DaemonClient>(kJob, target, tls));
  keeper_->Add(number, daemons_.back().get());
}

StatusOr<cli::StartedReplacement> NetworkJob::Starter::StartReplacement(
    const cli::Replacement& replacement) {
  job_.StartDaemon(replacement.number, job_.spare_);
  return cli::StartedReplacement{.daemon = job_.daemons_.back().get(),
                                 .master_addr = job_.spare_.address};
}

void NetworkJob::StartJob(const std::vector<NetworkJobHost>& hosts,
                          const std::vector<std::string>& argv, std::chrono::seconds lease,
                          cli::RankInput* input) {
  lease_ = lease;
  keeper_ = std::make_unique<cli::LeaseKeeper>(lease);
  authority_ = std::make_unique<cli::JobAuthority>(cli::JobAuthority::Create(kJob).value());
  std::vector<cli::HostSlots> slots;
  for (const NetworkJobHost& host : hosts) {
    ASSERT_NO_FATAL_FAILURE(StartDaemon(static_cast<int>(slots.size()), host));
    slots.push_back({.host = host.name, .slots = {0}});
  }
  cli::JobPlan plan{.job_id = kJob,
                    .flags = {.share_machine = true,
                              .lease_seconds = static_cast<double>(lease.count()),
                              .max_restarts = spare_.name.empty() ? 0 : 1,
                              .grace_seconds = grace_seconds_},
                    .world = cli::PlanWorld(slots),
                    .master_addr = hosts[0].address};
  for (cli::JobHost& host : plan.world.hosts) {
    host.working_directory = "/";
    host.remote = true;
  }
  if (!spare_.name.empty()) {
    plan.spares.push_back(
        {.host = spare_.name, .slots = {0}, .remote = true, .working_directory = "/"});
  }
  program_.argv = argv;
  std::map<int, cli::HostDaemon*> daemons;
  for (const auto& daemon : daemons_) {
    daemons.emplace(static_cast<int>(daemons.size()), daemon.get());
  }
  controller_ = std::make_unique<cli::JobController>(
      plan, &program_, daemons, &listener_,
      cli::JobController::Options{
          .input = input, .spares = &starter_, .stop = &stop_, .leases = keeper_.get()});
  keeper_->Listen([this](const cli::HostChange& change) { controller_->OnHostChange(change); });
}

}  // namespace ds::procs
