#pragma once

// SshHosts: several "hosts" on this machine, each with its own sshd.
//
// Where namespaces are permitted, a host is a set of them: its own processes, network, name, mounts
// (/root, /run, /tmp and /dev/shm are its own and empty but for this checkout where it lies there)
// and, on a bridge it shares with the others and with this process, its own address. Everything
// else of the file system is the machine's, so that built programs have the same path everywhere.
// Else the hosts are sshd processes on ports of the loopback address; why_not() says why, and the
// constructor prints it.
//
// While the object lives, this thread, and threads and processes it starts, are on the bridge too:
// what must not be there starts before. All namespaces are nameless and every host's first process
// dies with this one, so a crashed test leaves nothing but a folder, which the next one removes.
//
//     SshHosts hosts({.count = 2});
//     RunProgram({dsrun, "--hostfile", ...}, {.environment = hosts.Environment()});
//
// Errors of the set-up throw std::runtime_error. Threads: one at a time.

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/unique_fd.h"
#include "tests/support/program.h"
#include "tests/support/slow_link.h"

namespace ds::testing {

struct SshHostsOptions {
  int count = 2;
  bool namespaces = true;                // false: loopback ports even where namespaces work
  std::vector<std::string> sshd_config;  // lines in front of the usual ones
};

class SshHosts {
 public:
  explicit SshHosts(const SshHostsOptions& options = {});
  ~SshHosts();
  SshHosts(const SshHosts&) = delete;
  SshHosts& operator=(const SshHosts&) = delete;

  // Names what is not installed, as the reason for a skip; "" when hosts can be made.
  static std::string Missing();

  bool namespaces() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }

  // Host `index` is called "h0", "h1", ...; nobody resolves these names.
  std::string name(int index) const { return "h" + std::to_string(index); }
  std::string address(int index) const;
  int port(int index) const { return hosts_[index].port; }
  // This process's address on the bridge.
  std::string hub_address() const;
  // "h0 slots=2 address=10.77.0.2 port=22 workdir=/ KEYS".
  std::string HostfileLine(int index, int slots, const std::string& keys = "") const;
  std::string KnownHostsLine(int index) const;
  // The private key every host lets in.
  std::filesystem::path identity() const { return folder_ / "client" / ".ssh" / "id_ed25519"; }
  // The HOME of the user who calls: .ssh with the identity and nothing else.
  std::filesystem::path client_home() const { return folder_ / "client"; }
  // For the calling program: HOME, no agent, and an `ssh` that reads the configuration in HOME,
  // then accepts hosts that are new.
  std::vector<std::string> Environment() const;
  // The home of the user on the host, as seen on the host.
  std::string home(int index) const;

  // The words that run `argv` on the host, outside of SSH; its first process is an ancestor of
  // none.
  std::vector<std::string> Inside(int index, const std::vector<std::string>& argv) const;
  ProgramResult Run(int index, const std::vector<std::string>& argv) const;
  // The command lines of the host's processes but for its sshd (with namespaces only).
  std::vector<std::string> Processes(int index) const;

  // The rest is for namespaces only.
  void CutLink(int index);      // the cable is pulled
  void RestoreLink(int index);  // and put in again
  // The host hears but its answers get lost, until the host is made to speak again.
  void Silence(int index);
  void Speak(int index);
  // All packets to and from the host get lost from now on, and no link is down.
  void Isolate(int index);
  // Two hosts do not hear each other; this process hears both, and they hear it.
  void Separate(int one, int other);
  // Packets to and from the host pass a link that is so slow, from now on.
  void Slow(int index, const LinkSpeed& speed);
  // All hosts get a second interface, eth1, on a network that this process is not in.
  void AddNetwork();
  void CutSecondLink(int index);  // of that network
  // The same by the kernel's token bucket ("1gbit"), which costs no copy in this process. False
  // where it has none (tbf).
  bool LimitRate(int index, const std::string& rate);
  // Every process of the host is killed at once and its link goes down, as if by a power cut.
  void PowerOff(int index);

 private:
  struct Host {
    int port = 22;
    pid_t init = -1;                   // its first process, as this machine numbers it
    std::unique_ptr<Program> program;  // unshare, or sshd itself
  };

  void MakeKeys(const std::vector<std::string>& config);
  void MakeClient();
  bool EnterBridge();
  void StartHost(int index);
  // The host gets an interface of that name, at the end of a cable from the bridge.
  void Plug(int index, const std::string& bridge, const std::string& interface,
            const std::string& address);
  void StartLoopbackHost(int index);
  void AwaitListening(int index);
  std::filesystem::path folder(int index) const { return folder_ / name(index); }

  std::filesystem::path folder_;
  std::string why_not_;
  UniqueFd own_network_;  // where this thread came from
  std::vector<Host> hosts_;
  std::map<int, SlowLink> slow_links_;  // by host
};

// A folder that every host sees, as if it lay on a file system that they share.
class SharedFolder {
 public:
  SharedFolder();
  ~SharedFolder();
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ds::testing
