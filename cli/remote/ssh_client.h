#pragma once

// SshClient: a host reached by OpenSSH's own client: certificates, Kerberos, hardware keys and the
// user's ~/.ssh/config are its business and nothing here knows of them.
//
// One `ssh` logs in, as the master of a control socket in a folder of its own, and each command is
// another `ssh` that goes through it. Where the configuration names a ControlPath on which a master
// of the user's is there already, it is used instead and stays. Nothing asks a question
// (BatchMode). What the hostfile says goes before the configuration; StrictHostKeyChecking no
// becomes accept-new, and ask yes; keys behind hostkey= are all that is accepted then.
//
// Threads: one at a time. Lifetimes: the interrupter's until its last call has returned; its end
// logs out.

#include <memory>
#include <string>
#include <vector>

#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"
#include "cli/remote/remote_target.h"
#include "cli/remote/ssh_process.h"
#include "cli/remote/ssh_words.h"
#include "runtime/process/private_folder.h"

namespace ds::cli {

class SshClient {
 public:
  using Limits = SshProcess::Limits;
  static HostResult<std::unique_ptr<SshClient>> Open(const RemoteTarget& target,
                                                     const Limits& limits);
  ~SshClient();
  SshClient(const SshClient&) = delete;
  SshClient& operator=(const SshClient&) = delete;

  // An ssh that goes through the master: with `options`, then the host, then `command` ("" = none).
  HostResult<std::unique_ptr<SshProcess>> Start(const std::vector<std::string>& options,
                                                const std::string& command, int socket = -1) const;
  // Why it ended, if not as it should.
  HostFailure Explain(const SshProcess& ssh, SshProcess::End end, const std::string& doing) const;

  const SshSettings& settings() const { return settings_; }
  // For the user; "" when there is nothing to say.
  const std::string& notice() const { return notice_; }
  // A folder of its own for sockets.
  const PrivateFolder& folder() const { return folder_; }
  // Readable when the master has ended; -1 when it is the user's.
  int end() const { return master_ == nullptr ? -1 : master_->end(); }

 private:
  explicit SshClient(const RemoteTarget& target);
  HostOutcome ReadSettings(const Limits& limits);
  HostOutcome Pin(const std::vector<std::string>& fingerprints);
  HostResult<bool> FindMaster(const Limits& limits);
  HostOutcome StartMaster(const Limits& limits);

  const std::string host_;
  std::vector<std::string> options_;  // of every ssh
  SshSettings settings_;
  PrivateFolder folder_;
  std::unique_ptr<SshProcess> master_;  // null: the user's
  std::string notice_;
};

}  // namespace ds::cli
