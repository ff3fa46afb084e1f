#include "petctl/job_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "rest/cloud_error.h"

namespace rubato::petctl {
namespace {

constexpr size_t kConsolesMax = 64;  // read at a time: one call each

bool is_living(const HostView& host) { return host.state == "pending" || host.state == "running"; }

Task<void> read_hosts(aws::Client& client, JobView& view) {
  std::map<std::string, HostView> by_id;
  for (const aws::ScalingGroup& group : view.groups) {
    for (const aws::ScalingGroup::Member& member : group.members) {
      HostView host;
      host.instance = member.id;
      host.lifecycle = member.state;
      host.zone = member.zone;
      host.role = group.name == group_name(view.name, HostRole::kRdzv) ? HostRole::kRdzv : HostRole::kWorker;
      by_id[member.id] = std::move(host);
    }
  }
  if (by_id.empty()) co_return;
  std::vector<std::string> any;
  std::vector<aws::Filter> filters;
  filters.push_back({"tag:" + std::string(kJobTag), {view.name}});
  const auto found = co_await aws::describe_instances(client, std::move(any), std::move(filters));
  for (const aws::Instance& one : found) {
    const auto host = by_id.find(one.id);
    if (host == by_id.end()) continue;
    host->second.state = one.state;
    host->second.address = one.private_address;
    host->second.public_name = one.public_name;
    host->second.launched = one.launched;
  }
  for (auto& [id, host] : by_id) view.hosts.push_back(std::move(host));
}

// The place of a job whose groups are gone: its launch templates stay until a client removes them.
Task<void> read_templates(aws::Client& client, JobView& view) {
  std::vector<aws::Filter> filters;
  filters.push_back({"tag:" + std::string(kJobTag), {view.name}});
  const auto templates = co_await find_launch_templates(client, std::move(filters));
  for (const JobTemplate& one : templates) {
    if (tag_in(one.tags, kJobTag) != view.name) continue;  // whatever the filter let through
    if (view.place.empty()) view.place = tag_in(one.tags, kPlaceTag);
    if (!tag_in(one.tags, kKeepTag).empty()) view.keep = true;
  }
}

Task<void> read_consoles(aws::Client& client, JobView& view) {
  size_t read = 0;
  for (const HostView& host : view.hosts) {
    if (host.role != HostRole::kWorker || host.state != "running" || read >= kConsolesMax) continue;
    ++read;
    const std::string text = co_await latest_console(client, host.instance);
    for (const EndLine& line : read_end_lines(text, view.name)) {
      if (line.instance != host.instance) continue;
      HostReport report;
      report.instance = host.instance;
      report.address = host.address;
      report.role = to_string(host.role);
      report.state = line.exit_code == 0 ? HostReport::State::kSucceeded : HostReport::State::kFailed;
      report.exit_code = line.exit_code;
      view.reports.push_back(std::move(report));
      view.reports_from = "the console";
      break;
    }
  }
}

Task<void> read_reports(aws::Client& client, JobView& view, KnownReports& known) {
  if (view.place.empty()) co_return;
  JobStore store(client, view.place);
  view.reports = co_await store.reports(known);
  if (!view.reports.empty()) view.reports_from = "S3";
}

}  // namespace

std::string_view to_string(JobPhase phase) {
  switch (phase) {
    case JobPhase::kAbsent:
      return "not there";
    case JobPhase::kStarting:
      return "starting";
    case JobPhase::kRunning:
      return "running";
    case JobPhase::kSucceeded:
      return "succeeded";
    case JobPhase::kFailed:
      return "failed";
  }
  return "";
}

std::string tag_in(const aws::Tags& tags, std::string_view key) {
  for (const auto& [name, value] : tags) {
    if (name == key) return value;
  }
  return "";
}

const HostReport* report_of(const JobView& view, const std::string& instance) {
  for (const HostReport& report : view.reports) {
    if (report.instance == instance) return &report;
  }
  return nullptr;
}

JobPhase phase_of(const JobView& view) {
  const std::string worker(to_string(HostRole::kWorker));
  bool any_failed = false, any_running = false;
  for (const HostReport& report : view.reports) {
    if (report.role != worker) continue;
    // Agents end together, when all have: one that is done says it for all.
    if (report.state == HostReport::State::kSucceeded) return JobPhase::kSucceeded;
    any_failed = any_failed || report.state == HostReport::State::kFailed;
    any_running = any_running || report.state == HostReport::State::kRunning;
  }
  // Where nobody may report, a machine that runs is all that is known.
  const bool silent = view.reports.empty();
  bool living = false, all_failed = true;
  for (const HostView& host : view.hosts) {
    if (host.role != HostRole::kWorker || !is_living(host)) continue;
    living = true;
    any_running = any_running || (silent && host.state == "running");
    const HostReport* const report = report_of(view, host.instance);
    all_failed = all_failed && report != nullptr && report->ended();
  }
  if (any_failed && (!living || all_failed)) return JobPhase::kFailed;
  if (view.groups.empty()) return JobPhase::kAbsent;
  return any_running ? JobPhase::kRunning : JobPhase::kStarting;
}

const HostView* first_host(const JobView& view) {
  const bool has_rdzv = std::ranges::any_of(view.groups, [&](const aws::ScalingGroup& group) {
    return group.name == group_name(view.name, HostRole::kRdzv);
  });
  const HostRole role = has_rdzv ? HostRole::kRdzv : HostRole::kWorker;
  const HostView* out = nullptr;
  for (const HostView& host : view.hosts) {
    if (host.role != role || host.address.empty() || !is_living(host)) continue;
    if (out == nullptr || std::pair(host.launched, host.instance) < std::pair(out->launched, out->instance)) {
      out = &host;
    }
  }
  return out;
}

Task<JobView> read_job(aws::Client& client, JobQuery query) {
  JobView view;
  view.name = query.name;
  std::vector<std::string> names = {group_name(query.name, HostRole::kRdzv), group_name(query.name, HostRole::kWorker)};
  const auto groups = co_await aws::describe_scaling_groups(client, std::move(names));
  for (const aws::ScalingGroup& group : groups) {
    if (tag_in(group.tags, kJobTag) != query.name) continue;
    view.place = tag_in(group.tags, kPlaceTag);
    view.plan = tag_in(group.tags, kPlanTag);
    view.keep = view.keep || !tag_in(group.tags, kKeepTag).empty();
    view.ending = view.ending || !group.status.empty();
    view.groups.push_back(group);
  }
  co_await read_hosts(client, view);
  if (view.place.empty()) co_await read_templates(client, view);
  if (view.place.empty()) view.place = query.place;
  KnownReports none;
  co_await read_reports(client, view, query.known != nullptr ? *query.known : none);
  if (view.reports.empty() && query.consoles) co_await read_consoles(client, view);
  co_return view;
}

}  // namespace rubato::petctl
