// The rank that scripts/bench/launch starts under every launcher, and the machine's own limits.
//
//   bench_rank stamp FILE                 notes its start in FILE and ends
//   bench_rank wait FILE                  notes its start, then waits for a signal
//   bench_rank stubborn FILE              the same, ignoring every polite signal
//   bench_rank status FILE RANK STATUS    that rank ends with STATUS once it has started; the
//   others wait bench_rank lines FILE COUNT whole     prints COUNT lines through a 4 KiB buffer, as
//   stdio does bench_rank lines FILE COUNT split     writes each line and its newline by
//   themselves, as python -u does bench_rank spawn FILE COUNT           starts that many `stamp`
//   ranks by posix_spawn and waits for them bench_rank limits                     GB/s of one
//   memcpy, of one pipe
//
// FILE gets "<CLOCK_MONOTONIC nanoseconds> <rank> <pid>\n" from each rank, first thing in main.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

long long MonotonicNanos() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What each launcher calls a rank's number; GNU parallel counts from 1.
int OwnRank() {
  for (const char* name : {"RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name); value != nullptr) return std::atoi(value);
  }
  const char* sequence = std::getenv("PARALLEL_SEQ");
  return sequence != nullptr ? std::atoi(sequence) - 1 : 0;
}

void Write(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written <= 0) std::_Exit(1);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Stamp(const char* path, long long nanos) {
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) std::_Exit(1);
  Write(fd, std::to_string(nanos) + " " + std::to_string(OwnRank()) + " " +
                std::to_string(::getpid()) + "\n");
  ::close(fd);
}

[[noreturn]] void WaitForSignal() {
  for (;;) ::pause();
}

// A line says itself what it must look like, so that any damage shows: its number decides its text.
std::string Line(int rank, int number) {
  char text[128];
  const unsigned mark =
      static_cast<unsigned>(rank) * 7919U + static_cast<unsigned>(number) * 104729U;
  std::snprintf(text, sizeof(text), "rank=%d line=%06d loss=%08x lr=%08x end", rank, number, mark,
                ~mark);
  return text;
}

void PrintLines(int count, bool split) {
  constexpr std::size_t kStdioBuffer = 4096;
  const int rank = OwnRank();
  std::string buffer;
  for (int i = 0; i < count; ++i) {
    if (split) {
      Write(STDOUT_FILENO, Line(rank, i));
      Write(STDOUT_FILENO, "\n");
      continue;
    }
    buffer += Line(rank, i) + "\n";
    while (buffer.size() >= kStdioBuffer) {  // in the middle of a line, as stdio does
      Write(STDOUT_FILENO, std::string_view(buffer).substr(0, kStdioBuffer));
      buffer.erase(0, kStdioBuffer);
    }
  }
  Write(STDOUT_FILENO, buffer);
}

int Spawn(char* self, char* file, int count) {
  char mode[] = "stamp";
  char* argv[] = {self, mode, file, nullptr};
  for (int i = 0; i < count; ++i) {
    pid_t pid = 0;
    if (::posix_spawn(&pid, self, nullptr, nullptr, argv, environ) != 0) return 1;
  }
  while (::wait(nullptr) > 0) {
  }
  return 0;
}

void PrintLimits() {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);
  long long begin = MonotonicNanos();
  std::memcpy(to.data(), from.data(), kBytes);
  const double copy = static_cast<double>(kBytes) / static_cast<double>(MonotonicNanos() - begin);
  int ends[2];
  if (::pipe(ends) != 0) std::exit(1);
  begin = MonotonicNanos();
  std::thread writer([&] {
    Write(ends[1], std::string_view(from.data(), kBytes));
    ::close(ends[1]);
  });
  while (::read(ends[0], to.data(), 64 * 1024) > 0) {
  }
  const double pipe = static_cast<double>(kBytes) / static_cast<double>(MonotonicNanos() - begin);
  writer.join();
  std::printf("%.2f %.2f\n", copy, pipe);
}

}  // namespace

int main(int argc, char** argv) {
  const long long start = MonotonicNanos();
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "limits") return PrintLimits(), 0;
  if (argc < 3) return 2;
  if (mode == "spawn" && argc > 3) return Spawn(argv[0], argv[2], std::atoi(argv[3]));
  if (mode == "stubborn") {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) std::signal(signal, SIG_IGN);
  }
  Stamp(argv[2], start);
  if (mode == "lines" && argc > 4)
    PrintLines(std::atoi(argv[3]), std::string_view(argv[4]) == "split");
  if (mode == "status" && argc > 4 && OwnRank() == std::atoi(argv[3])) return std::atoi(argv[4]);
  if (mode == "wait" || mode == "stubborn" || mode == "status") WaitForSignal();
  return 0;
}
