#include "model/job_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "model/limits.h"
#include "model/worker_sizes.h"

namespace rubato {
namespace {

using nlohmann::json;

constexpr double kWeightMin = 0.01, kWeightMax = 100;
constexpr double kSecondsMax = 3.2e9;  // a century, as in parse_duration
constexpr size_t kTextMax = 4096;

Error bad_field(std::string_view field, std::string_view why, std::string hint = {}) {
  return Error(ErrorCode::kUsage, fmt::format("the job's {}: {}", field, why), std::string(field), std::move(hint));
}

// Reads an object whose fields are all known; each was asked for once when finish() is called.
class JobFields {
 public:
  explicit JobFields(const json& object) : object_(object) {
    if (!object.is_object()) throw Error(ErrorCode::kUsage, "a job must be a JSON object");
  }

  const json* find(const char* field) {
    known_.insert(field);
    const auto found = object_.find(field);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  void text(const char* field, std::string& out, size_t bytes_max = kTextMax) {
    if (const json* value = find(field)) out = text_of(field, *value, bytes_max);
  }

  void texts(const char* field, std::vector<std::string>& out) {
    const json* value = find(field);
    if (value == nullptr) return;
    if (!value->is_array() || value->size() > kJobArgumentsMax) {
      throw bad_field(field, fmt::format("expected a list of at most {} texts", kJobArgumentsMax));
    }
    out.clear();
    for (const json& one : *value) out.push_back(text_of(field, one, kJobArgumentBytesMax));
  }

  void number(const char* field, int& out, int64_t least, int64_t most) {
    const json* value = find(field);
    if (value == nullptr) return;
    // An unsigned number above the signed range would wrap to a negative one.
    const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(most);
    if (!value->is_number_integer() || huge || value->get<int64_t>() < least || value->get<int64_t>() > most) {
      throw bad_field(field, fmt::format("expected a whole number from {} to {}", least, most));
    }
    out = value->get<int>();
  }

  void fraction(const char* field, double& out, double least, double most) {
    const json* value = find(field);
    if (value == nullptr) return;
    const double number = value->is_number() ? value->get<double>() : least - 1;
    if (!(number >= least && number <= most))
      throw bad_field(field, fmt::format("expected a number from {} to {}", least, most));
    out = number;
  }

  void duration(const char* field, Duration& out) {
    const json* value = find(field);
    if (value == nullptr) return;
    const double number = value->is_number() ? value->get<double>() : -1;
    if (!(number >= 0 && number <= kSecondsMax)) throw bad_field(field, "expected a number of seconds, zero or more");
    out = seconds(number);
  }

  void finish() const {
    for (const auto& [field, value] : object_.items()) {
      if (known_.contains(field)) continue;
      const auto near = nearest(field, known_);
      throw Error(ErrorCode::kUsage, fmt::format("the job has the unknown field '{}'", field), field,
                  near ? fmt::format("did you mean '{}'?", *near) : "");
    }
  }

  static std::string text_of(const char* field, const json& value, size_t bytes_max) {
    if (!value.is_string()) throw bad_field(field, "expected text");
    std::string text = value.get<std::string>();
    if (text.size() > bytes_max) throw bad_field(field, fmt::format("longer than {} bytes", bytes_max));
    if (text.find('\0') != std::string::npos) throw bad_field(field, "holds a NUL byte");
    return text;
  }

 private:
  const json& object_;
  std::set<std::string> known_;
};

ProgramKind kind_from(const std::string& text) {
  for (const ProgramKind kind :
       {ProgramKind::kScript, ProgramKind::kModule, ProgramKind::kRunPath, ProgramKind::kBinary}) {
    if (text == to_string(kind)) return kind;
  }
  throw bad_field("kind", fmt::format("'{}' is none of script, module, run-path and binary", text));
}

bool valid_module(std::string_view name) {
  const auto fine = [](char c) {
    return static_cast<unsigned char>(c) >= 0x80 || c == '_' || c == '.' || ('a' <= c && c <= 'z') ||
           ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9');
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), fine);
}

void check_program(const JobSpec& spec) {
  if (spec.program.empty()) throw bad_field("program", "it is missing", "name a script, a module or a program");
  switch (spec.kind) {
    case ProgramKind::kModule:
      if (!valid_module(spec.program)) {
        throw bad_field("program", fmt::format("'{}' is not the name of a module", spec.program), "write it as a.b.c");
      }
      return;
    case ProgramKind::kBinary:
      if (spec.program.starts_with('/')) return;  // a program of the node, as in PATH
      break;
    case ProgramKind::kScript:
    case ProgramKind::kRunPath:
      break;
  }
  const auto parts = split(spec.program, '/');
  const bool climbs = std::find(parts.begin(), parts.end(), "..") != parts.end();
  if (spec.program.starts_with('/') || climbs) {
    throw bad_field("program", fmt::format("'{}' leads out of the working directory", spec.program),
                    "give a path below --working-dir");
  }
}

void read_env(JobFields& fields, JobSpec& spec) {
  const json* env = fields.find("env");
  if (env == nullptr) return;
  if (!env->is_object() || env->size() > kJobArgumentsMax) {
    throw bad_field("env", fmt::format("expected at most {} variables", kJobArgumentsMax));
  }
  for (const auto& [name, value] : env->items()) {
    if (!valid_env_name(name)) {
      throw bad_field("env", fmt::format("'{}' is not a name for a variable", name),
                      "use letters, digits and _; the first one is no digit");
    }
    spec.env[name] = JobFields::text_of("env", value, kJobArgumentBytesMax);
  }
}

void check_sizes(const JobSpec& spec) {
  size_t bytes = 0;
  for (const std::string& arg : spec.args) bytes += arg.size() + 1;
  for (const auto& [name, value] : spec.env) bytes += name.size() + value.size() + 2;
  if (bytes > kJobBytesMax) {
    throw bad_field("args", fmt::format("arguments and variables together are more than {} bytes", kJobBytesMax),
                    "put the data into a file of the working directory");
  }
}

void check_words(const JobSpec& spec) {
  if (!valid_job_name(spec.name)) {
    throw bad_field("name", fmt::format("'{}' is not a name for a job", spec.name),
                    "use up to 63 of a-z, 0-9, '.', '_' and '-'; the first one a letter or digit");
  }
  const auto hex = [](char c) { return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f'); };
  if (!spec.package.empty() &&
      (spec.package.size() != 64 || !std::all_of(spec.package.begin(), spec.package.end(), hex))) {
    throw bad_field("package", "expected 64 hexadecimal digits (a sha256)");
  }
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(spec.owner.begin(), spec.owner.end(), control)) {
    throw bad_field("owner", "holds control characters");
  }
  for (const std::string& module : spec.prewarm) {
    if (!valid_module(module)) throw bad_field("prewarm", fmt::format("'{}' is not the name of a module", module));
  }
  if (!spec.prewarm.empty() && spec.kind == ProgramKind::kBinary) {
    throw bad_field("prewarm", "it needs Python, and the program is none of Python's");
  }
}

// Divided, not multiplied by 1e-9: 120 s stays 120 and not 120.00000000000001.
double json_seconds(Duration duration) { return static_cast<double>(duration.count()) / 1e9; }

}  // namespace

bool valid_job_name(std::string_view name) {
  const auto plain = [](char c) { return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9'); };
  const auto fine = [&](char c) { return plain(c) || c == '.' || c == '_' || c == '-'; };
  return !name.empty() && name.size() <= 63 && plain(name[0]) && std::all_of(name.begin(), name.end(), fine);
}

bool valid_env_name(std::string_view name) {
  const auto digit = [](char c) { return '0' <= c && c <= '9'; };
  const auto fine = [&](char c) { return digit(c) || c == '_' || ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z'); };
  return !name.empty() && name.size() <= 255 && !digit(name[0]) && std::all_of(name.begin(), name.end(), fine);
}

json to_json(const JobSpec& spec) {
  json out = json{{"name", spec.name},
                  {"kind", to_string(spec.kind)},
                  {"program", spec.program},
                  {"args", spec.args},
                  {"python", spec.python},
                  {"prewarm", spec.prewarm},
                  {"env", spec.env},
                  {"package", spec.package},
                  {"workers_min", spec.workers_min},
                  {"workers_max", spec.workers_max},
                  {"per_worker", to_json(spec.per_worker)},
                  {"priority", spec.priority},
                  {"owner", spec.owner},
                  {"max_restarts", spec.max_restarts},
                  {"timeout_s", json_seconds(spec.timeout)},
                  {"grace_s", json_seconds(spec.grace)},
                  {"checkpoint_timeout_s", json_seconds(spec.checkpoint_timeout)},
                  {"rescale_timeout_s", json_seconds(spec.rescale_timeout)}};
  if (spec.workers_step != 1) out["workers_step"] = spec.workers_step;
  if (spec.weight != 1) out["weight"] = spec.weight;
  if (spec.deadline > 0s) out["deadline_s"] = json_seconds(spec.deadline);
  if (spec.lease > 0s) out["lease_s"] = json_seconds(spec.lease);
  return out;
}

JobSpec job_spec_from_json(const json& object) {
  JobFields fields(object);
  JobSpec spec;
  fields.text("name", spec.name);
  std::string kind(to_string(spec.kind));
  fields.text("kind", kind);
  spec.kind = kind_from(kind);
  fields.text("program", spec.program);
  fields.texts("args", spec.args);
  fields.text("python", spec.python);
  fields.texts("prewarm", spec.prewarm);
  read_env(fields, spec);
  fields.text("package", spec.package);
  fields.number("workers_min", spec.workers_min, 1, kWorkersMax);
  spec.workers_max = spec.workers_min;
  fields.number("workers_max", spec.workers_max, 1, kWorkersMax);
  fields.number("workers_step", spec.workers_step, 1, kWorkersMax);
  if (const json* resources = fields.find("per_worker")) {
    spec.per_worker = resources_from_json(*resources);
  } else {
    spec.per_worker.set(kCpu, 1000);
  }
  fields.number("priority", spec.priority, -kJobPriorityMax, kJobPriorityMax);
  fields.fraction("weight", spec.weight, kWeightMin, kWeightMax);
  fields.duration("deadline_s", spec.deadline);
  fields.text("owner", spec.owner, 255);
  fields.number("max_restarts", spec.max_restarts, 0, kJobRestartsMax);
  fields.duration("timeout_s", spec.timeout);
  fields.duration("grace_s", spec.grace);
  fields.duration("checkpoint_timeout_s", spec.checkpoint_timeout);
  fields.duration("rescale_timeout_s", spec.rescale_timeout);
  fields.duration("lease_s", spec.lease);
  fields.finish();

  try {
    check_worker_sizes({spec.workers_min, spec.workers_max, spec.workers_step});
  } catch (const Error& error) {
    throw bad_field(spec.workers_step == 1 ? "workers_max" : "workers_step", error.message);
  }
  check_words(spec);
  check_program(spec);
  check_sizes(spec);
  return spec;
}

}  // namespace rubato
