#include "runtime/comm/net/connect_peers.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <utility>

#include "runtime/comm/net/peer_proof.h"

namespace ds::comm {
namespace {

using std::chrono::steady_clock;
using Deadline = steady_clock::time_point;

// For one address, while there is another one to try, and for a caller's next word.
constexpr std::chrono::seconds kPatience{10};
// Callers beyond the ranks that may call; when there are more, the first that has proved nothing
// goes.
constexpr int kMostStrangers = 256;
// Taken before those that are there have their turn again.
constexpr int kCallsPerTurn = 64;

// The first bytes of a connection. Plain data.
struct Greeting {
  std::array<char, 8> magic = {'d', 's', 'r', 'u', 'n', 'l', 'n', '1'};
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  Nonce nonce = {};
};
struct Answer {
  Nonce nonce = {};
  Proof proof = {};
};

// A connection in the making.
struct Attempt {
  enum class Step { kDial, kAwaitAnswer, kAwaitGreeting, kAwaitProof, kShake };
  bool calls = false;
  Step step = Step::kDial;
  short events = POLLIN;               // that the step waits for
  UniqueFd fd;                         // up to the proof
  std::unique_ptr<PeerStream> stream;  // behind it
  bool ended = false;
  Deadline deadline;
  Introduction introduction;
  std::vector<std::byte> read;  // of the message that is awaited
  // Of one that calls:
  PeerListener::Endpoint endpoint;
  std::deque<PeerListener::Endpoint> others;  // to try after it
  std::string tried;                          // what came of those before it
  StatusCode failure = StatusCode::kUnavailable;

  int descriptor() const { return stream == nullptr ? fd.get() : stream->fd(); }
  // The other end's rank, as it says itself where it is the caller.
  int peer() const { return static_cast<int>(calls ? introduction.to : introduction.from); }
};

// Reads what there is of a message of this size. True when it is complete; an error when no more
// can come.
template <typename Message>
StatusOr<bool> ReadMessage(Attempt* attempt, Message* message) {
  const std::size_t before = attempt->read.size();
  attempt->read.resize(sizeof(Message));
  const ssize_t got =
      ::recv(attempt->fd.get(), attempt->read.data() + before, sizeof(Message) - before, 0);
  const int error = errno;
  attempt->read.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0 && (error == EAGAIN || error == EINTR)) return false;
  if (got < 0) return ErrnoError(error, "reading");
  if (got == 0) return UnavailableError("it hung up");
  if (attempt->read.size() < sizeof(Message)) return false;
  std::memcpy(message, attempt->read.data(), sizeof(Message));
  attempt->read.clear();
  return true;
}

// A fresh connection takes as little as this at once.
template <typename Message>
Status WriteMessage(const UniqueFd& fd, const Message& message) {
  const ssize_t written = ::send(fd.get(), &message, sizeof(message), MSG_NOSIGNAL);
  if (written == static_cast<ssize_t>(sizeof(message))) return OkStatus();
  return written < 0 ? ErrnoError(errno, "writing") : UnavailableError("it takes no bytes");
}

void PrepareSocket(const UniqueFd& fd) {
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(fd.get(), level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  constexpr int kProbes = 5;
  const int every = static_cast<int>(kSilence.count()) / (kProbes + 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, every);
  set(IPPROTO_TCP, TCP_KEEPINTVL, every);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::chrono::milliseconds(kSilence).count()));
}

class Connector {
 public:
  Connector(const ConnectPeersOptions& options, const PeerListener& listener,
            const std::vector<PeerRecord>& records)
      : options_(options),
        listener_(listener),
        records_(records),
        first_here_(options.rank - records[static_cast<std::size_t>(options.rank)].local_rank),
        deadline_(steady_clock::now() + options.timeout),
        peers_(records.size()) {}

