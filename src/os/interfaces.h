// The addresses of this machine, and which of them the kernel would use.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <string>
#include <vector>

namespace rubato::os {

struct Interface {
  std::string name;
  boost::asio::ip::address address;
};

// Of every interface that is up.
std::vector<Interface> interfaces();

// "10.0.0.2 (eth0)": where a packet to that address would leave from; empty when there is no route.
std::string source_towards(const boost::asio::ip::address& target);

}  // namespace rubato::os
