// libFuzzer: any bytes give a message of a head or an agent that survives another round trip, or an Error.
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "elastic/node_wire.h"

namespace rubato::elastic {
namespace {

constexpr Instant kNow = Instant{} + 1000s;

void decode_as_agent(std::string_view text) {
  ToAgent message;
  try {
    message = decode_to_agent(text);
  } catch (const Error& error) {
    CHECK(!error.message.empty());
    return;
  }
  const std::string canonical = encode(message);
  CHECK(encode(decode_to_agent(canonical)) == canonical);
}

void decode_as_head(std::string_view text) {
  ToHead message;
  try {
    message = decode_to_head(text, kNow);
  } catch (const Error& error) {
    CHECK(!error.message.empty());
    return;
  }
  const std::string canonical = encode(message, kNow);
  CHECK(encode(decode_to_head(canonical, kNow), kNow) == canonical);
}

// libFuzzer would be long in finding our field names: it gets whole messages to change.
std::vector<std::string> templates() {
  JobOrder job_order;
  job_order.job.value = "j";
  job_order.phase = Phase::kRunning;
  job_order.spec.name = "n";
  job_order.spec.program = "p.py";
  Orders orders;
  orders.job_orders = {job_order};
  PackagePart part;
  part.hash = std::string(64, 'a');
  part.size = 8;
  part.bytes = "abc";
  JobOrderReport report;
  report.job.value = "j";
  report.failures.resize(1);
  report.forced = {""};
  Hello hello;
  hello.node.value = "n";
  hello.agent.value = "a";
  hello.job_orders = {report};
  const LogLines lines{JobId{"j"}, {LogLine{}}};
  const std::vector<ToAgent> to_agent{Welcome{}, orders, LogAck{JobId{"j"}, 1}, part, Goodbye{}};
  const std::vector<ToHead> to_head{hello,    NodeBeat{}, Reports{{report}}, lines, PackageWanted{part.hash, 1},
                                    Leaving{}};
  std::vector<std::string> texts;
  for (const ToAgent& message : to_agent) texts.push_back(encode(message));
  for (const ToHead& message : to_head) texts.push_back(encode(message, kNow));
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
  rubato::elastic::decode_as_agent(text);
  rubato::elastic::decode_as_head(text);
  if (size < 4) return 0;
  const std::string changed = rubato::elastic::changed_template(text);
  rubato::elastic::decode_as_agent(changed);
  rubato::elastic::decode_as_head(changed);
  return 0;
}
