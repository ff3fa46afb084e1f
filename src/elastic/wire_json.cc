#include "elastic/wire_json.h"

namespace rubato::elastic::wire {

void not_ours(std::string_view words) {
  throw Error(ErrorCode::kFailed, fmt::format("not a message of an agent: {}", words));
}

Duration from_micros(int64_t us) {
  // A century either way: beyond that it is no time of ours, and the arithmetic would overflow.
  if (us > 3'200'000'000'000'000 || us < -3'200'000'000'000'000) {
    not_ours("a time out of range");
  }
  return Duration(us * 1000);
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
  return j;
}

MemberInfo read_member(const json& j) {
  MemberInfo m;
  m.id.value = j.at("id").get<std::string>();
  m.host = j.at("host").get<std::string>();
  m.machine = j.at("machine").get<std::string>();
  m.address = j.at("address").get<std::string>();
  m.addresses = j.at("addresses").get<std::vector<std::string>>();
  m.peer_port = number<uint16_t>(j, "peer_port");
  m.nproc = number<int>(j, "nproc");
  m.role = j.at("role").get<std::string>();
  if (j.contains("node_rank")) m.node_rank = number<int>(j, "node_rank");
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

Failure read_failure(const json& j, Instant now) {
  Failure f;
  f.host = j.at("host").get<std::string>();
  f.rank = number<int>(j, "rank");
  f.local_rank = number<int>(j, "local_rank");
  f.pid = number<int>(j, "pid");
  f.generation = number<uint64_t>(j, "generation");
  f.exit_code = number<int>(j, "exit_code");
  f.signal = number<int>(j, "signal");
  f.at = now - from_micros(number<int64_t>(j, "age_us"));
  f.message = j.at("message").get<std::string>();
  f.traceback = j.at("traceback").get<std::string>();
  f.error_file = j.at("error_file").get<std::string>();
  return f;
}

}  // namespace

json failures_json(const std::vector<Failure>& failures, Instant now) {
  json list = json::array();
  for (const Failure& failure : failures) list.push_back(failure_json(failure, now));
  return list;
}

std::vector<Failure> read_failures(const json& list, Instant now) {
  std::vector<Failure> failures;
  for (const json& entry : list) failures.push_back(read_failure(entry, now));
  return failures;
}

std::string to_text(const json& message) { return message.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace rubato::elastic::wire
