#include "provider/external_instances.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"

namespace rubato::provider {

namespace {

using Json = nlohmann::json;

// Between two looks at a machine that is not ready, or not gone: a boot takes tens of seconds, calls cost quota.
constexpr Duration kLookMin = 500ms;
constexpr Duration kLookMax = 5s;

// A reply that makes no sense is the program's fault, and says so.
template <class Parse>
auto understood(const std::string& who, const std::string& what, Parse parse) {
  try {
    return parse();
  } catch (const Error& error) {
    throw Error(error.code,
                fmt::format("{}: the provider's program answered what is no answer: {}", what, error.message), who,
                error.hint);
  }
}

Json create_params(const NodeOrder& order) {
  Json params{{"node", order.node.value}, {"type", order.type.name}, {"head", order.of_head}};
  params["resources"] = to_json(order.type.resources);
  params["node_config"] = order.type.node_config.empty() ? Json::object() : Json::parse(order.type.node_config);
  params["labels"] = order.type.labels;
  params["launch_hash"] = order.launch_hash;
  return params;
}

}  // namespace

ExternalInstances::ExternalInstances(World& world, ExternalSettings settings, Log log)
    : world_(world), settings_(std::move(settings)), log_(std::move(log)), tasks_(world.clock.loop()) {}

ExternalInstances::ExternalInstances(World& world, const std::string& provider_config, ExternalSettings settings,
                                     Log log)
    : ExternalInstances(world, std::move(settings), std::move(log)) {
  configure(provider_config);
}

void ExternalInstances::configure(const std::string& provider_config) {
  if (provider_config.empty() || provider_config == told_) return;
  const Json told = Json::parse(provider_config, nullptr, false);
  if (!told.is_object()) throw Error(ErrorCode::kUsage, "this is no description of a provider's program");
  ExternalProgramSpec spec = external_program_of(told, settings_);
  if (!program_ || program_->spec().argv != spec.argv || program_->spec().hello != spec.hello) {
    prepare_external(world_.files, told, settings_);
    program_ = std::make_shared<ExternalProgram>(world_, std::move(spec), log_);
  }
  told_ = provider_config;
}

std::shared_ptr<ExternalProgram> ExternalInstances::program() const {
  if (!program_) throw Error(ErrorCode::kUnavailable, "no cluster file has named the provider's program yet");
  return program_;
}

bool ExternalInstances::is_own(const NodeId& node) const { return settings_.own && node.value == kHeadNode; }

Task<ExternalGreeting> ExternalInstances::greet() {
  const std::shared_ptr<ExternalProgram> program = this->program();
  greeting_ = co_await program->greeting();
  co_return greeting_;
}

Task<Json> ExternalInstances::ask(std::string method, Json params, std::string what, Duration timeout,
                                  ExternalProgram::OnProgress on_progress) {
  const std::shared_ptr<ExternalProgram> program = this->program();
  Json answer =
      co_await program->request(std::move(method), std::move(params), std::move(what), timeout, std::move(on_progress));
  if (program->greeted()) greeting_ = *program->greeted();
  co_return answer;
}

Task<std::optional<ExternalMachine>> ExternalInstances::describe(NodeId node) {
  const std::string what = "describe " + node.value;
  Json params{{"node", node.value}};
  Json answer;
  try {
    answer = co_await ask("describe", std::move(params), what, settings_.ask_timeout);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kNotFound) throw;
  }
  co_return understood(program_->spec().name, what, [&] { return parse_described(answer, node); });
}

Task<LaunchErrors> ExternalInstances::launch(std::vector<NodeOrder> orders) {
  std::erase_if(orders, [this](const NodeOrder& order) { return is_own(order.node); });
  LaunchErrors errors;
  if (orders.size() < 2) co_return errors;
  if (!program()->greeted()) (void)co_await greet();
  if (!greeting_.knows("launch")) co_return errors;
  Json nodes = Json::array();
  for (const NodeOrder& order : orders) nodes.push_back(create_params(order));
  Json params{{"nodes", std::move(nodes)}};
  const std::string what = fmt::format("launch {} nodes", orders.size());
  const Json answer = co_await ask("launch", std::move(params), what, settings_.create_timeout);
  const std::string who = program()->spec().name;
  const auto failures = understood(who, what, [&] { return parse_launch(answer); });
  for (const auto& [node, failure] : failures) errors.emplace(node, to_error(failure, who, "create " + node.value));
  co_return errors;
}

