// TLS 1.3 between two of us. By a secret: both sides prove that they know it, and no certificate is needed. By
// identity: both show a certificate of the same CA; no host name is checked, for the common name is what counts.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <optional>
#include <string>

#include "world/network.h"

namespace rubato::os {

// Connections with another key, or without a certificate of our CA, fail in the handshake. Throws kFailed naming the
// file when one of key.identity cannot be used. Reads those files: a certificate replaced on disk counts from the next.
std::shared_ptr<boost::asio::ssl::context> channel_context(const ChannelKey& key, bool server);

// After the handshake: what the other side has proven. nullopt: nothing. By a secret: "". By identity: its common name.
std::optional<std::string> proven_name(SSL* connection, bool by_identity);

}  // namespace rubato::os
