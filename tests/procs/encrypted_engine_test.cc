// An engine that connects by itself encrypts what goes between hosts when it is told to: the same
// training, and none of its bytes to be seen between the ranks, where they pass in clear otherwise.

#include <ATen/ops/arange.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/rank_link.h"
#include "runtime/comm/net/peer_listener.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/tcp_relay.h"

namespace ds::tests {
namespace {

using ::testing::HasSubstr;

using Json = nlohmann::json;

constexpr int kEncryptedRanks = 2;  // each on a host of its own
constexpr float kSecret = 0.70710678F;

// Frozen weights, as they would be seen on their way.
std::string SecretBytes() {
  const std::vector<float> values(16, kSecret);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// What a rank does: as a user's program, it knows of its job by the environment alone.
std::string TrainAsRank(bool encrypt) {
  const TinyRun run{.stage = 3, .shape = {.width = 64}};
  const auto read = [](const std::string& name, std::int64_t first, const at::Tensor& values) {
    values.copy_(at::arange(first, first + values.numel(), values.options()).sin());
    if (name.ends_with("scale")) values.fill_(kSecret);
    return OkStatus();
  };
  auto engine = Engine::create(MakeTinyModel(run.shape, at::kFloat), TinyConfig(run),
                               {.encrypt = encrypt, .read_values = read});
  if (!engine.ok()) return engine.status().message();
  std::string losses;
  for (const StepResult& step : TrainTiny(**engine, run, 3))
    losses += fmt::format("{:a} ", step.loss);
  return losses;
}

// One rank's process, and the daemon's end of its link.
struct RankProcess {
  RankProcess(int rank, bool encrypt) {
    std::array<int, 2> link{}, report{};
    DS_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, link.data()) == 0 && ::pipe(report.data()) == 0);
    pid = ::fork();
    DS_CHECK(pid >= 0);
    if (pid != 0) {
      ::close(link[1]);
      ::close(report[1]);
      daemon.Reset(link[0]);
      said.Reset(report[0]);
      return;
    }
    const std::map<std::string, std::string> environment = {
        {"RANK", std::to_string(rank)},
        {"WORLD_SIZE", std::to_string(kEncryptedRanks)},
        {"LOCAL_RANK", "0"},
        {"LOCAL_WORLD_SIZE", "1"},
        {"MASTER_PORT", "1"},
        {"DSRUN_INTERFACE", "lo"},
        {"DSRUN_JOB_ID", "encrypted"},
        {kRankLinkVariable, std::to_string(link[1])}};
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    static_cast<void>(WriteAll(report[1], TrainAsRank(encrypt), "report"));
    ::_exit(0);
  }

  std::string AwaitEnd() {
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t got; (got = ::read(said.get(), buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    ::waitpid(pid, nullptr, 0);
    return text;
  }

  pid_t pid = -1;
  UniqueFd daemon;
  RankMessageReader reader;
  UniqueFd said;
};

// What dsrun and its daemons are to the ranks while they meet: they keep what one puts for the
// others. Here they tell of every rank a relay's address for its own.
class Meeting {
 public:
  Meeting() { texts_[kRankKeyName] = std::string(64, 'a'); }

  // Until every rank has asked for all others, or one has gone.
  void Serve(std::vector<std::unique_ptr<RankProcess>>& ranks) {
    std::vector<std::string> wanted(ranks.size());
    for (std::size_t answers = 0; answers < ranks.size() * (ranks.size() + 1);) {
      std::vector<pollfd> ready;
      for (const auto& rank : ranks) ready.push_back({rank->daemon.get(), POLLIN, 0});
      DS_CHECK(::poll(ready.data(), ready.size(), -1) > 0);
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (ready[i].revents != 0 && !Take(*ranks[i], &wanted[i])) return;
      }
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        const auto found = texts_.find(wanted[i]);
        if (found == texts_.end()) continue;
        const Json body = {{"key", found->first}, {"value", found->second}};
        const std::string line = EncodeRankMessage({RankMessageKind::kValue, body.dump()}).value();
        DS_CHECK(WriteAll(ranks[i]->daemon.get(), line, "answer").ok());
        wanted[i].clear();
        ++answers;
      }
    }
  }

  std::string Recorded() {
    std::string bytes;
    for (const auto& relay : relays_) bytes += relay->Recorded();
    return bytes;
  }

 private:
  // What the rank has said; false when it has gone instead.
  bool Take(RankProcess& rank, std::string* wanted) {
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(rank.daemon.get(), buffer.data(), buffer.size());
    if (got <= 0) return false;
    rank.reader.Feed({buffer.data(), static_cast<std::size_t>(got)});
    for (auto next = rank.reader.Next().value(); next; next = rank.reader.Next().value()) {
      const Json body = Json::parse(next->body);
      const std::string key = body.value("key", "");
      if (next->kind == RankMessageKind::kGet) *wanted = key;
      if (next->kind == RankMessageKind::kPut) texts_[key] = Redirect(body.value("value", ""));
    }
    return true;
  }

  std::string Redirect(const std::string& text) {
    comm::PeerRecord record = comm::PeerRecordFromJson(text).value();
    for (const auto& endpoint : record.endpoints) {
      if (endpoint.address != "127.0.0.1") continue;
      relays_.push_back(std::make_unique<testing::TcpRelay>(endpoint.port));
      const std::string target = relays_.back()->target();
      record.endpoints = {
          {.address = "127.0.0.1", .port = std::stoi(target.substr(target.rfind(':') + 1))}};
      return ToJson(record);
    }
    ADD_FAILURE() << "the rank does not listen on 127.0.0.1: " << text;
    return text;
  }

  std::map<std::string, std::string> texts_;
  std::vector<std::unique_ptr<testing::TcpRelay>> relays_;
};

struct EncryptedRun {
  std::vector<std::string> losses;  // by rank
  std::string wire;
};

EncryptedRun Train(bool encrypt) {
  std::vector<std::unique_ptr<RankProcess>> ranks;  // ahead of the relays' threads
  for (int rank = 0; rank < kEncryptedRanks; ++rank) {
    ranks.push_back(std::make_unique<RankProcess>(rank, encrypt));
  }
  Meeting meeting;
  meeting.Serve(ranks);
  EncryptedRun outcome;
  for (const auto& rank : ranks) outcome.losses.push_back(rank->AwaitEnd());
  outcome.wire = meeting.Recorded();
  return outcome;
}

TEST(EncryptedEngine, TrainsAlikeAndShowsNothingOnTheWire) {
  const EncryptedRun plain = Train(false), encrypted = Train(true);
  EXPECT_THAT(plain.losses[0], HasSubstr("0x"));
  EXPECT_EQ(plain.losses[0], plain.losses[1]);
  EXPECT_EQ(encrypted.losses, plain.losses);
  // Nobody wants to read them.
  EXPECT_TRUE(plain.wire.find(SecretBytes()) != std::string::npos) << plain.wire.size();
  EXPECT_TRUE(encrypted.wire.find(SecretBytes()) == std::string::npos);
  EXPECT_GT(encrypted.wire.size(), plain.wire.size()) << "with the headers of TLS";
}

}  // namespace
}  // namespace ds::tests
