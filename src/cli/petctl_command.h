// `rubato petctl …` and the verbs of `rubato aws` for jobs on Auto Scaling groups.
#pragma once

#include <string>
#include <vector>

#include "cli/cli.h"
#include "terminal/flags.h"

namespace rubato::cli {

const Command& petctl_run_job_table();
const Command& petctl_kill_job_table();
const Command& petctl_list_hosts_table();
const Command& petctl_upload_table();
const Command& aws_run_job_table();
const Command& aws_status_table();
const Command& aws_logs_table();
const Command& aws_resize_table();
const Command& aws_kill_job_table();
const Command& aws_bake_table();
const Command& aws_host_table();    // hidden: what a job's hosts run
const Command& rendezvous_table();  // hidden: an agent's rendezvous without its workers

int petctl_run_job_command(const ParsedCommand& parsed, const Shell& shell);
int aws_run_job_command(const ParsedCommand& parsed, const Shell& shell);
int kill_job_command(const ParsedCommand& parsed, const Shell& shell);
int list_hosts_command(const ParsedCommand& parsed, const Shell& shell);
int petctl_upload_command(const ParsedCommand& parsed, const Shell& shell);
int aws_status_command(const ParsedCommand& parsed, const Shell& shell);
int aws_logs_command(const ParsedCommand& parsed, const Shell& shell);
int aws_resize_command(const ParsedCommand& parsed, const Shell& shell);
int aws_bake_command(const ParsedCommand& parsed, const Shell& shell);
int aws_host_command(const ParsedCommand& parsed, const Shell& shell);
int rendezvous_command(const ParsedCommand& parsed, const Shell& shell);

// petctl's flags may stand before its verb: here they stand behind it.
std::vector<std::string> petctl_argv(std::vector<std::string> args);

// Whether what follows a "--" belongs to the command's script; parse_with_arguments() then finds it in the flag
// "arguments", whatever stood before.
bool takes_script(const Command& command);
ParsedCommand parse_with_arguments(const Command& command, const std::vector<std::string>& args,
                                   const Environment& env);

}  // namespace rubato::cli
