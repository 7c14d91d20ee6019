#include "runtime/comm/net/connect_peers.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "runtime/comm/net/peer_proof.h"

namespace ds::comm {
namespace {

using std::chrono::steady_clock;
using Deadline = steady_clock::time_point;
// A rank of another host, and the index of the rail to it.
using PeerRail = std::pair<int, int>;

// Timeout for an answer, after which the peer's next address is tried too, and for the next message
// of a caller.
constexpr std::chrono::seconds kAttemptTimeout{10};
// Pause before a peer's addresses are tried again after all have failed: networks come up late.
constexpr std::chrono::milliseconds kPause{250};
// Connections allowed beyond the ranks that may connect. If there are more, the oldest silent one
// is closed.
constexpr int kMostStrangers = 256;
// Connections accepted before existing ones are served again.
constexpr int kCallsPerRound = 64;

// Attempt: a connection that is being established.
struct Attempt {
  enum class Step { kDial, kAwaitAnswer, kAwaitWelcome, kAwaitGreeting, kAwaitProof, kShake };
  bool calls = false;
  Step step = Step::kAwaitGreeting;
  short events = POLLIN;               // awaited by the step
  UniqueFd fd;                         // before the proof
  std::unique_ptr<PeerStream> stream;  // after the proof
  bool ended = false;
  Deadline deadline;
  Introduction introduction;
  MessageReader reader;
  PeerListener::Endpoint endpoint;  // of an outgoing connection

  int descriptor() const { return stream == nullptr ? fd.get() : stream->fd(); }
  // Returns the other end's rank; for an incoming connection, as that end reports it.
  int peer() const { return static_cast<int>(calls ? introduction.to : introduction.from); }
  PeerRail way() const { return {peer(), static_cast<int>(introduction.rail)}; }
};

// Call: a rank to which this rank connects, over one rail. Its addresses are tried in order, then
// again from the first. An address that does not answer in time stays pending while the next is
// tried.
struct Call {
  std::vector<PeerListener::Endpoint> endpoints;
  std::size_t next = 0;    // index of the next endpoint
  Deadline next_dial;      // at the latest
  int in_flight = 0;       // attempts
  std::string tried = {};  // results of the attempts that have failed since the first address
  StatusCode failure = StatusCode::kUnavailable;
};

class Connector {
 public:
  Connector(const ConnectPeersOptions& options, const PeerListener& listener,
            const std::vector<PeerRecord>& records)
      : options_(options),
        listener_(listener),
        records_(records),
        first_here_(options.rank - records[static_cast<std::size_t>(options.rank)].local_rank),
        deadline_(steady_clock::now() + options.timeout),
        reach_deadline_(std::min(deadline_, steady_clock::now() + options.reach_timeout)),
        rails_(records[static_cast<std::size_t>(options.rank)].CountRails()) {}

  StatusOr<std::vector<PeerLinks::Peer>> Connect() {
    DS_RETURN_IF_ERROR(CheckRails(records_, options_.rank));
    for (int peer = 0; peer < size(); ++peer) {
      for (int rail = 0; rail < rails_ && !IsHere(peer); ++rail) {
        missing_.insert({peer, rail});
        if (peer < options_.rank) continue;
        calls_[{peer, rail}] = {
            OrderEndpoints(options_.addresses, records_[static_cast<std::size_t>(peer)], rail), 0,
            steady_clock::now()};
      }
    }
    while (!missing_.empty()) {
      for (auto& [way, call] : calls_) DS_RETURN_IF_ERROR(Dial(way, &call));
      DS_RETURN_IF_ERROR(AwaitEvents());
      attempts_.remove_if([](const Attempt& attempt) { return attempt.ended; });
    }
    return JoinRails();
  }

 private:
  using Step = Attempt::Step;

  int size() const { return static_cast<int>(records_.size()); }
  bool IsHere(int rank) const {
    return rank >= first_here_ &&
           rank < first_here_ + records_[static_cast<std::size_t>(options_.rank)].local_size;
  }
  std::string NameOf(int peer) const {
    return "rank " + std::to_string(peer) + " (host " +
           records_[static_cast<std::size_t>(peer)].host + ")";
  }