Task<Machine> ExternalInstances::create(NodeOrder order) {
  if (is_own(order.node)) co_return *settings_.own;
  (void)program();
  const Instant deadline = world_.clock.now() + settings_.create_timeout;
  const std::string what = "create " + order.node.value;
  Json params = create_params(order);
  ExternalProgram::OnProgress on_progress = [on_step = order.on_step](std::string text) {
    if (on_step) on_step("machine", std::move(text));
  };
  if (order.on_step) order.on_step("machine", "from " + program_->spec().name);
  const Json answer = co_await ask("create", std::move(params), what, settings_.create_timeout, std::move(on_progress));
  std::optional<ExternalMachine> machine =
      understood(program_->spec().name, what, [&] { return parse_machine(answer, order.node); });
  for (Duration pause = kLookMin; !machine->ready; pause = std::min(pause * 2, kLookMax)) {
    if (world_.clock.now() + pause >= deadline) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("{}: machine {} has no address after {}", what, machine->id,
                              format_duration(settings_.create_timeout)),
                  program_->spec().name);
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
    machine = co_await describe(order.node);
    if (!machine) {
      throw Error(ErrorCode::kUnavailable, what + ": the machine went away before it had an address",
                  program_->spec().name);
    }
  }
  co_return machine->machine;
}

Task<std::optional<Machine>> ExternalInstances::find(NodeId node) {
  if (is_own(node)) co_return settings_.own;
  const std::optional<ExternalMachine> machine = co_await describe(node);
  if (!machine || !machine->ready) co_return std::nullopt;
  co_return machine->machine;
}

Task<void> ExternalInstances::remove(NodeRemoval removal, bool cleaned) {
  const NodeId node = removal.node;
  if (is_own(node)) co_return;  // whoever made it ends it, not we who stand on it
  const Instant deadline = world_.clock.now() + settings_.remove_timeout;
  const std::string what = "remove " + node.value;
  Json params{{"node", node.value}, {"cleaned", cleaned}};
  Json answer;
  try {
    answer = co_await ask("remove", std::move(params), what, settings_.remove_timeout);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kNotFound) throw;
    co_return;
  }
  if (!answer.is_object() || !answer.value("pending", false)) co_return;
  for (Duration pause = kLookMin;; pause = std::min(pause * 2, kLookMax)) {
    const std::optional<ExternalMachine> machine = co_await describe(node);
    if (!machine) co_return;
    if (world_.clock.now() + pause >= deadline) {
      throw Error(
          ErrorCode::kUnavailable,
          fmt::format("{}: its machine is still there after {}", what, format_duration(settings_.remove_timeout)),
          program_->spec().name);
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
  }
}

Task<std::vector<NodeId>> ExternalInstances::list() {
  if (!program_) co_return std::vector<NodeId>();  // no file yet: nothing was ever made
  const Json answer = co_await ask("list", Json::object(), "list", settings_.ask_timeout);
  const auto machines = understood(program_->spec().name, "list", [&] { return parse_list(answer); });
  std::vector<NodeId> nodes;
  for (const ExternalMachine& each : machines) {
    // Whoever sweeps what nobody knows must not come to the machine that it runs on.
    if (!is_own(each.node)) nodes.push_back(each.node);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  co_return nodes;
}

void ExternalInstances::note_cleaned(const NodeId& node) {
  if (greeting_.knows("cleaned")) tasks_.spawn(notify("cleaned", node, ""));
}

void ExternalInstances::note_failure(const NodeId& node, const std::string& why) {
  if (greeting_.knows("failed")) tasks_.spawn(notify("failed", node, why));
}

Task<void> ExternalInstances::notify(std::string method, NodeId node, std::string why) {
  Json params{{"node", node.value}, {"why", why}};
  const std::string what = method + " " + node.value;
  try {
    co_await ask(method, std::move(params), what, settings_.ask_timeout);
  } catch (const Error& error) {
    log_.warning("provider's program was not told", {{"what", what}, {"why", error.message}});
  }
}

std::unique_ptr<Instances> make_external_instances(World& world, const InstancesSettings& settings, const Log& log) {
  ExternalSettings out;
  out.place = ExternalPlace::kHead;
  out.env = settings.env;
  out.folder = settings.folder + "/provider";
  world.files.make_folders(out.folder);
  out.state = settings.folder + "/provider-state";
  out.version = settings.version;
  const std::string carried = world.files.read(settings.folder + "/provider-carry.json").value_or("null");
  out.carry = Json::parse(carried, nullptr, false);
  if (out.carry.is_discarded()) out.carry = nullptr;
  if (const auto key = world.files.read(settings.folder + "/ssh/id_ed25519.pub")) {
    out.authorized_keys.emplace_back(trim(*key));
  }
  Machine own;
  own.host.host = own.address = settings.address;
  own.this_machine = true;
  out.own = own;
  return std::make_unique<ExternalInstances>(world, std::move(out), log);
}

}  // namespace rubato::provider
