// `rubato aws bake`: an image of a cluster's prepared head, for machines that are ready when they boot.
#include <fmt/format.h>

#include <algorithm>

#include "aws/credentials.h"
#include "aws/ec2.h"
#include "aws/policy.h"
#include "cli/aws_command.h"
#include "cli/command_world.h"
#include "cli/petctl_command.h"
#include "client/session.h"
#include "core/yaml.h"
#include "model/cluster_name.h"
#include "rest/cloud_error.h"

namespace rubato::cli {
namespace {

constexpr int kServerError = 500;
constexpr Duration kPollFirst = 1s;
constexpr Duration kPollMax = 15s;
constexpr Duration kBakeMax = 60min;                      // a large disk takes its time
constexpr size_t kImageNameMin = 3, kImageNameMax = 128;  // EC2's

struct BakeOrder {
  std::string cluster, image;
  bool reboot = false;
};

std::vector<aws::Filter> filter(std::string name, std::string value) {
  std::vector<aws::Filter> out;
  out.push_back({std::move(name), {std::move(value)}});
  return out;
}

class BakeCommand {
 public:
  BakeCommand(const ParsedCommand& parsed, const Shell& shell) : shell_(shell) {
    settings_ = aws_settings(parsed, shell);
    read_file(require_word(parsed, 0, "CLUSTER.yaml", "rubato aws bake CLUSTER.yaml --name IMAGE"));
    order_.image = parsed.value("name");
    if (order_.image.size() < kImageNameMin || order_.image.size() > kImageNameMax) {
      throw Error(ErrorCode::kUsage, "--name: the image needs a name of 3 to 128 characters", "",
                  "write --name lab-2026-11");
    }
    order_.reboot = parsed.has("reboot");
  }

  int run() { return command_.runtime.run(bake()); }

 private:
  void read_file(const std::string& path) {
    const std::optional<std::string> text = command_.world.files.read(path);
    if (!text) throw Error(ErrorCode::kUsage, fmt::format("the cluster file '{}' cannot be read", path));
    const Yaml root = Yaml::parse(*text, path);
    const std::optional<Yaml> name = root.find("cluster_name"), provider = root.find("provider");
    order_.cluster = name ? name->as_string() : "default";
    if (!is_cluster_name(order_.cluster)) order_.cluster = cluster_name_from(order_.cluster);
    const std::optional<Yaml> type = provider ? provider->find("type") : std::nullopt;
    if (!type || type->as_string() != "aws") {
      (provider ? *provider : root).fail("only clusters on AWS can be baked", "provider: {type: aws, ...}");
    }
    const std::optional<Yaml> region = provider->find("region");
    if (region && settings_.region.empty()) settings_.region = region->as_string();
  }

  Task<int> bake() {
    client_ = co_await aws::open_client(command_.world, settings_);
    std::vector<aws::Image> images = co_await images_of_that_name();
    if (images.empty()) {
      const std::string head = co_await find_head();
      co_await make_image(head);
    } else {
      shell_.err(fmt::format("there is an image '{}' already\n", order_.image));
    }
    const std::string id = co_await wait_for_image();
    shell_.out(id + "\n");
    shell_.err(fmt::format("for its machines: node_config: {{ImageId: {}}}\n", id));
    co_return 0;
  }

  Task<std::vector<aws::Image>> images_of_that_name() {
    std::vector<std::string> any, owners = {"self"};
    std::vector<aws::Filter> filters = filter("name", order_.image);
    std::vector<aws::Image> found =
        co_await aws::describe_images(*client_, std::move(any), std::move(owners), std::move(filters));
    // Whatever the filter let through.
    std::erase_if(found, [this](const aws::Image& one) { return one.name != order_.image; });
    co_return found;
  }