  std::string NameOf(const PeerRail& way) const {
    return NameOf(way.first) + (rails_ == 1 ? "" : " over " + InterfaceOf(way.second));
  }
  // Returns this host's interface of the rail.
  std::string InterfaceOf(int rail) const {
    const auto found = std::find_if(options_.addresses.begin(), options_.addresses.end(),
                                    [&](const LocalAddress& each) { return each.rail == rail; });
    return found == options_.addresses.end() ? "" : found->interface;
  }

  std::vector<PeerLinks::Peer> JoinRails() {
    std::vector<PeerLinks::Peer> peers(records_.size());
    for (int peer = 0; peer < size(); ++peer) {
      if (IsHere(peer)) continue;
      std::vector<PeerRails::Rail> rails;
      for (int rail = 0; rail < rails_; ++rail) {
        rails.push_back({std::move(streams_[{peer, rail}]), InterfaceOf(rail)});
      }
      peers[static_cast<std::size_t>(peer)] = {PeerRails(std::move(rails)), NameOf(peer)};
    }
    return peers;
  }

  Status AwaitEvents() {
    std::vector<pollfd> watched;
    for (const UniqueFd& socket : listener_.sockets()) watched.push_back({socket.get(), POLLIN, 0});
    Deadline next = deadline_;
    for (const auto& [way, call] : calls_) next = std::min(next, call.next_dial);
    for (const Attempt& attempt : attempts_) {
      watched.push_back({attempt.descriptor(), attempt.events, 0});
      next = std::min(next, attempt.deadline);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - steady_clock::now());
    ::poll(watched.data(), watched.size(), static_cast<int>(std::max<long>(left.count(), 0)));
    auto ready = watched.begin() + static_cast<std::ptrdiff_t>(listener_.sockets().size());
    const Deadline now = steady_clock::now();
    for (Attempt& attempt : attempts_) {
      const bool is_ready = (ready++)->revents != 0;
      if (attempt.ended) continue;  // another attempt for the same peer was faster
      if (is_ready) {
        Continue(&attempt);
      } else if (attempt.deadline <= now) {
        GiveUp(&attempt, DeadlineExceededError("no answer in time"));
      }
    }
    if (now >= deadline_) return NameMissing();
    return TakeCalls();
  }

  // Requires a missing rank.
  Status NameMissing() const {
    return UnavailableError(NameOf(*missing_.begin()) + " did not connect within " +
                            std::to_string(options_.timeout.count() / 1000) + " s");
  }

  void Continue(Attempt* attempt) {
    const auto take = [&]() -> Status {
      switch (attempt->step) {
        case Step::kDial:
          return Greet(attempt);
        case Step::kAwaitAnswer:
          return TakeAnswer(attempt);
        case Step::kAwaitWelcome:
          return TakeWelcome(attempt);
        case Step::kAwaitGreeting:
          return TakeGreeting(attempt);
        case Step::kAwaitProof:
          return TakeProof(attempt);
        case Step::kShake:
          return Shake(attempt);
      }
      return OkStatus();
    };
    if (const Status status = take(); !status.ok()) GiveUp(attempt, status);
  }

  void End(Attempt* attempt) {
    attempt->fd.Reset();
    attempt->stream.reset();
    attempt->ended = true;
    if (attempt->calls) --calls_[attempt->way()].in_flight;
  }

  // Closes a failed attempt; an outgoing one continues with the peer's next address.
  void GiveUp(Attempt* attempt, const Status& why) {
    End(attempt);
    if (attempt->calls) NoteFailure(attempt->endpoint, why, &calls_[attempt->way()]);
  }

  static void NoteFailure(const PeerListener::Endpoint& endpoint, const Status& why, Call* call) {
    call->tried += (call->tried.empty() ? "" : "; ") + endpoint.address + " port " +
                   std::to_string(endpoint.port) + ": " + why.message();
    if (why.code() == StatusCode::kUnauthenticated) call->failure = why.code();
    call->next_dial = steady_clock::now();
  }

