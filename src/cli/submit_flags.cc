#include "cli/submit_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "daemon/training_library.h"
#include "model/limits.h"
#include "model/worker_sizes.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

namespace fs = std::filesystem;

// A folder with one of these is somebody's project: it is meant to be taken as a whole.
constexpr std::string_view kProjectMarks[] = {".git",      ".rubatoignore",    "pyproject.toml", "setup.py",
                                              "setup.cfg", "requirements.txt", "Pipfile",        "environment.yml"};
constexpr std::string_view kArchiveEnds[] = {".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip"};

std::string absolute(const SubmitView& view, const std::string& path) {
  std::string out = (fs::path(view.folder) / path).lexically_normal().string();
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  return out;
}

// The path relative to the folder; nullopt when it is not below it.
std::optional<std::string> below(const std::string& folder, const std::string& path) {
  const std::string relative = fs::path(path).lexically_relative(folder).string();
  if (relative.empty() || relative == "." || relative == ".." || relative.starts_with("../")) return std::nullopt;
  return relative;
}

bool is_project(const SubmitView& view, const std::string& folder) {
  return std::any_of(std::begin(kProjectMarks), std::end(kProjectMarks), [&](std::string_view mark) {
    return view.kind_of(folder + "/" + std::string(mark)) != PathKind::kMissing;
  });
}

// Nobody means to send all of these.
bool is_too_wide(const SubmitView& view, const std::string& folder) {
  const auto home = view.env.find("HOME");
  return folder == "/" || folder == "/tmp" || folder == "/root" || folder == "/home" ||
         (home != view.env.end() && absolute(view, home->second) == folder);
}

// A job's name out of a path or module: what does not fit becomes '-'.
std::string name_from(const std::string& program) {
  std::string stem = fs::path(program).filename().string();
  if (const auto script = strip_suffix(stem, ".py")) stem = std::string(*script);
  std::string out;
  for (const char c : to_lower(stem)) {
    const bool plain = ('a' <= c && c <= 'z') || ('0' <= c && c <= '9');
    if (plain || (!out.empty() && (c == '.' || c == '_' || c == '-'))) {
      out += c;
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  out.resize(std::min<size_t>(out.size(), 63));
  return valid_job_name(out) ? out : "job";
}

double number_value(const Given& given) {
  const std::string& text = given.values.back();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0)) {
    throw bad_value(given, "expected a number, zero or more");
  }
  return value;
}

class SubmitReader {
 public:
  SubmitReader(const ParsedCommand& parsed, const SubmitView& view) : parsed_(parsed), view_(view) {}

  SubmitPlan read() {
    take_defaults();
    read_program();
    read_size();
    read_env();
    read_rest();
    // The same rules as at the head, before anything is packed.
    out_.spec = job_spec_from_json(to_json(out_.spec));
    return std::move(out_);
  }

 private:
  JobSpec& spec() { return out_.spec; }

  // What the cluster's file says of all jobs; every flag goes before it.
  void take_defaults() {
    const JobDefaults& given = view_.defaults;
    if (given.workers) set_workers(*given.workers);
    spec().env = given.env;
    spec().python = given.python;
    spec().priority = static_cast<int>(given.priority.value_or(spec().priority));
    spec().max_restarts = static_cast<int>(given.max_restarts.value_or(spec().max_restarts));
    spec().timeout = given.timeout.value_or(spec().timeout);
    spec().grace = given.grace.value_or(spec().grace);
  }

  void read_program() {
    words_ = parsed_.positionals;
    if (const Given* given = parsed_.find("working-dir")) {
      working_ = absolute(view_, given->values.back());
      if (view_.kind_of(*working_) != PathKind::kFolder) throw bad_value(*given, "there is no such folder");
    }
    const Given* module = parsed_.find("module");
    const bool binary = parsed_.has("no-python");
    if (module != nullptr && (binary || parsed_.has("file"))) {
      throw Error(ErrorCode::kUsage, "--module excludes --no-python and --file", "", "drop one of them");
    }
    if (module != nullptr) {
      spec().kind = ProgramKind::kModule;
      spec().program = module->values.back();
      take_folder(working_.value_or(view_.folder), "");
    } else {
      spec().kind = binary ? ProgramKind::kBinary : ProgramKind::kScript;
      read_words();
    }
    spec().args = words_;
    spec().name = parsed_.value("name", name_from(spec().program));
  }

  // SCRIPT, DIR SCRIPT or PACKAGE SCRIPT; the rest are arguments.
  void read_words() {
    std::string first;
    if (const Given* file = parsed_.find("file")) {
      first = file->values.back();
    } else {
      first = take_word("no program was given", "write rubato submit [flags] train.py [args]");
      if (!working_ && view_.kind_of(absolute(view_, first)) == PathKind::kFolder) {
        working_ = absolute(view_, first);
        first =
            take_word(fmt::format("which script in {}?", first), fmt::format("write rubato submit {} train.py", first));
        drop_separator();
      } else if (is_archive(first)) {
        return read_archive(first);
      }
    }
    spec().kind == ProgramKind::kBinary ? find_binary(first) : find_script(first);
  }

