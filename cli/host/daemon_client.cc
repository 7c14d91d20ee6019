#include "cli/host/daemon_client.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/host/connection_probe.h"
#include "proto/grpc_log.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/process/boot_time.h"

namespace ds::cli {
namespace {

// A stream is renewed when this has passed, so that one which died silently does not live for ever.
constexpr std::chrono::hours kWatchDeadline{1};

// What is sent again when its answer is lost keeps nobody waiting for long: a Stop that fails with
// its connection, input and shared values, for which the end of a job does not wait.
constexpr std::chrono::seconds kRepeatedCallTimeout{5};

// Half of what the daemon sends ahead would do; a quarter keeps it from ever waiting for us.
constexpr std::size_t kAcknowledgeEveryBytes = 256 * 1024;

// What a daemon of this host may send ahead of Watch's reading, in HTTP/2's terms.
constexpr int kLocalWindowBytes = 4 * 1024 * 1024;

// Between two attempts to go on watching over a network.
constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kLongestPause{1000};
constexpr std::chrono::milliseconds kProbePatience{1000};

// The one place where gRPC's errors become ours; the codes are numerically equal.
Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  return Status(static_cast<StatusCode>(status.error_code()), status.error_message());
}

// A daemon has so many threads for calls and no more. That all are at work is the one thing which
// makes it refuse a small call like that, and the call may come again.
template <typename Response>
StatusOr<Response> OrUnanswered(StatusOr<Response> answer) {
  if (answer.status().code() != StatusCode::kResourceExhausted) return answer;
  return UnavailableError("the daemon has no thread for another call");
}

void SetTimeout(grpc::ClientContext* context, std::chrono::milliseconds timeout) {
  context->set_deadline(std::chrono::system_clock::now() + timeout);
}

grpc::ChannelArguments CommonArguments() {
  v1::SendGrpcLogTo<LogDebug>();
  grpc::ChannelArguments arguments;
  // A proxy or a lookup of service configuration in DNS is never wanted.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return arguments;
}

std::shared_ptr<grpc::Channel> MakeLocalChannel(UniqueFd connection) {
  const int fd = connection.Release();  // gRPC closes it
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  grpc::ChannelArguments arguments = CommonArguments();
  // What a network's bandwidth and delay call for is found out with a ping for every message.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLocalWindowBytes);
  return grpc::CreateCustomInsecureChannelFromFd("dsrund", fd, arguments);
}

std::shared_ptr<grpc::Channel> MakeTlsChannel(const std::string& target, const TlsOptions& tls) {
  grpc::ChannelArguments arguments = CommonArguments();
  // The name that TLS checks. gRPC calls this a means for tests because it usually is the host's;
  // ours says which daemon of which job this is, whatever address it has.
  arguments.SetSslTargetNameOverride(tls.daemon_name);
  // No other client's connection is shared: it may have shown another certificate.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const int third = static_cast<int>(tls.lease.count() / 3);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, third);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, third);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // 0 = as many as needed
  // Broken connections are made anew well within the lease; an attempt may take a third of it.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstPause.count());
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, third);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, third / 4);
  grpc::SslCredentialsOptions credentials;
  credentials.pem_root_certs = tls.credentials.ca_certificate();
  credentials.pem_private_key = tls.credentials.private_key();
  credentials.pem_cert_chain = tls.credentials.certificate();
  return grpc::CreateCustomChannel(target, grpc::SslCredentials(credentials), arguments);
}

}  // namespace

