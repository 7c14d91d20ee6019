// The channel between hosts: who may call a daemon, and what strangers can do to it.

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/network/network_listener.h"
#include "proto/peer_name.h"
#include "runtime/base/files.h"
#include "tests/procs/daemon_job.h"
#include "tests/procs/network_daemon.h"
#include "tests/procs/strangers.h"
#include "tests/support/daemon_calls.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"
#include "tests/support/tcp_relay.h"

namespace ds::procs {
namespace {

using std::chrono::seconds;
using testing::Launch;

// A call with these means over TLS or without; nothing of it may reach the daemon's job.
StatusCode CodeOf(cli::DaemonClient& client) { return Prepare(client).status().code(); }

// Holds connections that never finish their handshake, and makes a new one for each that is hung up
// on.
class Crowd {
 public:
  Crowd(int size, int port) : port_(port), members_(ConnectStrangers(size, port, kFirstByte)) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) ReplaceTheHungUp();
    });
  }

 private:
  void ReplaceTheHungUp() {
    constexpr int kRoundMilliseconds = 10;
    std::vector<pollfd> polled;
    for (const UniqueFd& member : members_) polled.push_back({member.get(), POLLIN, 0});
    ::poll(polled.data(), polled.size(), kRoundMilliseconds);
    for (std::size_t i = 0; i < members_.size(); ++i) {
      // A handshake's bytes never come: what can be read is the end.
      if (polled[i].revents != 0) {
        members_[i] = std::move(ConnectStrangers(1, port_, kFirstByte).front());
      }
    }
  }

  const int port_;
  std::vector<UniqueFd> members_;
  std::jthread thread_;  // last: it uses the others
};

// A daemon with few descriptors: a quarter of them is for unfinished connections.
constexpr int kFewDescriptors = 256;
constexpr int kFewUnfinished = kFewDescriptors / static_cast<int>(daemon::kUnfinishedPartOfFiles);
NetworkDaemonOptions WithFewDescriptors() {
  const std::string limit = "ulimit -n " + std::to_string(kFewDescriptors) + " && exec \"$@\"";
  return {.wrapper = {"/bin/sh", "-c", limit, "sh"}};
}

// Why only root can see what the daemon has open.
constexpr char kClosedToItsUser[] = "the daemon is closed to its user's other processes";

std::string Content(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ChannelTest, AJobRunsOverIt) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  const auto prepared = Prepare(*client);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  EXPECT_GT(prepared->unix_nanos(), 0);
  ASSERT_TRUE(Launch(*client, RanksOf(2, {"say", "hello\n"})).ok());
  std::string out;
  const Status watched = testing::Watch(*client, {kJob, 1, 0}, [&](const v1::Event& event) {
    if (event.rank_output().stream() == v1::RankOutput::STDOUT) out += event.rank_output().data();
    if (event.has_generation_ended()) {
      EXPECT_EQ(event.generation_ended().stop_cause(), v1::STOP_NONE);
    }
  });
  EXPECT_TRUE(watched.ok()) << watched.message();
  EXPECT_EQ(out, "hello\nhello\n");
  static_cast<void>(Renew(*client, /*release=*/true));  // its answer may be lost with the daemon
  EXPECT_TRUE(daemon.AwaitEnd());
}

TEST(ChannelTest, RefusesCallerWithoutCertificate) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  cli::TlsOptions tls = daemon.Tls();
  tls.credentials.clear_certificate();
  tls.credentials.clear_private_key();
  cli::DaemonClient client(kJob, daemon.target(), tls);
  EXPECT_EQ(CodeOf(client), StatusCode::kUnavailable);
}

TEST(ChannelTest, PlaintextIsRefused) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  cli::DaemonClient client(kJob, ConnectTo("127.0.0.1", daemon.port()));
  EXPECT_EQ(CodeOf(client), StatusCode::kUnavailable);
}

TEST(ChannelTest, AnotherJobsControllerIsRefused) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  // Even one whose job has the same name.
  const auto other = cli::JobAuthority::Create(kJob);
  cli::TlsOptions tls = daemon.Tls();
  const std::string ours = tls.credentials.ca_certificate();
  tls.credentials = other->IssueController().value();
  tls.credentials.set_ca_certificate(ours);  // it trusts the daemon; the daemon must not trust it
  cli::DaemonClient client(kJob, daemon.target(), tls);
  EXPECT_EQ(CodeOf(client), StatusCode::kUnavailable);
}