  std::string take_word(const std::string& missing, const std::string& hint) {
    if (words_.empty() || words_.front().empty()) {
      throw Error(ErrorCode::kUsage, missing, "", hint + "; see 'rubato submit --help'");
    }
    std::string word = words_.front();
    words_.erase(words_.begin());
    return word;
  }

  // The one after the program belongs to us, as in `rubato run`.
  void drop_separator() {
    if (!words_.empty() && words_.front() == "--") words_.erase(words_.begin());
  }

  bool is_archive(const std::string& word) const {
    const bool named = std::any_of(std::begin(kArchiveEnds), std::end(kArchiveEnds),
                                   [&](std::string_view end) { return word.ends_with(end); });
    return named && view_.kind_of(absolute(view_, word)) == PathKind::kFile;
  }

  void read_archive(const std::string& archive) {
    if (working_) {
      throw Error(ErrorCode::kUsage, fmt::format("{} is a package, and --working-dir a folder", archive), "",
                  "give one of the two");
    }
    out_.source = {SubmitSource::Kind::kArchive, absolute(view_, archive), ""};
    spec().program =
        take_word(fmt::format("which script in {}?", archive), fmt::format("write rubato submit {} train.py", archive));
    drop_separator();
    if (spec().kind == ProgramKind::kBinary && spec().program.find('/') == std::string::npos) {
      spec().program = "./" + spec().program;
    }
  }

