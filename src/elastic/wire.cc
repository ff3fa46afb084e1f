#include "elastic/wire.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace rubato::elastic {

using nlohmann::json;

namespace {

int64_t to_micros(Duration d) { return d.count() / 1000; }
Duration from_micros(int64_t us) { return Duration(us * 1000); }

json terms_json(const Terms& t) {
  return {{"min", t.min_nodes},
          {"max", t.max_nodes},
          {"restarts", t.max_restarts},
          {"last_call_us", to_micros(t.last_call)},
          {"join_us", to_micros(t.join_timeout)},
          {"heartbeat_us", to_micros(t.heartbeat)},
          {"first_round_us", to_micros(t.first_round_after)},
          {"quorum", t.needs_quorum}};
}

Terms read_terms(const json& j) {
  Terms t;
  t.min_nodes = j.at("min").get<int>();
  t.max_nodes = j.at("max").get<int>();
  t.max_restarts = j.at("restarts").get<int>();
  t.last_call = from_micros(j.at("last_call_us").get<int64_t>());
  t.join_timeout = from_micros(j.at("join_us").get<int64_t>());
  t.heartbeat = from_micros(j.at("heartbeat_us").get<int64_t>());
  t.first_round_after = from_micros(j.at("first_round_us").get<int64_t>());
  t.needs_quorum = j.at("quorum").get<bool>();
  return t;
}

json legacy_json(const Legacy& l) {
  return {{"epoch", l.epoch},
          {"generation", l.generation},
          {"round", l.round},
          {"round_size", l.round_size},
          {"spares", l.spares},
          {"restarts_used", l.restarts_used},
          {"causes", l.causes},
          {"next_seniority", l.next_seniority},
          {"terms", terms_json(l.terms)}};
}

Legacy read_legacy(const json& j) {
  Legacy l;
  l.epoch = j.at("epoch").get<uint64_t>();
  l.generation = j.at("generation").get<uint64_t>();
  l.round = j.at("round").get<uint64_t>();
  l.round_size = j.at("round_size").get<int>();
  l.spares = j.at("spares").get<int>();
  l.restarts_used = j.at("restarts_used").get<int>();
  l.causes = j.at("causes").get<std::vector<std::string>>();
  l.next_seniority = j.at("next_seniority").get<uint64_t>();
  l.terms = read_terms(j.at("terms"));
  return l;
}

json member_json(const MemberInfo& m) {
  json j = {{"id", m.id.value},     {"host", m.host},           {"machine", m.machine},
            {"address", m.address}, {"addresses", m.addresses}, {"peer_port", m.peer_port},
            {"nproc", m.nproc},     {"role", m.role}};
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
  m.peer_port = j.at("peer_port").get<uint16_t>();
  m.nproc = j.at("nproc").get<int>();
  m.role = j.at("role").get<std::string>();
  if (j.contains("node_rank")) m.node_rank = j.at("node_rank").get<int>();
  return m;
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

Failure read_failure(const json& j, Instant now) {
  Failure f;
  f.host = j.at("host").get<std::string>();
  f.rank = j.at("rank").get<int>();
  f.local_rank = j.at("local_rank").get<int>();
  f.pid = j.at("pid").get<int>();
  f.generation = j.at("generation").get<uint64_t>();
  f.exit_code = j.at("exit_code").get<int>();
  f.signal = j.at("signal").get<int>();
  f.at = now - from_micros(j.at("age_us").get<int64_t>());
  f.message = j.at("message").get<std::string>();
  f.traceback = j.at("traceback").get<std::string>();
  f.error_file = j.at("error_file").get<std::string>();
  return f;
}

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

json claim_json(const Claim& c) {
  return {{"epoch", c.epoch},           {"generation", c.generation}, {"round", c.round},
          {"round_size", c.round_size}, {"in_round", c.in_round},     {"running", c.running},
          {"succeeded", c.succeeded},   {"seniority", c.seniority},   {"restarts_used", c.restarts_used}};
}

Claim read_claim(const json& j) {
  Claim c;
  c.epoch = j.at("epoch").get<uint64_t>();
  c.generation = j.at("generation").get<uint64_t>();
  c.round = j.at("round").get<uint64_t>();
  c.round_size = j.at("round_size").get<int>();
  c.in_round = j.at("in_round").get<bool>();
  c.running = j.at("running").get<bool>();
  c.succeeded = j.at("succeeded").get<bool>();
  c.seniority = j.at("seniority").get<uint64_t>();
  c.restarts_used = j.at("restarts_used").get<int>();
  return c;
}

json successors_json(const std::vector<Successor>& agents) {
  json list = json::array();
  for (const Successor& s : agents) {
    list.push_back({{"id", s.id.value},
                    {"host", s.host},
                    {"address", s.address},
                    {"port", s.port},
                    {"in_round", s.in_round}});
  }
  return list;
}

std::vector<Successor> read_successors(const json& list) {
  std::vector<Successor> agents;
  for (const json& entry : list) {
    Successor s;
    s.id.value = entry.at("id").get<std::string>();
    s.host = entry.at("host").get<std::string>();
    s.address = entry.at("address").get<std::string>();
    s.port = entry.at("port").get<uint16_t>();
    s.in_round = entry.at("in_round").get<bool>();
    agents.push_back(std::move(s));
  }
  return agents;
}

json view_json(const View& v, Instant now) {
  json j = {{"type", "view"},
            {"legacy", legacy_json(v.legacy)},
            {"phase", static_cast<int>(v.phase)},
            {"reason", v.reason},
            {"provisional", v.provisional},
            {"seniority", v.seniority},
            {"master_addr", v.master_addr},
            {"master_port", v.master_port},
            {"host", v.host.value},
            {"host_in_round", v.host_in_round},
            {"succeeded", v.succeeded}};
  j["successors"] = successors_json(v.successors);
  j["missing"] = successors_json(v.missing);
  j["failures"] = failures_json(v.failures, now);
  if (const auto& a = v.assignment) {
    j["assignment"] = {a->group_rank, a->group_world_size, a->first_rank, a->world_size, a->first_role_rank,
                       a->role_world_size};
  }
  return j;
}

View read_view(const json& j, Instant now) {
  View v;
  v.legacy = read_legacy(j.at("legacy"));
  const int phase = j.at("phase").get<int>();
  if (phase < 0 || phase > static_cast<int>(Phase::kEnded)) throw Error(ErrorCode::kFailed, "an unknown phase");
  v.phase = static_cast<Phase>(phase);
  v.reason = j.at("reason").get<std::string>();
  v.provisional = j.at("provisional").get<bool>();
  v.seniority = j.at("seniority").get<uint64_t>();
  v.master_addr = j.at("master_addr").get<std::string>();
  v.master_port = j.at("master_port").get<uint16_t>();
  v.host.value = j.at("host").get<std::string>();
  v.host_in_round = j.at("host_in_round").get<bool>();
  v.succeeded = j.at("succeeded").get<bool>();
  v.successors = read_successors(j.at("successors"));
  v.missing = read_successors(j.at("missing"));
  v.failures = read_failures(j.at("failures"), now);
  if (j.contains("assignment")) {
    const auto places = j.at("assignment").get<std::vector<int>>();
    if (places.size() != 6) throw Error(ErrorCode::kFailed, "an assignment of the wrong length");
    v.assignment = Assignment{places[0], places[1], places[2], places[3], places[4], places[5]};
  }
  return v;
}

struct Encoder {
  Instant now;
  json operator()(const Join& m) const {
    return {{"type", "join"},
            {"protocol", kProtocol},
            {"run_id", m.run_id},
            {"member", member_json(m.member)},
            {"claim", claim_json(m.claim)}};
  }
  json operator()(const Ready& m) const {
    return {{"type", "ready"}, {"generation", m.generation}, {"port", m.port}};
  }
  json operator()(const Failed& m) const {
    return {{"type", "failed"}, {"generation", m.generation}, {"failures", failures_json(m.failures, now)}};
  }
  json operator()(const Succeeded& m) const { return {{"type", "succeeded"}, {"generation", m.generation}}; }
  json operator()(const Leave& m) const { return {{"type", "leave"}, {"reason", m.reason}}; }
  json operator()(const Beat& m) const { return {{"type", "beat"}, {"sent_us", m.sent_us}, {"age_us", m.age_us}}; }
  json operator()(const Where& m) const {
    return {{"type", "where"},
            {"epoch", m.epoch},
            {"round", m.round},
            {"incumbent", m.incumbent},
            {"seniority", m.seniority}};
  }
  json operator()(const View& m) const { return view_json(m, now); }
  json operator()(const Refused& m) const { return {{"type", "refused"}, {"reason", m.reason}}; }
  json operator()(const Moved& m) const {
    return {{"type", "moved"},   {"host", m.host},   {"port", m.port},
            {"epoch", m.epoch}, {"round", m.round}, {"from", m.from.value}};
  }
};

Message read_message(const json& j, Instant now) {
  const auto type = j.at("type").get<std::string>();
  if (type == "join") {
    if (const int protocol = j.at("protocol").get<int>(); protocol != kProtocol) {
      throw Error(ErrorCode::kFailed, fmt::format("the other agent speaks protocol {}, this one {}", protocol, kProtocol),
                  "", "use the same version of rubato on all machines");
    }
    return Join{j.at("run_id").get<std::string>(), read_member(j.at("member")), read_claim(j.at("claim"))};
  }
  if (type == "ready") return Ready{j.at("generation").get<uint64_t>(), j.at("port").get<uint16_t>()};
  if (type == "failed") return Failed{j.at("generation").get<uint64_t>(), read_failures(j.at("failures"), now)};
  if (type == "succeeded") return Succeeded{j.at("generation").get<uint64_t>()};
  if (type == "leave") return Leave{j.at("reason").get<std::string>()};
  if (type == "beat") return Beat{j.at("sent_us").get<int64_t>(), j.at("age_us").get<int64_t>()};
  if (type == "where") {
    return Where{j.at("epoch").get<uint64_t>(), j.at("round").get<uint64_t>(), j.at("incumbent").get<bool>(), j.at("seniority").get<uint64_t>()};
  }
  if (type == "view") return read_view(j, now);
  if (type == "refused") return Refused{j.at("reason").get<std::string>()};
  if (type == "moved") {
    return Moved{j.at("host").get<std::string>(), j.at("port").get<uint16_t>(), j.at("epoch").get<uint64_t>(),
                 j.at("round").get<uint64_t>(), AgentId{j.at("from").get<std::string>()}};
  }
  throw Error(ErrorCode::kFailed, "a message of unknown type '" + type + "'");
}

}  // namespace

bool outranks(const Where& a, const Where& b) {
  if (a.epoch != b.epoch) return a.epoch > b.epoch;
  if (a.round != b.round) return a.round > b.round;
  if (a.incumbent != b.incumbent) return a.incumbent;
  return a.seniority < b.seniority;
}

std::string encode(const Message& message, Instant now) {
  // A host name or traceback need not be valid UTF-8: replace what is not, never throw.
  return std::visit(Encoder{now}, message).dump(-1, ' ', false, json::error_handler_t::replace);
}

Message decode(std::string_view text, Instant now) {
  if (text.size() > kMessageMax) throw Error(ErrorCode::kFailed, "a message that is too long");
  try {
    return read_message(json::parse(text), now);
  } catch (const json::exception& e) {
    throw Error(ErrorCode::kFailed, fmt::format("not a message of an agent: {}", e.what()));
  }
}

std::string encode_legacy(const Legacy& legacy) { return legacy_json(legacy).dump(); }

Legacy decode_legacy(std::string_view text) {
  try {
    return read_legacy(json::parse(text));
  } catch (const json::exception& e) {
    throw Error(ErrorCode::kFailed, fmt::format("the stored state of the rendezvous cannot be read: {}", e.what()));
  }
}

}  // namespace rubato::elastic
