#include "petctl/job_end.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "rest/cloud_error.h"

namespace rubato::petctl {
namespace {

constexpr Duration kEndPauseFirst = 500ms;
constexpr Duration kEndPauseMax = 10s;
constexpr Duration kEndMax = 15min;

class Ending {
 public:
  Ending(aws::Client& client, EndOrder order)
      : client_(client), clock_(client.world().clock), order_(std::move(order)) {}

  Task<std::vector<std::string>> run() {
    JobView view = co_await read_now();
    const std::string place = view.place;
    for (const aws::ScalingGroup& group : view.groups) {
      if (group.status.empty()) co_await delete_group(group.name);
      removed_.push_back("Auto Scaling group " + group.name);
    }
    co_await wait_for_hosts();
    co_await delete_templates();
    const bool had_group = co_await remove_security_group(client_, order_.name);
    if (had_group) removed_.push_back("security group " + security_group_name(order_.name));
    const bool had_role = co_await remove_role(client_, order_.name);
    if (had_role) removed_.push_back("role " + role_name(order_.name, client_.region()));
    if (!place.empty()) {
      JobStore store(client_, place);
      co_await store.remove(order_.all);
    }
    co_return removed_;
  }

 private:
  Task<JobView> read_now() {
    JobQuery query;
    query.name = order_.name;
    query.place = order_.place;
    query.consoles = false;
    query.known = &known_;
    co_return co_await read_job(client_, std::move(query));
  }

  Task<void> delete_group(std::string name) {
    order_.on_progress(fmt::format("deleting the Auto Scaling group {}", name));
    try {
      co_await aws::delete_scaling_group(client_, name);
    } catch (const rest::CloudError& error) {
      // The job's last host may be at it too.
      if (error.code != ErrorCode::kNotFound && error.code != ErrorCode::kConflict) throw;
    }
  }

  // Groups vanish with their last machine. Machines are looked for by tag: one that outlived its group counts too.
  Task<void> wait_for_hosts() {
    const Instant deadline = clock_.now() + kEndMax;
    Duration length = kEndPauseFirst;
    while (true) {
      const JobView view = co_await read_now();
      std::vector<aws::Filter> filters;
      filters.push_back({"tag:" + std::string(kJobTag), {order_.name}});
      filters.push_back({"instance-state-name", {"pending", "running", "shutting-down", "stopping", "stopped"}});
      std::vector<std::string> any;
      std::vector<aws::Instance> hosts =
          co_await aws::describe_instances(client_, std::move(any), std::move(filters));
      // Whatever the filters let through.
      std::erase_if(hosts, [&](const aws::Instance& one) {
        return one.state == "terminated" || tag_in(one.tags, kJobTag) != order_.name;
      });
      if (view.groups.empty() && hosts.empty()) co_return;
      co_await terminate_orphans(view, hosts);
      if (clock_.now() >= deadline) {
        throw Error(ErrorCode::kUnavailable, fmt::format("{} hosts of '{}' are still there", hosts.size(), order_.name),
                    client_.region(), "repeat the command: it goes on where it ended");
      }
      co_await Sleep(clock_.loop(), clock_.now() + length);
      length = std::min(length * 2, kEndPauseMax);
    }
  }

  Task<void> terminate_orphans(const JobView& view, const std::vector<aws::Instance>& hosts) {
    if (!view.groups.empty()) co_return;
    std::vector<std::string> ids;
    for (const aws::Instance& one : hosts) {
      if (one.state != "shutting-down") ids.push_back(one.id);
    }
    if (!ids.empty()) co_await aws::terminate_instances(client_, std::move(ids));
  }

  Task<void> delete_templates() {
    std::vector<aws::Filter> filters;
    filters.push_back({"tag:" + std::string(kJobTag), {order_.name}});
    const auto templates = co_await find_launch_templates(client_, std::move(filters));
    for (const JobTemplate& one : templates) {
      if (tag_in(one.tags, kJobTag) != order_.name) continue;
      co_await aws::delete_launch_template(client_, one.id);
      removed_.push_back("launch template " + one.name);
    }
  }

  aws::Client& client_;
  Clock& clock_;
  const EndOrder order_;
  std::vector<std::string> removed_;
  KnownReports known_;
};

}  // namespace

Task<std::vector<std::string>> end_job(aws::Client& client, EndOrder order) {
  Ending ending(client, std::move(order));
  co_return co_await ending.run();
}

}  // namespace rubato::petctl