TEST(ChannelTest, ADaemonsCertificateIsNotAControllers) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  cli::TlsOptions tls = daemon.Tls();
  tls.credentials = daemon.authority().IssueDaemon(1).value();
  cli::DaemonClient client(kJob, daemon.target(), tls);
  EXPECT_EQ(CodeOf(client), StatusCode::kUnavailable);
}

TEST(ChannelTest, TheControllerTakesOnlyTheDaemonItMeans) {
  const NetworkDaemon daemon({.host_index = 3});
  ASSERT_TRUE(daemon.ok());
  cli::TlsOptions tls = daemon.Tls();
  tls.daemon_name = v1::DaemonPeerName(kJob, 4);
  cli::DaemonClient another_host(kJob, daemon.target(), tls);
  EXPECT_EQ(CodeOf(another_host), StatusCode::kUnavailable);
  tls.daemon_name = v1::DaemonPeerName("another-job", 3);
  cli::DaemonClient another_job(kJob, daemon.target(), tls);
  EXPECT_EQ(CodeOf(another_job), StatusCode::kUnavailable);
  EXPECT_TRUE(Prepare(*daemon.Connect()).ok());
}

TEST(ChannelTest, TheControllerTakesNoDaemonOfAnotherAuthority) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  cli::TlsOptions tls = daemon.Tls();
  tls.credentials.set_ca_certificate(
      cli::JobAuthority::Create(kJob)->IssueController()->ca_certificate());
  cli::DaemonClient client(kJob, daemon.target(), tls);
  EXPECT_EQ(CodeOf(client), StatusCode::kUnavailable);
}

constexpr cli::CertificateDates kPast{.not_before = 0, .not_after = 1'000'000'000};
constexpr cli::CertificateDates kFuture{.not_before = 4'000'000'000, .not_after = 5'000'000'000};

TEST(ChannelTest, AControllersCertificateIsGoodBetweenItsDatesOnly) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  for (const cli::CertificateDates& dates : {kPast, kFuture}) {
    cli::TlsOptions tls = daemon.Tls();
    tls.credentials = daemon.authority().IssueController(dates).value();
    cli::DaemonClient client(kJob, daemon.target(), tls);
    EXPECT_EQ(CodeOf(client), StatusCode::kUnavailable);
  }
  EXPECT_TRUE(Prepare(*daemon.Connect()).ok());
}

// A server with a daemon's certificate, since dsrund does not start with one that has expired.
TEST(ChannelTest, ADaemonsCertificateIsGoodBetweenItsDatesOnly) {
  const cli::JobAuthority authority = cli::JobAuthority::Create(kJob).value();
  const cli::TlsOptions tls{.credentials = authority.IssueController().value(),
                            .daemon_name = v1::DaemonPeerName(kJob, 0)};
  const auto code_with = [&](const cli::CertificateDates& dates) {
    const v1::Credentials own = authority.IssueDaemon(0, dates).value();
    grpc::SslServerCredentialsOptions options;
    options.pem_key_cert_pairs.push_back({own.private_key(), own.certificate()});
    v1::Daemon::Service service;  // answers every call with UNIMPLEMENTED
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
    builder.RegisterService(&service);
    const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    cli::DaemonClient client(kJob, "ipv4:127.0.0.1:" + std::to_string(port), tls);
    return CodeOf(client);
  };
  EXPECT_EQ(code_with(cli::DatesOfCertificates(0)), StatusCode::kUnimplemented);
  EXPECT_EQ(code_with(kPast), StatusCode::kUnavailable);
  EXPECT_EQ(code_with(kFuture), StatusCode::kUnavailable);
}

TEST(ChannelTest, AHandshakeThatNeverEndsIsHungUpOn) {
  const NetworkDaemon daemon({.lease_seconds = 6});  // a handshake may take 2 s then
  ASSERT_TRUE(daemon.ok());
  const std::vector<UniqueFd> started = ConnectStrangers(1, daemon.port(), kFirstByte);
  EXPECT_TRUE(Prepare(*daemon.Connect()).ok()) << "others are served meanwhile";
  EXPECT_TRUE(AwaitHangUp(started[0]));
}

