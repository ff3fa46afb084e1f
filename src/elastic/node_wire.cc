#include "elastic/node_wire.h"

#include <algorithm>

#include "elastic/wire_json.h"

namespace rubato::elastic {

using nlohmann::json;
using namespace wire;

namespace {

constexpr size_t kNameMax = 256;  // of ids, versions and roles
constexpr size_t kReportFailuresMax = kErrandWorkersMax;
constexpr size_t kLogTextOnWireMax = 3 * kLogTextMax;  // a byte that is not UTF-8 travels as U+FFFD, three bytes

std::string short_text(const json& object, const char* key) {
  auto text = object.at(key).get<std::string>();
  if (text.size() > kNameMax) not_ours(fmt::format("'{}' has {} bytes, more than {}", key, text.size(), kNameMax));
  return text;
}

// An id becomes the name of a folder: nothing in it may lead elsewhere.
std::string id_text(const json& object, const char* key) {
  std::string text = short_text(object, key);
  const auto harmless = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  if (text.empty() || text.front() == '.' || !std::ranges::all_of(text, harmless)) {
    not_ours(fmt::format("'{}' is no id", key));
  }
  return text;
}

std::string hash_text(const json& object, const char* key) {
  auto text = object.at(key).get<std::string>();
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (text.size() != 64 || !std::ranges::all_of(text, digit)) not_ours(fmt::format("'{}' is no sha256", key));
  return text;
}

// Never negative: all durations of this protocol are spans to wait.
Duration span(const json& object, const char* key) {
  const Duration duration = from_micros(number<int64_t>(object, key));
  if (duration < 0s) not_ours(fmt::format("'{}' is negative", key));
  return duration;
}

void check_protocol(const json& j, std::string_view who) {
  const int protocol = number<int>(j, "protocol");
  if (protocol == kNodeProtocol) return;
  throw Error(ErrorCode::kFailed, fmt::format("the {} speaks protocol {}, this side {}", who, protocol, kNodeProtocol),
              "", "use the same version of rubato on all machines: `rubato up` again replaces older agents");
}

json agents_json(const std::vector<AgentId>& agents) {
  json list = json::array();
  for (const AgentId& agent : agents) list.push_back(agent.value);
  return list;
}

std::vector<AgentId> read_agents(const json& j, const char* key) {
  std::vector<AgentId> agents;
  if (!j.contains(key)) return agents;  // of an older version
  for (const json& entry : list_at(j, key, kFenceMax)) {
    agents.push_back(AgentId{entry.get<std::string>()});
    if (agents.back().value.size() > kNameMax) not_ours("the id of an agent is too long");
  }
  return agents;
}

json rounds_json(const std::vector<RoundId>& rounds) {
  json list = json::array();
  for (const RoundId& round : rounds) list.push_back({round.job.value, round.generation});
  return list;
}

std::vector<RoundId> read_rounds(const json& j) {
  std::vector<RoundId> rounds;
  for (const json& entry : list_at(j, "rounds", kErrandsMax)) {
    if (!entry.is_array() || entry.size() != 2) not_ours("a round of the wrong length");
    RoundId round;
    round.job.value = entry.at(0).get<std::string>();
    round.generation = number<uint64_t>(entry, size_t{1});
    if (round.job.value.size() > kNameMax) not_ours("the id of a job is too long");
    rounds.push_back(std::move(round));
  }
  return rounds;
}

json witnesses_json(const std::vector<WitnessAddress>& witnesses) {
  json list = json::array();
  for (const WitnessAddress& one : witnesses) list.push_back({one.agent.value, one.address, one.port});
  return list;
}

std::vector<WitnessAddress> read_witnesses(const json& j) {
  std::vector<WitnessAddress> witnesses;
  for (const json& entry : list_at(j, "witnesses", kWitnessesMax)) {
    if (!entry.is_array() || entry.size() != 3) not_ours("a witness of the wrong length");
    WitnessAddress one;
    one.agent.value = entry.at(0).get<std::string>();
    one.address = entry.at(1).get<std::string>();
    one.port = number<uint16_t>(entry, size_t{2});
    if (one.agent.value.size() > kNameMax || one.address.size() > kNameMax) not_ours("a witness with a long name");
    witnesses.push_back(std::move(one));
  }
  return witnesses;
}

json errand_json(const Errand& e) {
  json j = {{"job", e.job.value},
            {"generation", e.generation},
            {"phase", static_cast<int>(e.phase)},
            {"workers", e.workers},
            {"grace_us", to_micros(e.grace)},
            {"place", assignment_json(e.place)},
            {"master_addr", e.master_addr},
            {"master_port", e.master_port},
            {"restarts_used", e.restarts_used},
            {"output", e.output}};
  if (!e.peers.empty()) {
    json peers = json::array();
    for (const PeerSeat& peer : e.peers) peers.push_back({peer.address, peer.workers});
    j["peers"] = std::move(peers);
  }
  if (e.phase == Phase::kRunning) {
    j["lease_us"] = to_micros(e.lease);
    j["witnesses"] = witnesses_json(e.witnesses);
  }
  // To end a job nothing need be known of it.
  if (e.spec != JobSpec{}) j["spec"] = to_json(e.spec);
  return j;
}

Errand read_errand(const json& j) {
  Errand e;
  e.job.value = id_text(j, "job");
  e.generation = number<uint64_t>(j, "generation");
  e.phase = read_enum(j, "phase", Phase::kEnded);
  e.workers = number<int>(j, "workers");
  if (e.workers < 0 || e.workers > kErrandWorkersMax) not_ours(fmt::format("an errand of {} workers", e.workers));
  e.grace = span(j, "grace_us");
  e.place = read_assignment(j.at("place"));
  e.master_addr = j.at("master_addr").get<std::string>();
  e.master_port = number<uint16_t>(j, "master_port");
  e.restarts_used = number<int>(j, "restarts_used");
  e.output = j.at("output").get<std::string>();
  if (j.contains("peers")) {
    for (const json& entry : list_at(j, "peers", kPeersMax)) {
      const int workers = number<int>(entry, size_t{1});
      if (workers < 0 || workers > kErrandWorkersMax) not_ours(fmt::format("a seat of {} workers", workers));
      e.peers.push_back({entry.at(0).get<std::string>(), workers});
    }
  }
  if (j.contains("lease_us")) e.lease = span(j, "lease_us");
  if (j.contains("witnesses")) e.witnesses = read_witnesses(j);
  if (j.contains("spec")) {
    e.spec = job_spec_from_json(j.at("spec"));
  } else if (e.phase == Phase::kRunning) {
    not_ours("workers are to run, but it is not said which");
  }
  return e;
}

json report_json(const ErrandReport& r, Instant now) {
  json j = {{"job", r.job.value},
            {"generation", r.generation},
            {"state", static_cast<int>(r.state)},
            {"port", r.port},
            {"failures", failures_json(r.failures, now)},
            {"problem", r.problem},
            {"forced", r.forced},
            {"succeeded", r.succeeded}};
  if (r.fenced) j["fenced"] = true;
  return j;
}

ErrandReport read_report(const json& j, Instant now) {
  ErrandReport r;
  r.job.value = id_text(j, "job");
  r.generation = number<uint64_t>(j, "generation");
  r.state = read_enum(j, "state", ErrandState::kGone);
  r.port = number<uint16_t>(j, "port");
  r.failures = read_failures(list_at(j, "failures", kReportFailuresMax), now);
  r.problem = cut_text(j, "problem");
  r.forced = list_at(j, "forced", kErrandWorkersMax).get<std::vector<std::string>>();
  if (j.contains("succeeded")) r.succeeded = number<uint64_t>(j, "succeeded");  // older agents do not say it
  if (j.contains("fenced")) r.fenced = j.at("fenced").get<bool>();
  for (std::string& one : r.forced) one.resize(std::min(one.size(), kNameMax));
  return r;
}

json reports_json(const std::vector<ErrandReport>& reports, Instant now) {
  json list = json::array();
  for (const ErrandReport& report : reports) list.push_back(report_json(report, now));
  return list;
}

std::vector<ErrandReport> read_reports(const json& j, Instant now) {
  std::vector<ErrandReport> reports;
  for (const json& entry : list_at(j, "errands", kErrandsMax)) reports.push_back(read_report(entry, now));
  return reports;
}

json line_json(const LogLine& l) {
  // An array, as there are many: a fifth of the message would be names.
  json line = {l.sequence, l.time_us, l.generation, l.rank, l.is_stderr, l.text};
  if (l.missing_lines > 0) {
    line.insert(line.end(), {l.missing_lines, l.missing_bytes});
  } else if (l.continues) {
    line.push_back(true);
  }
  return line;
}

LogLine read_line(const json& j) {
  if (!j.is_array() || j.size() < 6 || j.size() > 8) not_ours("a log line of the wrong length");
  LogLine l;
  l.sequence = number<uint64_t>(j, size_t{0});
  l.time_us = number<int64_t>(j, size_t{1});
  l.generation = number<uint64_t>(j, size_t{2});
  l.rank = number<int>(j, size_t{3});
  l.is_stderr = j.at(4).get<bool>();
  l.text = j.at(5).get<std::string>();
  if (j.size() == 7) l.continues = j.at(6).get<bool>();
  if (j.size() == 8) {
    l.missing_lines = number<uint64_t>(j, size_t{6});
    l.missing_bytes = number<uint64_t>(j, size_t{7});
  }
  if (l.text.size() > kLogTextOnWireMax) not_ours(fmt::format("a log line of {} bytes", l.text.size()));
  return l;
}

// What a text takes in a message, its quotes and a comma among them.
size_t json_bytes(std::string_view text) {
  size_t bytes = 4;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    bytes += u < 0x20 || u >= 0x7f ? 6 : c == '"' || c == '\\' ? 2 : 1;
  }
  return bytes;
}

struct ToAgentEncoder {
  json operator()(const Welcome& m) const {
    return {{"type", "welcome"},          {"protocol", m.protocol},
            {"head_epoch", m.head_epoch}, {"heartbeat_us", to_micros(m.heartbeat)},
            {"leased", m.leased},         {"stays_here", m.stays_here}};
  }
  json operator()(const LeaseAnswer& m) const {
    return {{"type", "lease"},
            {"word", static_cast<int>(m.word)},
            {"sent_us", m.sent_us},
            {"agent", m.agent.value},
            {"rounds", rounds_json(m.rounds)}};
  }
  json operator()(const Orders& m) const {
    json errands = json::array();
    for (const Errand& errand : m.errands) errands.push_back(errand_json(errand));
    json outputs = json::array();
    for (const OutputOrder& output : m.outputs)
      outputs.push_back({{"job", output.job.value}, {"wanted", output.wanted}});
    json j = {{"type", "orders"},
              {"revision", m.revision},
              {"errands", std::move(errands)},
              {"outputs", std::move(outputs)},
              {"drain", m.drain}};
    if (!m.fence.empty()) j["fence"] = agents_json(m.fence);
    if (m.more) j["more"] = true;
    return j;
  }
  json operator()(const LogAck& m) const {
    json j = {{"type", "log_ack"}, {"job", m.job.value}, {"sequence", m.sequence}};
    if (m.refused) j["refused"] = true;
    return j;
  }
  json operator()(const PackagePart& m) const {
    return {{"type", "package_part"}, {"hash", m.hash}, {"offset", m.offset}, {"size", m.size}};
  }
  json operator()(const OutputAck& m) const {
    return {{"type", "output_ack"},
            {"job", m.job.value},
            {"have", m.have},
            {"state", static_cast<int>(m.state)},
            {"reason", m.reason}};
  }
  json operator()(const Goodbye& m) const {
    return {{"type", "goodbye"}, {"reason", m.reason}, {"refused", m.refused}};
  }
};

struct ToHeadEncoder {
  Instant now;
  json operator()(const Hello& m) const {
    return {{"type", "hello"},
            {"protocol", m.protocol},
            {"version", m.version},
            {"node", m.node.value},
            {"agent", m.agent.value},
            {"info", member_json(m.info)},
            {"resources", to_json(m.resources)},
            {"started_us", m.started.time_since_epoch().count()},
            {"head_epoch", m.head_epoch},
            {"own_disk", m.own_disk},
            {"errands", reports_json(m.errands, now)},
            {"fenced", agents_json(m.fenced)}};
  }
  json operator()(const LeaseAsk& m) const {
    return {{"type", "lease_ask"},    {"protocol", m.protocol},         {"node", m.node.value},
            {"agent", m.agent.value}, {"head_epoch", m.head_epoch},     {"sent_us", m.sent_us},
            {"stopped", m.stopped},   {"rounds", rounds_json(m.rounds)}};
  }
  json operator()(const NodeBeat& m) const { return {{"type", "beat"}, {"orders", m.orders}}; }
  json operator()(const Reports& m) const {
    return {{"type", "reports"}, {"errands", reports_json(m.errands, now)}, {"fenced", agents_json(m.fenced)}};
  }
  json operator()(const LogLines& m) const {
    json lines = json::array();
    for (const LogLine& line : m.lines) lines.push_back(line_json(line));
    json j = {{"type", "log_lines"}, {"job", m.job.value}, {"lines", std::move(lines)}};
    if (!m.agent.value.empty()) j["agent"] = m.agent.value;
    if (m.follows > 0) j["follows"] = m.follows;
    return j;
  }
  json operator()(const PackageWanted& m) const {
    return {{"type", "package_wanted"}, {"hash", m.hash}, {"offset", m.offset}};
  }
  json operator()(const Leaving& m) const {
    return {{"type", "leaving"}, {"reason", m.reason}, {"in_us", to_micros(m.in)}};
  }
  json operator()(const Delivery& m) const {
    return {{"type", "delivery"}, {"protocol", m.protocol}, {"node", m.node.value}};
  }
  json operator()(const OutputOffer& m) const { return {{"type", "output_offer"}, {"job", m.job.value}}; }
  json operator()(const OutputPart& m) const {
    json j = {{"type", "output_part"}, {"job", m.job.value}, {"offset", m.offset}};
    if (m.last) j.update({{"hash", m.hash}, {"files", m.files}, {"content_bytes", m.content_bytes}});
    return j;
  }
  json operator()(const OutputTrouble& m) const {
    return {{"type", "output_trouble"}, {"job", m.job.value}, {"reason", m.reason}};
  }
  json operator()(const DeliveryEnd&) const { return {{"type", "delivery_end"}}; }
  json operator()(const JobHints& m) const {
    return {{"type", "job_hints"}, {"job", m.job.value}, {"profile", to_json(m.profile)}};
  }
};

Welcome read_welcome(const json& j) {
  check_protocol(j, "head");
  Welcome m;
  m.head_epoch = number<uint64_t>(j, "head_epoch");
  m.heartbeat = span(j, "heartbeat_us");
  if (m.heartbeat < 1ms) not_ours("a heartbeat of less than a millisecond");
  if (j.contains("leased")) m.leased = j.at("leased").get<bool>();
  if (j.contains("stays_here")) m.stays_here = j.at("stays_here").get<bool>();
  return m;
}

LeaseAnswer read_lease_answer(const json& j) {
  LeaseAnswer m;
  m.word = read_enum(j, "word", LeaseAnswer::Word::kGivenUp);
  m.sent_us = number<int64_t>(j, "sent_us");
  m.agent.value = short_text(j, "agent");
  m.rounds = read_rounds(j);
  return m;
}

LeaseAsk read_lease_ask(const json& j) {
  check_protocol(j, "agent");
  LeaseAsk m;
  m.node.value = id_text(j, "node");
  m.agent.value = id_text(j, "agent");
  m.head_epoch = number<uint64_t>(j, "head_epoch");
  m.sent_us = number<int64_t>(j, "sent_us");
  m.stopped = j.at("stopped").get<bool>();
  m.rounds = read_rounds(j);
  return m;
}

Orders read_orders(const json& j) {
  Orders m;
  m.revision = number<uint64_t>(j, "revision");
  for (const json& entry : list_at(j, "errands", kErrandsMax)) m.errands.push_back(read_errand(entry));
  m.drain = j.at("drain").get<bool>();
  m.fence = read_agents(j, "fence");
  if (j.contains("more")) m.more = j.at("more").get<bool>();
  if (!j.contains("outputs")) return m;
  for (const json& entry : list_at(j, "outputs", kOutputsMax)) {
    m.outputs.push_back(OutputOrder{JobId{id_text(entry, "job")}, entry.at("wanted").get<bool>()});
  }
  return m;
}

LogAck read_log_ack(const json& j) {
  LogAck m;
  m.job.value = id_text(j, "job");
  m.sequence = number<uint64_t>(j, "sequence");
  if (j.contains("refused")) m.refused = j.at("refused").get<bool>();
  return m;
}

OutputAck read_output_ack(const json& j) {
  OutputAck m;
  m.job.value = id_text(j, "job");
  m.have = number<uint64_t>(j, "have");
  m.state = read_enum(j, "state", OutputAck::State::kRefused);
  m.reason = j.at("reason").get<std::string>();
  return m;
}

OutputPart read_output_part(const json& j, std::string_view bytes) {
  OutputPart m;
  m.job.value = id_text(j, "job");
  m.offset = number<uint64_t>(j, "offset");
  m.last = j.contains("hash");
  if (m.last) {
    m.hash = hash_text(j, "hash");
    m.files = number<uint64_t>(j, "files");
    m.content_bytes = number<uint64_t>(j, "content_bytes");
  }
  if (bytes.size() > kOutputPartMax) not_ours(fmt::format("a part of {} bytes", bytes.size()));
  m.bytes = bytes;
  return m;
}

Delivery read_delivery(const json& j) {
  check_protocol(j, "agent");
  Delivery m;
  m.node.value = id_text(j, "node");
  return m;
}

PackagePart read_package_part(const json& j, std::string_view bytes) {
  PackagePart m;
  m.hash = hash_text(j, "hash");
  m.offset = number<uint64_t>(j, "offset");
  m.size = number<uint64_t>(j, "size");
  if (m.offset > m.size || bytes.size() > m.size - m.offset) not_ours("a part that lies outside its package");
  if (bytes.size() > kPackagePartMax) not_ours(fmt::format("a part of {} bytes", bytes.size()));
  m.bytes = bytes;
  return m;
}

Hello read_hello(const json& j, Instant now) {
  check_protocol(j, "agent");
  Hello m;
  m.version = short_text(j, "version");
  m.node.value = id_text(j, "node");
  m.agent.value = id_text(j, "agent");
  m.info = read_member(j.at("info"));
  m.resources = resources_from_json(j.at("resources"));
  if (j.contains("started_us")) m.started = WallTime(std::chrono::microseconds(number<int64_t>(j, "started_us")));
  m.head_epoch = number<uint64_t>(j, "head_epoch");
  if (j.contains("own_disk")) m.own_disk = j.at("own_disk").get<bool>();
  m.errands = read_reports(j, now);
  m.fenced = read_agents(j, "fenced");
  return m;
}

LogLines read_log_lines(const json& j) {
  LogLines m;
  m.job.value = id_text(j, "job");
  if (j.contains("agent")) m.agent.value = id_text(j, "agent");
  if (j.contains("follows")) m.follows = number<uint64_t>(j, "follows");
  for (const json& entry : list_at(j, "lines", kLogLinesMax)) m.lines.push_back(read_line(entry));
  return m;
}

ToAgent read_to_agent(const json& j, std::optional<std::string_view> bytes) {
  const auto type = j.at("type").get<std::string>();
  if (type == "package_part") {
    if (!bytes) not_ours("a package part without its bytes");
    return read_package_part(j, *bytes);
  }
  if (bytes) not_ours("bytes after the message");
  if (type == "welcome") return read_welcome(j);
  if (type == "orders") return read_orders(j);
  if (type == "log_ack") return read_log_ack(j);
  if (type == "output_ack") return read_output_ack(j);
  if (type == "lease") return read_lease_answer(j);
  if (type == "goodbye") return Goodbye{j.at("reason").get<std::string>(), j.at("refused").get<bool>()};
  not_ours(fmt::format("of unknown type '{}'", type));
}

ToHead read_to_head(const json& j, std::optional<std::string_view> bytes, Instant now) {
  const auto type = j.at("type").get<std::string>();
  if (type == "output_part") {
    if (!bytes) not_ours("a part of an output without its bytes");
    return read_output_part(j, *bytes);
  }
  if (bytes) not_ours("bytes after the message");
  if (type == "hello") return read_hello(j, now);
  if (type == "beat") return NodeBeat{number<uint64_t>(j, "orders")};
  if (type == "reports") return Reports{read_reports(j, now), read_agents(j, "fenced")};
  if (type == "lease_ask") return read_lease_ask(j);
  if (type == "log_lines") return read_log_lines(j);
  if (type == "package_wanted") return PackageWanted{hash_text(j, "hash"), number<uint64_t>(j, "offset")};
  if (type == "delivery") return read_delivery(j);
  if (type == "output_offer") return OutputOffer{JobId{id_text(j, "job")}};
  if (type == "output_trouble") return OutputTrouble{JobId{id_text(j, "job")}, cut_text(j, "reason")};
  if (type == "delivery_end") return DeliveryEnd{};
  if (type == "job_hints") return JobHints{JobId{id_text(j, "job")}, job_profile_from_json(j.at("profile"))};
  if (type == "leaving") return Leaving{cut_text(j, "reason"), span(j, "in_us")};
  not_ours(fmt::format("of unknown type '{}'", type));
}

// What stands behind the first newline, which a JSON text of ours has none of, is taken off.
std::optional<std::string_view> split_bytes(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view bytes = text.substr(end + 1);
  text = text.substr(0, end);
  return bytes;
}

bool same(const Failure& a, const Failure& b) {
  return a.host == b.host && a.rank == b.rank && a.local_rank == b.local_rank && a.pid == b.pid &&
         a.generation == b.generation && a.exit_code == b.exit_code && a.signal == b.signal && a.message == b.message &&
         a.traceback == b.traceback && a.error_file == b.error_file;
}

}  // namespace

