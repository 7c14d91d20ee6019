// Reaching other hosts, as far as no host is needed for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/remote/fan_out.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"
#include "cli/remote/proxy_command.h"
#include "cli/remote/remote_daemon.h"
#include "cli/remote/remote_shell.h"
#include "cli/remote/remote_target.h"
#include "proto/message_line.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;

TEST(RemoteTargetTest, TakesTheHostfilesWordForIt) {
  const auto target = MakeRemoteTarget(
      {.name = "me@node", .keys = {{"port", "2222"}, {"address", "10.0.0.2"}, {"exec", "a  b c"}}},
      22);
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->name, "me@node");
  EXPECT_EQ(target->host, "node");
  EXPECT_EQ(target->user, "me");
  EXPECT_EQ(target->port, 2222);
  EXPECT_EQ(target->address, "10.0.0.2");
  EXPECT_THAT(target->wrapper, ElementsAre("a", "b", "c"));
  EXPECT_EQ(MakeRemoteTarget({.name = "node"}, 77)->port, 77);
  EXPECT_EQ(MakeRemoteTarget({.name = "node"}, 0)->port, 0);
}

TEST(RemoteTargetTest, TakesSeveralKeysThatTheHostMayShow) {
  const std::string first = "SHA256:" + std::string(43, 'a');
  const std::string second = "SHA256:" + std::string(43, '/');
  EXPECT_THAT(
      MakeRemoteTarget({.name = "node", .keys = {{"hostkey", first + "," + second}}}, 0)->host_keys,
      ElementsAre(first, second));
  EXPECT_THAT(MakeRemoteTarget({.name = "node"}, 0)->host_keys, IsEmpty());
}

TEST(RemoteTargetTest, RefusesInvalidTargets) {
  EXPECT_EQ(MakeRemoteTarget({.name = "me@node", .keys = {{"user", "you"}}}, 0).status().message(),
            "host 'me@node': user=you contradicts its name");
}

TEST(RemoteShellTest, WordsSurviveEveryLoginShellUnchanged) {
  const std::string nasty = "a'b \"c\" $HOME `x` \\ * ; & | > !\n\t\xFF end";
  const std::string script = "printf '%s|' \"$1\" \"$2\" \"$3\";\nprintf done";
  for (const char* shell : {"sh", "bash"}) {
    const auto result = ds::testing::RunProgram(
        {shell, "-c", MakeScriptCommand({"env", "WRAPPED=a b"}, script, {nasty, ""})},
        {.environment = {"SSH_CONNECTION=1.2.3.4 5 6.7.8.9 22"}});
    EXPECT_EQ(result.out, "1.2.3.4 5 6.7.8.9 22|" + nasty + "||done") << result.err;
  }
}

TEST(ProxyCommandTest, TokensAreReplacedOnceAndOthersStay) {
  const ProxyTokens tokens{.host = "10.0.0.2", .port = 2222, .user = "me", .name = "%h"};
  EXPECT_EQ(ExpandProxyCommand("nc %h %p", tokens), "nc 10.0.0.2 2222");
  EXPECT_EQ(ExpandProxyCommand("ssh -l %r -W '[%h]:%p' %n", tokens),
            "ssh -l me -W '[10.0.0.2]:2222' %h");
  EXPECT_EQ(ExpandProxyCommand("a %% %x %", tokens), "a % %x %");
}

TEST(ProxyCommandTest, ItEndsReliablyAndKeepsNoDescriptorOfDsrun) {
  auto proxy = ProxyCommand::Start("sh -c 'trap \"\" TERM; cat; echo ended; cat; sleep 600'");
  ASSERT_TRUE(proxy.ok());
  const UniqueFd socket = (*proxy)->TakeSocket();
  ::shutdown(socket.get(), SHUT_WR);
  std::array<char, 6> word{};
  pollfd readable{socket.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&readable, 1, -1), 1);
  EXPECT_EQ(::read(socket.get(), word.data(), word.size()), 6);
  EXPECT_EQ(std::string_view(word.data(), word.size()), "ended\n");
  proxy->reset();  // returns, although it sleeps and wants no SIGTERM
}

TEST(RemoteFactsTest, ReadsThem) {
  const HostResult<RemoteFacts> facts =
      ParseFacts("10.0.0.1 5000 10.0.0.2 22\nLinux x86_64\n/opt/dsrank\n\ndsrun-end\n");
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->address, "10.0.0.2");
  EXPECT_EQ(facts->machine, "Linux x86_64");
  EXPECT_EQ(facts->dsrank, "/opt/dsrank");
  EXPECT_EQ(facts->folder, "");
  EXPECT_EQ(ParseFacts("1\n").failure().kind, FailureKind::kStart);
}

