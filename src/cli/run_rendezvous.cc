#include "cli/run_rendezvous.h"

#include <fmt/format.h>

#include "cli/rdzv_conf.h"
#include "core/text.h"
#include "terminal/values.h"
#include "world/network.h"

namespace rubato::cli {
namespace {

// torchrun's defaults.
constexpr int kStaticMasterPort = 29500;
constexpr uint16_t kRendezvousPort = 29400;
constexpr uint16_t kEtcdPort = 2379;

std::string nodes_text(const LaunchSpec& spec) {
  const std::string step = spec.nodes_step > 1 ? fmt::format(":{}", spec.nodes_step) : "";
  return spec.min_nodes == spec.max_nodes ? fmt::format("{}", spec.max_nodes)
                                          : fmt::format("{}:{}{}", spec.min_nodes, spec.max_nodes, step);
}

Endpoint endpoint_of(const Given& given, std::string_view text, uint16_t default_port) {
  try {
    return parse_endpoint(trim(text), default_port);  // what is read from a file often ends with a newline
  } catch (const Error& error) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: {}", given.origin, error.message), error.where, error.hint);
  }
}

class RendezvousReader {
 public:
  RendezvousReader(const ParsedCommand& parsed, LaunchSpec& spec) : parsed_(parsed), spec_(spec) {}

  void read() {
    read_plain();
    if (const Given* given = parsed_.find("rdzv-conf")) apply(parse_rdzv_conf(*given));
    if (const Given* given = parsed_.find("heartbeat")) spec_.heartbeat = duration_value(*given, 100ms);
    if (parsed_.has("standalone")) return read_standalone();
    spec_.backend = backend();
    switch (spec_.backend) {
      case Backend::kEmbedded:
        return read_embedded();
      case Backend::kEtcd:
        return read_etcd();
      case Backend::kStatic:
        return read_static();
    }
  }

 private:
  void read_plain() {
    spec_.run_id = parsed_.value("rdzv-id");
    spec_.key_file = parsed_.value("rdzv-key-file");
    spec_.local_addr = parsed_.value("local-addr");
    spec_.master_addr = parsed_.value("master-addr", "127.0.0.1");
    if (const Given* given = parsed_.find("master-port")) spec_.master_port = int_value(*given, 0, 65535);
    if (const Given* given = parsed_.find("node-rank")) spec_.node_rank = int_value(*given, 0, 1'000'000);
    endpoint_ = parsed_.find("rdzv-endpoint");
    // torchrun's default is "".
    if (endpoint_ != nullptr && trim(endpoint_->values.back()).empty()) endpoint_ = nullptr;
  }

  void apply(const RdzvConf& conf) {
    spec_.join_timeout = conf.join_timeout.value_or(spec_.join_timeout);
    spec_.last_call = conf.last_call.value_or(spec_.last_call);
    spec_.heartbeat = conf.heartbeat.value_or(spec_.heartbeat);
    if (!spec_.node_rank) spec_.node_rank = conf.rank;
    spec_.is_host = conf.is_host;
    spec_.identity = conf.identity;
    spec_.etcd.https = conf.https;
    spec_.etcd.ca = conf.ca;
    spec_.etcd.certificate = conf.certificate;
    spec_.etcd.key = conf.key;
    spec_.notes.insert(spec_.notes.end(), conf.notes.begin(), conf.notes.end());
  }

  Backend backend() {
    const Given* given = parsed_.find("rdzv-backend");
    if (given == nullptr) {
      const bool fixed = parsed_.has("master-addr") || parsed_.has("master-port") || parsed_.has("node-rank");
      return fixed && endpoint_ == nullptr && spec_.max_nodes > 1 ? Backend::kStatic : Backend::kEmbedded;
    }
    const std::string& name = given->values.back();
    if (name == "embedded" || name == "c10d") return Backend::kEmbedded;
    if (name == "static") return Backend::kStatic;
    if (name == "etcd") return Backend::kEtcd;
    if (name == "etcd-v2") {
      spec_.notes.push_back(fmt::format("{}{}etcd-v2: rubato speaks etcd's v3 API", given->origin, given->joint));
      return Backend::kEtcd;
    }
    const auto near = nearest(name, std::vector<std::string>{"embedded", "c10d", "etcd", "etcd-v2", "static"});
    throw bad_value(*given, "no such backend",
                    near ? fmt::format("did you mean {}?", *near) : "use embedded (or c10d), etcd or static");
  }

