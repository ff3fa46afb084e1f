#include "petctl/job_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "aws/s3_transfer.h"
#include "core/error.h"
#include "rest/cloud_error.h"

namespace rubato::petctl {
namespace {

constexpr Duration kLaunchPauseFirst = 1s;
constexpr Duration kLaunchPauseMax = 10s;
constexpr Duration kOldGroupsMax = 10min;  // machines of an earlier job take minutes to end
constexpr Duration kProfileMax = 60s;      // EC2 hears of a new profile so late
constexpr Duration kFirstHostMax = 20min;  // a spot host may be waited for

class Launching {
 public:
  Launching(aws::Client& client, LaunchOrder order)
      : client_(client),
        clock_(client.world().clock),
        order_(std::move(order)),
        plan_(order_.plan),
        store_(client, plan_.bucket, plan_.prefix) {}

  Task<void> run() {
    co_await settle_old();
    const std::map<std::string, Found> found = co_await find_surroundings(client_, plan_, order_.on_progress);
    co_await upload();
    for (const GroupPlan& group : plan_.groups) co_await make_group(group, found.at(group.name));
    co_await name_the_meeting_place();
  }

 private:
  Task<void> pause(Duration& length) {
    co_await Sleep(clock_.loop(), clock_.now() + length);
    length = std::min(length * 2, kLaunchPauseMax);
  }

  Task<JobView> read_groups() {
    JobQuery query;
    query.name = plan_.name;
    query.place = plan_.place();
    query.consoles = false;
    query.known = &known_;
    co_return co_await read_job(client_, std::move(query));
  }

  // Groups of this plan are gone on with; another job's are in the way; what an earlier one left in S3 goes.
  Task<void> settle_old() {
    co_await refuse_strangers();
    const Instant deadline = clock_.now() + kOldGroupsMax;
    Duration length = kLaunchPauseFirst;
    bool said = false;
    while (true) {
      const JobView view = co_await read_groups();
      if (view.groups.empty()) break;
      if (!view.ending && view.plan == plan_.digest) {
        order_.on_progress(fmt::format("going on with {}, which an earlier command has begun", plan_.name));
        co_return;
      }
      if (!view.ending || clock_.now() >= deadline) {
        throw Error(ErrorCode::kConflict, fmt::format("there is another job '{}'", plan_.name), client_.region(),
                    fmt::format("choose another --name, or end it: rubato petctl kill_job --name {}", plan_.name));
      }
      if (!std::exchange(said, true)) order_.on_progress("waiting for the hosts of an earlier job of this name to end");
      co_await pause(length);
    }
    co_await store_.remove(true);
  }

  // A group of our name without our tag is somebody's own.
  Task<void> refuse_strangers() {
    std::vector<std::string> names;
    for (const GroupPlan& group : plan_.groups) names.push_back(group.name);
    const auto groups = co_await aws::describe_scaling_groups(client_, std::move(names));
    for (const aws::ScalingGroup& group : groups) {
      if (tag_in(group.tags, kJobTag) == plan_.name) continue;
      throw Error(ErrorCode::kConflict, fmt::format("the Auto Scaling group '{}' was not made by rubato", group.name),
                  client_.region(), "choose another --name, or delete the group with what has made it");
    }
  }

  Task<void> upload() {
    const aws::S3Address binary{plan_.bucket, plan_.binary_key};
    const std::optional<aws::S3Object> there = co_await aws::head_object(client_, binary);
    aws::TransferRules rules;
    aws::Progress nothing = [](uint64_t, uint64_t) {};
    if (!there) {
      order_.on_progress(fmt::format("uploading rubato to {}", to_string(binary)));
      co_await aws::upload(client_, order_.binary_path, binary, rules, nothing);
    }
    if (!plan_.script_key.empty()) {
      const aws::S3Address script{plan_.bucket, plan_.script_key};
      order_.on_progress(fmt::format("uploading {}", to_string(script)));
      co_await aws::upload(client_, order_.script_path, script, rules, nothing);
    }
    co_await store_.write_uploaded(plan_.script_key);
    co_await store_.ensure_key(order_.fresh_key);
  }

