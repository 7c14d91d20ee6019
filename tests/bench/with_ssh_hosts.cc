// with_ssh_hosts N[xSLOTS] COMMAND...: runs COMMAND among N hosts made of namespaces
// (tests/support/ssh_hosts.h). $HOSTFILE names them, two slots each unless it says otherwise; HOME
// is that of a user they let in. With DSRUN_LINK_RATE (1gbit) their links are no faster, by the
// kernel; with DSRUN_LINK_BITS (1000000000) the first one's, by tests/support/slow_link.h. With
// DSRUN_TEST_LOOPBACK set they are sshd's on loopback ports. `with_ssh_hosts 4 bash` is a small
// cluster to try things on.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

#include "tests/support/ssh_hosts.h"

int main(int argc, char** argv) {
  char* slots_word = nullptr;
  const int count = argc < 3 ? 0 : static_cast<int>(std::strtol(argv[1], &slots_word, 10));
  const int slots = count > 0 && *slots_word == 'x' ? std::atoi(slots_word + 1) : 2;
  if (count < 1 || slots < 1) {
    std::cerr << "usage: with_ssh_hosts N[xSLOTS] COMMAND...\n";
    return 2;
  }
  ds::testing::SshHosts hosts(
      {.count = count, .namespaces = std::getenv("DSRUN_TEST_LOOPBACK") == nullptr});
  const char* rate = std::getenv("DSRUN_LINK_RATE");
  for (int i = 0; rate != nullptr && i < count; ++i) {
    if (hosts.LimitRate(i, rate)) continue;
    std::cerr << "with_ssh_hosts: no links of " << rate << ": has this kernel tbf?\n";
    return 2;
  }
  if (const char* bits = std::getenv("DSRUN_LINK_BITS")) {
    hosts.Slow(0, {.bytes_per_second = std::strtoull(bits, nullptr, 10) / 8});
  }
  const ds::testing::TemporaryFolder folder;
  const std::string hostfile = (folder.path() / "hostfile").string();
  std::ofstream text(hostfile);
  for (int i = 0; i < count; ++i) text << hosts.HostfileLine(i, slots) << "\n";
  text.close();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setenv("HOSTFILE", hostfile.c_str(), 1);
    ::setenv("HOME", hosts.client_home().c_str(), 1);
    ::unsetenv("SSH_AUTH_SOCK");
    ::execvp(argv[2], argv + 2);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
