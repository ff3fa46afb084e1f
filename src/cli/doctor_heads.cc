#include "cli/doctor_heads.h"

#include <fmt/format.h>

#include "client/cluster_home.h"
#include "client/head_end.h"
#include "client/supervision.h"
#include "os/daemons.h"
#include "os/files.h"

namespace rubato::cli {
namespace {

std::string restarts_text(const os::Supervision& seen) {
  if (seen.restarts == 0) return "";
  return fmt::format("; restarted {} time{}, last after {}", seen.restarts, seen.restarts == 1 ? "" : "s",
                     seen.last_end);
}

Finding judge_head(os::RealFiles& files, const ClusterPlace& place) {
  os::RealDaemons daemons;
  Finding out{"head of " + place.name, Health::kOk, "", ""};
  const std::optional<int> head = daemons.running(place.head_folder());
  const std::optional<int> supervisor = daemons.running(place.supervisor_folder());
  const os::Supervision seen = read_supervision(files, place.folder);
  if (head && supervisor) {
    const bool by_systemd = read_wanted(files, place.folder) == kKeptBySystemd;
    out.found = fmt::format("pid {}, kept alive by {}{}{}", *head, by_systemd ? "systemd and pid " : "pid ",
                            *supervisor, by_systemd ? ", also after a reboot" : "") +
                restarts_text(seen);
    return out;
  }
  if (head) {
    out.health = Health::kWarn;
    out.found = fmt::format("pid {}; nobody starts it again when it dies", *head);
    out.fix = "rubato up --cluster " + place.name;
    return out;
  }
  out.health = Health::kFail;
  if (const std::optional<HeadEnd> end = read_head_end(files, place.folder)) {
    out.found = "not running: " + end->message;
    out.fix = end->hint;
  } else {
    out.found = "not running" + restarts_text(seen);
  }
  if (supervisor) out.found += "; its supervisor tries again";
  if (out.fix.empty()) {
    out.fix = supervisor ? "see " + place.head_folder() + "/daemon.log" : "rubato up --cluster " + place.name;
  }
  return out;
}

}  // namespace

std::vector<Finding> judge_heads(const Environment& env) {
  std::vector<Finding> out;
  os::RealFiles files;
  std::vector<ClusterFound> clusters;
  try {
    clusters = list_clusters(clusters_folder(env));
  } catch (const Error&) {
    return out;  // no home, no clusters
  }
  for (const ClusterFound& one : clusters) {
    const ClusterPlace place = place_of(env, one.name);
    if (one.open && files.exists(place.head_file())) out.push_back(judge_head(files, place));
  }
  return out;
}

}  // namespace rubato::cli