// A connection that answers with what a function makes of a command.
class ScriptedConnection : public RemoteConnection {
 public:
  using Answer = std::function<CommandResult(const RemoteCommand&)>;
  explicit ScriptedConnection(Answer answer) : answer_(std::move(answer)) {}

  void SetDeadline(Interrupter::Deadline /*deadline*/) override {}
  HostResult<CommandResult> Run(const RemoteCommand& command) override {
    lines.push_back(command.line);
    return answer_(command);
  }
  HostResult<std::unique_ptr<RemoteTunnel>> OpenTunnel(const HostPort& /*daemon*/) override {
    return HostFailure{};
  }
  std::string peer_address() const override { return ""; }
  std::string notice() const override { return ""; }

  std::vector<std::string> lines;

 private:
  const Answer answer_;
};

TEST(RemoteShellTest, SkipsWhatIsPrintedBeforeTheScript) {
  ScriptedConnection connection([](const RemoteCommand& command) {
    EXPECT_FALSE(command.IsEnough("Welcome!\n"));
    EXPECT_FALSE(command.IsEnough("Welcome!\n" + command.marker + "no end"));
    EXPECT_TRUE(command.IsEnough("no newline" + command.marker + "line\n"));
    return CommandResult{.status = 0,
                         .out = "Welcome!\nto dsrun-facts\n" + command.marker + "own\noutput\n"};
  });
  RemoteShell shell(&connection, {});
  const auto result = shell.Run({.text = "true", .one_line_is_enough = true});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->begun);
  EXPECT_EQ(result->out, "own\noutput\n");
  EXPECT_EQ(shell.noise(), "Welcome!");
}

TEST(RemoteShellTest, OutputWithoutTheMarkerIsNoOutputOfTheScript) {
  ScriptedConnection connection([](const RemoteCommand&) {
    return CommandResult{.status = 1, .out = "This account is not available\n"};
  });
  RemoteShell shell(&connection, {});
  const auto result = shell.Run({.text = "true"});
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->begun);
  EXPECT_EQ(result->out, "This account is not available\n");
  EXPECT_EQ(shell.noise(), "");
}

TEST(RemoteShellTest, NobodyCanGuessTheMarker) {
  std::string first;
  ScriptedConnection connection([&](const RemoteCommand& command) {
    EXPECT_EQ(command.marker.size(), std::string("dsrun-\n").size() + 32);
    EXPECT_NE(command.marker, first);
    first = command.marker;
    return CommandResult{.status = 0, .out = command.marker};
  });
  for (int i = 0; i < 2; ++i) {
    RemoteShell shell(&connection, {});
    const auto result = shell.Run({.text = "true"});
    ASSERT_TRUE(result.ok());
    EXPECT_TRUE(result->begun);
    EXPECT_EQ(shell.noise(), "");
  }
}

std::string AnswerLine(const std::string& error, std::uint32_t port, std::uint32_t pid) {
  v1::ListenResponse response;
  response.set_error(error);
  response.set_port(port);
  response.set_pid(pid);
  response.set_daemon_version("0.1.0");
  return v1::EncodeLine(response);
}

TEST(ListenResponseTest, TakesAPortOrAnError) {
  const HostResult<StartedDaemon> started = ParseListenResponse(AnswerLine("", 34567, 12));
  ASSERT_TRUE(started.ok());
  EXPECT_EQ(started->port, 34567);
  EXPECT_EQ(started->pid, 12);
  EXPECT_EQ(started->version, "0.1.0");
  EXPECT_EQ(ParseListenResponse(AnswerLine("no such address", 0, 0)).failure().message,
            "no such address");
  for (const std::string& bad :
       {std::string(), std::string("hello\n"), std::string("{}\n"), AnswerLine("", 70000, 1),
        AnswerLine("", 0, 1), AnswerLine("", 1, 0)}) {
    EXPECT_FALSE(ParseListenResponse(bad).ok()) << bad;
  }
}

TEST(GrpcTargetTest, BothFamilies) {
  EXPECT_EQ((StartedDaemon{.address = "10.0.0.2", .port = 5}).target(), "ipv4:10.0.0.2:5");
  EXPECT_EQ((StartedDaemon{.address = "fd00::2", .port = 5}).target(), "ipv6:[fd00::2]:5");
}

TEST(FailureTableTest, EveryHostWithItsReasonAndRemedy) {
  const std::vector<std::string> lines =
      MakeFailureTable({{"a", {.kind = FailureKind::kRefused, .message = "m1", .hint = "h1"}},
                        {"node-7", {.kind = FailureKind::kHostKey, .message = "m2"}}},
                       3);
  EXPECT_THAT(lines, ElementsAre("2 of 3 hosts cannot be used:",  //
                                 "  a       refused   m1",        //
                                 "                    -> h1",     //
                                 "  node-7  host key  m2"));
}

