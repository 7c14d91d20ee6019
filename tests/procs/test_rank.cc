// A rank for the tests of the daemon: does one thing, named by its first argument.

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/rank_link.h"
#include "runtime/base/unique_fd.h"
#include "tests/procs/flood.h"

namespace ds {
namespace {

using Arguments = std::vector<std::string>;

void Say(std::string_view text, int fd = STDOUT_FILENO) {
  if (!WriteAll(fd, text, "output").ok()) std::_Exit(99);
}

[[noreturn]] void WaitForSignal() {
  while (true) ::pause();
}

int Number(const Arguments& arguments, std::size_t index) {
  return index < arguments.size() ? std::atoi(arguments[index].c_str()) : 0;
}

// exit STATUS
int Exit(const Arguments& arguments) { return Number(arguments, 0); }

// raise SIGNAL
int Raise(const Arguments& arguments) {
  std::raise(Number(arguments, 0));
  return 98;
}

// wait: says "ready", then lives until it is killed
int Wait(const Arguments&) {
  Say("ready\n");
  WaitForSignal();
}

// stubborn: as wait, but ignores SIGTERM
int Stubborn(const Arguments&) {
  std::signal(SIGTERM, SIG_IGN);
  Say("ready\n");
  WaitForSignal();
}

// lines COUNT: numbered lines of different lengths, written in pieces that do not respect lines
int Lines(const Arguments& arguments) {
  constexpr std::size_t kPiece = 4093;
  std::string text;
  const int count = Number(arguments, 0);
  for (int i = 0; i < count; ++i) {
    text += std::string("rank ") + std::getenv("RANK") + " line " + std::to_string(i) + " " +
            std::string(static_cast<std::size_t>(i % 61), 'x') + "\n";
    if (text.size() < kPiece) continue;
    Say(std::string_view(text).substr(0, kPiece));
    text.erase(0, kPiece);
  }
  Say(text);
  return 0;
}

// say TEXT [STATUS]: exactly these bytes to standard output, and to standard error in capitals
int SayBoth(const Arguments& arguments) {
  Say(arguments.at(0));
  std::string loud = arguments.at(0);
  std::transform(loud.begin(), loud.end(), loud.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  Say(loud, STDERR_FILENO);
  return Number(arguments, 1);
}

// filtered COUNT: writes so many lines through a child that takes its time, and does not wait for
// it
int WriteThroughFilter(const Arguments& arguments) {
  constexpr auto kSlow = std::chrono::microseconds(100);  // per line
  int pipe[2];
  if (::pipe(pipe) != 0) return 97;
  if (::fork() != 0) {
    ::close(pipe[0]);
    std::string lines;
    for (int i = 0; i < Number(arguments, 0); ++i) lines += "line " + std::to_string(i) + "\n";
    Say(lines, pipe[1]);
    return 0;
  }
  ::close(pipe[1]);
  std::array<char, 4096> buffer{};
  while (const ssize_t size = ::read(pipe[0], buffer.data(), buffer.size())) {
    const std::string_view text(buffer.data(), static_cast<std::size_t>(size));
    std::this_thread::sleep_for(kSlow * std::count(text.begin(), text.end(), '\n'));
    Say(text);
  }
  return 0;
}

// flood BYTES: so many of flood.h, which differ from rank to rank
int WriteFlood(const Arguments& arguments) {
  const char* rank = std::getenv("RANK");
  Say(testing::Flood(rank == nullptr ? 0 : std::atoi(rank),
                     static_cast<std::size_t>(Number(arguments, 0))));
  return 0;
}

// every-byte: all 256 byte values, without a newline at the end
int EveryByte(const Arguments&) {
  std::string bytes;
  for (int c = 255; c >= 0; --c) bytes.push_back(static_cast<char>(c));
  Say(bytes);
  return 0;
}

// long-line LENGTH
int LongLine(const Arguments& arguments) {
  Say(std::string(static_cast<std::size_t>(Number(arguments, 0)), 'y') + "\n");
  return 0;
}

// arguments ...: its arguments, NUL after each
int ShowArguments(const Arguments& arguments) {
  for (const std::string& argument : arguments)
    Say(std::string_view(argument.c_str(), argument.size() + 1));
  return 0;
}

// environment: the whole of it, NUL after each
int ShowEnvironment(const Arguments&) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    Say(std::string_view(*entry, std::string_view(*entry).size() + 1));
  }
  return 0;
}

// process: "name value" lines about itself
int ShowProcess(const Arguments&) {
  std::string text;
  DIR* folder = ::opendir("/proc/self/fd");
  std::vector<int> descriptors;
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != ::dirfd(folder)) descriptors.push_back(fd);
  }
  ::closedir(folder);
  std::sort(descriptors.begin(), descriptors.end());
  text += "descriptors";
  for (const int fd : descriptors) text += " " + std::to_string(fd);
  const UniqueFd terminal(::open("/dev/tty", O_RDWR | O_CLOEXEC));
  text += "\nhas_terminal " + std::to_string(terminal.valid() ? 1 : 0);
  text += "\nleads_group " + std::to_string(::getpgrp() == ::getpid() ? 1 : 0);
  text += "\nleads_session " + std::to_string(::getsid(0) == ::getpid() ? 1 : 0);
  sigset_t blocked;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  text += "\nblocks_sigterm " + std::to_string(sigismember(&blocked, SIGTERM));
  struct sigaction pipe {};
  ::sigaction(SIGPIPE, nullptr, &pipe);
  text += "\nignores_sigpipe " + std::to_string(pipe.sa_handler == SIG_IGN ? 1 : 0);
  struct sigaction size {};
  ::sigaction(SIGXFSZ, nullptr, &size);
  text += "\nignores_sigxfsz " + std::to_string(size.sa_handler == SIG_IGN ? 1 : 0);
  cpu_set_t cores;
  ::sched_getaffinity(0, sizeof(cores), &cores);
  text += "\ncores " + std::to_string(CPU_COUNT(&cores));
  char byte = 0;
  text += "\nstdin_bytes " + std::to_string(::read(STDIN_FILENO, &byte, 1));
  std::array<char, 8> mask{};
  std::snprintf(mask.data(), mask.size(), "%03o", static_cast<unsigned>(::umask(0)));
  text += std::string("\numask ") + mask.data();
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  text += "\nnofile " + std::to_string(files.rlim_cur) + " " + std::to_string(files.rlim_max);
  char* where = ::getcwd(nullptr, 0);
  text += std::string("\nworking_directory ") + where + "\n";
  std::free(where);
  Say(text);
  return 0;
}

