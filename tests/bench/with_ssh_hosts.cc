// with_ssh_hosts N COMMAND...: runs COMMAND among N hosts made of namespaces
// (tests/support/ssh_hosts.h). $HOSTFILE names them, two slots each; HOME is that of a user they
// let in. `with_ssh_hosts 4 bash` is a small cluster to try things on.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

#include "tests/support/ssh_hosts.h"

int main(int argc, char** argv) {
  if (argc < 3 || std::atoi(argv[1]) < 1) {
    std::cerr << "usage: with_ssh_hosts N COMMAND...\n";
    return 2;
  }
  const ds::testing::SshHosts hosts({.count = std::atoi(argv[1])});
  const ds::testing::TemporaryFolder folder;
  const std::string hostfile = (folder.path() / "hostfile").string();
  std::ofstream text(hostfile);
  for (int i = 0; i < std::atoi(argv[1]); ++i) text << hosts.HostfileLine(i, 2) << "\n";
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
