#include "elastic/wire_json.h"

#include <algorithm>
#include <cctype>

namespace rubato::elastic::wire {

void not_ours(std::string_view sentence) {
  throw Error(ErrorCode::kFailed, fmt::format("not a message of an agent: {}", sentence));
}

Duration from_micros(int64_t us) {
  // A century either way: beyond that it is no time of ours, and the arithmetic would overflow.
  if (us > 3'200'000'000'000'000 || us < -3'200'000'000'000'000) {
    not_ours("a time out of range");
  }
  return Duration(us * 1000);
}

std::string cut_text(const json& object, const char* key, size_t bytes_max) {
  auto text = object.at(key).get<std::string>();
  if (text.size() <= bytes_max) return text;
  while (bytes_max > 0 && (static_cast<unsigned char>(text[bytes_max]) & 0xc0) == 0x80) --bytes_max;
  text.resize(bytes_max);
  return text;
}

// What JSON makes of a byte of valid UTF-8.
size_t json_bytes(char byte) {
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
  if (kShort.find(byte) != std::string_view::npos) return 2;
  return static_cast<unsigned char>(byte) < 0x20 ? 6 : 1;
}

json parse_message(std::string_view text) {
  if (const std::optional<std::string> beyond = beyond_bounds(text, kMessageBounds)) not_ours(*beyond);
  return json::parse(text);
}

const json& list_at(const json& object, const char* key, size_t size_max) {
  const json& list = object.at(key);
  if (!list.is_array()) not_ours(fmt::format("'{}' is not a list", key));
  if (list.size() > size_max) not_ours(fmt::format("'{}' has {} entries, more than {}", key, list.size(), size_max));
  return list;
}

json member_json(const MemberInfo& m) {
  json j = {{"id", m.id.value},         {"host", m.host},           {"machine", m.machine}, {"address", m.address},
            {"addresses", m.addresses}, {"peer_port", m.peer_port}, {"nproc", m.nproc},     {"role", m.role}};
  if (m.node_rank) j["node_rank"] = *m.node_rank;
  if (!m.identity.empty()) j["identity"] = m.identity;
  return j;
}

MemberInfo read_member(const json& j) {
  MemberInfo m;
  m.id.value = cut_text(j, "id");
  m.host = cut_text(j, "host");
  m.machine = cut_text(j, "machine");
  m.address = cut_text(j, "address");
  m.addresses = list_at(j, "addresses", kAddressesMax).get<std::vector<std::string>>();
  for (const std::string& address : m.addresses) {
    if (address.size() > kAddressBytesMax) not_ours("an address that is none");
  }
  m.peer_port = number<uint16_t>(j, "peer_port");
  m.nproc = number<int>(j, "nproc");
  m.role = cut_text(j, "role");
  if (j.contains("node_rank")) m.node_rank = number<int>(j, "node_rank");
  if (j.contains("identity")) m.identity = cut_text(j, "identity");
  return m;
}

json assignment_json(const Assignment& a) {
  return {a.group_rank, a.group_world_size, a.first_rank, a.world_size, a.first_role_rank, a.role_world_size};
}

Assignment read_assignment(const json& j) {
  if (!j.is_array() || j.size() != 6) not_ours("an assignment of the wrong length");
  return {number<int>(j, size_t{0}), number<int>(j, size_t{1}), number<int>(j, size_t{2}),
          number<int>(j, size_t{3}), number<int>(j, size_t{4}), number<int>(j, size_t{5})};
}

namespace {

// Letters, digits, '-': it becomes part of a file's name.
std::string read_worker_id(const json& value) {
  constexpr size_t kBytesMax = 64;
  const auto id = value.get<std::string>();
  const bool plain =
      std::ranges::all_of(id, [](unsigned char c) { return c == '-' || (c < 128 && std::isalnum(c) != 0); });
  if (id.empty() || id.size() > kBytesMax || !plain) not_ours("a worker's name that cannot be one");
  return id;
}

json failure_json(const Failure& f, Instant now) {
  return {{"host", f.host},
          {"rank", f.rank},
          {"local_rank", f.local_rank},
          {"pid", f.pid},
          {"generation", f.generation},
          {"exit_code", f.exit_code},
          {"signal", f.signal},
          {"age_us", to_micros(now - f.at)},
          {"message", f.message},
          {"traceback", f.traceback},
          {"error_file", f.error_file}};
}

Failure read_failure(const json& j, Instant now, size_t& bytes_left) {
  Failure f;
  // Cut as it would be written again: that becomes a record of the journal.
  const auto take = [&](const char* key) {
    std::string text = j.at(key).get<std::string>();
    size_t size = 0, written = 0, whole = 0, whole_written = 0;  // whole: up to the beginning of a character
    for (; size < text.size() && written + json_bytes(text[size]) <= bytes_left; ++size) {
      if ((static_cast<unsigned char>(text[size]) & 0xc0) != 0x80) {
        whole = size;
        whole_written = written;
      }
      written += json_bytes(text[size]);
    }
    const bool is_cut = size < text.size();
    const bool inside = is_cut && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80;
    text.resize(inside ? whole : size);
    bytes_left -= inside ? whole_written : written;
    return text;
  };
  f.host = take("host");
  f.rank = number<int>(j, "rank");
  f.local_rank = number<int>(j, "local_rank");
  f.pid = number<int>(j, "pid");
  f.generation = number<uint64_t>(j, "generation");
  f.exit_code = number<int>(j, "exit_code");
  f.signal = number<int>(j, "signal");
  f.at = now - from_micros(number<int64_t>(j, "age_us"));
  f.message = take("message");
  f.traceback = take("traceback");
  f.error_file = take("error_file");
  return f;
}

}  // namespace

json failures_json(const std::vector<Failure>& failures, Instant now) {
  json list = json::array();
  for (const Failure& failure : failures) list.push_back(failure_json(failure, now));
  return list;
}

std::vector<Failure> read_failures(const json& list, Instant now) {
  if (!list.is_array() || list.size() > kFailuresReportedMax) not_ours("more failures than there can be workers");
  std::vector<Failure> failures;
  size_t bytes_left = kFailureTextsMax;
  for (const json& entry : list) failures.push_back(read_failure(entry, now, bytes_left));
  return failures;
}

json slots_json(const std::vector<WorkerSlot>& slots) {
  json list = json::array();
  for (const WorkerSlot& slot : slots) list.push_back({slot.id, slot.local_rank, static_cast<int>(slot.stage)});
  return list;
}

std::vector<WorkerSlot> read_slots(const json& message) {
  std::vector<WorkerSlot> slots;
  for (const json& entry : list_at(message, "slots", kPlanWorkersMax)) {
    if (!entry.is_array() || entry.size() != 3) not_ours("a worker's slot of the wrong length");
    const int stage = number<int>(entry, size_t{2});
    if (stage < 0 || stage > static_cast<int>(WorkerStage::kVeteran)) not_ours("a worker at an unknown stage");
    slots.push_back({read_worker_id(entry[0]), number<int>(entry, size_t{1}), static_cast<WorkerStage>(stage)});
  }
  return slots;
}

json store_json(const MeetingPlace& store) {
  return {{"host", store.host}, {"port", store.port}, {"token", store.token}};
}

MeetingPlace read_store(const json& j) {
  return {cut_text(j, "host"), number<uint16_t>(j, "port"), cut_text(j, "token")};
}

json plan_json(const GroupPlan& plan) {
  json members = json::array();
  for (const PlannedWorker& one : plan.members) members.push_back({one.id, one.local_rank, one.node});
  return {{"members", std::move(members)}, {"departing", plan.departing}, {"store", store_json(plan.store)}};
}

GroupPlan read_plan(const json& j) {
  GroupPlan plan;
  for (const json& entry : list_at(j, "members", kPlanWorkersMax)) {
    if (!entry.is_array() || entry.size() != 3) not_ours("a planned worker of the wrong length");
    plan.members.push_back({read_worker_id(entry[0]), number<int>(entry, size_t{1}), number<int>(entry, size_t{2})});
  }
  for (const json& entry : list_at(j, "departing", kPlanWorkersMax)) plan.departing.push_back(read_worker_id(entry));
  plan.store = read_store(j.at("store"));
  return plan;
}

std::string to_text(const json& message) { return message.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace rubato::elastic::wire
