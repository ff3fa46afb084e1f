// libFuzzer: any bytes give a message that survives another round trip, or an Error. Build with
// clang++-19 -fsanitize=fuzzer,address,undefined.
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "elastic/wire.h"

namespace rubato::elastic {
namespace {

constexpr Instant kNow = Instant{} + 1000s;

void decode_message(std::string_view text) {
  Message message;
  try {
    message = decode(text, kNow);
  } catch (const Error& error) {
    CHECK(!error.message.empty());
    return;
  }
  const std::string canonical = encode(message, kNow);
  CHECK(encode(decode(canonical, kNow), kNow) == canonical);
}

// libFuzzer would be long in finding our field names: it gets whole messages to change.
std::vector<std::string> templates() {
  View view;
  view.assignment = Assignment{};
  view.successors.resize(1);
  view.failures.resize(1);
  view.legacy.causes = {""};
  view.plan = GroupPlan{{{"a-1", 0, 0}}, {"b-1"}, {}};
  Failed failed;
  failed.failures.resize(2);
  Join join;
  join.member.node_rank = 0;
  const std::vector<Message> messages{join,      Ready{}, failed,  Succeeded{}, Leave{}, Beat{},  view,
                                      Refused{}, Moved{}, Where{}, Settled{},   Offer{}, Broken{}};
  std::vector<std::string> texts;
  for (const Message& message : messages) texts.push_back(encode(message, kNow));
  return texts;
}

// {template, place (2 bytes), length, new bytes...}
std::string changed_template(std::string_view input) {
  static const std::vector<std::string> texts = templates();
  const auto byte = [&](size_t at) { return size_t{static_cast<uint8_t>(input[at])}; };
  std::string text = texts[byte(0) % texts.size()];
  const size_t at = (byte(1) * 256 + byte(2)) % text.size();
  return text.replace(at, byte(3), input.substr(4));
}

}  // namespace
}  // namespace rubato::elastic

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  rubato::elastic::decode_message(text);
  if (size < 4) return 0;
  const std::string changed = rubato::elastic::changed_template(text);
  rubato::elastic::decode_message(changed);
  return 0;
}