  Task<std::string> find_head() {
    std::vector<std::string> any;
    std::vector<aws::Filter> filters = filter("tag:" + std::string(aws::kClusterTag), order_.cluster);
    filters.push_back({"tag:rubato-node", {"head"}});
    filters.push_back({"instance-state-name", {"running"}});
    const auto found = co_await aws::describe_instances(*client_, std::move(any), std::move(filters));
    const auto head = std::ranges::find_if(found, [this](const aws::Instance& one) {
      return one.state == "running" && one.tag(aws::kClusterTag) == order_.cluster && one.tag("rubato-node") == "head";
    });
    if (head != found.end()) co_return head->id;
    throw Error(ErrorCode::kNotFound, fmt::format("no head of '{}' runs in {}", order_.cluster, client_->region()), "",
                "bring it up first: rubato up CLUSTER.yaml");
  }

  // Without a reboot its jobs go on; what was not written to the disk yet is not in the image.
  Task<void> make_image(std::string head) {
    aws::Params params{{"InstanceId", head}, {"Name", order_.image}, {"NoReboot", order_.reboot ? "false" : "true"}};
    aws::Tags tags;
    tags.emplace_back(aws::kClusterTag, order_.cluster);
    aws::add_tag_specification(params, 1, "image", tags);
    aws::Params plain = params;
    aws::add_tag_specification(params, 2, "snapshot", tags);
    bool made = true;
    try {
      (void)co_await client_->query(aws::kEc2, "CreateImage", std::move(params));
    } catch (const rest::CloudError& error) {
      const bool is_lacking =
          client_->has_own_endpoint(aws::kEc2) && (error.status >= kServerError || error.reason.empty());
      made = error.reason == "InvalidAMIName.Duplicate";  // by a try whose answer was lost: nobody had it before
      if (!is_lacking && !made) throw;
    }
    // Servers that are not AWS's may not know that snapshots have tags.
    if (!made) (void)co_await client_->query(aws::kEc2, "CreateImage", std::move(plain));
    shell_.err(
        fmt::format("making the image '{}' of {}{}\n", order_.image, head, order_.reboot ? ", which reboots" : ""));
  }

  Task<std::string> wait_for_image() {
    const Instant deadline = command_.world.clock.now() + kBakeMax;
    Duration pause = kPollFirst;
    while (true) {
      const std::vector<aws::Image> images = co_await images_of_that_name();
      const std::string state = images.empty() ? "unknown" : images.front().state;
      if (state == "available") co_return images.front().id;
      if (state == "failed" || state == "error" || command_.world.clock.now() >= deadline) {
        throw Error(ErrorCode::kFailed, fmt::format("the image '{}' is {}", order_.image, state), client_->region(),
                    "look at it in the EC2 console; repeat the command to go on waiting");
      }
      co_await Sleep(command_.world.clock.loop(), command_.world.clock.now() + pause);
      pause = std::min(pause * 2, kPollMax);
    }
  }

  const Shell& shell_;
  CommandWorld command_;
  aws::Settings settings_;
  BakeOrder order_;
  std::unique_ptr<aws::Client> client_;
};

}  // namespace

const Command& aws_bake_table() {
  static const Command table{
      .name = "aws bake",
      .summary = "make an image (AMI) of a cluster's prepared head",
      .usage = "rubato aws bake CLUSTER.yaml --name IMAGE [--reboot]",
      .about =
          "Prints the image's id when it can be used. Machines that boot from it have what the head has, so\n"
          "their set-up is short. The head goes on meanwhile. Repeated, it waits for the image that is there.",
      .positional = {.name = "CLUSTER.yaml", .help = "a cluster on AWS that is up", .at_most = 1},
      .flags = {{.name = "name", .short_name = 'n', .kind = FlagKind::kValue, .value = "IMAGE", .help = "of the image"},
                {.name = "reboot", .help = "stop the head for it, so that nothing is half written"},
                {.name = "profile",
                 .kind = FlagKind::kValue,
                 .value = "NAME",
                 .help = "a profile of ~/.aws, before credentials in variables",
                 .group = "Account"},
                {.name = "region",
                 .kind = FlagKind::kValue,
                 .value = "NAME",
                 .help = "instead of the file's",
                 .group = "Account"}},
      .examples = {{"for faster machines", "rubato aws bake cluster.yaml --name lab-ready"}}};
  return table;
}

int aws_bake_command(const ParsedCommand& parsed, const Shell& shell) { return BakeCommand(parsed, shell).run(); }

}  // namespace rubato::cli