  void read_standalone() {
    if (spec_.min_nodes == 1 && spec_.max_nodes > 1) {
      spec_.notes.push_back(fmt::format("{} {} has no effect with --standalone: nobody else can join",
                                        parsed_.find("nnodes")->origin, nodes_text(spec_)));
      spec_.max_nodes = 1;
    }
    if (spec_.max_nodes > 1) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{} is for this machine alone, but {} asks for {} nodes",
                              parsed_.find("standalone")->origin, parsed_.find("nnodes")->origin, nodes_text(spec_)),
                  "", "drop --standalone and give --rdzv-endpoint HOST:29400, or drop --nnodes");
    }
    for (const char* name : {"rdzv-backend", "rdzv-endpoint", "rdzv-id"}) {
      if (const Given* given = parsed_.find(name)) {
        spec_.notes.push_back(fmt::format("{} has no effect with --standalone", given->origin));
      }
    }
    spec_.run_id.clear();  // as torchrun: an id of its own
    spec_.standalone = true;
    spec_.node_rank = 0;
  }

  // One machine that nobody else can join. With a master's address it is torchrun's static backend: the workers are
  // told that address as it was given.
  void alone() {
    spec_.standalone = true;
    spec_.node_rank = 0;
    if (parsed_.has("master-addr")) spec_.backend = Backend::kStatic;
    join_the_group();
  }

  void join_the_group() {
    if (spec_.run_id.empty()) spec_.run_id = "none";  // as torchrun
  }

  void read_embedded() {
    if (endpoint_ == nullptr && spec_.max_nodes == 1) return alone();
    if (endpoint_ == nullptr) throw nowhere_to_meet();
    const Endpoint place = endpoint_of(*endpoint_, endpoint_->values.back(), kRendezvousPort);
    // "localhost:0" is how torchrun's users ask for any free port: nobody else can know it.
    if (place.port == 0 && spec_.max_nodes == 1) return alone();
    if (place.port == 0)
      throw bad_value(*endpoint_, "several machines cannot meet at port 0", "name the port: HOST:29400");
    spec_.endpoint = trim(endpoint_->values.back());
    join_the_group();
  }

  void read_etcd() {
    if (endpoint_ == nullptr) {
      throw Error(ErrorCode::kUsage, "the etcd backend needs to know where etcd is", "",
                  "give --rdzv-endpoint HOST:2379 (several with commas)");
    }
    std::vector<std::string> servers;
    for (const std::string& server : list_value(*endpoint_)) {
      const auto secure = strip_prefix(server, "https://");
      const std::string_view bare = secure ? *secure : strip_prefix(server, "http://").value_or(server);
      if (secure) spec_.etcd.https = true;
      servers.push_back(to_string(endpoint_of(*endpoint_, strip_suffix(bare, "/").value_or(bare), kEtcdPort)));
    }
    spec_.endpoint = join(servers, ",");
    join_the_group();
  }

  // torchrun takes a static group's endpoint for the master's address.
  void read_static() {
    if (endpoint_ != nullptr) take_master_from_endpoint();
    if (spec_.max_nodes == 1) return alone();
    if (spec_.min_nodes != spec_.max_nodes) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("the static backend has a fixed group, but {} {} is a range",
                              parsed_.find("nnodes")->origin, nodes_text(spec_)),
                  "", "give one number, or be elastic with --rdzv-endpoint HOST:29400");
    }
    if (endpoint_ == nullptr && !parsed_.has("master-addr")) throw nowhere_to_meet();
    if (!spec_.node_rank) spec_.node_rank = 0;  // as torchrun
    if (*spec_.node_rank >= spec_.max_nodes) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("node rank {} is not in a group of {} nodes", *spec_.node_rank, spec_.max_nodes), "",
                  fmt::format("ranks go from 0 to {}; check --node-rank and --nnodes", spec_.max_nodes - 1));
    }
    if (spec_.master_port == 0) spec_.master_port = kStaticMasterPort;
    join_the_group();
  }

  void take_master_from_endpoint() {
    const Endpoint master = endpoint_of(*endpoint_, endpoint_->values.back(), kStaticMasterPort);
    spec_.master_addr = master.host;
    spec_.master_port = master.port;
  }

  Error nowhere_to_meet() const {
    return Error(
        ErrorCode::kUsage,
        fmt::format("{} {} needs a place where the machines meet", parsed_.find("nnodes")->origin, nodes_text(spec_)),
        "",
        "give --rdzv-endpoint HOST:29400 on every machine (elastic), or --master-addr HOST --node-rank N "
        "(fixed ranks)");
  }

  const ParsedCommand& parsed_;
  LaunchSpec& spec_;
  const Given* endpoint_ = nullptr;
};

}  // namespace

void read_rendezvous(const ParsedCommand& parsed, LaunchSpec& spec) { RendezvousReader(parsed, spec).read(); }

}  // namespace rubato::cli
