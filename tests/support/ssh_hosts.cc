#include "tests/support/ssh_hosts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include "tests/places.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kSshd[] = "/usr/sbin/sshd";
constexpr char kFolderPrefix[] = "dsrun-hosts-";
constexpr int kStartMillis = 30'000;
constexpr char kSubnet[] = "10.77.0.";

// The first process of a host: its mounts, then "ready" for the link to be plugged in, then sshd.
// $1 is the host's folder, $2 its name; $3 and $4, the sources and what is built of them, stay in
// sight when they lie below a folder that becomes the host's own.
constexpr char kFirstProcess[] = R"(set -e
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd /run/host /run/sources /run/built
mount --bind "$1" /run/host
mount --bind "$3" /run/sources
mount --bind "$4" /run/built
mount -t tmpfs -o mode=700 tmpfs /root
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
show() { mkdir -p "$2"; mount --bind "$1" "$2"; mount -o remount,bind,ro "$2"; }
[ -d "$3" ] || show /run/sources "$3"
[ -d "$4" ] || show /run/built "$4"
umount /run/sources /run/built
hostname "$2"
ip link set lo up
cd /
echo ready
read -r _ </run/host/plugged
exec /usr/sbin/sshd -D -e -f /run/host/sshd_config)";

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

void Must(const std::vector<std::string>& argv) {
  const ProgramResult result = RunProgram(argv);
  if (result.status != 0) throw std::runtime_error(Join(argv) + ": " + result.err);
}

void Write(const fs::path& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path) << text;
  fs::permissions(path, static_cast<fs::perms>(mode));
}

std::string Read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Folders of tests that ended without their destructors.
void RemoveLeftFolders() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::temp_directory_path())) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kFolderPrefix)) continue;
    const pid_t pid = std::atoi(name.c_str() + std::strlen(kFolderPrefix));
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

fs::path MakeFolder() {
  RemoveLeftFolders();
  std::string pattern =
      (fs::temp_directory_path() / (kFolderPrefix + std::to_string(::getpid()) + "-XXXXXX"))
          .string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
  return pattern;
}

// A port of the loopback address that was free a moment ago.
int FreePort() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no free port");
  }
  return ntohs(address.sin_port);
}

// Ends with this process, in whatever way that ends.
std::vector<std::string> DyingWithUs(std::vector<std::string> argv) {
  argv.insert(argv.begin(), {"setpriv", "--pdeathsig", "KILL"});
  return argv;
}

pid_t OnlyChild(pid_t pid) {
  const std::string number = std::to_string(pid);
  return std::atoi(Read("/proc/" + number + "/task/" + number + "/children").c_str());
}

}  // namespace

std::string SshHosts::Missing() {
  if (::access(kSshd, X_OK) != 0) return "there is no /usr/sbin/sshd (Debian: openssh-server)";
  if (RunProgram({"sh", "-c", "command -v ssh-keygen && command -v setpriv"}).status != 0) {
    return "there is no ssh-keygen (Debian: openssh-client) or setpriv (util-linux)";
  }
  return "";
}

SshHosts::SshHosts(const SshHostsOptions& options) : folder_(MakeFolder()) {
  hosts_.resize(options.count);
  if (!options.namespaces) {
    why_not_ = "not wanted";
  } else if (!EnterBridge()) {
    std::cout << "hosts are sshd processes on loopback ports: " << why_not_ << "\n";
  }
  MakeKeys(options.sshd_config);
  for (int i = 0; i < options.count; ++i) namespaces() ? StartHost(i) : StartLoopbackHost(i);
  for (int i = 0; i < options.count; ++i) AwaitListening(i);
}