  // Tries the next address when it is due.
  Status Dial(const PeerRail& way, Call* call) {
    const Deadline now = steady_clock::now();
    if (!missing_.contains(way)) call->next_dial = Deadline::max();
    while (call->next_dial <= now && call->next < call->endpoints.size()) {
      const PeerListener::Endpoint& endpoint = call->endpoints[call->next++];
      const Status started = StartAttempt(way, endpoint);
      if (started.ok()) {
        ++call->in_flight;
        call->next_dial = now + kAttemptTimeout;
      } else {
        NoteFailure(endpoint, started, call);
      }
    }
    if (call->next_dial > now) return OkStatus();
    if (call->in_flight > 0) {
      call->next_dial = Deadline::max();  // until one of the attempts fails
      return OkStatus();
    }
    // A peer with another key will not have the right key later.
    if (now >= reach_deadline_ || call->failure == StatusCode::kUnauthenticated) {
      return Status(call->failure, NameOf(way) + " cannot be reached (" + call->tried +
                                       "); --interface names the network that all hosts share");
    }
    call->next = 0;
    call->tried.clear();
    call->next_dial = now + kPause;
    return OkStatus();
  }

  Status StartAttempt(const PeerRail& way, const PeerListener::Endpoint& endpoint) {
    Attempt attempt{.calls = true,
                    .step = Step::kDial,
                    .events = POLLOUT,
                    .deadline = deadline_,
                    .introduction = {.from = static_cast<std::uint32_t>(options_.rank),
                                     .to = static_cast<std::uint32_t>(way.first),
                                     .rail = static_cast<std::uint32_t>(way.second)},
                    .endpoint = endpoint};
    DS_ASSIGN_OR_RETURN(attempt.introduction.from_nonce, MakeNonce());
    DS_ASSIGN_OR_RETURN(attempt.fd, StartDial(endpoint, rails_ > 1 ? InterfaceOf(way.second) : ""));
    attempts_.push_back(std::move(attempt));
    return OkStatus();
  }