std::string_view to_string(ErrandState state) {
  switch (state) {
    case ErrandState::kPreparing:
      return "preparing";
    case ErrandState::kReady:
      return "ready";
    case ErrandState::kRunning:
      return "running";
    case ErrandState::kSucceeded:
      return "succeeded";
    case ErrandState::kFailed:
      return "failed";
    case ErrandState::kGone:
      return "gone";
  }
  CHECK(false);
}

// When a failure happened is left out: after a journey as an age it differs by the time of travel.
LeaseTerms lease_terms(const Errand& errand) {
  return LeaseTerms{RoundId{errand.job, errand.generation}, errand.lease, errand.witnesses};
}

bool ErrandReport::operator==(const ErrandReport& other) const {
  return job == other.job && generation == other.generation && state == other.state && port == other.port &&
         problem == other.problem && forced == other.forced && succeeded == other.succeeded && fenced == other.fenced &&
         std::ranges::equal(failures, other.failures, same);
}

std::string encode(const ToAgent& message) {
  std::string text = to_text(std::visit(ToAgentEncoder{}, message));
  if (const auto* part = std::get_if<PackagePart>(&message)) {
    text += '\n';
    text += part->bytes;
  }
  return text;
}

std::string encode(const ToHead& message, Instant now) {
  std::string text = to_text(std::visit(ToHeadEncoder{now}, message));
  if (const auto* part = std::get_if<OutputPart>(&message)) {
    text += '\n';
    text += part->bytes;
  }
  return text;
}