TEST(FanOutTest, PausesGrowAndAreJittered) {
  const FanOutOptions options{.first_pause = std::chrono::milliseconds(100)};
  EXPECT_EQ(PauseBefore(options, 1, 0.5).count(), 100);
  EXPECT_EQ(PauseBefore(options, 3, 0.5).count(), 400);
  EXPECT_EQ(PauseBefore(options, 1, 0.0).count(), 50);
  EXPECT_EQ(PauseBefore(options, 20, 0.5), options.longest_pause);
  EXPECT_THAT(PauseBefore(options, 1, 0.99).count(), AllOf(Ge(100), Lt(150)));
}

class FanOutRunTest : public ::testing::Test {
 protected:
  using Result = HostResult<FanOut::Accept>;
  static FanOut::Accept Nothing() {
    return [] {};
  }
  std::vector<HostOutcome> Run(int count, const FanOut::Attempt& attempt) {
    return FanOut::Run(count, options_, interrupter_, attempt, [](const FanOutProgress&) {});
  }
  const std::shared_ptr<Interrupter> interrupter_ = std::make_shared<Interrupter>();
  FanOutOptions options_{.at_once = 3, .first_pause = std::chrono::milliseconds(1)};
};

TEST_F(FanOutRunTest, RetriesOnlyTransientFailures) {
  std::array<std::atomic<int>, 3> tries{};
  const std::vector<HostOutcome> failures = Run(3, [&](int index, auto) -> Result {
    const int tried = ++tries[index];
    if (index == 0) return HostFailure{.kind = FailureKind::kHostKey};
    if (index == 1 && tried == 3) return Nothing();
    return HostFailure{.kind = FailureKind::kRefused, .transient = true};
  });
  EXPECT_EQ(failures[0].failure().kind, FailureKind::kHostKey);
  EXPECT_TRUE(failures[1].ok());
  EXPECT_EQ(failures[2].failure().kind, FailureKind::kRefused);
  EXPECT_EQ(tries[0], 1);
  EXPECT_EQ(tries[1], 3);
  EXPECT_EQ(tries[2], options_.tries);
}

TEST_F(FanOutRunTest, AServerThatHangsUpIsTriedUntilTheTimeIsOver) {
  int tries = 0;
  const std::vector<HostOutcome> failures = Run(1, [&](int, auto) -> Result {
    if (++tries == 6) return Nothing();
    return HostFailure{.kind = FailureKind::kHandshake, .transient = true};
  });
  EXPECT_TRUE(failures[0].ok());
}

TEST_F(FanOutRunTest, AnInterruptedTryDoesNotHideTheEarlierFailure) {
  int tries = 0;
  const std::vector<HostOutcome> failures = Run(1, [&](int, auto) -> Result {
    if (++tries == 1) return HostFailure{.kind = FailureKind::kRefused, .transient = true};
    return HostFailure{.kind = FailureKind::kTimeout, .transient = true};
  });
  EXPECT_EQ(failures[0].failure().kind, FailureKind::kRefused);
}

TEST_F(FanOutRunTest, NeverMoreAtOnceThanAllowed) {
  std::atomic<int> now = 0;
  std::atomic<int> most = 0;
  Run(40, [&](int, auto) -> Result {
    const int running = ++now;
    for (int seen = most; running > seen && !most.compare_exchange_weak(seen, running);) {
    }
    std::this_thread::yield();
    --now;
    return Nothing();
  });
  EXPECT_THAT(most.load(), AllOf(Ge(1), ::testing::Le(3)));
}

TEST_F(FanOutRunTest, AcceptsOnTheCallersThread) {
  const std::thread::id caller = std::this_thread::get_id();
  int accepted = 0;
  Run(40, [&](int, auto) -> Result {
    EXPECT_NE(std::this_thread::get_id(), caller);
    return FanOut::Accept([&] {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      ++accepted;
    });
  });
  EXPECT_EQ(accepted, 40);
}

TEST_F(FanOutRunTest, AnInterruptEndsThePauses) {
  options_.first_pause = std::chrono::hours(1);
  options_.timeout = std::chrono::hours(24);
  const std::vector<HostOutcome> failures = Run(2, [&](int index, auto) -> Result {
    if (index == 1) interrupter_->Interrupt();
    return HostFailure{.kind = FailureKind::kRefused, .transient = true};
  });
  EXPECT_FALSE(failures[0].ok());
  EXPECT_FALSE(failures[1].ok());
}

