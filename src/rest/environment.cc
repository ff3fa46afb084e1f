#include "rest/environment.h"

#include "core/text.h"

namespace rubato::rest {

Environment environment_of(const std::vector<std::string>& env) {
  Environment out;
  for (const std::string& entry : env) {
    if (const auto parts = split_once(entry, '=')) out[std::string(parts->first)] = std::string(parts->second);
  }
  return out;
}

std::string variable(const Environment& env, std::string_view name) {
  const auto found = env.find(std::string(name));
  return found == env.end() ? "" : found->second;
}

std::string home_of(const Environment& env) {
  const std::string home = variable(env, "HOME");
  return home.empty() ? "/root" : home;
}

}  // namespace rubato::rest
