// Acceptor: a listening TCP port or socket's file, and what comes to it.
#pragma once

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>

#include "os/peer.h"
#include "os/runtime.h"
#include "world/network.h"

namespace rubato::os {

class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  using Protocol = boost::asio::generic::stream_protocol;
  using Socket = Protocol::socket;

  // Listens at once. An empty host means every interface; port 0 picks one; a path is a socket's file, which only our
  // user may use, and which replaces one that is there. `what` is for errors: "listen", "serve HTTP". Throws kConflict
  // when the port is taken.
  Acceptor(Runtime& runtime, const Endpoint& endpoint, const char* what);

  // Both are called from the loop. `arrived` gets each connection with who is there, closed on exec. `make_room` is
  // asked when this process has no file descriptor left; true: it has freed one.
  std::function<void(Socket, Peer)> arrived;
  std::function<bool()> make_room;

  // Takes one connection, when one comes. No effect while one is waited for.
  void accept_one();

  uint16_t port() const { return port_; }  // 0 of a socket's file
  void close();

 private:
  void handle(boost::system::error_code error);
  void pause();

  Runtime& runtime_;
  boost::asio::basic_socket_acceptor<Protocol> acceptor_;
  boost::asio::steady_timer retry_;
  Socket next_;
  PeerFinder peers_;
  uint16_t port_ = 0;
  bool accepting_ = false;
};

}  // namespace rubato::os