TEST(ChannelTest, SilentConnectionsCostTheDaemonNoDescriptor) {
  if (::geteuid() != 0) return ds::testing::SkipWithout("root", kClosedToItsUser);
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  ASSERT_TRUE(Prepare(*client).ok());
  const std::size_t before = CountDescriptors(daemon.pid());
  const std::vector<UniqueFd> strangers = ConnectStrangers(200, daemon.port(), "");
  const auto another = daemon.Connect();  // behind them
  ASSERT_TRUE(Prepare(*another).ok());
  EXPECT_EQ(CountDescriptors(daemon.pid()), before + 1);
}

TEST(ChannelTest, StrangersCannotUseUpItsDescriptors) {
  if (::geteuid() != 0) return ds::testing::SkipWithout("root", kClosedToItsUser);
  const NetworkDaemon daemon(WithFewDescriptors());
  ASSERT_TRUE(daemon.ok());
  const std::vector<UniqueFd> strangers = ConnectStrangers(400, daemon.port(), kFirstByte);
  EXPECT_TRUE(AwaitHangUp(strangers[400 - 2 * kFewUnfinished])) << "beyond the bound";
  EXPECT_LT(CountDescriptors(daemon.pid()), 3U * kFewUnfinished);
  const auto client = daemon.Connect();
  const auto prepared = Prepare(*client);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  EXPECT_TRUE(Launch(*client, RanksOf(2, {"wait"})).ok());
}

// They share the controller's address, and come again at once.
TEST(ChannelTest, TheControllerGetsBackInThroughACrowd) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  ds::testing::TcpRelay relay(daemon.port());
  const auto client = daemon.Connect(relay.target());
  ASSERT_TRUE(Prepare(*client).ok());
  const Crowd crowd(80, daemon.port());
  relay.Cut();
  // Well within its lease.
  StatusOr<v1::PrepareResponse> prepared = Prepare(*client);
  // A call that was under way when the connection broke says so; the next one connects.
  if (!prepared.ok()) prepared = Prepare(*client);
  EXPECT_TRUE(prepared.ok()) << prepared.status().message();
}

TEST(ChannelTest, AnOversizedRequestIsRefusedAndNothingElseHappens) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  v1::LaunchRequest request = RanksOf(1, {"wait"});
  request.add_files()->set_content(std::string(65 * 1024 * 1024, 'x'));
  EXPECT_EQ(Launch(*client, request).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Prepare(*client).ok());
}

TEST(ChannelTest, TheSameLaunchTwiceStartsNothing) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  ASSERT_TRUE(Launch(*client, RanksOf(1, {"wait"})).ok());
  EXPECT_EQ(Launch(*client, RanksOf(1, {"wait"})).status().code(), StatusCode::kAlreadyExists);
}

// Somebody who has recorded a controller's bytes sends them again.
TEST(ChannelTest, ARecordedConversationMeansNothingASecondTime) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  ds::testing::TcpRelay relay(daemon.port());
  const auto client = daemon.Connect(relay.target());
  ASSERT_TRUE(Launch(*client, RanksOf(1, {"say", "once"})).ok());
  EXPECT_TRUE(testing::Watch(*client, {kJob, 1, 0}, [](const v1::Event&) {}).ok());
  const std::string recorded = relay.Recorded();
  ASSERT_GT(recorded.size(), 1000U);
  EXPECT_EQ(recorded.find("say"), std::string::npos) << "it is encrypted";
  const UniqueFd again = ConnectTo("127.0.0.1", daemon.port());
  ASSERT_EQ(::send(again.get(), recorded.data(), recorded.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(recorded.size()));
  EXPECT_TRUE(AwaitHangUp(again));
  v1::LaunchRequest next = RanksOf(1, {"exit", "0"});
  next.set_generation(2);
  EXPECT_TRUE(Launch(*client, next).ok());
}

