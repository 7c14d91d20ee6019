#include "tests/procs/network_daemon.h"

#include <poll.h>
#include <sys/syscall.h>

#include <csignal>
#include <future>
#include <utility>

#include "proto/message_line.h"
#include "proto/peer_name.h"
#include "tests/places.h"
#include "tests/support/daemon_calls.h"
#include "tests/support/program.h"

namespace ds::procs {

std::string ListenLine(const v1::Credentials& credentials, double lease_seconds,
                       bool lease_decides) {
  v1::ListenRequest request;
  *request.mutable_credentials() = credentials;
  request.set_lease_seconds(lease_seconds);
  request.set_lease_decides(lease_decides);
  return v1::EncodeLine(request);
}

ListenAnswer Listen(const NetworkDaemonOptions& options, const std::string& line) {
  std::vector<std::string> argv = options.wrapper;
  argv.insert(argv.end(),
              {std::string(DS_BIN_DIR) + "/dsrund", "--listen", options.address, "--job", kJob});
  static const ds::testing::TemporaryFolder home;
  const ds::testing::ProgramResult result = ds::testing::RunProgram(
      argv, {.environment = {"HOME=" + home.path().string()}, .input = line});
  ListenAnswer answer{.status = result.status};
  v1::ListenResponse response;
  if (!v1::DecodeLine(result.out.substr(0, result.out.find('\n')), &response)) {
    answer.error = "no ListenResponse: " + result.out + result.err;
    return answer;
  }
  answer.port = static_cast<int>(response.port());
  answer.pid = static_cast<pid_t>(response.pid());
  answer.version = response.daemon_version();
  answer.error = response.error();
  answer.log_path = response.log_path();
  return answer;
}

NetworkDaemon::NetworkDaemon(const NetworkDaemonOptions& options) : options_(options) {
  authority_ = std::make_unique<cli::JobAuthority>(cli::JobAuthority::Create(kJob).value());
  const auto credentials = authority_->IssueDaemon(options.host_index);
  answer_ = Listen(options,
                   ListenLine(credentials.value(), options.lease_seconds, options.lease_decides));
  EXPECT_EQ(answer_.error, "");
  EXPECT_GT(answer_.port, 0);
  if (!ok()) return;
  const auto open = [](pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); };
  pidfd_.Reset(open(answer_.pid));
  guardian_.Reset(open(ds::testing::ParentOf(answer_.pid)));
}

NetworkDaemon::~NetworkDaemon() {
  if (!ok() || !pidfd_.valid()) return;
  const auto send = [this](int signal) {
    ::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0);
  };
  send(SIGTERM);
  send(SIGCONT);
  if (!AwaitEnd()) send(SIGKILL);
  AwaitGuardian();  // it may write into the home
}

std::string NetworkDaemon::target() const {
  const bool v6 = options_.address.find(':') != std::string::npos;
  return (v6 ? "ipv6:[" + options_.address + "]:" : "ipv4:" + options_.address + ":") +
         std::to_string(port());
}

cli::TlsOptions NetworkDaemon::Tls() const {
  return {.credentials = authority_->IssueController().value(),
          .daemon_name = v1::DaemonPeerName(kJob, options_.host_index),
          .lease = std::chrono::milliseconds(static_cast<int>(options_.lease_seconds * 1000))};
}

std::unique_ptr<cli::DaemonClient> NetworkDaemon::Connect(const std::string& target) const {
  return std::make_unique<cli::DaemonClient>(kJob, target.empty() ? this->target() : target, Tls());
}

bool NetworkDaemon::AwaitEnd() const {
  // One with a short lease may have ended before its process could be opened.
  if (!pidfd_.valid()) return true;
  pollfd ended{pidfd_.get(), POLLIN, 0};
  return ::poll(&ended, 1, 60'000) == 1;
}

bool NetworkDaemon::AwaitGuardian() const {
  pollfd ended{guardian_.get(), POLLIN, 0};
  return guardian_.valid() && ::poll(&ended, 1, 60'000) == 1;
}

StatusOr<v1::PrepareResponse> Prepare(cli::DaemonClient& client) {
  v1::PrepareRequest request;
  request.set_job_id(kJob);
  return testing::Prepare(client, request);
}

Status Renew(cli::DaemonClient& client, bool release) {
  std::promise<Status> answer;
  client.Renew({.release = release, .timeout = std::chrono::seconds(30)},
               [&](const Status& status) { answer.set_value(status); });
  return answer.get_future().get();
}

v1::LaunchRequest RanksOf(int count, const std::vector<std::string>& arguments,
                          double grace_seconds) {
  v1::LaunchRequest request;
  request.set_job_id(kJob);
  request.set_generation(1);
  request.set_inherit_environment(true);
  request.set_grace_seconds(grace_seconds);
  for (int rank = 0; rank < count; ++rank) {
    v1::RankSpec* spec = request.add_ranks();
    spec->set_rank(static_cast<std::uint32_t>(rank));
    v1::EnvironmentVariable* variable = spec->add_environment();
    variable->set_name("RANK");
    variable->set_value(std::to_string(rank));
    spec->add_argv(TestRankPath());
    for (const std::string& argument : arguments) spec->add_argv(argument);
  }
  return request;
}

}  // namespace ds::procs
