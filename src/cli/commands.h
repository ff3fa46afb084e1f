// The tables of all commands: what can be typed, in one place.
#pragma once

#include <string>
#include <vector>

#include "terminal/flags.h"

namespace rubato::cli {

const Command& run_table();
const Command& launch_table();
const Command& complete_table();

const Command& up_table();
const Command& down_table();
const Command& status_table();
const Command& top_table();
const Command& events_table();
const Command& why_table();
const Command& replay_table();
const Command& request_table();
const Command& drain_table();
const Command& node_lost_table();
const Command& audit_table();

const Command& exec_table();
const Command& attach_table();
const Command& connect_table();
const Command& while_heard_table();
const Command& rsync_up_table();
const Command& rsync_down_table();
const Command& get_head_ip_table();
const Command& get_worker_ips_table();
const Command& monitor_table();
const Command& clusters_table();
// Ray's `submit CLUSTER.yaml SCRIPT`; not in all_commands().
const Command& submit_to_table();

const Command& submit_table();
const Command& jobs_table_command();
const Command& job_show_table();
const Command& logs_table();
const Command& stop_table();
const Command& rerun_table();
const Command& fetch_table();

const Command& plan_table();

const Command& config_check_table();
const Command& config_show_table();
const Command& config_explain_table();
const Command& config_migrate_table();
const Command& config_schema_table();

const Command& simulate_table();
const Command& doctor_table();
const Command& version_table();
const Command& completion_table();
const Command& help_table();
const Command& docs_table();
const Command& head_table();
const Command& agent_table();
const Command& daemon_table();
const Command& supervise_table();

// In the order of help, hidden ones last.
const std::vector<const Command*>& all_commands();

// The command that the words begin with, and how many of them name it: "job show" takes two. nullptr when it is none.
// Ray's older spelling, rsync_up, is rsync-up.
struct FoundCommand {
  const Command* command = nullptr;
  size_t length = 0;
};
FoundCommand find_command(const std::vector<std::string>& arguments);

}  // namespace rubato::cli
