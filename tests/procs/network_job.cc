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

void NetworkJob::StartJob(const std::vector<NetworkJobHost>& hosts,
                          const std::vector<std::string>& argv, std::chrono::seconds lease,
                          cli::InputForwarder* input) {
  keeper_ = std::make_unique<cli::LeaseKeeper>(lease);
  const auto authority = cli::JobAuthority::Create(kJob);
  std::vector<cli::HostSlots> slots;
  for (const NetworkJobHost& host : hosts) {
    const int node = static_cast<int>(slots.size());
    const ListenAnswer answer = Listen(
        {.address = host.address, .wrapper = host.wrapper},
        ListenLine(authority->IssueDaemon(node).value(), static_cast<double>(lease.count())));
    ASSERT_GT(answer.port, 0) << answer.error;
    pids_.push_back(answer.pid);
    const cli::TlsOptions tls{.credentials = authority->IssueController().value(),
                              .daemon_name = v1::DaemonPeerName(kJob, node),
                              .lease = lease};
    const std::string target = host.way
                                   ? host.way(answer.port)
                                   : "ipv4:" + host.address + ":" + std::to_string(answer.port);
    daemons_.push_back(std::make_unique<cli::DaemonClient>(kJob, target, tls));
    keeper_->Add(node, daemons_.back().get());
    slots.push_back({.host = host.name, .slots = {0}});
  }
  cli::JobPlan plan{.job_id = kJob,
                    .flags = {.grace_seconds = 10},
                    .world = cli::PlanWorld(slots),
                    .master_addr = hosts[0].address};
  for (cli::JobHost& host : plan.world.hosts) host.working_directory = "/";
  program_.argv = argv;
  std::vector<cli::HostDaemon*> daemons;
  for (const auto& daemon : daemons_) daemons.push_back(daemon.get());
  controller_ = std::make_unique<cli::JobController>(
      plan, &program_, daemons, &listener_,
      cli::JobController::Options{.input = input, .stop = &stop_});
  keeper_->Listen([this](const cli::HostChange& change) { controller_->OnHostChange(change); });
}

}  // namespace ds::procs