// child STATUS: leaves a child in its process group that ignores SIGTERM and keeps the output open
int LeaveChild(const Arguments& arguments) {
  std::signal(SIGTERM, SIG_IGN);
  const pid_t child = ::fork();
  if (child == 0) WaitForSignal();
  Say(std::to_string(child) + "\n");
  if (arguments.empty()) WaitForSignal();
  return Number(arguments, 0);
}

// orphan: leaves a grandchild in a session of its own, with nothing of the rank's open, and ends
int LeaveOrphan(const Arguments&) {
  int ready[2];
  if (::pipe(ready) != 0) return 97;
  if (::fork() == 0) {
    ::setsid();
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      for (int fd = 0; fd < 64; ++fd) ::close(fd);
      WaitForSignal();
    }
    Say(std::to_string(grandchild) + "\n");
    std::_Exit(0);
  }
  ::wait(nullptr);
  return 0;
}

// link: one message of several kinds, then the end
int UseLink(const Arguments&) {
  auto link = RankLink::FromEnvironment();
  if (!link.ok() || *link == nullptr) return 97;
  for (const RankMessage& message :
       {RankMessage{RankMessageKind::kHello, R"({"pid":1})"},
        RankMessage{RankMessageKind::kBeacon, R"({"step":7})"},
        RankMessage{RankMessageKind::kError, R"({"message":"no \"data\""})"}}) {
    if (!(*link)->Send(message).ok()) return 96;
  }
  return 2;
}

// break-link: speaks the link wrongly, then ends well
int BreakLink(const Arguments&) {
  const char* const link = std::getenv(kRankLinkVariable);
  if (link == nullptr) return 97;
  Say("who needs a protocol\n", std::atoi(link));
  return 0;
}

// cat FILE
int ShowFile(const Arguments& arguments) {
  const auto content = ReadFile(arguments.at(0));
  if (!content.ok()) return 97;
  Say(*content);
  return 0;
}

