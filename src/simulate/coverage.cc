#include "simulate/coverage.h"

#include <algorithm>

namespace rubato::simulate {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kFaults[] = {
    "fault.agent_crash"sv, "fault.clock_back"sv, "fault.clock_forward"sv,  "fault.disk_full"sv,
    "fault.freeze"sv,      "fault.head_crash"sv, "fault.head_disk_full"sv, "fault.head_partition"sv,
    "fault.node_crash"sv,  "fault.partition"sv,  "fault.stock_out"sv,      "fault.throttling"sv,
    "fault.agent_pause"sv, "fault.head_pause"sv, "fault.head_freeze"sv,    "fault.crash_after_failure"sv,
};

constexpr std::string_view kCloud[] = {
    "cloud.boot_failure"sv,     "cloud.listed_still"sv, "cloud.not_listed_yet"sv, "cloud.notice"sv,
    "cloud.notice_by_signal"sv, "cloud.quota"sv,        "cloud.reclaimed"sv,      "cloud.slow_boot"sv,
    "cloud.stock_out"sv,        "cloud.throttled"sv,    "cloud.updated"sv,        "cloud.out_of_reach"sv,
    "cloud.orphan"sv,
};

// The diagram of cluster/state.h, arrow by arrow. One may join before its head knows that it was made; a machine that
// nobody knows is found and removed.
constexpr std::string_view kNodes[] = {
    "node none -> requested"sv,     "node requested -> starting"sv,
    "node starting -> up"sv,        "node up -> draining"sv,
    "node draining -> removing"sv,  "node up -> removing"sv,
    "node removing -> gone"sv,      "node requested -> lost"sv,
    "node starting -> lost"sv,      "node up -> lost"sv,
    "node draining -> lost"sv,      "node lost -> removing"sv,
    "node up -> requested"sv,       "node draining -> requested"sv,
    "node starting -> requested"sv, "node requested -> removing"sv,
    "node starting -> removing"sv,  "node requested -> up"sv,
    "node none -> gone"sv,
};

constexpr std::string_view kJobs[] = {
    "job none -> queued"sv,       "job queued -> starting"sv,    "job starting -> running"sv,
    "job running -> succeeded"sv, "job running -> restarting"sv, "job restarting -> running"sv,
    "job starting -> queued"sv,   "job restarting -> queued"sv,  "job running -> queued"sv,
    "job queued -> restarting"sv, "job restarting -> failed"sv,  "job queued -> stopping"sv,
    "job starting -> stopping"sv, "job running -> stopping"sv,   "job restarting -> stopping"sv,
    "job stopping -> stopped"sv,  "job stopping -> failed"sv,
};

bool holds(std::span<const std::string_view> all, std::string_view mark) {
  return std::ranges::find(all, mark) != all.end();
}

}  // namespace

std::span<const std::string_view> fault_marks() { return kFaults; }
std::span<const std::string_view> cloud_marks() { return kCloud; }
std::span<const std::string_view> node_transitions() { return kNodes; }
std::span<const std::string_view> job_transitions() { return kJobs; }

bool known_mark(std::string_view mark) {
  if (mark.starts_with("fault.")) return holds(kFaults, mark);
  if (mark.starts_with("cloud.")) return holds(kCloud, mark);
  if (mark.starts_with("node ")) return holds(kNodes, mark);
  if (mark.starts_with("job ")) return holds(kJobs, mark);
  return true;
}

}  // namespace rubato::simulate
