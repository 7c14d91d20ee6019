#include "runtime/comm/net/peer_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace ds::comm {
namespace {

using Json = nlohmann::json;

constexpr int kBacklog = 1024;

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
    return InvalidArgumentError("'" + address + "' is not an IP address");
  }
  return made;
}

StatusOr<UniqueFd> OpenSocket(const SocketAddress& address, const std::string& interface) {
  UniqueFd fd(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(errno, "socket");
  if (!interface.empty()) {
    ::setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, interface.data(),
                 static_cast<socklen_t>(interface.size()));
  }
  return fd;
}

bool HasEveryRail(const std::vector<PeerListener::Endpoint>& endpoints, int rails) {
  std::set<int> found;
  for (const auto& endpoint : endpoints) found.insert(endpoint.rail);
  return static_cast<int>(found.size()) == rails;
}

}  // namespace

StatusOr<PeerListener> PeerListener::Open(const std::vector<LocalAddress>& addresses) {
  PeerListener listener;
  Status failure = NotFoundError("there is no address to listen on");
  const int rails = std::max(1, ds::comm::CountRails(addresses));
  for (const LocalAddress& each : addresses) {
    DS_ASSIGN_OR_RETURN(SocketAddress address, MakeSocketAddress(each.text, 0));
    DS_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket(address, rails > 1 ? each.interface : ""));
    if (::bind(fd.get(), address.get(), address.size) != 0 || ::listen(fd.get(), kBacklog) != 0 ||
        ::getsockname(fd.get(), address.get(), &address.size) != 0) {
      failure = ErrnoError(errno, "listening on " + each.text);
      continue;
    }
    // The port is at the same offset in both address families.
    const int port = ntohs(reinterpret_cast<sockaddr_in&>(address.bytes).sin_port);
    listener.endpoints_.push_back({each.text, port, each.rail});
    listener.sockets_.push_back(std::move(fd));
  }
  if (!HasEveryRail(listener.endpoints_, rails)) return failure;
  return listener;
}

void PrepareConnection(const UniqueFd& fd) {
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

StatusOr<UniqueFd> StartDial(const PeerListener::Endpoint& endpoint, const std::string& interface) {
  DS_ASSIGN_OR_RETURN(SocketAddress address, MakeSocketAddress(endpoint.address, endpoint.port));
  DS_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket(address, interface));
  if (::connect(fd.get(), address.get(), address.size) != 0 && errno != EINPROGRESS) {
    return ErrnoError(errno, "connect");
  }
  return fd;
}

int PeerRecord::CountRails() const {
  int count = 1;
  for (const auto& endpoint : endpoints) count = std::max(count, endpoint.rail + 1);
  return count;
}

Status CheckRails(const std::vector<PeerRecord>& records, int rank) {
  const int mine = records[static_cast<std::size_t>(rank)].CountRails();
  for (std::size_t peer = 0; peer < records.size(); ++peer) {
    const int theirs = records[peer].CountRails();
    if (theirs == mine) continue;
    return FailedPreconditionError(
        "rank " + std::to_string(peer) + " (host " + records[peer].host + ") has been given " +
        std::to_string(theirs) + " network interfaces and rank " + std::to_string(rank) + " " +
        std::to_string(mine) + ": --interface or DSRUN_INTERFACE names as many on every host");
  }
  return OkStatus();
}

std::vector<PeerListener::Endpoint> OrderEndpoints(const std::vector<LocalAddress>& mine,
                                                   const PeerRecord& peer, int rail) {
  std::vector<LocalAddress> mine_of_rail;
  std::copy_if(mine.begin(), mine.end(), std::back_inserter(mine_of_rail),
               [&](const LocalAddress& each) { return each.rail == rail; });
  std::vector<std::string> theirs;
  for (const auto& endpoint : peer.endpoints) {
    if (endpoint.rail == rail) theirs.push_back(endpoint.address);
  }
  std::vector<PeerListener::Endpoint> ordered;
  for (const std::string& address : OrderAddresses(mine_of_rail, theirs)) {
    ordered.push_back(
        *std::find_if(peer.endpoints.begin(), peer.endpoints.end(), [&](const auto& endpoint) {
          return endpoint.address == address && endpoint.rail == rail;
        }));
  }
  return ordered;
}

std::string ToJson(const PeerRecord& record) {
  Json endpoints = Json::array();
  for (const auto& endpoint : record.endpoints) {
    endpoints.push_back(
        {{"address", endpoint.address}, {"port", endpoint.port}, {"rail", endpoint.rail}});
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
      record.endpoints.push_back({each.at("address").get<std::string>(), each.at("port").get<int>(),
                                  each.at("rail").get<int>()});
    }
    return record;
  } catch (const Json::exception&) {
    return InternalError(
        "a rank's description of itself has a value that is missing or of another type");
  }
}

}  // namespace ds::comm
