// A controller for the tests of its own death: starts a daemon and four ranks, prints their pids in
// one line once they are all up, and lives until it is killed.
//
//     test_controller DSRUND TEST_RANK

#include <cstdio>
#include <string>

#include "cli/host/local_daemon.h"
#include "tests/support/daemon_calls.h"

namespace ds {
namespace {

namespace v1 = ::dsrun::v1;

constexpr int kRanks = 4;

Status Control(const char* dsrund, const char* rank_program) {
  const std::string job_id = "job";
  DS_ASSIGN_OR_RETURN(const auto daemon,
                      cli::LocalDaemon::Start({.job_id = job_id, .dsrund = dsrund}));
  v1::LaunchRequest request;
  request.set_job_id(job_id);
  request.set_generation(1);
  request.set_grace_seconds(60);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    v1::RankSpec* spec = request.add_ranks();
    spec->set_rank(rank);
    spec->add_argv(rank_program);
    spec->add_argv("wait");
  }
  DS_ASSIGN_OR_RETURN(const v1::LaunchResponse launched, testing::Launch(*daemon, request));
  int ready = 0;
  return testing::Watch(*daemon, {job_id, 1, 0}, [&](const v1::Event& event) {
    if (!event.has_rank_output() || ++ready < kRanks) return;
    std::string line;
    for (const auto pid : launched.pids()) line += std::to_string(pid) + " ";
    std::puts(line.c_str());
    std::fflush(stdout);
  });
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const ds::Status status = ds::Control(argv[1], argv[2]);
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}
