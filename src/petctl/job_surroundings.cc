#include "petctl/job_surroundings.h"

#include <fmt/format.h>

#include <algorithm>

#include "aws/account.h"
#include "aws/ec2_network.h"
#include "aws/identity.h"
#include "aws/storage.h"
#include "core/error.h"
#include "core/text.h"
#include "petctl/cloud_calls.h"
#include "petctl/job_view.h"
#include "rest/cloud_error.h"

namespace rubato::petctl {
namespace {

constexpr Duration kGroupInUseMax = 180s;  // network interfaces outlive their machines for a while
constexpr Duration kGroupInUsePause = 2s;

std::vector<aws::Filter> filter(std::string name, std::string value) {
  std::vector<aws::Filter> out;
  out.push_back({std::move(name), {std::move(value)}});
  return out;
}

class Search {
 public:
  Search(aws::Client& client, JobPlan& plan, OnProgress on_progress)
      : client_(client), plan_(plan), on_progress_(std::move(on_progress)) {}

  Task<std::map<std::string, Found>> run() {
    std::map<std::string, Found> out;
    for (GroupPlan& group : plan_.groups) {
      Found found;
      co_await check_type(group);
      co_await find_image(group, found);
      co_await find_subnets(group);
      co_await find_groups(group, found);
      co_await find_profile(group, found);
      out[group.name] = std::move(found);
    }
    co_return out;
  }

 private:
  Error wrong(const GroupPlan& group, std::string what, std::string fix) const {
    return Error(ErrorCode::kUsage, std::move(what), group.specs.where, std::move(fix));
  }

  // Our binary goes to the hosts, and it is of this machine's kind.
  Task<void> check_type(const GroupPlan& group) {
    std::vector<std::string> names = {group.specs.instance_type};
    std::vector<aws::InstanceType> found;
    try {
      found = co_await aws::describe_instance_types(client_, std::move(names));
    } catch (const rest::CloudError& error) {
      if (error.code == ErrorCode::kAuth) co_return;  // the launch will tell
      if (error.reason != "InvalidInstanceType") throw;
    }
    if (found.empty()) {
      throw wrong(group, fmt::format("{} has no instance type '{}'", client_.region(), group.specs.instance_type),
                  "see 'aws ec2 describe-instance-type-offerings'");
    }
    const aws::InstanceType& type = found.front();
    const auto& kinds = type.architectures;  // a server that is not AWS's may name none
    if (!kinds.empty() && std::ranges::find(kinds, "x86_64") == kinds.end()) {
      throw wrong(group,
                  fmt::format("{} is a machine for {}, and this rubato is for x86_64", type.name,
                              join(type.architectures, ", ")),
                  "choose another instance_type");
    }
    const bool gpu = group.specs.accelerator == Accelerator::kGpu;
    if (gpu && type.gpus == 0) {
      throw wrong(group, fmt::format("accelerator is gpu, but {} has none", type.name),
                  "write accelerator: none, or choose an instance_type with GPUs");
    }
    if (!gpu && type.gpus > 0) {
      on_progress_(fmt::format("note: {} has {} GPUs, but accelerator is none: its image has no driver for them",
                               type.name, type.gpus));
    }
  }

  Task<void> find_image(const GroupPlan& group, Found& found) {
    found.image = group.specs.image_id;
    if (found.image.empty()) {
      const std::string parameter = image_parameter(group.specs, group.docker);
      std::optional<std::string> image = co_await aws::get_parameter(client_, parameter);
      if (!image && client_.has_own_endpoint(aws::kEc2)) {
        const std::optional<aws::Image> other = co_await aws::find_stand_in(client_, "*ubuntu*");
        if (other) {
          on_progress_(fmt::format("note: the server has no '{}': {} stands in for it", parameter, other->name));
          image = other->id;
        }
      }
      if (!image || image->empty()) {
        throw wrong(group, fmt::format("no image is found by '{}' in {}", parameter, client_.region()),
                    "name one: \"image_id\": \"ami-...\"");
      }
      found.image = *image;
    }
    std::vector<std::string> ids = {found.image}, owners;
    std::vector<aws::Filter> none;
    const auto images = co_await aws::describe_images(client_, std::move(ids), std::move(owners), std::move(none));
    if (!images.empty()) found.root_device = images.front().root_device;
  }

  Task<void> find_subnets(GroupPlan& group) {
    if (!group.specs.subnets.empty()) co_return;
    std::vector<std::string> any;
    std::vector<aws::Filter> filters = filter("default-for-az", "true");
    const auto found = co_await aws::describe_subnets(client_, std::move(any), std::move(filters));
    for (const aws::Subnet& one : found) group.specs.subnets.push_back(one.id);
    if (group.specs.subnets.empty()) {
      throw wrong(group, fmt::format("{} has no default VPC", client_.region()), "name subnets: --subnet subnet-...");
    }
  }

  Task<void> find_groups(const GroupPlan& group, Found& found) {
    for (const std::string& name : group.specs.security_groups) {
      if (name.starts_with("sg-")) {
        found.security_groups.push_back(name);
        continue;
      }
      std::vector<std::string> any;
      std::vector<aws::Filter> filters = filter("group-name", name);
      const auto groups = co_await aws::describe_security_groups(client_, std::move(any), std::move(filters));
      if (groups.size() != 1) {
        throw wrong(group,
                    groups.empty() ? fmt::format("there is no security group '{}'", name)
                                   : fmt::format("'{}' are {} security groups", name, groups.size()),
                    "name it by its id: sg-...");
      }
      found.security_groups.push_back(groups.front().id);
    }
    if (found.security_groups.empty()) {
      std::string made = co_await make_group(group);
      found.security_groups.push_back(std::move(made));
    }
  }

