// Daemons that speak the protocol and start nothing, for the budget of the controller: many of them
// in one process, each with a port and a certificate of its own.
//
//     simulated_daemons FILE    FILE: a ListenRequest on each line, one for each daemon
//
// Says their ports in one line once all take calls, and lives until its standard input ends.

#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "proto/dsrun.grpc.pb.h"
#include "proto/message_line.h"
#include "runtime/process/boot_time.h"

namespace ds {
namespace {

namespace v1 = ::dsrun::v1;

// One rank, which runs until a Stop.
class SimulatedDaemon final : public v1::Daemon::CallbackService {
 public:
  class Stream final : public grpc::ServerBidiReactor<v1::WatchRequest, v1::EventBatch> {
   public:
    explicit Stream(SimulatedDaemon* daemon) : daemon_(*daemon) { StartRead(&request_); }

    void OnReadDone(bool ok) override {
      if (!ok) return End();
      if (!std::exchange(begun_, true)) {
        v1::Event* const event = batch_.add_events();
        event->set_sequence(1);
        event->mutable_rank_started()->set_rank(daemon_.rank_);
        StartWrite(&batch_);
      }
      StartRead(&request_);
    }
    void OnWriteDone(bool ok) override {
      if (ok && !std::exchange(started_, true)) daemon_.Connect(this);
    }
    void OnCancel() override { End(); }
    void OnDone() override {
      daemon_.Connect(nullptr);
      delete this;
    }
    // Once: the end of the rank and of its generation.
    void SayEnd() {
      batch_.Clear();
      v1::RankExited* const exit = batch_.add_events()->mutable_rank_exited();
      exit->set_rank(daemon_.rank_);
      exit->set_signal(SIGTERM);
      exit->set_stopping(true);
      batch_.add_events()->mutable_generation_ended()->set_stop_cause(v1::STOP_REQUESTED);
      std::uint64_t sequence = 1;
      for (v1::Event& event : *batch_.mutable_events()) event.set_sequence(++sequence);
      StartWrite(&batch_);
    }

   private:
    void End() {
      const std::lock_guard lock(mutex_);
      if (std::exchange(ended_, true)) return;
      Finish(grpc::Status::OK);
    }

    SimulatedDaemon& daemon_;
    v1::WatchRequest request_;
    v1::EventBatch batch_;
    bool begun_ = false;
    bool started_ = false;  // its first words have gone out
    std::mutex mutex_;
    bool ended_ = false;  // guarded by mutex_
  };

  explicit SimulatedDaemon(const v1::ListenRequest& request) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = request.credentials().ca_certificate();
    options.pem_key_cert_pairs.push_back(
        {request.credentials().private_key(), request.credentials().certificate()});
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  int port() const { return server_ == nullptr ? 0 : port_; }

  grpc::ServerUnaryReactor* Prepare(grpc::CallbackServerContext* context,
                                    const v1::PrepareRequest* /*request*/,
                                    v1::PrepareResponse* response) override {
    response->set_core_count(1);
    response->set_master_port(1);
    return Answer(context);
  }
  grpc::ServerUnaryReactor* Launch(grpc::CallbackServerContext* context,
                                   const v1::LaunchRequest* request,
                                   v1::LaunchResponse* /*response*/) override {
    rank_ = request->ranks(0).rank();
    return Answer(context);
  }
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context,
                                 const v1::StopRequest* /*request*/,
                                 v1::StopResponse* /*response*/) override {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (stream_ != nullptr) std::exchange(stream_, nullptr)->SayEnd();
    return Answer(context);
  }
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const v1::RenewRequest* /*request*/,
                                  v1::RenewResponse* response) override {
    response->set_boot_nanos(static_cast<std::uint64_t>(BootTime().count()));
    return Answer(context);
  }
  grpc::ServerUnaryReactor* Share(grpc::CallbackServerContext* context,
                                  const v1::ShareRequest* /*request*/,
                                  v1::ShareResponse* /*response*/) override {
    return Answer(context);
  }
  grpc::ServerBidiReactor<v1::WatchRequest, v1::EventBatch>* Watch(
      grpc::CallbackServerContext* /*context*/) override {
    return new Stream(this);  // goes in OnDone
  }

 private:
  static grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  void Connect(Stream* stream) {
    const std::lock_guard lock(mutex_);
    stream_ = stream;
    if (stream != nullptr && stopped_) std::exchange(stream_, nullptr)->SayEnd();
  }

  std::mutex mutex_;
  Stream* stream_ = nullptr;  // guarded by mutex_, like all below
  bool stopped_ = false;
  std::uint32_t rank_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

int Serve(const char* file) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<std::unique_ptr<SimulatedDaemon>> daemons;
  std::ifstream lines(file);
  std::string ports;
  for (std::string line; std::getline(lines, line);) {
    v1::ListenRequest request;
    if (!v1::DecodeLine(line, &request)) return 2;
    daemons.push_back(std::make_unique<SimulatedDaemon>(request));
    ports += std::to_string(daemons.back()->port()) + " ";
  }
  std::puts(ports.c_str());
  std::fflush(stdout);
  std::array<char, 64> ignored;
  while (::read(STDIN_FILENO, ignored.data(), ignored.size()) > 0) {
  }
  std::_Exit(0);  // nobody waits for connections
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) { return argc == 2 ? ds::Serve(argv[1]) : 2; }
