#include "model/supervisor_request.h"

#include <algorithm>
#include <charconv>

namespace rubato {
namespace {

constexpr uint64_t kPatienceMax_s = 120;

std::optional<uint64_t> read_count(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

SupervisorRequest read_supervisor_request(std::string_view method, std::span<const std::string_view> parts,
                                          const std::optional<std::string>& timeout) {
  using Verb = SupervisorRequest::Verb;
  SupervisorRequest out;
  if (parts.empty()) return out;
  const std::string_view verb = parts.front();
  if (verb == "healthz" && parts.size() == 1) out.verb = Verb::kHealth;
  if (verb == "hints" && method == "PUT") out.verb = Verb::kHints;
  if (verb != "discover" || parts.size() < 2 || method != "GET") return out;
  const std::optional<uint64_t> group = read_count(parts.back());
  const std::optional<uint64_t> seconds = timeout ? read_count(*timeout) : std::nullopt;
  out.verb = group && seconds.has_value() == timeout.has_value() ? Verb::kDiscover : Verb::kMalformed;
  out.group = group.value_or(0);
  if (seconds) out.patience = std::chrono::seconds(std::min(*seconds, kPatienceMax_s));
  return out;
}

}  // namespace rubato
