// The two ends of a message connection on a real socket: frames of a 4-byte big-endian length and the bytes. Where both
// sides are known by certificate, the server's first frame is empty and is not a message: it says "accepted".
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "os/runtime.h"
#include "world/network.h"

namespace rubato::os {

// Accepts, shakes hands, and queues what is authenticated. Who has not proven himself yet has a place by the rules of
// ConnectionPlaces, for five seconds. Throws kConflict when the port is taken.
// The port is that of the first endpoint that has one.
std::unique_ptr<Listener> make_listener(Runtime& runtime, const std::vector<Endpoint>& endpoints, const ChannelKey& key,
                                        Duration silence_max);

// One address, one try.
Task<ConnectResult> connect_channel(Runtime& runtime, boost::asio::ip::tcp::endpoint address, std::string name,
                                    ChannelKey key, Instant deadline, Duration silence_max);

// The same at a socket's file of this machine.
Task<ConnectResult> connect_channel(Runtime& runtime, std::string path, ChannelKey key, Instant deadline,
                                    Duration silence_max);

}  // namespace rubato::os