  Task<void> make_group(const GroupPlan& group, Found found) {
    const std::string id = co_await ensure_template(group, std::move(found));
    aws::ScalingGroupSpec spec;
    spec.name = group.name;
    spec.launch_template = id;
    spec.min = group.min_size;
    spec.max = group.max_size;
    spec.desired = group.size;
    spec.subnets = group.specs.subnets;
    spec.tags = group_tags(plan_, group);
    // With a role of our own, EC2 may not have heard of it yet.
    const Instant deadline = clock_.now() + (group.specs.instance_role.empty() ? kProfileMax : Duration{});
    for (bool made = false; !made;) {
      Duration length = kLaunchPauseFirst;
      bool late = false;
      try {
        co_await aws::create_scaling_group(client_, spec);
        order_.on_progress(fmt::format("made the Auto Scaling group {} with {} x {}", group.name, group.size,
                                       group.specs.instance_type));
        made = true;
      } catch (const rest::CloudError& error) {
        made = error.code == ErrorCode::kConflict;  // an earlier command of the same plan was there
        late = error.reason == "ValidationError" && clock_.now() < deadline;
        if (!made && !late) throw;
      }
      if (late) co_await pause(length);
    }
  }

  Task<std::string> ensure_template(const GroupPlan& group, Found found) {
    const std::string there = co_await template_named(group.template_name);
    if (!there.empty()) co_return there;
    const aws::Tags tags = group_tags(plan_, group);
    const nlohmann::json config = launch_config(group, found, tags);
    std::optional<rest::CloudError> refused;
    try {
      co_return co_await aws::create_launch_template(client_, group.template_name, config, "", tags);
    } catch (const rest::CloudError& error) {
      if (error.reason != "InvalidLaunchTemplateName.AlreadyExistsException") throw;
      refused = error;
    }
    const std::string made = co_await template_named(group.template_name);  // by a try whose answer was lost
    if (made.empty()) throw *refused;
    co_return made;
  }

  // Its id; empty: there is none. Its name holds the hash of its contents.
  Task<std::string> template_named(std::string name) {
    std::vector<aws::Filter> filters;
    filters.push_back({"launch-template-name", {name}});
    const auto there = co_await find_launch_templates(client_, std::move(filters));
    const auto found = std::ranges::find(there, name, &JobTemplate::name);
    co_return found == there.end() ? "" : found->id;
  }

  Task<void> name_the_meeting_place() {
    const std::optional<RdzvRecord> known = co_await store_.rdzv();
    if (known) co_return;
    order_.on_progress("waiting for the first host");
    const Instant deadline = clock_.now() + kFirstHostMax;
    Duration length = kLaunchPauseFirst;
    while (true) {
      const JobView view = co_await read_groups();
      if (const HostView* const host = first_host(view)) {
        RdzvRecord record;
        record.instance = host->instance;
        record.endpoint = fmt::format("{}:{}", host->address, kRdzvPort);
        order_.on_progress(fmt::format("the hosts meet at {} ({})", record.endpoint, record.instance));
        co_await store_.write_rdzv(std::move(record));
        co_return;
      }
      if (view.groups.empty() || clock_.now() >= deadline) {
        throw Error(ErrorCode::kNoCapacity, fmt::format("no host of {} has come up", plan_.groups.front().name),
                    client_.region(),
                    fmt::format("look at the group's activity: aws autoscaling describe-scaling-activities "
                                "--auto-scaling-group-name {}; then repeat the command, or kill_job",
                                plan_.groups.front().name));
      }
      co_await pause(length);
    }
  }

  aws::Client& client_;
  Clock& clock_;
  const LaunchOrder order_;
  JobPlan plan_;
  JobStore store_;
  KnownReports known_;
};

}  // namespace

Task<void> launch_job(aws::Client& client, LaunchOrder order) {
  Launching launching(client, std::move(order));
  co_await launching.run();
}

}  // namespace rubato::petctl