  Status Greet(Attempt* attempt) {
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(attempt->fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return ErrnoError(error, "connect");
    PrepareConnection(attempt->fd);
    DS_RETURN_IF_ERROR(
        WriteMessage(attempt->fd.get(), Greeting{.from = attempt->introduction.from,
                                                 .to = attempt->introduction.to,
                                                 .rail = attempt->introduction.rail,
                                                 .nonce = attempt->introduction.from_nonce}));
    attempt->step = Step::kAwaitAnswer;
    attempt->events = POLLIN;
    return OkStatus();
  }

  Status TakeAnswer(Attempt* attempt) {
    GreetingReply answer;
    DS_ASSIGN_OR_RETURN(const bool complete, attempt->reader.Read(attempt->fd.get(), &answer));
    if (!complete) return OkStatus();
    attempt->introduction.to_nonce = answer.nonce;
    if (!IsProof(options_.key, attempt->introduction, /*of_called=*/true, answer.proof)) {
      return Status(StatusCode::kUnauthenticated,
                    "the process that answers does not have the key of this job");
    }
    // Close other attempts: the peer must get only one connection from this rank.
    for (Attempt& other : attempts_) {
      if (&other != attempt && other.calls && !other.ended && other.way() == attempt->way()) {
        End(&other);
      }
    }
    attempt->step = Step::kAwaitWelcome;
    return WriteMessage(attempt->fd.get(),
                        MakeProof(options_.key, attempt->introduction, /*of_called=*/false));
  }

  Status TakeWelcome(Attempt* attempt) {
    Welcome welcome;
    DS_ASSIGN_OR_RETURN(const bool complete, attempt->reader.Read(attempt->fd.get(), &welcome));
    return complete ? StartStream(attempt) : OkStatus();
  }

  Status TakeCalls() {
    int left = kCallsPerRound;
    for (const UniqueFd& socket : listener_.sockets()) DS_RETURN_IF_ERROR(TakeCalls(socket, &left));
    return OkStatus();
  }

  Status TakeCalls(const UniqueFd& socket, int* left) {
    for (; *left > 0; --*left) {
      UniqueFd fd(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) return ErrnoError(errno, "accept");
      if (!fd.valid()) return OkStatus();
      PrepareConnection(fd);
      EvictOldest();
      attempts_.push_back({.fd = std::move(fd), .deadline = steady_clock::now() + kAttemptTimeout});
    }
    return OkStatus();
  }

  void EvictOldest() {
    const auto is_stranger = [](const Attempt& attempt) {
      return attempt.step == Step::kAwaitGreeting || attempt.step == Step::kAwaitProof;
    };
    const auto strangers = std::count_if(attempts_.begin(), attempts_.end(), is_stranger);
    if (strangers < first_here_ * rails_ + kMostStrangers) return;
    auto oldest = std::find_if(attempts_.begin(), attempts_.end(), [](const Attempt& attempt) {
      return attempt.step == Step::kAwaitGreeting;
    });
    if (oldest == attempts_.end()) {
      oldest = std::find_if(attempts_.begin(), attempts_.end(), is_stranger);
    }
    attempts_.erase(oldest);
  }

  Status TakeGreeting(Attempt* attempt) {
    Greeting greeting;
    DS_ASSIGN_OR_RETURN(const bool complete, attempt->reader.Read(attempt->fd.get(), &greeting));
    if (!complete) return OkStatus();
    if (greeting.magic != Greeting().magic ||
        greeting.to != static_cast<std::uint32_t>(options_.rank) ||
        greeting.from >= static_cast<std::uint32_t>(first_here_) ||
        greeting.rail >= static_cast<std::uint32_t>(rails_)) {
      return InvalidArgumentError("it is not awaited");
    }
    attempt->introduction = {.from = greeting.from,
                             .to = greeting.to,
                             .rail = greeting.rail,
                             .from_nonce = greeting.nonce};
    DS_ASSIGN_OR_RETURN(attempt->introduction.to_nonce, MakeNonce());
    attempt->step = Step::kAwaitProof;
    attempt->deadline = steady_clock::now() + kAttemptTimeout;
    return WriteMessage(attempt->fd.get(),
                        GreetingReply{.nonce = attempt->introduction.to_nonce,
                                      .proof = MakeProof(options_.key, attempt->introduction,
                                                         /*of_called=*/true)});
  }

  Status TakeProof(Attempt* attempt) {
    Proof proof;
    DS_ASSIGN_OR_RETURN(const bool complete, attempt->reader.Read(attempt->fd.get(), &proof));
    if (!complete) return OkStatus();
    if (!IsProof(options_.key, attempt->introduction, /*of_called=*/false, proof)) {
      return Status(StatusCode::kUnauthenticated, "it has not the key of this job");
    }
    DS_RETURN_IF_ERROR(WriteMessage(attempt->fd.get(), Welcome()));
    return StartStream(attempt);
  }

  Status StartStream(Attempt* attempt) {
    attempt->stream =
        options_.encrypt
            ? MakeEncryptedStream(std::move(attempt->fd),
                                  MakeSecret(options_.key, attempt->introduction), attempt->calls)
            : MakePlainStream(std::move(attempt->fd));
    attempt->step = Step::kShake;
    return Shake(attempt);
  }

  Status Shake(Attempt* attempt) {
    DS_ASSIGN_OR_RETURN(const PeerStream::Handshake state, attempt->stream->Shake());
    attempt->events = state == PeerStream::Handshake::kWritable ? POLLOUT : POLLIN;
    if (state != PeerStream::Handshake::kDone) return OkStatus();
    streams_[attempt->way()] = std::move(attempt->stream);
    missing_.erase(attempt->way());
    End(attempt);
    return OkStatus();
  }

  const ConnectPeersOptions& options_;
  const PeerListener& listener_;
  const std::vector<PeerRecord>& records_;
  const int first_here_;  // first rank of this host
  const Deadline deadline_;
  const Deadline reach_deadline_;
  const int rails_;  // to every rank of another host
  std::map<PeerRail, Call> calls_;
  std::list<Attempt> attempts_;
  std::map<PeerRail, std::unique_ptr<PeerStream>> streams_;
  std::set<PeerRail> missing_;  // not connected yet
};

}  // namespace

StatusOr<std::vector<PeerLinks::Peer>> ConnectPeers(const ConnectPeersOptions& options,
                                                    const PeerListener& listener,
                                                    const std::vector<PeerRecord>& records) {
  return Connector(options, listener, records).Connect();
}

}  // namespace ds::comm