  StatusOr<std::vector<PeerLinks::Peer>> Connect() {
    for (int peer = 0; peer < size(); ++peer) {
      if (IsHere(peer)) continue;
      ++missing_;
      if (peer > options_.rank) DS_RETURN_IF_ERROR(StartCall(peer));
    }
    while (missing_ > 0) {
      DS_RETURN_IF_ERROR(AwaitEvents());
      attempts_.remove_if([](const Attempt& attempt) { return attempt.ended; });
    }
    return std::move(peers_);
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

  Status AwaitEvents() {
    std::vector<pollfd> watched;
    for (const UniqueFd& socket : listener_.sockets()) watched.push_back({socket.get(), POLLIN, 0});
    Deadline next = deadline_;
    for (const Attempt& attempt : attempts_) {
      watched.push_back({attempt.descriptor(), attempt.events, 0});
      next = std::min(next, attempt.deadline);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - steady_clock::now());
    ::poll(watched.data(), watched.size(), static_cast<int>(std::max<long>(left.count(), 0)));
    auto ready = watched.begin() + static_cast<std::ptrdiff_t>(listener_.sockets().size());
    const Deadline now = steady_clock::now();
    for (Attempt& attempt : attempts_) {
      if ((ready++)->revents != 0) {
        DS_RETURN_IF_ERROR(GoOn(&attempt));
      } else if (attempt.deadline <= now) {
        DS_RETURN_IF_ERROR(GiveUp(&attempt, DeadlineExceededError("no answer in time")));
      }
    }
    if (now >= deadline_) return NameMissing();
    for (const UniqueFd& socket : listener_.sockets()) DS_RETURN_IF_ERROR(TakeCalls(socket));
    return OkStatus();
  }

  // Some rank is awaited.
  Status NameMissing() const {
    int missing = 0;
    while (IsHere(missing) || peers_[static_cast<std::size_t>(missing)].stream != nullptr)
      ++missing;
    return UnavailableError(NameOf(missing) + " did not connect within " +
                            std::to_string(options_.timeout.count() / 1000) + " s");
  }

  Status GoOn(Attempt* attempt) {
    const auto take = [&]() -> Status {
      switch (attempt->step) {
        case Step::kDial:
          return Greet(attempt);
        case Step::kAwaitAnswer:
          return TakeAnswer(attempt);
        case Step::kAwaitGreeting:
          return TakeGreeting(attempt);
        case Step::kAwaitProof:
          return TakeProof(attempt);
        case Step::kShake:
          return Shake(attempt);
      }
      return OkStatus();
    };
    const Status status = take();
    return status.ok() ? status : GiveUp(attempt, status);
  }

  // What has failed is hung up on; a call goes to the peer's next address.
  Status GiveUp(Attempt* attempt, const Status& why) {
    attempt->fd.Reset();
    attempt->stream.reset();
    attempt->ended = true;
    if (!attempt->calls) return OkStatus();
    attempt->tried += (attempt->tried.empty() ? "" : "; ") + attempt->endpoint.address + " port " +
                      std::to_string(attempt->endpoint.port) + ": " + why.message();
    if (why.code() == StatusCode::kUnauthenticated) attempt->failure = why.code();
    return Dial(attempt);
  }

  Status StartCall(int peer) {
    Attempt attempt{
        .calls = true,
        .deadline = deadline_,
        .introduction = {.from = static_cast<std::uint32_t>(options_.rank),
                         .to = static_cast<std::uint32_t>(peer)},
        .others = EndpointsOf(peer),
    };
    DS_ASSIGN_OR_RETURN(attempt.introduction.from_nonce, MakeNonce());
    DS_RETURN_IF_ERROR(Dial(&attempt));
    attempts_.push_back(std::move(attempt));
    return OkStatus();
  }

  std::deque<PeerListener::Endpoint> EndpointsOf(int peer) const {
    const auto& offered = records_[static_cast<std::size_t>(peer)].endpoints;
    std::vector<std::string> addresses;
    for (const auto& endpoint : offered) addresses.push_back(endpoint.address);
    std::deque<PeerListener::Endpoint> ordered;
    for (const std::string& address : OrderAddresses(options_.addresses, addresses)) {
      ordered.push_back(*std::find_if(offered.begin(), offered.end(), [&](const auto& endpoint) {
        return endpoint.address == address;
      }));
    }
    return ordered;
  }

  // The last address has all the time there is: the rank behind it may be slow.
  Status Dial(Attempt* attempt) {
    attempt->step = Step::kDial;
    attempt->events = POLLOUT;
    attempt->read.clear();
    if (attempt->others.empty()) {
      return Status(attempt->failure, NameOf(attempt->peer()) + " cannot be reached (" +
                                          attempt->tried +
                                          "); --interface names the network that all hosts share");
    }
    attempt->endpoint = attempt->others.front();
    attempt->others.pop_front();
    attempt->deadline = std::min(deadline_, steady_clock::now() + kPatience);
    StatusOr<UniqueFd> fd = StartDial(attempt->endpoint);
    if (!fd.ok()) return GiveUp(attempt, fd.status());
    attempt->fd = std::move(fd).value();
    attempt->ended = false;
    return OkStatus();
  }

  Status Greet(Attempt* attempt) {
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(attempt->fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return ErrnoError(error, "connect");
    PrepareSocket(attempt->fd);
    DS_RETURN_IF_ERROR(
        WriteMessage(attempt->fd, Greeting{.from = attempt->introduction.from,
                                           .to = attempt->introduction.to,
                                           .nonce = attempt->introduction.from_nonce}));
    attempt->step = Step::kAwaitAnswer;
    attempt->events = POLLIN;
    attempt->deadline =
        attempt->others.empty() ? deadline_ : std::min(deadline_, steady_clock::now() + kPatience);
    return OkStatus();
  }

  Status TakeAnswer(Attempt* attempt) {
    Answer answer;
    DS_ASSIGN_OR_RETURN(const bool complete, ReadMessage(attempt, &answer));
    if (!complete) return OkStatus();
    attempt->introduction.to_nonce = answer.nonce;
    if (!IsProof(options_.key, attempt->introduction, /*of_called=*/true, answer.proof)) {
      return Status(StatusCode::kUnauthenticated, "who answers has not the key of this job");
    }
    DS_RETURN_IF_ERROR(WriteMessage(
        attempt->fd, MakeProof(options_.key, attempt->introduction, /*of_called=*/false)));
    return StartStream(attempt);
  }

  Status TakeCalls(const UniqueFd& socket) {
    for (int i = 0; i < kCallsPerTurn; ++i) {
      UniqueFd fd(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) return ErrnoError(errno, "accept");
      if (!fd.valid()) return OkStatus();
      PrepareSocket(fd);
      MakeRoom();
      attempts_.push_back({.step = Step::kAwaitGreeting,
                           .fd = std::move(fd),
                           .deadline = steady_clock::now() + kPatience});
    }
    return OkStatus();
  }

  void MakeRoom() {
    const auto is_stranger = [](const Attempt& attempt) { return !attempt.calls; };
    const auto strangers = std::count_if(attempts_.begin(), attempts_.end(), is_stranger);
    if (strangers < first_here_ + kMostStrangers) return;
    attempts_.erase(std::find_if(attempts_.begin(), attempts_.end(), is_stranger));
  }

  Status TakeGreeting(Attempt* attempt) {
    Greeting greeting;
    DS_ASSIGN_OR_RETURN(const bool complete, ReadMessage(attempt, &greeting));
    if (!complete) return OkStatus();
    if (greeting.magic != Greeting().magic ||
        greeting.to != static_cast<std::uint32_t>(options_.rank) ||
        greeting.from >= static_cast<std::uint32_t>(first_here_)) {
      return InvalidArgumentError("it is not awaited");
    }
    attempt->introduction = {
        .from = greeting.from, .to = greeting.to, .from_nonce = greeting.nonce};
    DS_ASSIGN_OR_RETURN(attempt->introduction.to_nonce, MakeNonce());
    attempt->step = Step::kAwaitProof;
    attempt->deadline = steady_clock::now() + kPatience;
    return WriteMessage(attempt->fd, Answer{.nonce = attempt->introduction.to_nonce,
                                            .proof = MakeProof(options_.key, attempt->introduction,
                                                               /*of_called=*/true)});
  }

  Status TakeProof(Attempt* attempt) {
    Proof proof;
    DS_ASSIGN_OR_RETURN(const bool complete, ReadMessage(attempt, &proof));
    if (!complete) return OkStatus();
    if (!IsProof(options_.key, attempt->introduction, /*of_called=*/false, proof)) {
      return Status(StatusCode::kUnauthenticated, "it has not the key of this job");
    }
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
    PeerLinks::Peer& peer = peers_[static_cast<std::size_t>(attempt->peer())];
    if (peer.stream == nullptr) --missing_;
    peer = {std::move(attempt->stream), NameOf(attempt->peer())};
    attempt->ended = true;
    return OkStatus();
  }

  const ConnectPeersOptions& options_;
  const PeerListener& listener_;
  const std::vector<PeerRecord>& records_;
  const int first_here_;  // rank of this host
  const Deadline deadline_;
  std::list<Attempt> attempts_;
  std::vector<PeerLinks::Peer> peers_;
  int missing_ = 0;  // of them
};

}  // namespace

StatusOr<std::vector<PeerLinks::Peer>> ConnectPeers(const ConnectPeersOptions& options,
                                                    const PeerListener& listener,
                                                    const std::vector<PeerRecord>& records) {
  return Connector(options, listener, records).Connect();
}

}  // namespace ds::comm
