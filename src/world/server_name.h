// The name that a server's certificate must have where it is not the name that we dial (a tunnel, an address): a term
// of the connection, given with a request under a name that no header can have.
#pragma once

namespace rubato {

inline constexpr const char* kServerNameTerm = ":server-name";

}  // namespace rubato