  // Relative to the working folder first: AdaptDL's -f is meant so.
  std::string find_below_working(const std::string& word) {
    const std::string inside = (fs::path(*working_) / word).lexically_normal().string();
    const std::string typed = absolute(view_, word);
    for (const std::string& candidate : {inside, typed}) {
      const auto relative = below(*working_, candidate);
      if (relative && view_.kind_of(candidate) == PathKind::kFile) return *relative;
    }
    if (view_.kind_of(typed) == PathKind::kFile) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("there is no '{}' in {}; the one here is not in that folder", word, *working_), "",
                  "give the folder that holds it");
    }
    throw Error(ErrorCode::kUsage, fmt::format("there is no '{}' in {}", word, *working_));
  }

  void find_script(const std::string& word) {
    if (working_) {
      spec().program = find_below_working(word);
      return take_folder(*working_, spec().program);
    }
    const std::string path = absolute(view_, word);
    if (view_.kind_of(path) != PathKind::kFile) {
      throw Error(ErrorCode::kUsage, fmt::format("there is no script '{}'", word), "",
                  "give the path of a Python script, a folder, or a .tar.gz");
    }
    // Typed inside a project: its other files, configurations and all, are where the program expects them.
    const auto here = below(view_.folder, path);
    const bool whole = here && is_project(view_, view_.folder) && !is_too_wide(view_, view_.folder);
    const std::string folder = whole ? view_.folder : fs::path(path).parent_path().string();
    spec().program = *below(folder, path);
    take_folder(folder, spec().program);
  }

  void find_binary(const std::string& word) {
    if (word.find('/') == std::string::npos || word.starts_with('/')) {
      spec().program = word;  // of the node
      if (working_) take_folder(*working_, "");
      return;
    }
    find_script(word);
    spec().program = "./" + spec().program;  // not one that PATH has
  }

  void take_folder(const std::string& folder, const std::string& alone) {
    using Kind = SubmitSource::Kind;
    if (parsed_.has("working-dir") || working_) {
      out_.source = {Kind::kFolder, folder, alone};
    } else if (is_too_wide(view_, folder)) {
      out_.source = alone.empty() ? SubmitSource{} : SubmitSource{Kind::kPerhaps, folder, alone};
    } else {
      out_.source = {is_project(view_, folder) ? Kind::kFolder : Kind::kPerhaps, folder, alone};
    }
  }

  void read_size() {
    const Given* workers = parsed_.find("workers");
    const Given* most = parsed_.find("max-cluster-size");
    if (workers != nullptr && most != nullptr) {
      throw Error(ErrorCode::kUsage, "--workers and --max-cluster-size exclude each other", "", "write --workers 1:N");
    }
    if (most != nullptr) {
      spec().workers_max = int_value(*most, 1, kWorkersMax);
      spec().workers_step = 1;
      spec().workers_min = std::min(spec().workers_min, spec().workers_max);
    }
    if (workers != nullptr) read_workers(*workers);

    nlohmann::json each = {{"CPU", 1.0}};
    each.update(to_json(view_.defaults.resources.amounts));
    if (const Given* given = parsed_.find("cpus")) each["CPU"] = number_value(*given);
    if (const Given* given = parsed_.find("gpus")) each["GPU"] = number_value(*given);
    if (const Given* given = parsed_.find("memory")) each["memory"] = bytes_value(*given);
    if (const Given* given = parsed_.find("resource")) {
      for (const std::string& text : given->values) {
        const Given one{.values = {text}, .origin = given->origin};
        const auto parts = split_once(text, '=');
        if (!parts) throw bad_value(one, "expected NAME=N");
        each[std::string(parts->first)] =
            number_value(Given{.values = {std::string(parts->second)}, .origin = given->origin});
      }
    }
    spec().per_worker = resources_from_json(each);
  }

  static int64_t bytes_value(const Given& given) {
    try {
      return parse_bytes(given.values.back());
    } catch (const Error& error) {
      throw bad_value(given, error.message, error.hint);
    }
  }

  void read_workers(const Given& given) {
    try {
      set_workers(parse_worker_sizes(given.values.back()));
    } catch (const Error& error) {
      throw bad_value(given, error.message, error.hint);
    }
  }

  void set_workers(const WorkerSizes& sizes) {
    spec().workers_min = sizes.min;
    spec().workers_max = sizes.max;
    spec().workers_step = sizes.step;
  }

  void read_env() {
    if (const Given* given = parsed_.find("env-file")) {
      for (const std::string& file : given->values) read_env_file(file);
    }
    if (const Given* given = parsed_.find("env")) {
      for (const std::string& text : given->values) set_variable(text, given->origin);
    }
    const Given* adaptdl = parsed_.find("adaptdl");
    if (adaptdl && wants_our_adaptdl(*adaptdl)) spec().env[std::string(agent::kAdaptdlVariable)] = agent::kOurAdaptdl;
  }

  // NAME=VALUE, or NAME to copy it.
  void set_variable(std::string_view text, const std::string& origin) {
    const auto parts = split_once(text, '=');
    const std::string name(parts ? parts->first : text);
    // Only the name: the value may be a secret.
    if (!valid_env_name(name)) {
      throw Error(ErrorCode::kUsage, fmt::format("{} '{}': not a name for a variable", origin, name), "",
                  "write NAME=VALUE, or NAME to copy it from here");
    }
    if (parts) {
      spec().env[name] = std::string(parts->second);
      return;
    }
    const auto found = view_.env.find(name);
    if (found == view_.env.end()) {
      throw Error(ErrorCode::kUsage, fmt::format("{} {}: there is no such variable here to copy", origin, name), "",
                  fmt::format("write {} {}=VALUE, or export it first", origin, name));
    }
    spec().env[name] = found->second;
  }

  void read_env_file(const std::string& file) {
    const std::optional<std::string> text = view_.read(absolute(view_, file));
    if (!text)
      throw Error(ErrorCode::kUsage, fmt::format("--env-file {}: cannot be read", file), "",
                  "give the path of a file with NAME=VALUE lines");
    size_t number = 0;
    for (const std::string_view raw : split(*text, '\n')) {
      ++number;
      std::string_view line = trim(raw);
      if (line.empty() || line.starts_with('#')) continue;
      if (const auto rest = strip_prefix(line, "export ")) line = trim(*rest);
      std::string entry(line);
      const size_t equals = entry.find('=');
      const std::string_view value = equals == std::string::npos ? "" : std::string_view(entry).substr(equals + 1);
      if (value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0]) {
        entry = entry.substr(0, equals + 1) + std::string(value.substr(1, value.size() - 2));
      }
      set_variable(entry, fmt::format("{}:{}:", file, number));
    }
  }

  void read_rest() {
    spec().python = parsed_.value("python", spec().python);
    if (const Given* given = parsed_.find("prewarm")) spec().prewarm = list_value(*given);
    if (const Given* given = parsed_.find("priority")) spec().priority = int_value(*given, -1000, 1000);
    if (const Given* given = parsed_.find("weight")) spec().weight = number_value(*given);
    if (const Given* given = parsed_.find("max-restarts")) spec().max_restarts = int_value(*given, 0, 1'000'000);
    const auto duration = [&](const char* flag, Duration& out) {
      if (const Given* given = parsed_.find(flag)) out = duration_value(*given, 0s);
    };
    duration("timeout", spec().timeout);
    duration("deadline", spec().deadline);
    duration("grace", spec().grace);
    duration("checkpoint-timeout", spec().checkpoint_timeout);
    duration("cluster-rescale-timeout", spec().rescale_timeout);
    if (const Given* given = parsed_.find("lease")) spec().lease = duration_value(*given, kLeaseMin);
    for (const char* name : {"USER", "LOGNAME"}) {
      const auto found = view_.env.find(name);
      if (spec().owner.empty() && found != view_.env.end()) spec().owner = found->second;
    }
    if (spec().owner.empty()) spec().owner = view_.user;  // a cron job, a container: no variable tells
    if (parsed_.has("uri")) out_.notes.push_back("--uri is not needed: the cluster is found by --cluster");
  }

  const ParsedCommand& parsed_;
  const SubmitView& view_;
  std::vector<std::string> words_;
  std::optional<std::string> working_;
  SubmitPlan out_;
};

}  // namespace

SubmitPlan plan_submit(const ParsedCommand& parsed, const SubmitView& view) {
  return SubmitReader(parsed, view).read();
}

}  // namespace rubato::cli
