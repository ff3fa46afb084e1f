#include "os/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>

namespace rubato::os {

std::vector<Interface> interfaces() {
  std::vector<Interface> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP)) continue;
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* in = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      found.push_back({entry->ifa_name, boost::asio::ip::address_v4(ntohl(in->sin_addr.s_addr))});
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* in6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      boost::asio::ip::address_v6::bytes_type bytes;
      std::copy_n(in6->sin6_addr.s6_addr, bytes.size(), bytes.begin());
      found.push_back({entry->ifa_name, boost::asio::ip::address_v6(bytes)});
    }
  }
  freeifaddrs(list);
  return found;
}

std::string source_towards(const boost::asio::ip::address& target) {
  // Connecting a UDP socket sends nothing; it only asks the routing table.
  boost::asio::io_context io;
  boost::asio::ip::udp::socket socket(io);
  boost::system::error_code error;
  socket.connect({target, 9}, error);
  if (error) return "";
  const auto source = socket.local_endpoint(error).address();
  if (error) return "";
  for (const Interface& entry : interfaces()) {
    if (entry.address == source) return source.to_string() + " (" + entry.name + ")";
  }
  return source.to_string();
}

}  // namespace rubato::os
