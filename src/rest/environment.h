// What a cloud's own tools find in variables, for clients that have to find the same.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rubato::rest {

using Environment = std::map<std::string, std::string>;

// Of "NAME=value" entries.
Environment environment_of(const std::vector<std::string>& env);

// The value of a variable; empty when it is not set.
std::string variable(const Environment& env, std::string_view name);

// The user's folder, where clouds' tools keep their files and caches.
std::string home_of(const Environment& env);

// A value and where it comes from, for people: "AWS_REGION", "profile 'dev' (/home/ann/.aws/config:3)".
struct Sourced {
  std::string text;
  std::string origin;
};

}  // namespace rubato::rest
