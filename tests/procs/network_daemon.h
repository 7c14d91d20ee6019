#pragma once

// NetworkDaemon: a real `dsrund --listen`, for tests, with what is needed to call it.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cli/host/daemon_client.h"
#include "cli/remote/job_authority.h"
#include "runtime/base/unique_fd.h"
#include "tests/procs/daemon_job.h"

namespace ds::procs {

struct NetworkDaemonOptions {
  std::string address = "127.0.0.1";
  double lease_seconds = 30;
  bool lease_decides = false;
  int host_index = 0;
  std::vector<std::string> wrapper;  // in front of dsrund: another network namespace
};

// Makes the line that dsrund reads.
std::string ListenLine(const v1::Credentials& credentials, double lease_seconds,
                       bool lease_decides = false);
// The answer's line, parsed; whatever `line` is goes to standard input. The daemon's home is a
// folder of this process.
struct ListenAnswer {
  int status = -1;
  int port = 0;
  pid_t pid = 0;
  std::string version;
  std::string error;
  std::string log_path;
};
ListenAnswer Listen(const NetworkDaemonOptions& options, const std::string& line);

class NetworkDaemon {
 public:
  // Fails the test when it does not start; ok() tells.
  explicit NetworkDaemon(const NetworkDaemonOptions& options = {});
  // Ends the daemon when it is still there.
  ~NetworkDaemon();
  NetworkDaemon(const NetworkDaemon&) = delete;
  NetworkDaemon& operator=(const NetworkDaemon&) = delete;

  bool ok() const { return answer_.port > 0; }
  int port() const { return answer_.port; }
  pid_t pid() const { return answer_.pid; }
  const std::string& log_path() const { return answer_.log_path; }
  std::string target() const;
  const cli::JobAuthority& authority() const { return *authority_; }

  // The client that the controller uses; `target` for a way around, "" = straight.
  cli::TlsOptions Tls() const;
  std::unique_ptr<cli::DaemonClient> Connect(const std::string& target = "") const;

  // Waits for the end of the daemon's process; false after a minute.
  bool AwaitEnd() const;
  // ... of its guardian's, which comes later.
  bool AwaitGuardian() const;

 private:
  const NetworkDaemonOptions options_;
  std::unique_ptr<cli::JobAuthority> authority_;
  ListenAnswer answer_;
  UniqueFd pidfd_, guardian_;
};

// These wait for the answer.
StatusOr<v1::PrepareResponse> Prepare(cli::DaemonClient& client);
Status Renew(cli::DaemonClient& client, bool release = false);

// A launch of `count` ranks that run `test_rank arguments...`.
v1::LaunchRequest RanksOf(int count, const std::vector<std::string>& arguments,
                          double grace_seconds = 0);

}  // namespace ds::procs
