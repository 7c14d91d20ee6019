#include "runtime/comm/net/connect_peers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "runtime/comm/net/peer_proof.h"

namespace ds::comm {
namespace {

using std::chrono::steady_clock;
using Deadline = steady_clock::time_point;
using Json = nlohmann::json;

// For one address: the next one may be the one that works.
constexpr std::chrono::seconds kConnectPatience{5};
// For a caller who says nothing.
constexpr std::chrono::seconds kGreetingPatience{5};
constexpr int kBacklog = 1024;

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

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t size = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};

StatusOr<SocketAddress> MakeSocketAddress(const std::string& address, int port) {
  SocketAddress made;
  auto& v4 = reinterpret_cast<sockaddr_in&>(made.bytes);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(made.bytes);
  if (::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    made.size = sizeof(v4);
  } else if (::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    made.size = sizeof(v6);
  } else {
    return InvalidArgumentError("'" + address + "' is no IP address");
  }
  return made;
}

Status AwaitReady(int fd, short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return DeadlineExceededError("no answer in time");
    pollfd ready{fd, events, 0};
    if (::poll(&ready, 1, static_cast<int>(left.count())) > 0) return OkStatus();
  }
}

Status ReadAll(const UniqueFd& fd, void* to, std::size_t bytes, Deadline deadline) {
  auto* next = static_cast<std::byte*>(to);
  while (bytes > 0) {
    DS_RETURN_IF_ERROR(AwaitReady(fd.get(), POLLIN, deadline));
    const ssize_t got = ::recv(fd.get(), next, bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return ErrnoError(errno, "reading");
    if (got == 0) return UnavailableError("it hung up");
    next += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return OkStatus();
}

// What is written here is less than a fresh connection takes at once.
Status WriteAll(const UniqueFd& fd, const void* from, std::size_t bytes) {
  const ssize_t written = ::send(fd.get(), from, bytes, MSG_NOSIGNAL);
  if (written == static_cast<ssize_t>(bytes)) return OkStatus();
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

StatusOr<UniqueFd> Dial(const PeerListener::Endpoint& endpoint, Deadline deadline) {
  DS_ASSIGN_OR_RETURN(SocketAddress address, MakeSocketAddress(endpoint.address, endpoint.port));
  UniqueFd fd(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(errno, "socket");
  if (::connect(fd.get(), address.get(), address.size) != 0 && errno != EINPROGRESS) {
    return ErrnoError(errno, "connect");
  }
  DS_RETURN_IF_ERROR(
      AwaitReady(fd.get(), POLLOUT, std::min(deadline, steady_clock::now() + kConnectPatience)));
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return ErrnoError(error, "connect");
  PrepareSocket(fd);
  return fd;
}

class Connector {
 public:
  Connector(const ConnectPeersOptions& options, const PeerListener& listener,
            const std::vector<PeerRecord>& records)
      : options_(options),
        listener_(listener),
        records_(records),
        first_here_(options.rank - records[static_cast<std::size_t>(options.rank)].local_rank),
        deadline_(steady_clock::now() + options.timeout) {}

  StatusOr<std::vector<PeerLinks::Peer>> Connect() {
    // A call needs no answer before the next one, so no rank waits for one that waits for it.
    for (int peer = first_here_ + Here().local_size; peer < size(); ++peer) {
      DS_RETURN_IF_ERROR(Call(peer));
    }
    while (static_cast<int>(callers_.size()) < first_here_) DS_RETURN_IF_ERROR(TakeCall());
    for (auto& [peer, link] : called_) DS_RETURN_IF_ERROR(ProveToCalled(peer, &link));
    for (auto& [peer, link] : callers_) DS_RETURN_IF_ERROR(CheckCaller(peer, link));
    std::vector<PeerLinks::Peer> peers(records_.size());
    for (auto* links : {&called_, &callers_}) {
      for (auto& [peer, link] : *links) {
        peers[static_cast<std::size_t>(peer)] = {std::move(link.fd), NameOf(peer)};
      }
    }
    return peers;
  }

 private:
  struct Link {
    UniqueFd fd;
    Introduction introduction;
  };

  int size() const { return static_cast<int>(records_.size()); }
  const PeerRecord& Here() const { return records_[static_cast<std::size_t>(options_.rank)]; }
  std::string NameOf(int peer) const {
    return "rank " + std::to_string(peer) + " (host " +
           records_[static_cast<std::size_t>(peer)].host + ")";
  }

  Status Call(int peer) {
    Greeting greeting{.from = static_cast<std::uint32_t>(options_.rank),
                      .to = static_cast<std::uint32_t>(peer)};
    DS_ASSIGN_OR_RETURN(greeting.nonce, MakeNonce());
    std::string tried;
    for (const PeerListener::Endpoint& endpoint : EndpointsOf(peer)) {
      StatusOr<UniqueFd> fd = Dial(endpoint, deadline_);
      Status status = fd.ok() ? WriteAll(*fd, &greeting, sizeof(greeting)) : fd.status();
      if (status.ok()) {
        called_[peer] = {std::move(fd).value(),
                         {.from = greeting.from, .to = greeting.to, .from_nonce = greeting.nonce}};
        return OkStatus();
      }
      tried += (tried.empty() ? "" : "; ") + endpoint.address + " port " +
               std::to_string(endpoint.port) + ": " + status.message();
    }
    return UnavailableError(NameOf(peer) + " cannot be reached (" + tried +
                            "); --interface names the network that all hosts share");
  }

  std::vector<PeerListener::Endpoint> EndpointsOf(int peer) const {
    const auto& offered = records_[static_cast<std::size_t>(peer)].endpoints;
    std::vector<std::string> addresses;
    for (const auto& endpoint : offered) addresses.push_back(endpoint.address);
    std::vector<PeerListener::Endpoint> ordered;
    for (const std::string& address : OrderAddresses(options_.addresses, addresses)) {
      ordered.push_back(*std::find_if(offered.begin(), offered.end(), [&](const auto& endpoint) {
        return endpoint.address == address;
      }));
    }
    return ordered;
  }

  // A call that is not from a rank that is awaited is hung up on.
  Status TakeCall() {
    StatusOr<UniqueFd> fd = listener_.Accept(deadline_);
    if (!fd.ok()) {
      int missing = 0;
      while (callers_.contains(missing)) ++missing;
      return UnavailableError(NameOf(missing) + " did not connect within " +
                              std::to_string(options_.timeout.count() / 1000) + " s");
    }
    Greeting greeting;
    const Deadline patience = std::min(deadline_, steady_clock::now() + kGreetingPatience);
    if (!ReadAll(*fd, &greeting, sizeof(greeting), patience).ok()) return OkStatus();
    const bool known = greeting.magic == Greeting().magic &&
                       greeting.to == static_cast<std::uint32_t>(options_.rank) &&
                       greeting.from < static_cast<std::uint32_t>(first_here_);
    if (!known || callers_.contains(static_cast<int>(greeting.from))) return OkStatus();
    Introduction introduction{
        .from = greeting.from, .to = greeting.to, .from_nonce = greeting.nonce};
    DS_ASSIGN_OR_RETURN(introduction.to_nonce, MakeNonce());
    const Answer answer{.nonce = introduction.to_nonce,
                        .proof = MakeProof(options_.key, introduction, /*of_called=*/true)};
    if (!WriteAll(*fd, &answer, sizeof(answer)).ok()) return OkStatus();
    PrepareSocket(*fd);
    callers_[static_cast<int>(greeting.from)] = {std::move(fd).value(), introduction};
    return OkStatus();
  }

  Status ProveToCalled(int peer, Link* link) {
    Answer answer;
    if (const Status read = ReadAll(link->fd, &answer, sizeof(answer), deadline_); !read.ok()) {
      return UnavailableError(NameOf(peer) + " did not answer: " + read.message());
    }
    link->introduction.to_nonce = answer.nonce;
    if (!IsProof(options_.key, link->introduction, /*of_called=*/true, answer.proof)) {
      return NotOfThisJob(peer);
    }
    const Proof proof = MakeProof(options_.key, link->introduction, /*of_called=*/false);
    return WriteAll(link->fd, &proof, sizeof(proof)).WithContext(NameOf(peer));
  }

  Status CheckCaller(int peer, const Link& link) {
    Proof proof;
    if (const Status read = ReadAll(link.fd, &proof, sizeof(proof), deadline_); !read.ok()) {
      return UnavailableError(NameOf(peer) + " called and fell silent: " + read.message());
    }
    if (IsProof(options_.key, link.introduction, /*of_called=*/false, proof)) return OkStatus();
    return NotOfThisJob(peer);
  }

  Status NotOfThisJob(int peer) const {
    return Status(StatusCode::kUnauthenticated,
                  "who answers as " + NameOf(peer) + " has not the key of this job");
  }

  const ConnectPeersOptions& options_;
  const PeerListener& listener_;
  const std::vector<PeerRecord>& records_;
  const int first_here_;  // rank of this host
  const Deadline deadline_;
  std::map<int, Link> called_;
  std::map<int, Link> callers_;
};

}  // namespace

StatusOr<PeerListener> PeerListener::Open(const std::vector<LocalAddress>& addresses) {
  PeerListener listener;
  for (const LocalAddress& each : addresses) {
    DS_ASSIGN_OR_RETURN(SocketAddress address, MakeSocketAddress(each.text, 0));
    UniqueFd fd(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid() || ::bind(fd.get(), address.get(), address.size) != 0 ||
        ::listen(fd.get(), kBacklog) != 0 ||
        ::getsockname(fd.get(), address.get(), &address.size) != 0) {
      return ErrnoError(errno, "listening on " + each.text);
    }
    // Both families have the port in the same place.
    const int port = ntohs(reinterpret_cast<sockaddr_in&>(address.bytes).sin_port);
    listener.endpoints_.push_back({each.text, port});
    listener.sockets_.push_back(std::move(fd));
  }
  return listener;
}

StatusOr<UniqueFd> PeerListener::Accept(Deadline deadline) const {
  std::vector<pollfd> watched;
  for (const UniqueFd& socket : sockets_) watched.push_back({socket.get(), POLLIN, 0});
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return DeadlineExceededError("nobody called");
    if (::poll(watched.data(), watched.size(), static_cast<int>(left.count())) <= 0) continue;
    for (const pollfd& each : watched) {
      if (each.revents == 0) continue;
      UniqueFd fd(::accept4(each.fd, nullptr, nullptr, SOCK_CLOEXEC));
      if (fd.valid()) return fd;
    }
  }
}

std::string ToJson(const PeerRecord& record) {
  Json endpoints = Json::array();
  for (const auto& endpoint : record.endpoints) {
    endpoints.push_back({{"address", endpoint.address}, {"port", endpoint.port}});
  }
  const Json json = {{"local_rank", record.local_rank},
                     {"local_size", record.local_size},
                     {"host", record.host},
                     {"endpoints", endpoints}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StatusOr<PeerRecord> PeerRecordFromJson(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    PeerRecord record{.local_rank = json.at("local_rank").get<int>(),
                      .local_size = json.at("local_size").get<int>(),
                      .host = json.at("host").get<std::string>()};
    for (const Json& each : json.at("endpoints")) {
      record.endpoints.push_back(
          {each.at("address").get<std::string>(), each.at("port").get<int>()});
    }
    return record;
  } catch (const Json::exception& error) {
    return InternalError("what a rank tells of itself cannot be read: " +
                         std::string(error.what()));
  }
}

StatusOr<std::vector<PeerLinks::Peer>> ConnectPeers(const ConnectPeersOptions& options,
                                                    const PeerListener& listener,
                                                    const std::vector<PeerRecord>& records) {
  return Connector(options, listener, records).Connect();
}

}  // namespace ds::comm
