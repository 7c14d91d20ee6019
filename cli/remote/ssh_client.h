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

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"
#include "cli/remote/remote_connection.h"
#include "cli/remote/remote_target.h"
#include "cli/remote/ssh_words.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/private_folder.h"

namespace ds::cli {

// A running `ssh` of this machine's OpenSSH, with what it is told on its standard input and what it
// says on its two outputs. It has a session of its own (Ctrl-C is dsrun's to handle, and no
// terminal is there to ask a question on).
class SshProcess {
 public:
  // Runs the ssh that PATH names; without one it ends with status 127. `socket` (-1 = pipes of our
  // own) becomes its standard input and output.
  static StatusOr<std::unique_ptr<SshProcess>> Start(const std::vector<std::string>& arguments,
                                                     int socket = -1);
  // Ends it, with a proxy command that it has started.
  ~SshProcess();
  SshProcess(const SshProcess&) = delete;
  SshProcess& operator=(const SshProcess&) = delete;

  struct Limits {
    Interrupter::Deadline deadline;
    Interrupter* interrupter;
  };
  enum class End { kEnough, kExited, kTimeout, kInterrupted };
  // Sends `input`, then its end unless `stay_open`, and gathers what is said until `enough` (called
  // after each piece; may be empty), the process' end, or a limit.
  struct Talk {
    std::string_view input;
    bool stay_open = false;
    std::function<bool()> enough;
  };
  End Converse(const Talk& talk, const Limits& limits);

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }
  // After kExited: its exit status; -1 when a signal has ended it.
  int status() const { return status_; }
  // Readable from its end on.
  int end() const { return end_.get(); }

 private:
  SshProcess() = default;
  void Write(std::string_view* input);
  void Reap();

  int pid_ = -1;
  UniqueFd in_, out_pipe_, err_pipe_;
  UniqueFd end_;
  std::string out_, err_;
  int status_ = -1;
};

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
  // Says why it ended, if not as it should.
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

// SshClientConnection: a RemoteConnection by OpenSSH's own client (--launcher ssh-client).
class SshClientConnection : public RemoteConnection {
 public:
  // Logs in.
  static HostResult<std::unique_ptr<RemoteConnection>> Open(const RemoteTarget& target,
                                                            Interrupter* interrupter,
                                                            Interrupter::Deadline deadline);

  void SetDeadline(Interrupter::Deadline deadline) override { limits_.deadline = deadline; }
  HostResult<CommandResult> Run(const RemoteCommand& command) override;
  HostResult<std::unique_ptr<RemoteTunnel>> OpenTunnel(const HostPort& daemon) override;
  std::string peer_address() const override;
  std::string notice() const override { return notice_; }

 private:
  SshClientConnection(std::unique_ptr<SshClient> client, SshClient::Limits limits)
      : client_(std::move(client)), notice_(client_->notice()), limits_(limits) {}

  std::unique_ptr<SshClient> client_;  // the tunnel's once there is one
  const std::string notice_;
  SshClient::Limits limits_;
};

}  // namespace ds::cli
