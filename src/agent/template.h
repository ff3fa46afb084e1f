// Python's string.Template(text).safe_substitute(values): torchrun's macros in arguments and log prefixes.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace rubato::agent {

// "$name" and "${name}" become their value, "$$" becomes "$"; all else stays as it is.
std::string safe_substitute(std::string_view text, const std::map<std::string, std::string, std::less<>>& values);

}  // namespace rubato::agent