SshHosts::~SshHosts() {
  for (Host& host : hosts_) host.program.reset();
  if (own_network_.valid()) ::setns(own_network_.get(), CLONE_NEWNET);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

bool SshHosts::EnterBridge() {
  own_network_.Reset(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (::unshare(CLONE_NEWNET) != 0) {
    why_not_ = std::string("no namespaces here: ") + std::strerror(errno);
    own_network_.Reset();
    return false;
  }
  const std::string commands = std::string("ip link set lo up && ip link add hub type bridge && ") +
                               "ip addr add " + hub_address() + "/24 dev hub && ip link set hub up";
  const ProgramResult result = RunProgram({"sh", "-c", commands});
  if (result.status == 0) return true;
  why_not_ = "no bridge here: " + result.err;
  ::setns(own_network_.get(), CLONE_NEWNET);
  own_network_.Reset();
  return false;
}

void SshHosts::MakeKeys(const std::vector<std::string>& config) {
  fs::create_directories(client_home() / ".ssh");
  Must({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", identity().string()});
  MakeClient();
  for (int i = 0; i < static_cast<int>(hosts_.size()); ++i) {
    const fs::path folder = this->folder(i);
    fs::create_directories(folder / "home");
    Must({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", (folder / "host_key").string()});
    fs::copy_file(identity().string() + ".pub", folder / "authorized_keys");
    ::mkfifo((folder / "plugged").c_str(), 0600);
    ::mkfifo((folder / "listening").c_str(), 0600);
    hosts_[i].port = namespaces() ? 22 : FreePort();
    const std::string seen = namespaces() ? "/run/host" : folder.string();
    std::string text;
    for (const std::string& line : config) text += line + "\n";
    text += "ListenAddress " + address(i) + "\nPort " + std::to_string(port(i)) + "\nHostKey " +
            seen + "/host_key\nAuthorizedKeysFile " + seen + "/authorized_keys\nPidFile " + seen +
            "/listening\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nLogLevel ERROR\n" +
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n" +
            "Subsystem sftp /usr/lib/openssh/sftp-server\n";
    if (!namespaces()) text += "SetEnv HOME=" + home(i) + "\n";
    Write(folder / "sshd_config", text);
  }
}

// OpenSSH's client takes the home from the user database, so it is told where the caller's is.
void SshHosts::MakeClient() {
  const std::string ssh = (client_home() / ".ssh").string();
  fs::create_directories(client_home() / "bin");
  Write(client_home() / "bin" / "ssh",
        "#!/bin/sh\nexec /usr/bin/ssh -F " + ssh + "/client_config \"$@\"\n", 0755);
  Write(ssh + "/client_config", "Include " + ssh + "/config\nHost *\nIdentityFile " +
                                    identity().string() + "\nUserKnownHostsFile " + ssh +
                                    "/known_hosts\nGlobalKnownHostsFile none\n" +
                                    "StrictHostKeyChecking accept-new\n");
}

void SshHosts::StartHost(int index) {
  Host& host = hosts_[index];
  host.program = std::make_unique<Program>(
      DyingWithUs({"unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork",
                   "--kill-child=SIGKILL", "--mount-proc", "/bin/sh", "-c", kFirstProcess, "sh",
                   folder(index).string(), name(index), DS_SOURCE_DIR, DS_BUILD_DIR}),
      ProgramOptions{.time_limit = std::chrono::seconds(1800)});
  if (!host.program->WaitForOutput("ready\n")) {
    throw std::runtime_error(name(index) + " did not start: " + host.program->err());
  }
  host.init = OnlyChild(host.program->pid());
  Plug(index, "hub", "eth0", address(index));
  std::ofstream(folder(index) / "plugged") << "\n";
}

void SshHosts::Plug(int index, const std::string& bridge, const std::string& interface,
                    const std::string& address) {
  const std::string pid = std::to_string(hosts_[index].init);
  const std::string plug = (bridge == "hub" ? "link" : bridge) + std::to_string(index);
  Must({"ip", "link", "add", plug, "type", "veth", "peer", "name", interface, "netns", pid});
  Must({"ip", "link", "set", plug, "master", bridge, "up"});
  Must({"nsenter", "-t", pid, "-n", "ip", "addr", "add", address + "/24", "dev", interface});
  Must({"nsenter", "-t", pid, "-n", "ip", "link", "set", interface, "up"});
}

void SshHosts::AddNetwork() {
  Must({"ip", "link", "add", "back", "up", "type", "bridge"});
  for (int index = 0; index < static_cast<int>(hosts_.size()); ++index) {
    Plug(index, "back", "eth1", "10.78.0." + std::to_string(index + 2));
  }
}

void SshHosts::CutSecondLink(int index) {
  Must({"ip", "link", "set", "back" + std::to_string(index), "down"});
}

void SshHosts::StartLoopbackHost(int index) {
  if (::geteuid() == 0) ::mkdir("/run/sshd", 0755);  // sshd insists on it
  hosts_[index].program = std::make_unique<Program>(
      DyingWithUs({kSshd, "-D", "-e", "-f", (folder(index) / "sshd_config").string()}),
      ProgramOptions{.time_limit = std::chrono::seconds(1800)});
}

void SshHosts::AwaitListening(int index) {
  // sshd writes its pid file once it listens. It is a fifo here, so that this can be waited for.
  const UniqueFd fifo(::open((folder(index) / "listening").c_str(), O_RDONLY | O_NONBLOCK));
  pollfd written{fifo.get(), POLLIN, 0};
  if (::poll(&written, 1, kStartMillis) != 1) {
    throw std::runtime_error(name(index) + ": sshd did not start");
  }
}

std::string SshHosts::address(int index) const {
  return namespaces() ? kSubnet + std::to_string(index + 2) : "127.0.0.1";
}

std::string SshHosts::hub_address() const {
  return namespaces() ? std::string(kSubnet) + "1" : "127.0.0.1";
}

std::string SshHosts::HostfileLine(int index, int slots, const std::string& keys) const {
  return name(index) + " slots=" + std::to_string(slots) + " address=" + address(index) +
         " port=" + std::to_string(port(index)) +
         (keys.find("workdir=") == std::string::npos ? " workdir=/" : "") +
         (keys.empty() ? "" : " " + keys);
}

std::string SshHosts::KnownHostsLine(int index) const {
  const std::string host = port(index) == 22
                               ? address(index)
                               : "[" + address(index) + "]:" + std::to_string(port(index));
  return host + " " + Read(folder(index) / "host_key.pub");
}

std::vector<std::string> SshHosts::Environment() const {
  const char* path = std::getenv("PATH");
  return {"HOME=" + client_home().string(), "SSH_AUTH_SOCK=",
          "PATH=" + (client_home() / "bin").string() + ":" + (path == nullptr ? "" : path)};
}

std::string SshHosts::home(int index) const {
  return namespaces() ? "/root" : (folder(index) / "home").string();
}

std::vector<std::string> SshHosts::Inside(int index, const std::vector<std::string>& argv) const {
  if (!namespaces()) return argv;
  std::vector<std::string> command = {"nsenter", "-a", "-t", std::to_string(hosts_[index].init)};
  command.insert(command.end(), argv.begin(), argv.end());
  return command;
}

ProgramResult SshHosts::Run(int index, const std::vector<std::string>& argv) const {
  return RunProgram(Inside(index, argv));
}

std::vector<std::string> SshHosts::Processes(int index) const {
  // Kernel threads are in no namespace of ours; a process that has just ended has no command line.
  constexpr char kList[] =
      "for p in /proc/[0-9]*; do n=${p#/proc/}; [ $n = 1 ] || [ $n = $$ ] || "
      "tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -v '^sshd: ' | grep -v '^tr ' | grep -v '^grep "
      "'; "
      "done; true";
  std::istringstream lines(Run(index, {"sh", "-c", kList}).out);
  std::vector<std::string> processes;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) processes.push_back(line);
  }
  return processes;
}

void SshHosts::CutLink(int index) {
  Must({"ip", "link", "set", "link" + std::to_string(index), "down"});
}

void SshHosts::RestoreLink(int index) {
  Must({"ip", "link", "set", "link" + std::to_string(index), "up"});
}

void SshHosts::Silence(int index) {
  Must(Inside(index, {"ip", "route", "add", "blackhole", hub_address() + "/32"}));
}

void SshHosts::Speak(int index) {
  Must(Inside(index, {"ip", "route", "del", "blackhole", hub_address() + "/32"}));
}

void SshHosts::Isolate(int index) {
  Must({"bridge", "link", "set", "dev", "link" + std::to_string(index), "state", "0"});
}

void SshHosts::Separate(int one, int other) {
  for (const int index : {one, other}) {
    Must({"bridge", "link", "set", "dev", "link" + std::to_string(index), "isolated", "on"});
  }
}

// The cable to the bridge gets a second piece, and SlowLink is the joint.
void SshHosts::Slow(int index, const LinkSpeed& speed) {
  if (const auto link = slow_links_.find(index); link != slow_links_.end()) {
    link->second.Set(speed);
    return;
  }
  const std::string plug = "link" + std::to_string(index);
  const std::string joint = "joint" + std::to_string(index);
  const std::string end = "end" + std::to_string(index);
  Must({"ip", "link", "set", plug, "nomaster"});
  Must({"ip", "link", "add", joint, "type", "veth", "peer", "name", end});
  Must({"ip", "link", "set", end, "master", "hub", "up"});
  Must({"ip", "link", "set", joint, "up"});
  slow_links_.try_emplace(index, plug, joint, speed);
}

bool SshHosts::LimitRate(int index, const std::string& rate) {
  const auto limit = [&](const std::string& interface) {
    return std::vector<std::string>{"tc",   "qdisc", "replace", "dev",   interface, "root", "tbf",
                                    "rate", rate,    "burst",   "512kb", "latency", "50ms"};
  };
  return RunProgram(limit("link" + std::to_string(index))).status == 0 &&
         Run(index, limit("eth0")).status == 0;
}

void SshHosts::PowerOff(int index) {
  CutLink(index);
  hosts_[index].program.reset();
}

SharedFolder::SharedFolder() {
  std::string pattern = "/var/tmp/dsrun-shared-XXXXXX";  // below no folder that a host has alone
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp in /var/tmp");
  path_ = pattern;
}

SharedFolder::~SharedFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace ds::testing
