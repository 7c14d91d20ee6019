#include "cli/host/daemon_client.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <future>
#include <optional>
#include <utility>

#include "cli/host/connection_probe.h"
#include "cli/host/deadlines.h"
#include "proto/set_up_grpc.h"
#include "runtime/base/log.h"
#include "runtime/process/boot_time.h"

namespace ds::cli {
namespace {

// The data that a daemon of this host may send ahead of Watch's reading, in HTTP/2's terms.
constexpr int kLocalWindowBytes = 4 * 1024 * 1024;

// A connection holds room for a frame that it may have to encrypt, of 16 KiB if it is not told. The
// controller's messages are small.
constexpr int kTlsFrameBytes = 2 * 1024;

// Between two attempts to connect over a network.
constexpr std::chrono::milliseconds kFirstPause{50};

// The one place where gRPC's errors become ours; the codes are numerically equal.
Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  return Status(static_cast<StatusCode>(status.error_code()), status.error_message());
}

using Async = v1::Daemon::StubInterface::async_interface;

// A daemon has a fixed number of threads for calls. It refuses a small call like that only when all
// are at work, and the call may come again.
template <typename Response>
StatusOr<Response> OrUnanswered(const StatusOr<Response>& answer) {
  if (answer.status().code() != StatusCode::kResourceExhausted) return answer;
  return UnavailableError("the daemon has no thread for another call");
}

v1::PrepareRequest AddVersions(v1::PrepareRequest request) {
  request.set_protocol_version(v1::PROTOCOL_CURRENT);
  request.set_dsrun_version(DS_VERSION);
  return request;
}

grpc::ChannelArguments CommonArguments() {
  v1::SetUpGrpc<LogDebug>();
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
  // The probe for a network's bandwidth and delay sends a ping for every message.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLocalWindowBytes);
  return grpc::CreateCustomInsecureChannelFromFd("dsrund", fd, arguments);
}

std::shared_ptr<grpc::Channel> MakeTlsChannel(const std::string& target, const TlsOptions& tls) {
  grpc::ChannelArguments arguments = CommonArguments();
  // The name that TLS checks. gRPC calls this a means for tests because it usually is the host's;
  // ours says which daemon of which job this is, whatever address it has.
  arguments.SetSslTargetNameOverride(tls.daemon_name);
  // No other client's connection is shared, which may have shown another certificate, nor that of
  // this client's other channel.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_TSI_MAX_FRAME_SIZE, kTlsFrameBytes);
  const int third = static_cast<int>(tls.lease.count() / 3);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, third);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, third);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // 0 = as many as needed
  // Broken connections are made anew well within the lease; an attempt may take a third of it.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstPause.count());
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, third);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, third / 4);
  return grpc::CreateCustomChannel(
      target, tls.made ? tls.made : MakeChannelCredentials(tls.credentials), arguments);
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const v1::Credentials& credentials) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = credentials.ca_certificate();
  options.pem_private_key = credentials.private_key();
  options.pem_cert_chain = credentials.certificate();
  return grpc::SslCredentials(options);
}

// The context of one call, known to the client as long as the call goes on.
class DaemonClient::Context {
 public:
  Context(DaemonClient* client, std::chrono::milliseconds timeout, CallKind kind)
      : client_(client) {
    context_.set_deadline(std::chrono::system_clock::now() + timeout);
    const std::lock_guard lock(client_->mutex_);
    client_->calls_.emplace(&context_, kind);
    const bool unwanted = kind == CallKind::kStart && client_->starts_cancelled_;
    if (client_->abandoned_ || unwanted) context_.TryCancel();
  }
  ~Context() {
    const std::lock_guard lock(client_->mutex_);
    client_->calls_.erase(&context_);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  grpc::ClientContext* get() { return &context_; }

 private:
  DaemonClient* const client_;
  grpc::ClientContext context_;
};

DaemonClient::DaemonClient(std::string job_id, UniqueFd connection,
                           std::chrono::milliseconds launch_timeout)
    : job_id_(std::move(job_id)),
      launch_timeout_(launch_timeout),
      control_(v1::Daemon::NewStub(MakeLocalChannel(std::move(connection)))),
      term_(BootTime()) {}

DaemonClient::DaemonClient(std::string job_id, const std::string& target, const TlsOptions& tls,
                           std::unique_ptr<RemoteTunnel> tunnel)
    : job_id_(std::move(job_id)),
      network_target_(target),
      launch_timeout_(deadlines::kCall),
      tunnel_(std::move(tunnel)),
      control_(v1::Daemon::NewStub(MakeTlsChannel(target, tls))),
      bulk_(v1::Daemon::NewStub(MakeTlsChannel(target, tls))),
      term_(BootTime()) {}

DaemonClient::~DaemonClient() {
  Abandon();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_ == 0; });
}

void DaemonClient::Abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  term_.GiveUp();
  if (const auto watch = watch_.lock()) watch->Cancel();
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
void DaemonClient::Call(Method<Request, Response> method, const Request& request,
                        const CallOptions& options, AnswerCallback<Response> done) {
  struct Pending {
    Pending(DaemonClient* client, const CallOptions& call_options)
        : context(client, call_options.timeout, call_options.kind) {}
    Context context;
    Request request;
    Response response;
    AnswerCallback<Response> done;
  };
  auto pending = std::make_shared<std::optional<Pending>>();
  pending->emplace(this, options);
  (*pending)->request = request;
  (*pending)->done = std::move(done);
  {
    const std::lock_guard lock(mutex_);
    ++pending_;
  }
  v1::Daemon::Stub* const stub = options.stub == nullptr ? control_.get() : options.stub;
  (stub->async()->*method)((*pending)->context.get(), &(*pending)->request, &(*pending)->response,
                           [this, pending](const grpc::Status& status) {
                             if (status.ok()) {
                               (*pending)->done(std::move((*pending)->response));
                             } else {
                               (*pending)->done(FromGrpc(status));
                             }
                             pending->reset();  // it knows the client, which may go after this
                             const std::lock_guard lock(mutex_);
                             --pending_;
                             changed_.notify_all();
                           });
}

