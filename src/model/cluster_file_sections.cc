// The simple sections: login, docker, files, commands, jobs.
#include <fmt/format.h>

#include "core/text.h"
#include "model/cluster_file_readers.h"
#include "model/job_spec.h"
#include "model/limits.h"
#include "model/provider_kind.h"

namespace rubato {
namespace {

constexpr int64_t kPortMax = 65535;

template <class Value, class Given>
void take(Value& value, const std::optional<Given>& given) {
  if (given) value = *given;
}

// Ray starts itself; here the agent starts in that place. The user's own commands stay.
void read_start(const ConfigSection& top, std::string_view path, std::string_view after_path, StartCommands& out) {
  const auto commands = top.texts(path);
  const ConfigSection::Given* given = top.find(path);
  if (commands && given->row->era == KeyEra::kRay) {
    out = split_start_commands(*commands);
    if (!out.after.empty()) top.derive(after_path, *given);
    if (!out.replaced.empty()) {
      top.findings().note(given->key, fmt::format("Rubato's agent starts instead of: {}", join(out.replaced, " | ")));
    }
    return;
  }
  if (commands) out.before = *commands;
  if (const auto after = top.texts(after_path)) out.after = *after;
}

}  // namespace

void read_auth(const ConfigSection& top, ClusterFile& out) {
  AuthConfig& auth = out.auth;
  auth.ssh_user = provider_kind(out.provider.type).ssh_user;
  take(auth.ssh_user, top.text("auth.ssh_user"));
  take(auth.ssh_port, top.integer("auth.ssh_port", 1, kPortMax));
  take(auth.ssh_private_key, top.text("auth.ssh_private_key"));
  take(auth.ssh_public_key, top.text("auth.ssh_public_key"));
  take(auth.ssh_proxy_command, top.text("auth.ssh_proxy_command"));
  take(auth.ssh_proxy_jump, top.text("auth.ssh_proxy_jump"));
  if (!auth.ssh_proxy_command.empty() && !auth.ssh_proxy_jump.empty()) {
    top.findings().error(top.find("auth.ssh_proxy_jump")->key,
                         "ssh goes through a proxy command or a jump host, not both", "keep one of the two");
  }
  for (const char* path : {"auth.ssh_user", "auth.ssh_proxy_jump"}) {
    const auto value = top.text(path);
    // ssh would read it as a flag.
    if (value && (value->starts_with('-') || value->find_first_of(" \t\n") != std::string::npos)) {
      top.findings().error(top.find(path)->value, fmt::format("'{}' cannot be given to ssh", *value));
    }
  }
}

void read_docker(const ConfigSection& top, ClusterFile& out) {
  DockerConfig& docker = out.docker;
  take(docker.image, top.text("docker.image"));
  take(docker.head_image, top.text("docker.head_image"));
  take(docker.worker_image, top.text("docker.worker_image"));
  take(docker.container_name, top.text("docker.container_name"));
  take(docker.pull_before_run, top.flag("docker.pull_before_run"));
  take(docker.run_options, top.texts("docker.run_options"));
  take(docker.head_run_options, top.texts("docker.head_run_options"));
  take(docker.worker_run_options, top.texts("docker.worker_run_options"));
  take(docker.disable_automatic_runtime_detection, top.flag("docker.disable_automatic_runtime_detection"));
  take(docker.disable_shm_size_detection, top.flag("docker.disable_shm_size_detection"));
  take(docker.use_podman, top.flag("docker.use_podman"));
  const auto name = top.find("docker.container_name");
  if (!docker.enabled()) {
    if (!docker.container_name.empty()) {
      top.findings().error(name->value, "docker names a container, but no image",
                           "add image: NAME, or remove container_name");
    }
    return;
  }
  if (docker.container_name.empty()) docker.container_name = "rubato";
  if (!docker.image.empty()) return;
  for (const auto& [image, here, there] : {std::tuple(docker.head_image, "worker_image", "docker.head_image"),
                                           std::tuple(docker.worker_image, "head_image", "docker.worker_image")}) {
    const bool other_missing =
        std::string_view(here) == "worker_image" ? docker.worker_image.empty() : docker.head_image.empty();
    if (!image.empty() && other_missing) {
      top.findings().error(top.find(there)->value, fmt::format("docker has no {}, and no image for all nodes", here),
                           fmt::format("add image or {}", here));
    }
  }
}

void read_files(const ConfigSection& top, ClusterFile& out) {
  take(out.files.mounts, top.text_map("files.mounts"));
  take(out.files.synced_from_head, top.texts("files.synced_from_head"));
  take(out.files.sync_continuously, top.flag("files.sync_continuously"));
  take(out.files.exclude, top.texts("files.exclude"));
  take(out.files.ignore_files, top.texts("files.ignore_files"));
  if (out.files.mounts.empty()) return;
  for (const Yaml::Entry& entry : top.find("files.mounts")->value.entries()) {
    if (entry.key.as_string().empty() || (entry.value.is_scalar() && entry.value.as_string().empty())) {
      top.findings().error(entry.key, "a mount needs a path on the nodes and a path here",
                           "write \"/remote\": \"~/local\"");
    }
  }
}

void read_commands(const ConfigSection& top, ClusterFile& out) {
  take(out.commands.setup_host, top.texts("setup.host"));
  take(out.commands.setup_all, top.texts("setup.all"));
  take(out.commands.setup_head, top.texts("setup.head"));
  take(out.commands.setup_worker, top.texts("setup.worker"));
  take(out.commands.login_shells, top.flag("login_shells"));
  read_start(top, "start.head", "start.head_after", out.commands.start_head);
  read_start(top, "start.worker", "start.worker_after", out.commands.start_worker);
}

void read_jobs(const ConfigSection& top, ClusterFile& out) {
  JobDefaults& jobs = out.jobs;
  if (const auto text = top.text("jobs.workers")) {
    const auto at = top.find("jobs.workers");
    attempt(top.findings(), [&] {
      try {
        jobs.workers = parse_worker_sizes(*text);
      } catch (const Error& error) {
        at->value.fail(error.message, error.hint);
      }
    });
  }
  take(jobs.resources, top.resources("jobs.resources"));
  take(jobs.env, top.text_map("jobs.env"));
  for (const auto& [name, value] : jobs.env) {
    if (!valid_env_name(name))
      top.findings().error(top.find("jobs.env")->value, fmt::format("'{}' is not a name for a variable", name));
  }
  take(jobs.python, top.text("jobs.python"));
  jobs.priority = top.integer("jobs.priority", -kJobPriorityMax, kJobPriorityMax);
  jobs.max_restarts = top.integer("jobs.max_restarts", 0, kJobRestartsMax);
  jobs.timeout = top.duration("jobs.timeout");
  jobs.grace = top.duration("jobs.grace");
}

}  // namespace rubato
