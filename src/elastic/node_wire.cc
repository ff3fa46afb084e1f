#include "elastic/node_wire.h"

#include <algorithm>

#include "elastic/checkpoints_json.h"
#include "elastic/job_order_json.h"
#include "elastic/wire_json.h"

namespace rubato::elastic {

using nlohmann::json;
using namespace wire;

namespace {

constexpr size_t kLogTextOnWireMax = 3 * kLogTextMax;  // a byte that is not UTF-8 travels as U+FFFD, three bytes

void check_protocol(const json& j, std::string_view who) {
  const int protocol = number<int>(j, "protocol");
  if (protocol == kNodeProtocol) return;
  throw Error(ErrorCode::kFailed, fmt::format("the {} speaks protocol {}, this side {}", who, protocol, kNodeProtocol),
              "", "use the same version of rubato on all machines: `rubato up` again replaces older agents");
}

json copies_json(const std::vector<CheckpointCopy>& copies) {
  json list = json::array();
  for (const CheckpointCopy& copy : copies) list.push_back({{"job", copy.job.value}, {"item", to_json(copy.item)}});
  return list;
}

std::vector<CheckpointCopy> read_copies(const json& j) {
  std::vector<CheckpointCopy> copies;
  if (!j.contains("copies")) return copies;
  for (const json& entry : list_at(j, "copies", kCopiesMax)) {
    copies.push_back({JobId{id_text(entry, "job")}, checkpoint_item_from_json(entry.at("item"))});
    if (copies.back().item.hash.empty()) not_ours("a copy without a hash");
  }
  return copies;
}

std::optional<CheckpointItem> read_checkpoint(const json& j) {
  if (!j.contains("checkpoint")) return std::nullopt;
  return checkpoint_item_from_json(j.at("checkpoint"));
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
    json job_orders = json::array();
    for (const JobOrder& job_order : m.job_orders) job_orders.push_back(job_order_json(job_order));
    json outputs = json::array();
    for (const OutputOrder& output : m.outputs)
      outputs.push_back({{"job", output.job.value}, {"wanted", output.wanted}});
    json j = {{"type", "orders"},
              {"revision", m.revision},
              {"errands", std::move(job_orders)},
              {"outputs", std::move(outputs)},
              {"drain", m.drain}};
    if (m.drain_in) j["drain_in_us"] = to_micros(*m.drain_in);
    if (!m.fence.empty()) j["fence"] = agents_json(m.fence);
    if (!m.copies.empty()) j["copies"] = copies_json(m.copies);
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
            {"errands", reports_json(m.job_orders, now)},
            {"fenced", agents_json(m.fenced)}};
  }
  json operator()(const LeaseAsk& m) const {
    return {{"type", "lease_ask"},    {"protocol", m.protocol},         {"node", m.node.value},
            {"agent", m.agent.value}, {"head_epoch", m.head_epoch},     {"sent_us", m.sent_us},
            {"stopped", m.stopped},   {"rounds", rounds_json(m.rounds)}};
  }
  json operator()(const NodeBeat& m) const { return {{"type", "beat"}, {"orders", m.orders}}; }
  json operator()(const Reports& m) const {
    return {{"type", "reports"}, {"errands", reports_json(m.job_orders, now)}, {"fenced", agents_json(m.fenced)}};
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
    json j = {{"type", "package_wanted"}, {"hash", m.hash}, {"offset", m.offset}};
    if (!m.checkpoint_of.value.empty()) j["checkpoint_of"] = m.checkpoint_of.value;
    return j;
  }
  json operator()(const Leaving& m) const {
    json j = {{"type", "leaving"}, {"reason", m.reason}, {"in_us", to_micros(m.in)}};
    if (m.ends) j["ends"] = true;
    return j;
  }
  json operator()(const Delivery& m) const {
    return {{"type", "delivery"},
            {"protocol", m.protocol},
            {"node", m.node.value},
            {"purpose", static_cast<int>(m.purpose)}};
  }
  json operator()(const OutputOffer& m) const {
    json j = {{"type", "output_offer"}, {"job", m.job.value}};
    if (m.checkpoint) j["checkpoint"] = to_json(*m.checkpoint);
    return j;
  }
  json operator()(const OutputPart& m) const {
    json j = {{"type", "output_part"}, {"job", m.job.value}, {"offset", m.offset}};
    if (m.last) j.update({{"hash", m.hash}, {"files", m.files}, {"content_bytes", m.content_bytes}});
    if (m.checkpoint) j["checkpoint"] = to_json(*m.checkpoint);
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
  for (const json& entry : list_at(j, "errands", kJobOrdersMax)) m.job_orders.push_back(read_job_order(entry));
  m.drain = j.at("drain").get<bool>();
  if (j.contains("drain_in_us")) m.drain_in = span(j, "drain_in_us");
  m.fence = read_agents(j, "fence");
  if (j.contains("more")) m.more = j.at("more").get<bool>();
  m.copies = read_copies(j);
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
  m.checkpoint = read_checkpoint(j);
  return m;
}

Delivery read_delivery(const json& j) {
  check_protocol(j, "agent");
  Delivery m;
  m.node.value = id_text(j, "node");
  if (j.contains("purpose")) m.purpose = read_enum(j, "purpose", Delivery::Purpose::kFetch);
  return m;
}

PackageWanted read_package_wanted(const json& j) {
  PackageWanted m;
  m.hash = hash_text(j, "hash");
  m.offset = number<uint64_t>(j, "offset");
  if (j.contains("checkpoint_of")) m.checkpoint_of.value = id_text(j, "checkpoint_of");
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
  m.job_orders = read_reports(j, now);
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
  if (type == "package_wanted") return read_package_wanted(j);
  if (type == "delivery") return read_delivery(j);
  if (type == "output_offer") return OutputOffer{JobId{id_text(j, "job")}, read_checkpoint(j)};
  if (type == "output_trouble") return OutputTrouble{JobId{id_text(j, "job")}, cut_text(j, "reason")};
  if (type == "delivery_end") return DeliveryEnd{};
  if (type == "job_hints") return JobHints{JobId{id_text(j, "job")}, job_profile_from_json(j.at("profile"))};
  if (type == "leaving") return Leaving{cut_text(j, "reason"), span(j, "in_us"), j.value("ends", false)};
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

std::string_view to_string(JobOrderState state) {
  switch (state) {
    case JobOrderState::kPreparing:
      return "preparing";
    case JobOrderState::kReady:
      return "ready";
    case JobOrderState::kRunning:
      return "running";
    case JobOrderState::kSucceeded:
      return "succeeded";
    case JobOrderState::kFailed:
      return "failed";
    case JobOrderState::kGone:
      return "gone";
  }
  CHECK(false);
}

LeaseTerms lease_terms(const JobOrder& job_order) {
  const Generation generation = job_order.kept > 0 ? job_order.kept : job_order.generation;
  return LeaseTerms{RoundId{job_order.job, generation}, job_order.lease, job_order.witnesses};
}

// When a failure happened is left out: after a journey as an age it differs by the time of travel.
bool JobOrderReport::operator==(const JobOrderReport& other) const {
  return job == other.job && generation == other.generation && state == other.state && port == other.port &&
         problem == other.problem && forced == other.forced && succeeded == other.succeeded && fenced == other.fenced &&
         in_place == other.in_place && std::ranges::equal(failures, other.failures, same);
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
  part.drain_in = orders.drain_in;
  size_t bytes = 0, values = 0;
  const auto make_room = [&](size_t more_bytes, size_t more_values) {
    if (!part.job_orders.empty() && (bytes + more_bytes > kBytesMax || values + more_values > kValuesMax)) {
      part.more = true;
      messages.push_back(encode(ToAgent(std::exchange(part, Orders{}))));
      part.revision = orders.revision;
      part.drain = orders.drain;
      part.drain_in = orders.drain_in;
      bytes = values = 0;
    }
    bytes += more_bytes;
    values += more_values;
  };
  for (JobOrder& job_order : orders.job_orders) {
    const JobSpec& spec = job_order.spec;
    size_t size = 4096;
    for (const std::string& word : spec.args) size += json_bytes(word);
    for (const std::string& word : spec.prewarm) size += json_bytes(word);
    for (const auto& [name, value] : spec.env) size += json_bytes(name) + json_bytes(value);
    size += job_order.witnesses.size() * 2 * kNameMax;
    // Names are bounded by is_checkpoint_name, and may be all quotes.
    size += job_order.checkpoints.size() * 1024;
    const size_t planned = job_order.plan ? job_order.plan->members.size() + job_order.plan->departing.size() : 0;
    size += planned * kNameMax;
    make_room(size, 256 + 10 * job_order.checkpoints.size() + 4 * (job_order.witnesses.size() + planned) +
                        spec.args.size() + spec.prewarm.size() + 2 * spec.env.size());
    part.job_orders.push_back(std::move(job_order));
  }
  make_room(orders.outputs.size() * 64 + orders.fence.size() * 64 + orders.copies.size() * 1024,
            orders.outputs.size() * 3 + orders.fence.size() + 12 * orders.copies.size());
  part.copies = std::move(orders.copies);
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
