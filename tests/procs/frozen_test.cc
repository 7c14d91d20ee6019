// File systems that hang while a job runs: the second stop signal ends dsrun and every rank.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/places.h"
#include "tests/support/fuse_mount.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kNoMount = 77;

struct Frozen {
  bool input = false;   // standard input is a file there
  bool output = false;  // standard output is a file there
  bool errors = false;  // standard error is a file there
  bool run_folder = false;
  bool home = false;
  bool temporary = false;  // $XDG_RUNTIME_DIR
  bool programs = false;   // dsrun, dsrund and the program of the rank
};

class FrozenTest : public ::testing::Test {
 protected:
  fs::path Place(bool frozen, const std::string& name) const {
    const fs::path path = folder_.path() / (frozen ? "frozen" : "sound") / name;
    fs::create_directories(path);
    return path;
  }

  // Copies them behind the mount, so that their pages are read through it. Returns them opened
  // there, because an open drops the pages that the kernel has of a file.
  std::vector<UniqueFd> CopyPrograms() const {
    const fs::path backing = folder_.path() / "backing" / "programs";
    fs::create_directory(backing);
    std::vector<UniqueFd> opened;
    for (const fs::path program : {DS_BIN_DIR "/dsrun", DS_BIN_DIR "/dsrund", "/bin/sh"}) {
      fs::copy_file(fs::canonical(program), backing / program.filename());
      const fs::path copy = folder_.path() / "frozen" / "programs" / program.filename();
      opened.emplace_back(::open(copy.c_str(), O_RDONLY | O_CLOEXEC));
    }
    return opened;
  }

  // Root's programs may lock their memory, and are then in it anyway.
  static void ForbidLocking() {
    ::prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_MEMLOCK, &none);
  }

  // Leaves the pages that processes have mapped, as a lack of memory does at first.
  static void DropPages(const std::vector<UniqueFd>& files) {
    for (const UniqueFd& file : files) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }

  // The rank reports its pid, and then copies its input, or writes, without an end.
  std::vector<std::string> Command(const Frozen& frozen) const {
    const fs::path programs = folder_.path() / "frozen" / "programs";
    return {frozen.programs ? (programs / "dsrun").string() : DS_BIN_DIR "/dsrun",
            "--device",
            "cpu",
            "--num_gpus",
            "1",
            "--grace_seconds",
            "1",
            "--run_dir",
            (Place(frozen.run_folder, "runs") / "run").string(),
            "--",
            frozen.programs ? (programs / "sh").string() : "/bin/sh",
            "-c",
            "echo $$ > '" + PidFifo() + "'; " +
                (frozen.errors  ? "while :; do echo line >&2; sleep 0.01; done"
                 : frozen.input ? "exec cat > /dev/null"
                                : "while :; do echo line; sleep 0.01; done")};
  }

  std::string PidFifo() const { return (folder_.path() / "pid").string(); }

  // Waits for the pid that the rank reports. Returns 0 if none comes.
  static pid_t ReadPid(int fifo) {
    std::string line;
    pollfd ready{fifo, POLLIN, 0};
    char byte = 0;
    while (::poll(&ready, 1, 60'000) == 1 && ::read(fifo, &byte, 1) == 1 && byte != '\n') {
      line += byte;
    }
    return line.empty() ? 0 : std::stoi(line);
  }

  // Larger than what is read of it before it is frozen.
  UniqueFd OpenInput(bool frozen) const {
    if (!frozen) return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const fs::path backing = folder_.path() / "backing" / "input";
    std::ofstream(backing) << "input\n";
    fs::resize_file(backing, std::uintmax_t{1} << 40);
    return UniqueFd(::open((folder_.path() / "frozen" / "input").c_str(), O_RDONLY | O_CLOEXEC));
  }

  // Runs in a child, which has the mount. Returns the name of a broken promise, or "".
  std::string StopTwice(const Frozen& frozen, const FuseMount& mount) const {
    std::vector<UniqueFd> programs;
    if (frozen.programs) {
      ForbidLocking();
      programs = CopyPrograms();
    }
    const auto open_output = [&](bool is_frozen, const char* name) {
      return UniqueFd(
          ::open((Place(is_frozen, "out") / name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    };
    const UniqueFd input = OpenInput(frozen.input);
    const UniqueFd output = open_output(frozen.output, "out");
    const UniqueFd errors = open_output(frozen.errors, "err");
    ::mkfifo(PidFifo().c_str(), 0600);
    const UniqueFd fifo(::open(PidFifo().c_str(), O_RDWR | O_CLOEXEC));
    Program dsrun(Command(frozen),
                  {.environment = {"HOME=" + Place(frozen.home, "home").string(),
                                   "XDG_RUNTIME_DIR=" + Place(frozen.temporary, "tmp").string()},
                   .working_directory = folder_.path(),
                   .time_limit = std::chrono::seconds(60),
                   .input_fd = input.get(),
                   .output_fd = output.get(),
                   .error_fd = frozen.errors ? errors.get() : -1});
    const pid_t pid = ReadPid(fifo.get());
    if (pid == 0) return "the rank has not started: " + dsrun.err();
    const UniqueFd rank(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!rank.valid()) return "the rank has ended";
    DropPages(programs);
    mount.Freeze();
    dsrun.Signal(SIGINT);
    dsrun.Signal(SIGTERM);
    pollfd end{rank.get(), POLLIN, 0};
    const bool ended = ::poll(&end, 1, 60'000) == 1;
    const int status = dsrun.Wait().status;
    mount.Thaw();
    if (!ended) return "the rank lives on";
    // Nothing that the stop needs is frozen: it is a usual one.
    if (frozen.programs && dsrun.err().find("of this machine") != std::string::npos) {
      return "processes of dsrun had to be killed: " + dsrun.err();
    }
    if (frozen.programs &&
        !fs::exists(folder_.path() / "sound" / "runs" / "run" / "verdict.json")) {
      return "there is no verdict";
    }
    return status == 130 || status == 143 ? "" : "the status is " + std::to_string(status);
  }

  void ExpectEnds(const Frozen& frozen) {
    const fs::path mounted = folder_.path() / "frozen";
    const fs::path backing = folder_.path() / "backing";
    for (const fs::path& path : {mounted, backing}) fs::create_directory(path);
    const fs::path report = folder_.path() / "report";
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is ended leaves no mount
      const FuseMount mount(backing, mounted, {});
      std::ofstream(report) << (mount.why_not().empty() ? StopTwice(frozen, mount)
                                                        : mount.why_not());
      ::_exit(mount.why_not().empty() ? 0 : kNoMount);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const StatusOr<std::string> broken = ReadFile(report);
    ASSERT_TRUE(broken.ok());
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoMount) return SkipWithout("fuse", *broken);
    EXPECT_EQ(*broken, "");
  }

  TemporaryFolder folder_;
};

TEST_F(FrozenTest, TheFileOfStandardInput) { ExpectEnds({.input = true}); }
TEST_F(FrozenTest, TheFileOfStandardError) { ExpectEnds({.errors = true}); }
TEST_F(FrozenTest, TheFileOfStandardOutput) { ExpectEnds({.output = true}); }
TEST_F(FrozenTest, TheRunFolder) { ExpectEnds({.run_folder = true}); }
TEST_F(FrozenTest, TheHomeFolder) { ExpectEnds({.home = true}); }
TEST_F(FrozenTest, TheTemporaryFolder) { ExpectEnds({.temporary = true}); }
TEST_F(FrozenTest, TheProgramFiles) { ExpectEnds({.programs = true}); }

}  // namespace
}  // namespace ds::testing