std::vector<std::string> encode_orders(Orders orders) {
  // The largest job is a body of kJobBodyMax with some 30,000 values.
  constexpr size_t kBytesMax = kNodeMessageMax / 2;
  constexpr size_t kValuesMax = kMessageBounds.values_max / 2;
  std::vector<std::string> messages;
  Orders part;
  part.revision = orders.revision;
  part.drain = orders.drain;
  size_t bytes = 0, values = 0;
  const auto make_room = [&](size_t more_bytes, size_t more_values) {
    if (!part.errands.empty() && (bytes + more_bytes > kBytesMax || values + more_values > kValuesMax)) {
      part.more = true;
      messages.push_back(encode(ToAgent(std::exchange(part, Orders{}))));
      part.revision = orders.revision;
      part.drain = orders.drain;
      bytes = values = 0;
    }
    bytes += more_bytes;
    values += more_values;
  };
  for (Errand& errand : orders.errands) {
    const JobSpec& spec = errand.spec;
    size_t size = 4096;
    for (const std::string& word : spec.args) size += json_bytes(word);
    for (const std::string& word : spec.prewarm) size += json_bytes(word);
    for (const auto& [name, value] : spec.env) size += json_bytes(name) + json_bytes(value);
    size += errand.witnesses.size() * 2 * kNameMax;
    make_room(size, 256 + 4 * errand.witnesses.size() + spec.args.size() + spec.prewarm.size() + 2 * spec.env.size());
    part.errands.push_back(std::move(errand));
  }
  make_room(orders.outputs.size() * 64 + orders.fence.size() * 64, orders.outputs.size() * 3 + orders.fence.size());
  part.outputs = std::move(orders.outputs);
  part.fence = std::move(orders.fence);
  messages.push_back(encode(ToAgent(std::move(part))));
  return messages;
}

ToAgent decode_to_agent(std::string_view text) {
  if (text.size() > kNodeMessageMax) not_ours("it is too long");
  const std::optional<std::string_view> bytes = split_bytes(text);
  try {
    return read_to_agent(parse_message(text), bytes);
  } catch (const json::exception& e) {
    not_ours(e.what());
  }
}

ToHead decode_to_head(std::string_view text, Instant now) {
  if (text.size() > kNodeMessageMax) not_ours("it is too long");
  const std::optional<std::string_view> bytes = split_bytes(text);
  try {
    return read_to_head(parse_message(text), bytes, now);
  } catch (const json::exception& e) {
    not_ours(e.what());
  }
}

}  // namespace rubato::elastic
