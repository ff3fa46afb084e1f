// `rubato aws status|logs|resize|kill-job` and petctl's kill_job and list_hosts: what is done to a job that is there.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/petctl_command.h"
#include "cli/petctl_session.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

using petctl::HostReport;
using petctl::HostView;
using petctl::JobPhase;
using petctl::JobView;

constexpr uint64_t kLogMax = uint64_t{64} << 20;  // of one host, on a terminal

Error no_such_job(const std::string& name, const std::string& region) {
  return Error(ErrorCode::kNotFound, fmt::format("there is no job '{}' in {}", name, region), "",
               "is it in another --region? 'rubato petctl run_job' starts one");
}

std::string host_state(const JobView& view, const HostView& host) {
  const HostReport* const report = petctl::report_of(view, host.instance);
  if (report == nullptr) return host.state;
  if (report->state == HostReport::State::kFailed) return fmt::format("failed ({})", report->exit_code);
  return std::string(to_string(report->state));
}

std::string hosts_text(const JobView& view, const Style& look) {
  Table table({"HOST", "ROLE", "STATE", "ZONE", "ADDRESS", "PUBLIC NAME"});
  for (const HostView& host : view.hosts) {
    table.add({{host.instance},
               {std::string(to_string(host.role))},
               {host_state(view, host)},
               {host.zone},
               {host.address},
               {host.public_name}});
  }
  return table.empty() ? "" : table.text(look);
}

nlohmann::json view_json(const JobView& view) {
  nlohmann::json groups = nlohmann::json::array(), hosts = nlohmann::json::array(), reports = nlohmann::json::array();
  for (const aws::ScalingGroup& one : view.groups) {
    groups.push_back({{"name", one.name},
                      {"min", one.min},
                      {"size", one.desired},
                      {"max", one.max},
                      {"hosts", one.members.size()},
                      {"status", one.status}});
  }
  for (const HostView& one : view.hosts) {
    hosts.push_back({{"instance", one.instance},
                     {"role", to_string(one.role)},
                     {"state", host_state(view, one)},
                     {"zone", one.zone},
                     {"address", one.address},
                     {"public_name", one.public_name}});
  }
  for (const HostReport& one : view.reports) {
    reports.push_back({{"instance", one.instance},
                       {"role", one.role},
                       {"state", to_string(one.state)},
                       {"exit_code", one.exit_code},
                       {"note", one.note},
                       {"since", one.since}});
  }
  return {{"job", view.name},
          {"phase", to_string(phase_of(view))},
          {"place", view.place},
          {"groups", groups},
          {"hosts", hosts},
          {"reports", reports},
          {"reports_from", view.reports_from}};
}

// One that has ended is known by its reports only.
class StatusCommand : public PetctlSession {
 public:
  using PetctlSession::PetctlSession;

  int run(bool hosts_only) {
    const std::string name = job_name(hosts_only ? "rubato petctl list_hosts NAME" : "rubato aws status NAME");
    JobView view;
    command_.runtime.run(read(name, view));
    const JobPhase phase = phase_of(view);
    if (phase == JobPhase::kAbsent) throw no_such_job(name, client_->region());
    if (parsed_.has("json")) {
      const nlohmann::json document = view_json(view);
      shell_.out(json_text(hosts_only ? document["hosts"] : document));
    } else if (hosts_only) {
      shell_.out(hosts_text(view, style_of(shell_)));
    } else {
      print(view, phase);
    }
    return !hosts_only && phase == JobPhase::kFailed ? 1 : 0;
  }

 private:
  Task<int> read(std::string name, JobView& view) {
    co_await open();
    view = co_await view_of(name);
    co_return 0;
  }

  void print(const JobView& view, JobPhase phase) {
    std::string state(to_string(phase));
    if (view.ending) state += ", its hosts are being ended";
    shell_.out(
        fmt::format("{}: {}{}\n", view.name, state,
                    view.reports_from.empty() ? " (by EC2: no host has reported)" : " (by " + view.reports_from + ")"));
    for (const aws::ScalingGroup& one : view.groups) {
      shell_.out(fmt::format("{}: {} of {} hosts (min {}, max {})\n", one.name, one.members.size(), one.desired,
                             one.min, one.max));
    }
    shell_.out(hosts_text(view, style_of(shell_)));
    for (const HostReport& one : view.reports) {
      if (!one.note.empty()) shell_.out(fmt::format("{}: {}\n", one.instance, clean(one.note)));
    }
    if (!view.place.empty()) shell_.out(fmt::format("objects: {}\n", view.place));
  }
};