// It is linked statically, and the host's modules for OpenSSL need the host's C library.
TEST(ChannelTest, TheHostsConfigurationOfOpensslIsIgnored) {
  const ds::testing::TemporaryFolder folder;
  const std::string config = (folder.path() / "openssl.cnf").string();
  ASSERT_TRUE(
      WriteFileAtomically(config,
                          "openssl_conf = all\nconfig_diagnostics = 1\n[all]\nproviders = some\n"
                          "[some]\nmissing = module\n[module]\nmodule = /no/module.so\n"
                          "activate = 1\n")
          .ok());
  const NetworkDaemon daemon({.wrapper = {"/usr/bin/env", "OPENSSL_CONF=" + config}});
  ASSERT_TRUE(daemon.ok());
  EXPECT_TRUE(Prepare(*daemon.Connect()).ok());
}

TEST(ChannelTest, ItListensOnItsAddressAlone) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  EXPECT_TRUE(ConnectTo("127.0.0.1", daemon.port()).valid());
  EXPECT_FALSE(ConnectTo("127.0.0.2", daemon.port()).valid());
}

TEST(ChannelTest, ProtocolSkewIsNamed) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  grpc::SslCredentialsOptions credentials;
  const cli::TlsOptions tls = daemon.Tls();
  credentials.pem_root_certs = tls.credentials.ca_certificate();
  credentials.pem_private_key = tls.credentials.private_key();
  credentials.pem_cert_chain = tls.credentials.certificate();
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(tls.daemon_name);
  const auto stub = v1::Daemon::NewStub(
      grpc::CreateCustomChannel(daemon.target(), grpc::SslCredentials(credentials), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(30));
  v1::PrepareRequest request;
  request.set_job_id(kJob);
  request.set_protocol_version(v1::PROTOCOL_CURRENT + 1);
  request.set_dsrun_version("9.9");
  v1::PrepareResponse response;
  const grpc::Status status = stub->Prepare(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(status.error_message().find("dsrun 9.9 speaks protocol " +
                                        std::to_string(v1::PROTOCOL_CURRENT + 1) + ", dsrund "),
            std::string::npos)
      << status.error_message();
}

// A process that holds keys leaves no core file, whatever its limits are.
TEST(ChannelTest, KeysAreInNoCoreFile) {
  const ds::testing::TemporaryFolder folder;
  const std::string here = "cd " + folder.path().string() + " && ulimit -c unlimited && ";
  static_cast<void>(ds::testing::RunProgram({"/bin/sh", "-c", here + "kill -ABRT $$"}));
  if (std::filesystem::is_empty(folder.path())) {
    return ds::testing::SkipWithout(
        "core_files", "core files of this machine do not go to the working directory");
  }
  for (const auto& core : std::filesystem::directory_iterator(folder.path())) {
    std::filesystem::remove(core.path());
  }
  const NetworkDaemon daemon({.wrapper = {"/bin/sh", "-c", here + "exec \"$@\"", "sh"}});
  ASSERT_TRUE(daemon.ok());
  ASSERT_EQ(::kill(daemon.pid(), SIGABRT), 0);
  EXPECT_TRUE(daemon.AwaitGuardian());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ChannelTest, KeysAreNowhereToBeSeen) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  const std::string process = "/proc/" + std::to_string(daemon.pid());
  EXPECT_EQ(Content(process + "/cmdline").find("PRIVATE KEY"), std::string::npos);
  EXPECT_EQ(Content(process + "/environ").find("PRIVATE KEY"), std::string::npos);
  // They came by its standard input, and what it holds is closed to its user's other processes.
  std::error_code error;
  static_cast<void>(std::filesystem::read_symlink(process + "/fd/0", error));
  EXPECT_EQ(error == std::errc::permission_denied, ::geteuid() != 0) << error.message();
}

TEST(ChannelTest, TheStandardInputThatKeysCameByIsGone) {
  if (::geteuid() != 0) return ds::testing::SkipWithout("root", kClosedToItsUser);
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  const std::string folder = "/proc/" + std::to_string(daemon.pid()) + "/fd/";
  for (const char* fd : {"0", "1"}) {
    EXPECT_EQ(std::filesystem::read_symlink(folder + fd), "/dev/null");
  }
  // Messages go to its guardian.
  EXPECT_TRUE(std::filesystem::read_symlink(folder + "2").string().starts_with("pipe:"));
}

}  // namespace
}  // namespace ds::procs