// The context of one call, known to the client as long as the call goes on.
class DaemonClient::Call {
 public:
  Call(DaemonClient* client, std::chrono::milliseconds timeout, CallKind kind = CallKind::kOther)
      : client_(client) {
    SetTimeout(&context_, timeout);
    const std::lock_guard lock(client_->mutex_);
    client_->calls_.emplace(&context_, kind);
    const bool unwanted = kind == CallKind::kStart && client_->starts_cancelled_;
    if (client_->abandoned_ || unwanted) context_.TryCancel();
  }
  ~Call() {
    const std::lock_guard lock(client_->mutex_);
    client_->calls_.erase(&context_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  grpc::ClientContext* context() { return &context_; }

 private:
  DaemonClient* const client_;
  grpc::ClientContext context_;
};

// A Launch that has been sent. What is never answered is cancelled.
class DaemonClient::PendingLaunch {
 public:
  PendingLaunch(DaemonClient* client, const v1::LaunchRequest& request,
                std::chrono::milliseconds timeout)
      : call_(client, timeout, CallKind::kStart),
        reader_(client->stub_->AsyncLaunch(call_.context(), request, &answers_)) {
    reader_->Finish(&response_, &status_, this);
  }
  ~PendingLaunch() {
    if (answered_) return;
    call_.context()->TryCancel();
    Await();
  }
  PendingLaunch(const PendingLaunch&) = delete;
  PendingLaunch& operator=(const PendingLaunch&) = delete;

  StatusOr<v1::LaunchResponse> Take() {
    Await();
    DS_RETURN_IF_ERROR(FromGrpc(status_));
    return std::move(response_);
  }

 private:
  void Await() {
    void* tag = nullptr;
    bool ok = false;
    answered_ = answers_.Next(&tag, &ok);
  }

  Call call_;
  grpc::CompletionQueue answers_;  // of one
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::LaunchResponse>> reader_;
  v1::LaunchResponse response_;
  grpc::Status status_;
  bool answered_ = false;
};

DaemonClient::DaemonClient(std::string job_id, UniqueFd connection,
                           std::chrono::milliseconds launch_timeout)
    : job_id_(std::move(job_id)),
      launch_timeout_(launch_timeout),
      stub_(v1::Daemon::NewStub(MakeLocalChannel(std::move(connection)))),
      lease_from_(BootTime()) {}

DaemonClient::DaemonClient(std::string job_id, const std::string& target, const TlsOptions& tls,
                           std::unique_ptr<RemoteTunnel> tunnel)
    : job_id_(std::move(job_id)),
      network_target_(target),
      launch_timeout_(kCallTimeout),
      tunnel_(std::move(tunnel)),
      stub_(v1::Daemon::NewStub(MakeTlsChannel(target, tls))),
      lease_from_(BootTime()) {}

DaemonClient::~DaemonClient() {
  Abandon();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return renewals_ == 0; });
}

void DaemonClient::Abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  watch_cancelled_ = true;
  for (const auto& [context, kind] : calls_) context->TryCancel();
  changed_.notify_all();
}

void DaemonClient::CancelStarts() {
  const std::lock_guard lock(mutex_);
  starts_cancelled_ = true;
  for (const auto& [context, kind] : calls_) {
    if (kind == CallKind::kStart) context->TryCancel();
  }
}

template <typename Request, typename Response>
StatusOr<Response> DaemonClient::Answer(Method<Request, Response> method, const Request& request,
                                        std::chrono::milliseconds timeout, CallKind kind) {
  Call call(this, timeout, kind);
  Response response;
  DS_RETURN_IF_ERROR(FromGrpc((stub_.get()->*method)(call.context(), request, &response)));
  return response;
}

StatusOr<v1::PrepareResponse> DaemonClient::Prepare(const v1::PrepareRequest& request) {
  v1::PrepareRequest versioned = request;
  versioned.set_protocol_version(v1::PROTOCOL_CURRENT);
  versioned.set_dsrun_version(DS_VERSION);
  return Answer(&v1::Daemon::Stub::Prepare, versioned, kCallTimeout, CallKind::kStart);
}

StatusOr<v1::LaunchResponse> DaemonClient::Launch(const v1::LaunchRequest& request) {
  return BeginLaunch(request).get();
}

std::future<StatusOr<v1::LaunchResponse>> DaemonClient::BeginLaunch(
    const v1::LaunchRequest& request) {
  auto launch = std::make_unique<PendingLaunch>(this, request, launch_timeout_);
  return std::async(std::launch::deferred, [launch = std::move(launch)] { return launch->Take(); });
}

StatusOr<v1::StopResponse> DaemonClient::Stop(const v1::StopRequest& request) {
  return OrUnanswered(Answer(&v1::Daemon::Stub::Stop, request, kRepeatedCallTimeout));
}

void DaemonClient::Renew(const RenewCall& call, RenewCallback done) {
  // Lives until the callback has returned.
  struct Renewal {
    Renewal(DaemonClient* client, std::chrono::milliseconds call_timeout)
        : call(client, call_timeout) {}
    Call call;
    v1::RenewRequest request;
    v1::RenewResponse response;
    RenewCallback done;
  };
  auto renewal = std::make_shared<std::optional<Renewal>>();
  renewal->emplace(this, call.timeout);
  (*renewal)->request.set_job_id(job_id_);
  (*renewal)->request.set_release(call.release);
  (*renewal)->done = std::move(done);
  {
    const std::lock_guard lock(mutex_);
    ++renewals_;
    (*renewal)->request.set_answered(answered_);
  }
  stub_->async()->Renew((*renewal)->call.context(), &(*renewal)->request, &(*renewal)->response,
                        [this, renewal](const grpc::Status& status) {
                          if (status.ok()) TakeAnswer((*renewal)->response);
                          (*renewal)->done(FromGrpc(status));
                          renewal->reset();  // it knows the client, which may go after this
                          const std::lock_guard lock(mutex_);
                          --renewals_;
                          changed_.notify_all();
                        });
}

