// libFuzzer: any bytes are a record, a snapshot, or an Error; what was read can be written and read again.
#include <cstddef>
#include <cstdint>

#include "cluster/apply.h"
#include "cluster/event.h"
#include "core/error.h"

namespace rubato::cluster {
namespace {

void read_record(std::string_view bytes) {
  try {
    const Record record = decode(7, bytes);
    const std::string text = encode(record.time, record.event);
    const Record again = decode(7, text);
    CHECK(encode(again.time, again.event) == text);
    CHECK(!describe(record.event).empty());
    State state;
    apply(state, record);
  } catch (const Error& error) {
    CHECK(error.where == "journal record 7" && !error.message.empty());
  }
}

void read_snapshot(std::string_view bytes) {
  try {
    const std::string text = encode_snapshot(decode_snapshot(bytes));
    CHECK(encode_snapshot(decode_snapshot(text)) == text);
  } catch (const Error& error) {
    CHECK(error.where == "journal snapshot" && !error.message.empty());
  }
}

}  // namespace
}  // namespace rubato::cluster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  rubato::cluster::read_record(bytes);
  rubato::cluster::read_snapshot(bytes);
  return 0;
}