  // All traffic inside of it, none from outside.
  Task<std::string> make_group(const GroupPlan& group) {
    std::vector<std::string> subnets = {group.specs.subnets.front()};
    std::vector<aws::Filter> none;
    const auto network = co_await aws::describe_subnets(client_, std::move(subnets), std::move(none));
    const std::string vpc = network.empty() ? "" : network.front().vpc;
    const std::string name = security_group_name(plan_.name);
    std::vector<std::string> any;
    std::vector<aws::Filter> filters = filter("group-name", name);
    filters.push_back({"vpc-id", {vpc}});
    const auto found = co_await aws::describe_security_groups(client_, std::move(any), std::move(filters));
    std::string id = found.empty() ? "" : found.front().id;
    if (id.empty()) {
      id = co_await aws::create_security_group(client_, name, "hosts of the job " + plan_.name, vpc, job_tags(plan_));
      on_progress_("made the security group " + name);
    }
    aws::Rule inside;
    inside.protocol = "-1";
    inside.groups = {id};
    std::vector<aws::Rule> rules;
    rules.push_back(std::move(inside));
    co_await aws::authorize_ingress(client_, id, std::move(rules));
    co_return id;
  }

  Task<void> find_profile(const GroupPlan& group, Found& found) {
    found.profile = group.specs.instance_role;
    if (!found.profile.empty()) co_return;
    aws::InstanceRole role;
    role.name = role_name(plan_.name, client_.region());
    role.policy = role_policy(plan_, aws::partition_of(client_.region()));
    role.tags = job_tags(plan_);
    found.profile = co_await aws::ensure_instance_role(client_, std::move(role));
    on_progress_("made the role " + role_name(plan_.name, client_.region()));
  }

  aws::Client& client_;
  JobPlan& plan_;
  const OnProgress on_progress_;
};

}  // namespace

Task<std::map<std::string, Found>> find_surroundings(aws::Client& client, JobPlan& plan, OnProgress on_progress) {
  Search search(client, plan, std::move(on_progress));
  co_return co_await search.run();
}

Task<MissingPermissions> missing_permissions(aws::Client& client, const JobPlan& plan) {
  const std::string partition = aws::partition_of(client.region());
  MissingPermissions out;
  bool missing = false;
  try {
    for (const GroupPlan& group : plan.groups) {
      if (group.role != HostRole::kWorker || group.specs.instance_role.empty()) continue;
      const std::optional<std::string> role = co_await role_of_profile(client, group.specs.instance_role);
      if (!role) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("there is no instance profile '{}', or no role in it", group.specs.instance_role),
                    group.specs.where,
                    "make one that may read the bucket: rubato aws policy --for workers --bucket NAME");
      }
      std::vector<std::string> writing = {"s3:PutObject"}, ending = {"autoscaling:DeleteAutoScalingGroup"};
      std::vector<std::string> object = {
          fmt::format("arn:{}:s3:::{}/{}/rubato/status/i.json", partition, plan.bucket, plan.prefix)};
      std::vector<std::string> any = {"*"};
      const auto no_writing =
          co_await aws::denied_actions(client, *role, std::move(writing), std::move(object), aws::Tags());
      const auto no_ending =
          co_await aws::denied_actions(client, *role, std::move(ending), std::move(any), aws::Tags());
      missing = missing || !no_writing.empty() || !no_ending.empty();
    }
  } catch (const rest::CloudError&) {  // not allowed, or a server that knows no such call
    out.unknown = missing = true;
  }
  if (missing) out.statements = wanted_statements(plan, partition);
  co_return out;
}

Task<bool> remove_security_group(aws::Client& client, std::string job) {
  std::vector<std::string> any;
  std::vector<aws::Filter> filters = filter("tag:" + std::string(kJobTag), job);
  std::vector<aws::SecurityGroup> groups =
      co_await aws::describe_security_groups(client, std::move(any), std::move(filters));
  std::erase_if(groups, [&](const aws::SecurityGroup& one) { return tag_in(one.tags, kJobTag) != job; });
  const Instant deadline = client.world().clock.now() + kGroupInUseMax;
  for (const aws::SecurityGroup& group : groups) {
    for (bool gone = false; !gone;) {
      try {
        co_await aws::delete_security_group(client, group.id);
        gone = true;
      } catch (const rest::CloudError& error) {
        gone = error.code == ErrorCode::kNotFound;
        if (!gone && (error.code != ErrorCode::kConflict || client.world().clock.now() >= deadline)) throw;
      }
      if (!gone) co_await Sleep(client.world().clock.loop(), client.world().clock.now() + kGroupInUsePause);
    }
  }
  co_return !groups.empty();
}

Task<bool> remove_role(aws::Client& client, std::string job) {
  bool removed = false;
  try {
    removed = co_await aws::remove_instance_role(client, role_name(job, client.region()));
  } catch (const rest::CloudError& error) {
    // Who may not change roles has made none either.
    if (error.code != ErrorCode::kAuth) throw;
  }
  co_return removed;
}

}  // namespace rubato::petctl