void DaemonClient::TakeAnswer(const v1::RenewResponse& response) {
  const std::lock_guard lock(mutex_);
  if (abandoned_) return;  // no renewal will name it
  answered_ = std::max<std::uint64_t>(answered_, response.boot_nanos());
  lease_from_ = BootTime();
}

std::chrono::nanoseconds DaemonClient::LeaseFrom() const {
  const std::lock_guard lock(mutex_);
  return lease_from_;
}

StatusOr<v1::SignalResponse> DaemonClient::Signal(const v1::SignalRequest& request) {
  return Answer(&v1::Daemon::Stub::Signal, request, kRepeatedCallTimeout);
}

StatusOr<v1::InputResponse> DaemonClient::Input(const v1::InputRequest& request) {
  return OrUnanswered(Answer(&v1::Daemon::Stub::Input, request, kRepeatedCallTimeout));
}

Status DaemonClient::Watch(int generation, const EventCallback& on_event) {
  return Watch({.job_id = job_id_, .generation = static_cast<std::uint32_t>(generation)}, on_event);
}

StatusOr<v1::ShareResponse> DaemonClient::Share(const v1::ShareRequest& request) {
  return Answer(&v1::Daemon::Stub::Share, request, kRepeatedCallTimeout);
}

Status DaemonClient::Watch(const WatchOptions& options, const EventCallback& on_event) {
  {
    const std::lock_guard lock(mutex_);
    watching_ = true;
    watch_cancelled_ = abandoned_;
  }
  Position position{options.after_sequence, false};
  const Status status = WatchAcrossConnections(options, on_event, &position);
  const std::lock_guard lock(mutex_);
  watching_ = false;
  if (position.ended) return OkStatus();
  if (watch_cancelled_) return CancelledError("watching was cancelled");
  if (status.ok()) return UnavailableError("the daemon ended the event stream before the job");
  return status;
}

Status DaemonClient::WatchAcrossConnections(const WatchOptions& options,
                                            const EventCallback& on_event, Position* position) {
  std::chrono::milliseconds pause = kFirstPause;
  while (true) {
    const std::uint64_t before = position->sequence;
    Status status = WatchOnce(options, on_event, position);
    if (position->ended) return OkStatus();
    if (status.code() == StatusCode::kDeadlineExceeded) continue;
    if (network_target_.empty() || status.code() != StatusCode::kUnavailable) return status;
    const ProbeResult probe = ProbeTarget(network_target_, kProbePatience);
    if (probe.reachability == Reachability::kRefused) {
      return UnavailableError(status.message() + "; then: " + probe.detail);
    }
    if (position->sequence != before) pause = kFirstPause;
    if (!WaitToReconnect(pause)) return CancelledError("watching was cancelled");
    pause = std::min(pause * 2, kLongestPause);
  }
}

bool DaemonClient::WaitToReconnect(std::chrono::milliseconds pause) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, pause, [this] { return watch_cancelled_.load(); });
}

void DaemonClient::CancelWatch() {
  const std::lock_guard lock(mutex_);
  if (!watching_) return;
  watch_cancelled_ = true;
  if (watch_ != nullptr) watch_->TryCancel();
  changed_.notify_all();
}

ProbeResult DaemonClient::Probe(std::chrono::milliseconds timeout) const {
  if (network_target_.empty()) return {};
  return ProbeTarget(network_target_, timeout);
}

Status DaemonClient::WatchOnce(const WatchOptions& options, const EventCallback& on_event,
                               Position* position) {
  Call call(this, kWatchDeadline);
  {
    const std::lock_guard lock(mutex_);
    if (watch_cancelled_) return CancelledError("watching was cancelled");
    watch_ = call.context();
  }
  const auto stream = stub_->Watch(call.context());
  v1::WatchRequest request;
  request.set_job_id(options.job_id);
  request.set_generation(options.generation);
  request.set_after_sequence(position->sequence);
  stream->Write(request);  // a failure shows in Read and Finish
  v1::EventBatch batch;
  std::size_t unacknowledged = 0;
  while (stream->Read(&batch)) {
    for (const v1::Event& event : batch.events()) {
      if (watch_cancelled_) break;
      last_event_ = Clock::System().Now();
      on_event(event);
      position->sequence = event.sequence();
      position->ended = position->ended || event.has_generation_ended();
    }
    if (position->ended) call.context()->TryCancel();  // the daemon has nothing more to say
    unacknowledged += batch.ByteSizeLong();
    if (unacknowledged >= kAcknowledgeEveryBytes) {
      request.set_after_sequence(position->sequence);
      stream->Write(request);
      unacknowledged = 0;
    }
  }
  Status status = FromGrpc(stream->Finish());
  const std::lock_guard lock(mutex_);
  watch_ = nullptr;
  return status;
}

}  // namespace ds::cli
