// What a host costs the controller: memory, descriptors and threads of this process, by simulated
// daemons in another one that speak the real protocol over TLS.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/host/daemon_client.h"
#include "cli/host/lease_keeper.h"
#include "cli/job/job_controller.h"
#include "cli/remote/job_authority.h"
#include "proto/message_line.h"
#include "proto/peer_name.h"
#include "runtime/process/pipe.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::procs {
namespace {

namespace v1 = ::dsrun::v1;
using Clock = std::chrono::steady_clock;

constexpr char kJob[] = "budget";
constexpr std::chrono::seconds kLongLease{60};
// What gRPC's pools take once, of how many hosts ever: they grow with the processors.
constexpr int kOnceKib = 8 * 1024;
constexpr int kOnceDescriptors = 8;
const int kOnceThreads =
    16 + 2 * static_cast<int>(std::min(32U, std::thread::hardware_concurrency()));

struct Usage {
  long anonymous_kib = 0;
  long threads = 0;
  long descriptors = 0;
  double processor_ms = 0;
};

double Milliseconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
}

Usage Measure() {
  Usage usage;
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  usage.processor_ms = Milliseconds(used.ru_utime) + Milliseconds(used.ru_stime);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    long value = 0;
    words >> name >> value;
    if (name == "RssAnon:") usage.anonymous_kib = value;
    if (name == "Threads:") usage.threads = value;
  }
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  usage.descriptors = std::distance(begin(descriptors), end(descriptors));
  return usage;
}

// Stops the job when all its ranks run, and measures then.
class Observer : public cli::JobObserver {
 public:
  void OnPrepared(const std::string&, const v1::PrepareResponse&) override {}
  Status OnEvent(const cli::HostEvent& event) override {
    if (!event.event.has_rank_started() || ++started < expected) return OkStatus();
    running = Measure();
    all_started = Clock::now();
    controller->OnSignal(SIGTERM);
    return OkStatus();
  }
  void OnNotice(const std::string&) override {}

  int started = 0;
  int expected = 0;
  Usage running;
  Clock::time_point all_started;
  cli::JobController* controller = nullptr;
};

struct Cost {
  Usage before;
  Usage running;
  Clock::duration start;
  Clock::duration stop;
  double processor_ms = 0;
};

class Job {
 public:
  explicit Job(int hosts) : hosts_(hosts), authority_(cli::JobAuthority::Create(kJob).value()) {
    std::ofstream lines(folder_.path() / "daemons");
    for (int host = 0; host < hosts_; ++host) {
      v1::ListenRequest request;
      *request.mutable_credentials() = authority_.IssueDaemon(host).value();
      lines << v1::EncodeLine(request);
    }
    lines.close();
    daemons_ = std::make_unique<testing::Program>(
        std::vector<std::string>{DS_BUILD_DIR "/tests/simulated_daemons",
                                 (folder_.path() / "daemons").string()},
        testing::ProgramOptions{.input_fd = life_.read.get()});
  }

  Cost Run() {
    EXPECT_TRUE(daemons_->WaitForOutput("\n")) << daemons_->err();
    Cost cost{.before = Measure(), .running = {}, .start = {}, .stop = {}};
    const Clock::time_point begin = Clock::now();
    const auto clients = Connect();
    cli::LeaseKeeper leases(kLongLease);
    std::map<int, cli::HostDaemon*> daemons;
    for (const auto& client : clients) {
      const int number = static_cast<int>(daemons.size());
      leases.Add(number, client.get());
      daemons.emplace(number, client.get());
    }
    cli::UserStop stop;
    Observer observer;
    observer.expected = hosts_;
    const cli::SameProgram program({.argv = {"prog"}});
    cli::JobController controller(Plan(), &program, daemons, &observer,
                                  {.stop = &stop, .leases = &leases});
    observer.controller = &controller;
    const cli::JobOutcome outcome = controller.Run();
    cost.running = observer.running;
    cost.start = observer.all_started - begin;
    cost.stop = Clock::now() - observer.all_started;
    cost.processor_ms = Measure().processor_ms - cost.before.processor_ms;
    EXPECT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.failure().cause, cli::Cause::kUserStop) << outcome.failure().message;
    EXPECT_EQ(observer.started, hosts_);
    return cost;
  }

 private:
  std::vector<std::unique_ptr<cli::DaemonClient>> Connect() {
    const v1::Credentials credentials = authority_.IssueController().value();
    const auto made = cli::MakeChannelCredentials(credentials);
    std::vector<std::unique_ptr<cli::DaemonClient>> clients;
    std::istringstream ports(daemons_->out());
    for (int port = 0; ports >> port;) {
      const std::string name = v1::DaemonPeerName(kJob, static_cast<int>(clients.size()));
      clients.push_back(std::make_unique<cli::DaemonClient>(
          kJob, "ipv4:127.0.0.1:" + std::to_string(port),
          cli::TlsOptions{
              .credentials = credentials, .daemon_name = name, .lease = kLongLease, .made = made}));
    }
    return clients;
  }
  cli::JobPlan Plan() const {
    std::vector<cli::HostSlots> hosts;
    for (int host = 0; host < hosts_; ++host) {
      hosts.push_back({.host = "h" + std::to_string(host), .slots = {0}});
    }
    cli::JobPlan plan{
        .job_id = kJob,
        .flags = {.share_machine = true, .lease_seconds = static_cast<double>(kLongLease.count())},
        .world = cli::PlanWorld(hosts),
        .master_addr = "127.0.0.1"};
    for (cli::JobHost& host : plan.world.hosts) host.remote = true;
    return plan;
  }

  const int hosts_;
  testing::TemporaryFolder folder_;
  Pipe life_ = MakePipe().value();  // of the daemons, which end with it
  cli::JobAuthority authority_;
  std::unique_ptr<testing::Program> daemons_;
};

// A sanitizer keeps freed memory, and more beside every allocation.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;
#else
constexpr bool kMemoryIsOurs = true;
#endif

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

TEST(BudgetTest, AHostCostsNoThreadAndLittleElse) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  Job(4).Run();  // what gRPC needs once is there
  for (const int hosts : {64, 256, 1000}) {
    const Cost cost = Job(hosts).Run();
    const double kib = static_cast<double>(cost.running.anonymous_kib - cost.before.anonymous_kib);
    const long threads = cost.running.threads - cost.before.threads;
    const long descriptors = cost.running.descriptors - cost.before.descriptors;
    std::cout << hosts << " hosts: " << kib / hosts << " KiB, "
              << static_cast<double>(descriptors) / hosts << " descriptors and "
              << static_cast<double>(threads) / hosts << " threads and "
              << cost.processor_ms / hosts << " ms of processor time each; start "
              << Seconds(cost.start) << " s, stop " << Seconds(cost.stop) << " s\n";
    if (kMemoryIsOurs) {
      EXPECT_LE(kib, 300 * hosts + kOnceKib) << "the goal is 100 KiB a host";
    }
    EXPECT_LE(descriptors, 2 * hosts + kOnceDescriptors) << "each host has two connections";
    EXPECT_LE(threads, kOnceThreads) << "however many hosts there are";
  }
}

}  // namespace
}  // namespace ds::procs
