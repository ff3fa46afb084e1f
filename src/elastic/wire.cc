#include "elastic/wire.h"

#include <fmt/format.h>

#include <algorithm>

#include "elastic/rendezvous.h"
#include "elastic/wire_json.h"

namespace rubato::elastic {

using nlohmann::json;
using namespace wire;

namespace {

json terms_json(const Terms& t) {
  return {{"min", t.min_nodes},
          {"max", t.max_nodes},
          {"restarts", t.max_restarts},
          {"last_call_us", to_micros(t.last_call)},
          {"join_us", to_micros(t.join_timeout)},
          {"heartbeat_us", to_micros(t.heartbeat)},
          {"first_round_us", to_micros(t.first_round_after)},
          {"spares", t.spares},
          {"step", t.step},
          {"quorum", t.needs_quorum}};
}

Terms read_terms(const json& j) {
  Terms t;
  t.min_nodes = number<int>(j, "min");
  t.max_nodes = number<int>(j, "max");
  t.max_restarts = number<int>(j, "restarts");
  t.last_call = from_micros(number<int64_t>(j, "last_call_us"));
  t.join_timeout = from_micros(number<int64_t>(j, "join_us"));
  t.heartbeat = from_micros(number<int64_t>(j, "heartbeat_us"));
  t.first_round_after = from_micros(number<int64_t>(j, "first_round_us"));
  t.needs_quorum = j.at("quorum").get<bool>();
  t.spares = number<int>(j, "spares");
  if (j.contains("step")) t.step = number<int>(j, "step");
  if (t.step < 1 || t.min_nodes % t.step != 0) not_ours("'step' is none of these sizes");
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
  l.epoch = number<uint64_t>(j, "epoch");
  l.generation = number<uint64_t>(j, "generation");
  l.round = number<uint64_t>(j, "round");
  l.round_size = number<int>(j, "round_size");
  l.spares = number<int>(j, "spares");
  l.restarts_used = number<int>(j, "restarts_used");
  l.causes = j.at("causes").get<std::vector<std::string>>();
  l.next_seniority = number<uint64_t>(j, "next_seniority");
  l.terms = read_terms(j.at("terms"));
  return l;
}

json successors_json(const std::vector<Successor>& agents) {
  json list = json::array();
  for (const Successor& s : agents) {
    list.push_back(
        {{"id", s.id.value}, {"host", s.host}, {"address", s.address}, {"port", s.port}, {"in_round", s.in_round}});
    if (!s.identity.empty()) list.back()["identity"] = s.identity;
  }
  return list;
}

std::vector<Successor> read_successors(const json& list) {
  if (!list.is_array() || list.size() > kMembersMax) not_ours("more agents than a group may have");
  std::vector<Successor> agents;
  for (const json& entry : list) {
    Successor s;
    s.id.value = cut_text(entry, "id");
    s.host = cut_text(entry, "host");
    s.address = cut_text(entry, "address");
    s.port = number<uint16_t>(entry, "port");
    s.in_round = entry.at("in_round").get<bool>();
    if (entry.contains("identity")) s.identity = cut_text(entry, "identity");
    agents.push_back(std::move(s));
  }
  return agents;
}

json claim_json(const Claim& c) {
  return {{"epoch", c.epoch},
          {"generation", c.generation},
          {"round", c.round},
          {"round_size", c.round_size},
          {"in_round", c.in_round},
          {"running", c.running},
          {"succeeded", c.succeeded},
          {"seniority", c.seniority},
          {"restarts_used", c.restarts_used},
          {"peers", successors_json(c.peers)}};
}

Claim read_claim(const json& j) {
  Claim c;
  c.epoch = number<uint64_t>(j, "epoch");
  c.generation = number<uint64_t>(j, "generation");
  c.round = number<uint64_t>(j, "round");
  c.round_size = number<int>(j, "round_size");
  c.in_round = j.at("in_round").get<bool>();
  c.running = j.at("running").get<bool>();
  c.succeeded = j.at("succeeded").get<bool>();
  c.seniority = number<uint64_t>(j, "seniority");
  c.restarts_used = number<int>(j, "restarts_used");
  c.peers = read_successors(j.at("peers"));
  return c;
}

json ready_json(const Ready& m) {
  const AgentWorkers& workers = m.workers;
  json j = {{"type", "ready"},
            {"generation", m.generation},
            {"port", m.port},
            {"stopped", workers.stopped},
            {"finished", workers.finished}};
  j["slots"] = slots_json(workers.slots);
  j["store"] = store_json(workers.store);
  return j;
}

Ready read_ready(const json& j) {
  Ready ready{number<uint64_t>(j, "generation"), number<uint16_t>(j, "port"), {}};
  ready.workers.slots = read_slots(j);
  ready.workers.store = read_store(j.at("store"));
  ready.workers.stopped = j.at("stopped").get<bool>();
  ready.workers.finished = j.at("finished").get<bool>();
  return ready;
}

json view_json(const View& v, Instant now) {
  json j = {{"type", "view"},           {"legacy", legacy_json(v.legacy)},  {"phase", static_cast<int>(v.phase)},
            {"reason", v.reason},       {"provisional", v.provisional},     {"in_round", v.in_round},
            {"seniority", v.seniority}, {"master_addr", v.master_addr},     {"master_port", v.master_port},
            {"host", v.host.value},     {"host_in_round", v.host_in_round}, {"succeeded", v.succeeded}};
  j["successors"] = successors_json(v.successors);
  j["missing"] = successors_json(v.missing);
  j["failures"] = failures_json(v.failures, now);
  if (v.assignment) j["assignment"] = assignment_json(*v.assignment);
  if (v.plan) j["plan"] = plan_json(*v.plan);
  j["restart"] = v.restart;
  j["prepare"] = v.prepare;
  if (v.host_leaves) j["host_leaves"] = true;
  return j;
}

View read_view(const json& j, Instant now) {
  View v;
  v.legacy = read_legacy(j.at("legacy"));
  v.phase = read_enum(j, "phase", Phase::kEnded);
  v.reason = j.at("reason").get<std::string>();
  v.provisional = j.at("provisional").get<bool>();
  v.in_round = j.at("in_round").get<bool>();
  v.seniority = number<uint64_t>(j, "seniority");
  v.master_addr = j.at("master_addr").get<std::string>();
  v.master_port = number<uint16_t>(j, "master_port");
  v.host.value = j.at("host").get<std::string>();
  v.host_in_round = j.at("host_in_round").get<bool>();
  v.succeeded = j.at("succeeded").get<bool>();
  v.successors = read_successors(j.at("successors"));
  v.missing = read_successors(j.at("missing"));
  v.failures = read_failures(j.at("failures"), now);
  if (j.contains("assignment")) v.assignment = read_assignment(j.at("assignment"));
  if (j.contains("plan")) v.plan = read_plan(j.at("plan"));
  v.restart = j.at("restart").get<bool>();
  v.prepare = j.at("prepare").get<bool>();
  v.host_leaves = j.contains("host_leaves") && j.at("host_leaves").get<bool>();
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
  json operator()(const Ready& m) const { return ready_json(m); }
  json operator()(const Failed& m) const {
    return {{"type", "failed"},
            {"generation", m.generation},
            {"failures", failures_json(m.failures, now)},
            {"in_group", m.in_group}};
  }
  json operator()(const Settled& m) const { return {{"type", "settled"}, {"generation", m.generation}}; }
  json operator()(const Offer& m) const { return {{"type", "offer"}, {"generation", m.generation}}; }
  json operator()(const Broken& m) const {
    return {{"type", "broken"}, {"generation", m.generation}, {"reason", m.reason}};
  }
  json operator()(const Succeeded& m) const { return {{"type", "succeeded"}, {"generation", m.generation}}; }
  json operator()(const Leave& m) const { return {{"type", "leave"}, {"reason", m.reason}}; }
  json operator()(const Beat& m) const {
    return {{"type", "beat"},
            {"sent_us", m.sent_us},
            {"proof_us", m.proof_us},
            {"since_us", m.since_us},
            {"at_us", m.at_us}};
  }
  json operator()(const Where& m) const {
    return {{"type", "where"},          {"epoch", m.epoch},         {"round", m.round},
            {"incumbent", m.incumbent}, {"seniority", m.seniority}, {"from", m.from.value}};
  }
  json operator()(const View& m) const { return view_json(m, now); }
  json operator()(const Refused& m) const { return {{"type", "refused"}, {"reason", m.reason}}; }
  json operator()(const Moved& m) const {
    return {{"type", "moved"},  {"host", m.host},   {"port", m.port},
            {"epoch", m.epoch}, {"round", m.round}, {"from", m.from.value}};
  }
};

Message read_message(const json& j, Instant now) {
  const auto type = j.at("type").get<std::string>();
  if (type == "join") {
    if (const int protocol = number<int>(j, "protocol"); protocol != kProtocol) {
      throw Error(ErrorCode::kFailed,
                  fmt::format("the other agent speaks protocol {}, this one {}", protocol, kProtocol), "",
                  "use the same version of rubato on all machines");
    }
    return Join{cut_text(j, "run_id"), read_member(j.at("member")), read_claim(j.at("claim"))};
  }
  if (type == "ready") return read_ready(j);
  if (type == "failed") {
    const bool in_group = j.at("in_group").get<bool>();
    return Failed{number<uint64_t>(j, "generation"), read_failures(j.at("failures"), now), in_group};
  }
  if (type == "settled") return Settled{number<uint64_t>(j, "generation")};
  if (type == "offer") return Offer{number<uint64_t>(j, "generation")};
  if (type == "broken") return Broken{number<uint64_t>(j, "generation"), cut_text(j, "reason")};
  if (type == "succeeded") return Succeeded{number<uint64_t>(j, "generation")};
  if (type == "leave") return Leave{cut_text(j, "reason")};
  if (type == "beat") {
    for (const char* time : {"sent_us", "proof_us", "since_us", "at_us"}) from_micros(number<int64_t>(j, time));
    return Beat{number<int64_t>(j, "sent_us"), number<int64_t>(j, "proof_us"), number<int64_t>(j, "since_us"),
                number<int64_t>(j, "at_us")};
  }
  if (type == "where") {
    return Where{number<uint64_t>(j, "epoch"), number<uint64_t>(j, "round"), j.at("incumbent").get<bool>(),
                 number<uint64_t>(j, "seniority"), AgentId{j.at("from").get<std::string>()}};
  }
  if (type == "view") return read_view(j, now);
  if (type == "refused") return Refused{j.at("reason").get<std::string>()};
  if (type == "moved") {
    return Moved{j.at("host").get<std::string>(), number<uint16_t>(j, "port"), number<uint64_t>(j, "epoch"),
                 number<uint64_t>(j, "round"), AgentId{j.at("from").get<std::string>()}};
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

std::string encode(const Message& message, Instant now) { return to_text(std::visit(Encoder{now}, message)); }

Message decode(std::string_view text, Instant now) {
  if (text.size() > kMessageMax) throw Error(ErrorCode::kFailed, "a message that is too long");
  try {
    return read_message(parse_message(text), now);
  } catch (const json::exception& e) {
    not_ours(e.what());
  }
}

}  // namespace rubato::elastic