class LogsCommand : public PetctlSession {
 public:
  using PetctlSession::PetctlSession;

  int run() {
    const std::string name = job_name("rubato aws logs NAME");
    command_.runtime.run(show(name));
    return 0;
  }

 private:
  bool wanted(const std::string& instance) const {
    const std::string host = parsed_.value("host");
    return host.empty() || host == instance;
  }

  Task<int> show(std::string name) {
    co_await open();
    const JobView view = co_await view_of(name);
    int shown = 0;
    if (!view.place.empty()) {
      petctl::JobStore store(*client_, view.place);
      const std::vector<aws::S3Object> logs = co_await store.logs();
      for (const aws::S3Object& one : logs) {
        const std::string instance = std::filesystem::path(one.key).stem().string();
        if (!wanted(instance)) continue;
        ++shown;
        const aws::S3Address address{aws::parse_s3_address(view.place).bucket, one.key};
        const std::optional<std::string> text = co_await petctl::read_object(*client_, address, kLogMax);
        shell_.out(fmt::format("==> {} <==\n{}", instance, text.value_or("")));
      }
    }
    if (shown == 0) shown = co_await show_consoles(view);
    if (shown > 0) co_return 0;
    if (view.groups.empty() && view.reports.empty()) throw no_such_job(name, client_->region());
    throw Error(ErrorCode::kNotFound, fmt::format("no host of '{}' has written anything yet", name), "",
                "consoles of EC2 are some minutes late");
  }

  Task<int> show_consoles(const JobView& view) {
    int shown = 0;
    for (const HostView& host : view.hosts) {
      if (host.state != "running" || !wanted(host.instance)) continue;
      const std::string text = co_await petctl::latest_console(*client_, host.instance);
      if (text.empty()) continue;
      ++shown;
      shell_.out(fmt::format("==> {} (console) <==\n{}", host.instance, text));
    }
    co_return shown;
  }
};

class ResizeCommand : public PetctlSession {
 public:
  using PetctlSession::PetctlSession;

  int run() {
    const std::string usage = "rubato aws resize NAME N";
    const std::string name = job_name(usage);
    Given wanted;
    wanted.origin = "N";
    wanted.values.push_back(require_word(parsed_, 1, "N", usage));
    command_.runtime.run(resize(name, whole_number(wanted, 0)));
    return 0;
  }

 private:
  Task<int> resize(std::string name, int size) {
    co_await open();
    const JobView view = co_await view_of(name);
    const std::string group = petctl::group_name(name, petctl::HostRole::kWorker);
    for (const aws::ScalingGroup& one : view.groups) {
      if (one.name != group) continue;
      if (size < one.min || size > one.max) {
        throw Error(ErrorCode::kUsage, fmt::format("{} was started for {} to {} hosts", name, one.min, one.max), "",
                    "start it with another --min_size or --max_size");
      }
      co_await aws::set_desired_capacity(*client_, group, size);
      shell_.err(fmt::format("{}: {} hosts instead of {}\n", name, size, one.desired));
      co_return 0;
    }
    throw no_such_job(name, client_->region());
  }
};

class KillCommand : public PetctlSession {
 public:
  using PetctlSession::PetctlSession;

  int run() {
    const std::string name = job_name("rubato petctl kill_job NAME");
    command_.runtime.run(end(name));
    return 0;
  }

 private:
  Task<int> end(std::string name) {
    co_await open();
    petctl::EndOrder order;
    order.name = name;
    order.place = known_place(name);
    order.on_progress = progress_printer();
    const std::vector<std::string> removed = co_await petctl::end_job(*client_, std::move(order));
    shell_.err(removed.empty() ? fmt::format("there is nothing of a job '{}' in {}\n", name, client_->region())
                               : fmt::format("removed: {}\n", join(removed, ", ")));
    co_return 0;
  }
};

}  // namespace

int aws_status_command(const ParsedCommand& parsed, const Shell& shell) {
  return StatusCommand(parsed, shell).run(false);
}
int list_hosts_command(const ParsedCommand& parsed, const Shell& shell) {
  return StatusCommand(parsed, shell).run(true);
}
int aws_logs_command(const ParsedCommand& parsed, const Shell& shell) { return LogsCommand(parsed, shell).run(); }
int aws_resize_command(const ParsedCommand& parsed, const Shell& shell) { return ResizeCommand(parsed, shell).run(); }
int kill_job_command(const ParsedCommand& parsed, const Shell& shell) { return KillCommand(parsed, shell).run(); }

}  // namespace rubato::cli
