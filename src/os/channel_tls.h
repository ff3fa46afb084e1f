// TLS 1.3 with a pre-shared key: both sides prove that they know the secret, and no certificate is needed.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "world/network.h"

namespace rubato::os {

// One context per key, kept for the life of the process. Connections with another key fail in the handshake.
std::shared_ptr<boost::asio::ssl::context> channel_context(const ChannelKey& key, bool server);

}  // namespace rubato::os
