#include "petctl/node_order.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"

namespace rubato::petctl {
namespace {

using nlohmann::json;

constexpr std::string_view kEndPrefix = "rubato-job-end ";

constexpr std::pair<Script::Kind, std::string_view> kKinds[] = {{Script::Kind::kFile, "file"},
                                                                {Script::Kind::kFolder, "folder"},
                                                                {Script::Kind::kS3File, "s3-file"},
                                                                {Script::Kind::kS3Tar, "s3-tar"},
                                                                {Script::Kind::kOnHost, "on-host"}};

std::string_view kind_name(Script::Kind kind) {
  for (const auto& [each, name] : kKinds) {
    if (each == kind) return name;
  }
  return "";
}

Script::Kind kind_named(const std::string& text) {
  for (const auto& [each, name] : kKinds) {
    if (name == text) return each;
  }
  throw Error(ErrorCode::kUsage, fmt::format("'{}' is no kind of script", text));
}

std::string domain_of(const std::string& region) {
  return region.starts_with("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
}

// Where the script is, as the process that starts it sees it.
std::string script_path(const NodeOrder& order) {
  const std::string work = fmt::format("{}/work", kHome);
  switch (order.script.kind) {
    case Script::Kind::kOnHost:
      return order.script.source;
    case Script::Kind::kFolder:
    case Script::Kind::kS3Tar:
      return work + "/" + order.script.entry;
    case Script::Kind::kFile:
    case Script::Kind::kS3File:
      break;
  }
  return work + "/" + std::filesystem::path(order.script.source).filename().string();
}

}  // namespace

std::string_view to_string(HostRole role) {
  switch (role) {
    case HostRole::kRdzv:
      return "rdzv";
    case HostRole::kWorker:
      return "worker";
  }
  return "";
}

std::string to_json(const NodeOrder& order) {
  const nlohmann::ordered_json document = {
      {"job", order.job},
      {"role", to_string(order.role)},
      {"region", order.region},
      {"s3_endpoint", order.s3_endpoint},
      {"bucket", order.bucket},
      {"prefix", order.prefix},
      {"groups", order.groups},
      {"size", order.size},
      {"min_size", order.min_size},
      {"max_size", order.max_size},
      {"nproc", order.nproc},
      {"max_restarts", order.max_restarts},
      {"keep", order.keep},
      {"gpu", order.gpu},
      {"docker_image", order.docker_image},
      {"efs", order.efs},
      {"script",
       {{"kind", kind_name(order.script.kind)}, {"source", order.script.source}, {"entry", order.script.entry}}},
      {"args", order.args}};
  return document.dump(-1, ' ', true);  // ASCII: whatever locale the host boots with
}

NodeOrder parse_order(std::string_view text) {
  NodeOrder out;
  try {
    const json document = json::parse(text);
    const std::string role = document.at("role");
    out.role = role == "rdzv" ? HostRole::kRdzv : HostRole::kWorker;
    document.at("job").get_to(out.job);
    document.at("region").get_to(out.region);
    document.at("s3_endpoint").get_to(out.s3_endpoint);
    document.at("bucket").get_to(out.bucket);
    document.at("prefix").get_to(out.prefix);
    document.at("groups").get_to(out.groups);
    document.at("size").get_to(out.size);
    document.at("min_size").get_to(out.min_size);
    document.at("max_size").get_to(out.max_size);
    document.at("nproc").get_to(out.nproc);
    document.at("max_restarts").get_to(out.max_restarts);
    document.at("keep").get_to(out.keep);
    document.at("gpu").get_to(out.gpu);
    document.at("docker_image").get_to(out.docker_image);
    document.at("efs").get_to(out.efs);
    const json& script = document.at("script");
    out.script.kind = kind_named(script.at("kind"));
    script.at("source").get_to(out.script.source);
    script.at("entry").get_to(out.script.entry);
    document.at("args").get_to(out.args);
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kUsage, fmt::format("this is no order for a host: {}", error.what()), "",
                "it is written by 'rubato petctl run_job' into a host's user data");
  }
  return out;
}

std::vector<std::string> worker_variables(const NodeOrder& order, const std::string& endpoint) {
  return {"RDZV_ENDPOINT=" + endpoint, "JOB_ID=" + order.job, fmt::format("MIN_SIZE={}", order.min_size),
          fmt::format("MAX_SIZE={}", order.max_size), fmt::format("SIZE={}", order.size)};
}

std::vector<std::string> worker_argv(const NodeOrder& order, const std::string& endpoint) {
  const std::string home(kHome);
  const std::string binary = home + "/bin/rubato";
  std::vector<std::string> run = {"run",
                                  "--nnodes",
                                  fmt::format("{}:{}", order.min_size, order.max_size),
                                  "--nproc-per-node",
                                  order.nproc,
                                  "--rdzv-endpoint",
                                  endpoint,
                                  "--rdzv-id",
                                  order.job,
                                  "--rdzv-conf",
                                  fmt::format("join_timeout={}", kJoinTimeoutSeconds),
                                  "--rdzv-key-file",
                                  home + "/state/key",
                                  "--max-restarts",
                                  std::to_string(order.max_restarts),
                                  "--events",
                                  home + "/state/events.jsonl"};
  const std::string script = script_path(order);
  if (!script.ends_with(".py")) run.push_back("--no-python");  // as fetch_and_run, which lets the kernel start it
  run.push_back(script);
  run.insert(run.end(), order.args.begin(), order.args.end());
  std::vector<std::string> out;
  if (order.docker_image.empty()) {
    out.push_back(binary);
  } else {
    // Our binary is static: it is the entry point of whatever image that has a Python.
    out = {"docker", "run", "--rm", "--network", "host", "--ipc", "host", "--name", "rubato-job"};
    if (order.gpu) out.insert(out.end(), {"--gpus", "all"});
    for (const std::string& variable : worker_variables(order, endpoint)) out.insert(out.end(), {"--env", variable});
    out.insert(out.end(),
               {"--volume", fmt::format("{0}/bin:{0}/bin:ro", home), "--volume", fmt::format("{0}/work:{0}/work", home),
                "--volume", fmt::format("{0}/state:{0}/state", home)});
    if (!order.efs.empty()) out.insert(out.end(), {"--volume", fmt::format("{0}:{0}", kEfsMount)});
    if (order.script.kind != Script::Kind::kOnHost) out.insert(out.end(), {"--workdir", home + "/work"});
    out.insert(out.end(), {"--entrypoint", binary, order.docker_image});
  }
  out.insert(out.end(), run.begin(), run.end());
  return out;
}

std::vector<std::string> rdzv_argv(const NodeOrder& order, const std::string& endpoint) {
  const std::string home(kHome);
  return {home + "/bin/rubato", "rendezvous",
          "--nnodes",           fmt::format("{}:{}", order.min_size, order.max_size),
          "--rdzv-endpoint",    endpoint,
          "--rdzv-id",          order.job,
          "--rdzv-key-file",    home + "/state/key",
          "--max-restarts",     std::to_string(order.max_restarts),
          "--join-timeout",     std::to_string(kJoinTimeoutSeconds)};
}

std::vector<std::string> efs_mount_argv(const NodeOrder& order) {
  return {"mount",
          "-t",
          "nfs4",
          "-o",
          "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport",
          fmt::format("{}.efs.{}.{}:/", order.efs, order.region, domain_of(order.region)),
          std::string(kEfsMount)};
}

std::string end_line(const std::string& job, const std::string& instance, int exit_code) {
  return fmt::format("{}{} {} exit {}\n", kEndPrefix, job, instance, exit_code);
}

std::vector<EndLine> read_end_lines(std::string_view console, std::string_view job) {
  std::vector<EndLine> out;
  for (std::string_view line : split(console, '\n')) {
    // A console puts its own stamps before a line.
    const size_t at = line.find(kEndPrefix);
    if (at == std::string_view::npos) continue;
    const auto fields = split(trim(line.substr(at + kEndPrefix.size())), ' ');
    if (fields.size() != 4 || fields[0] != job || fields[2] != "exit") continue;
    EndLine one;
    one.instance = fields[1];
    const auto [end, error] = std::from_chars(fields[3].data(), fields[3].data() + fields[3].size(), one.exit_code);
    if (error == std::errc() && end == fields[3].data() + fields[3].size()) out.push_back(std::move(one));
  }
  return out;
}

}  // namespace rubato::petctl