// eat MEBIBYTES: touches that much memory, then ends well
int EatMemory(const Arguments& arguments) {
  constexpr std::size_t kMebibyte = std::size_t{1} << 20;
  std::vector<std::string> eaten;
  for (int i = 0; i < Number(arguments, 0); ++i) eaten.emplace_back(kMebibyte, 'x');
  Say(std::to_string(eaten.size()) + "\n");
  return 0;
}

// fill-shm MEBIBYTES: maps a file of /dev/shm and writes all of it
int FillSharedMemory(const Arguments& arguments) {
  const std::size_t bytes = static_cast<std::size_t>(Number(arguments, 0)) << 20;
  const UniqueFd file(::open("/dev/shm/dsrun-test-rank", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return 97;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return 96;
  std::memset(memory, 'x', bytes);
  return 0;
}

// escape: leaves a grandchild in a session of its own that ignores SIGTERM and keeps the output
// open, says its pid, and waits ignoring SIGTERM
int LeaveEscapee(const Arguments&) {
  std::signal(SIGTERM, SIG_IGN);
  if (::fork() == 0) {
    ::setsid();
    const pid_t grandchild = ::fork();
    if (grandchild == 0) WaitForSignal();
    Say(std::to_string(grandchild) + "\n");
    std::_Exit(0);
  }
  ::wait(nullptr);
  WaitForSignal();
}

// session [FILE]: leaves a child in a session of its own, says its pid and waits. Told to end, the
// child makes FILE; without one it does not listen.
int LeaveSession(const Arguments& arguments) {
  static std::string file;
  if (!arguments.empty()) file = arguments[0];
  int ready[2];
  if (::pipe(ready) != 0) return 97;
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    std::signal(
        SIGTERM, file.empty() ? SIG_IGN : [](int) {
          ::close(::open(file.c_str(), O_WRONLY | O_CREAT, 0600));
          std::_Exit(0);
        });
    for (int fd = 0; fd < 64; ++fd) {
      if (fd != ready[1]) ::close(fd);
    }
    ::close(ready[1]);
    WaitForSignal();
  }
  ::close(ready[1]);
  char none = 0;
  if (::read(ready[0], &none, 1) != 0) return 96;
  Say(std::to_string(child) + "\n");
  WaitForSignal();
}

// alone FILE: in the first generation keeps FILE-RANK locked until it is killed, and says "ready";
// in later ones says whether the one before still does, be it by what a rank has started. Rank 1
// ignores SIGTERM, and so does its child.
int BeAlone(const Arguments& arguments) {
  const std::string rank = std::getenv("RANK");
  const std::string path = arguments.at(0) + "-" + rank;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    Say("overlap\n");
    return 0;
  }
  if (std::string_view(std::getenv("DSRUN_GENERATION")) != "0") {
    Say(std::string("alone at ") + std::getenv("MASTER_PORT") + "\n");
    return 0;
  }
  if (rank == "1") std::signal(SIGTERM, SIG_IGN);
  if (::fork() == 0) {  // a program below a script, or a worker that loads data
    for (int i = 0; i < 64; ++i) {
      if (i != fd) ::close(i);
    }
    WaitForSignal();
  }
  Say(std::string("meets at ") + std::getenv("MASTER_PORT") + "\n", STDERR_FILENO);
  Say("ready\n");
  WaitForSignal();
}

int Main(const Arguments& arguments) {
  const std::map<std::string, std::function<int(const Arguments&)>> acts = {
      {"exit", Exit},
      {"raise", Raise},
      {"wait", Wait},
      {"stubborn", Stubborn},
      {"lines", Lines},
      {"say", SayBoth},
      {"filtered", WriteThroughFilter},
      {"every-byte", EveryByte},
      {"flood", WriteFlood},
      {"long-line", LongLine},
      {"arguments", ShowArguments},
      {"environment", ShowEnvironment},
      {"process", ShowProcess},
      {"child", LeaveChild},
      {"orphan", LeaveOrphan},
      {"link", UseLink},
      {"break-link", BreakLink},
      {"cat", ShowFile},
      {"eat", EatMemory},
      {"fill-shm", FillSharedMemory},
      {"escape", LeaveEscapee},
      {"session", LeaveSession},
      {"alone", BeAlone},
  };
  const auto act = arguments.empty() ? acts.end() : acts.find(arguments[0]);
  if (act == acts.end()) return 95;
  return act->second(Arguments(arguments.begin() + 1, arguments.end()));
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) { return ds::Main({argv + 1, argv + argc}); }
