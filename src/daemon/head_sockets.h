// The sockets' files of a head, in its folder. Only its own user and root may use them.
#pragma once

namespace rubato::cli {

inline constexpr const char* kApiSocket = "api.sock";
inline constexpr const char* kAgentsSocket = "agents.sock";

}  // namespace rubato::cli
