// A Connection within one process: the host of the rendezvous is a member of its own group.
#pragma once

#include <memory>
#include <utility>

#include "world/network.h"

namespace rubato::agent {

// Closing one end closes the other, after the messages that are under way.
std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>> make_loopback(Loop& loop, std::string address);

}  // namespace rubato::agent
