#include "tests/support/rank_processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <exception>
#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/rank_link.h"
#include "runtime/comm/net/meeting_store.h"

namespace ds::testing {
namespace {

// A port that was free a moment ago.
int FreePort() {
  const UniqueFd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  DS_CHECK(bind(socket_fd.get(), generic, length) == 0);
  DS_CHECK(getsockname(socket_fd.get(), generic, &length) == 0);
  return ntohs(address.sin_port);
}

// Where the ranks of several hosts meet: memory that all of them share.
class SharedStore : public comm::MeetingStore {
 public:
  SharedStore() {
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    DS_CHECK(memory != MAP_FAILED);
    shared_ = new (memory) Shared;
    pthread_mutexattr_t for_mutex;
    pthread_mutexattr_init(&for_mutex);
    pthread_mutexattr_setpshared(&for_mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared_->mutex, &for_mutex);
    pthread_condattr_t for_changed;
    pthread_condattr_init(&for_changed);
    pthread_condattr_setpshared(&for_changed, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&shared_->changed, &for_changed);
    DS_CHECK(Put(kRankKeyName, std::string(64, 'a')).ok());
  }
  ~SharedStore() override { ::munmap(shared_, sizeof(Shared)); }

  Status Put(const std::string& key, const std::string& value) override {
    pthread_mutex_lock(&shared_->mutex);
    DS_CHECK(shared_->count < kEntries && key.size() < kText && value.size() < kText);
    Entry& entry = shared_->entries[shared_->count++];
    key.copy(entry.key, kText - 1);
    value.copy(entry.value, kText - 1);
    pthread_cond_broadcast(&shared_->changed);
    pthread_mutex_unlock(&shared_->mutex);
    return OkStatus();
  }

  // For ever.
  StatusOr<std::string> Get(const std::string& key, std::chrono::milliseconds) override {
    pthread_mutex_lock(&shared_->mutex);
    while (true) {
      for (int i = 0; i < shared_->count; ++i) {
        if (key != shared_->entries[i].key) continue;
        pthread_mutex_unlock(&shared_->mutex);
        return std::string(shared_->entries[i].value);
      }
      pthread_cond_wait(&shared_->changed, &shared_->mutex);
    }
  }

 private:
  static constexpr int kEntries = 32;
  static constexpr std::size_t kText = 4096;
  struct Entry {
    char key[kText] = {};
    char value[kText] = {};
  };
  struct Shared {
    pthread_mutex_t mutex = {};
    pthread_cond_t changed = {};
    int count = 0;
    Entry entries[kEntries];
  };
  Shared* shared_;
};

// The child's life. The communicator leaves the group before the process ends.
std::pair<int, std::string> RunRank(const comm::RankIdentity& identity,
                                    const RankProcesses::Body& body,
                                    const comm::ConnectOptions& options,
                                    device::DeviceChoice choice) {
  const StatusOr<device::RankDevice> opened = device::OpenRankDevice(choice, identity.local_rank);
  if (!opened.ok()) return {kRankDidNotConnect, opened.status().message()};
  StatusOr<std::unique_ptr<comm::Communicator>> world =
      comm::ConnectWorld(identity, *opened, options);
  if (!world.ok()) return {kRankDidNotConnect, world.status().message()};
  try {
    return {body(**world), ""};
  } catch (const c10::Error& error) {
    return {kRankThrew, error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {kRankThrew, error.what()};
  }
}

}  // namespace

RankProcesses::RankProcesses(const std::vector<int>& ranks_on_hosts, const Body& body,
                             comm::ConnectOptions options, device::DeviceChoice device) {
  SharedStore store;
  if (ranks_on_hosts.size() > 1) options.store = &store;
  comm::RankIdentity identity;
  identity.world_size = std::accumulate(ranks_on_hosts.begin(), ranks_on_hosts.end(), 0);
  identity.master_port = FreePort();
  for (const int count : ranks_on_hosts) {
    identity.local_world_size = count;
    for (identity.local_rank = 0; identity.local_rank < count; ++identity.local_rank) {
      Start(identity, body, options, device);
      ++identity.rank;
    }
  }
}

void RankProcesses::Start(const comm::RankIdentity& identity, const Body& body,
                          const comm::ConnectOptions& options, device::DeviceChoice device) {
  std::array<int, 2> ends = {};
  DS_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0);
  const pid_t pid = fork();
  DS_CHECK(pid >= 0);
  if (pid == 0) {
    const auto [code, message] = RunRank(identity, body, options, device);
    const Status written = WriteAll(ends[1], message, "report");
    _exit(written.ok() ? code : 1);
  }
  ::close(ends[1]);
  ranks_.push_back({.pid = pid, .report = UniqueFd(ends[0])});
}

RankProcesses::~RankProcesses() {
  for (const Rank& rank : ranks_) {
    if (rank.pid < 0) continue;
    kill(rank.pid, SIGKILL);
    waitpid(rank.pid, nullptr, 0);
  }
}

RankEnd RankProcesses::Wait(int rank) {
  Rank& process = ranks_[static_cast<std::size_t>(rank)];
  RankEnd end;
  std::array<char, 4096> buffer = {};
  ssize_t bytes = 0;
  while ((bytes = read(process.report.get(), buffer.data(), buffer.size())) > 0) {
    end.message.append(buffer.data(), static_cast<std::size_t>(bytes));
  }
  int status = 0;
  DS_CHECK(waitpid(process.pid, &status, 0) == process.pid);
  process.pid = -1;
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  return end;
}

}  // namespace ds::testing