void DaemonClient::Begin(const v1::PrepareRequest& request,
                         AnswerCallback<v1::PrepareResponse> done) {
  Call<v1::PrepareRequest, v1::PrepareResponse>(
      &Async::Prepare, AddVersions(request), {deadlines::kCall, CallKind::kStart}, std::move(done));
}

void DaemonClient::Begin(const v1::LaunchRequest& request,
                         AnswerCallback<v1::LaunchResponse> done) {
  // The daemon looks for the program within the limit of the start.
  const std::chrono::duration<double> start(request.start_seconds());
  const auto timeout =
      launch_timeout_ + std::chrono::duration_cast<std::chrono::milliseconds>(start);
  Call<v1::LaunchRequest, v1::LaunchResponse>(&Async::Launch, request,
                                              {timeout, CallKind::kStart, bulk()}, std::move(done));
}

void DaemonClient::Begin(const v1::StopRequest& request, AnswerCallback<v1::StopResponse> done) {
  Call<v1::StopRequest, v1::StopResponse>(
      &Async::Stop, request, {deadlines::kRepeatedCall},
      [done = std::move(done)](const auto& answer) { done(OrUnanswered(answer)); });
}

void DaemonClient::Begin(const v1::SignalRequest& request,
                         AnswerCallback<v1::SignalResponse> done) {
  Call<v1::SignalRequest, v1::SignalResponse>(&Async::Signal, request, {deadlines::kRepeatedCall},
                                              std::move(done));
}

void DaemonClient::Begin(const v1::ShareRequest& request, AnswerCallback<v1::ShareResponse> done) {
  Call<v1::ShareRequest, v1::ShareResponse>(
      &Async::Share, request, {deadlines::kRepeatedCall},
      [done = std::move(done)](const auto& answer) { done(OrUnanswered(answer)); });
}

void DaemonClient::Begin(const v1::InspectRequest& request,
                         AnswerCallback<v1::InspectResponse> done) {
  Call<v1::InspectRequest, v1::InspectResponse>(
      &Async::Inspect, request, {deadlines::kInspect, CallKind::kStart}, std::move(done));
}

StatusOr<v1::InputResponse> DaemonClient::Input(const v1::InputRequest& request) {
  std::promise<StatusOr<v1::InputResponse>> answer;
  Call<v1::InputRequest, v1::InputResponse>(
      &Async::Input, request, {deadlines::kRepeatedCall, CallKind::kOther, bulk()},
      [&](const StatusOr<v1::InputResponse>& response) { answer.set_value(response); });
  return OrUnanswered(answer.get_future().get());
}

void DaemonClient::Renew(const RenewCall& call, DoneCallback done) {
  v1::RenewRequest request;
  request.set_job_id(job_id_);
  request.set_release(call.release);
  const std::chrono::nanoseconds sent = BootTime();
  {
    const std::lock_guard lock(mutex_);
    request.set_answered(term_.answered());
  }
  Call<v1::RenewRequest, v1::RenewResponse>(
      &Async::Renew, request, {call.timeout},
      [this, sent, done = std::move(done)](const StatusOr<v1::RenewResponse>& answer) {
        if (answer.ok()) {
          const std::chrono::nanoseconds now = BootTime();
          const std::lock_guard lock(mutex_);
          term_.OnAnswer(answer->boot_nanos(), now);
          clock_.OnAnswer(sent, std::chrono::nanoseconds(answer->boot_nanos()), now);
        }
        done(answer.status());
      });
}

std::chrono::nanoseconds DaemonClient::LeaseFrom() const {
  const std::lock_guard lock(mutex_);
  return term_.from();
}

std::optional<TimeRange> DaemonClient::ConvertTime(std::chrono::nanoseconds boot_time) const {
  const std::lock_guard lock(mutex_);
  return clock_.Convert(boot_time, BootTime());
}

std::optional<HostClock::Offset> DaemonClient::ClockOffset() const {
  const std::lock_guard lock(mutex_);
  return clock_.offset();
}

void DaemonClient::RestoreClock(const HostClock::Offset& offset) {
  const std::lock_guard lock(mutex_);
  clock_.Restore(offset);
}

void DaemonClient::BeginWatch(const WatchedGeneration& generation, WatchCallbacks callbacks) {
  BeginWatch(WatchOptions{.job_id = job_id_,
                          .generation = static_cast<std::uint32_t>(generation.number),
                          .again = generation.again},
             std::move(callbacks));
}

std::shared_ptr<EventStream> DaemonClient::BeginWatch(const WatchOptions& options,
                                                      WatchCallbacks callbacks) {
  {
    const std::lock_guard lock(mutex_);
    ++pending_;
  }
  callbacks.on_end = [this, on_end = std::move(callbacks.on_end)](const Status& status) {
    on_end(status);
    const std::lock_guard lock(mutex_);
    --pending_;
    changed_.notify_all();
  };
  const auto stream =
      EventStream::Begin({.stub = bulk(), .over_network = leased(), .last_event = &last_event_},
                         options, std::move(callbacks));
  const std::lock_guard lock(mutex_);
  watch_ = stream;
  if (abandoned_) stream->Cancel();
  return stream;
}

ProbeResult DaemonClient::Probe(std::chrono::milliseconds timeout) const {
  if (network_target_.empty()) return {};
  return ProbeTarget(network_target_, timeout);
}

}  // namespace ds::cli