TEST_F(FanOutRunTest, AnInterruptEndsTheHostsThatHaveNotBegun) {
  std::atomic<int> begun = 0;
  const std::vector<HostOutcome> failures = Run(100, [&](int, HostAttempt* attempt) -> Result {
    ++begun;
    interrupter_->Interrupt();
    attempt->interrupter()->Sleep(std::chrono::hours(1));
    return HostFailure{.kind = FailureKind::kInterrupted};
  });
  for (const HostOutcome& each : failures) {
    EXPECT_EQ(each.failure().kind, FailureKind::kInterrupted);
  }
}

// A call that does not return before the test says so. Its owner may be gone by then.
struct Blocked {
  std::promise<void> entered;
  std::promise<void> may_return;
  std::promise<void> returned;
};

class FanOutHangTest : public FanOutRunTest {
 protected:
  // Host 0 blocks, the others are good.
  FanOut::Attempt BlockFirst() {
    return [blocked = blocked_, accepted = accepted_](int index, HostAttempt* attempt) -> Result {
      if (index == 0) {
        attempt->Enter({.doing = "asking nobody", .hint = "ask somebody"});
        blocked->entered.set_value();
        blocked->may_return.get_future().wait();
        blocked->returned.set_value_at_thread_exit();
      }
      return FanOut::Accept([=] { ++*accepted; });
    };
  }
  void EndBlock() {
    blocked_->may_return.set_value();
    blocked_->returned.get_future().wait();
  }
  const std::shared_ptr<Blocked> blocked_ = std::make_shared<Blocked>();
  const std::shared_ptr<std::atomic<int>> accepted_ = std::make_shared<std::atomic<int>>(0);
};

TEST_F(FanOutHangTest, ABlockedHostIsGivenUpAfterItsDeadline) {
  options_.at_once = 1;  // so that the others need another thread
  options_.timeout = std::chrono::milliseconds(1);
  const std::vector<HostOutcome> outcomes = Run(3, BlockFirst());
  const HostFailure& failure = outcomes[0].failure();
  EXPECT_EQ(failure.kind, FailureKind::kTimeout);
  EXPECT_TRUE(failure.hung);
  EXPECT_EQ(failure.message, "no end of asking nobody, not even after --ssh_timeout");
  EXPECT_EQ(failure.hint, "ask somebody");
  EXPECT_TRUE(outcomes[1].ok());
  EXPECT_TRUE(outcomes[2].ok());
  EndBlock();
  EXPECT_EQ(*accepted_, 2) << "it came too late";
}

TEST_F(FanOutHangTest, ABlockedHostIsGivenUpAfterAnInterrupt) {
  options_.timeout = std::chrono::hours(24);
  std::thread interrupting([&] {
    blocked_->entered.get_future().wait();
    interrupter_->Interrupt();
  });
  const std::vector<HostOutcome> outcomes = Run(1, BlockFirst());
  interrupting.join();
  EXPECT_EQ(outcomes[0].failure().kind, FailureKind::kInterrupted);
  EXPECT_EQ(outcomes[0].failure().message, "it was still asking nobody");
  EndBlock();
  EXPECT_EQ(*accepted_, 0);
}

TEST(InterrupterTest, ShutsSocketsDownWhenTheirTimeIsOver) {
  Interrupter interrupter;
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd mine(ends[0]);
  const UniqueFd other(ends[1]);
  char byte = 0;
  const Interrupter::Guard guard(&interrupter, mine.get(),
                                 std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
  EXPECT_EQ(::read(mine.get(), &byte, 1), 0);
  EXPECT_TRUE(guard.fired());
}

TEST(InterrupterTest, InterruptEndsCurrentAndLaterWatches) {
  Interrupter interrupter;
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd mine(ends[0]);
  const UniqueFd other(ends[1]);
  interrupter.Interrupt();
  EXPECT_FALSE(interrupter.Sleep(std::chrono::hours(1)));
  const Interrupter::Guard guard(&interrupter, mine.get(), Interrupter::Deadline::max());
  char byte = 0;
  EXPECT_EQ(::read(mine.get(), &byte, 1), 0);
}

TEST(DialTest, ReportsTheReasonForNoConnection) {
  Interrupter interrupter;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const HostResult<UniqueFd> refused = Dial({"127.0.0.1", 1}, deadline, &interrupter);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.failure().kind, FailureKind::kRefused);
  EXPECT_THAT(refused.failure().message, HasSubstr("127.0.0.1 port 1: Connection refused"));
  const HostResult<UniqueFd> unknown = Dial({"no-such-host.invalid", 22}, deadline, &interrupter);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.failure().kind, FailureKind::kName);
  EXPECT_EQ(LocalAddressTowards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(LocalAddressTowards("not an address"), "");
}

}  // namespace
}  // namespace ds::cli
