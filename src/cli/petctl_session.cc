#include "cli/petctl_session.h"

#include <fmt/format.h>

#include <charconv>

#include "core/text.h"

namespace rubato::cli {

PetctlSession::PetctlSession(const ParsedCommand& parsed, const Shell& shell) : parsed_(parsed), shell_(shell) {}

std::string PetctlSession::job_name(std::string_view usage) const {
  std::string name = parsed_.value("name");
  if (name.empty()) name = require_word(parsed_, 0, "NAME", usage);
  if (!petctl::is_job_name(name)) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' cannot be the name of a job", clean(name)), "",
                std::string(petctl::kJobNameRule));
  }
  return name;
}

Task<void> PetctlSession::open() { client_ = co_await aws::open_client(command_.world, aws_settings(parsed_, shell_)); }

petctl::Specs PetctlSession::read_specs() const {
  const std::string path = parsed_.value("specs-file");
  const std::optional<std::string> text = os::RealFiles().read(path);
  if (!text) {
    throw Error(ErrorCode::kUsage, fmt::format("the specs file '{}' cannot be read", path), "",
                "docs/petctl.md shows one");
  }
  return petctl::parse_specs(*text, path);
}

std::string PetctlSession::note_path(const std::string& job) const {
  const auto state = shell_.env.find("XDG_STATE_HOME");
  const std::string base = state != shell_.env.end() && state->second.starts_with('/')
                               ? state->second
                               : aws::home_of(shell_.env) + "/.local/state";
  return fmt::format("{}/rubato/aws-jobs/{}/{}", base, client_->region(), job);
}

std::string PetctlSession::known_place(const std::string& job) {
  if (parsed_.has("specs-file")) {
    const petctl::Specs specs = read_specs();
    const std::string& prefix = specs.worker.s3_prefix;
    return fmt::format("s3://{}/{}{}{}", specs.worker.s3_bucket, prefix, prefix.empty() ? "" : "/", job);
  }
  const std::string noted = command_.world.files.read(note_path(job)).value_or("");
  return std::string(trim(noted));
}

void PetctlSession::remember_place(const std::string& job, const std::string& place) {
  const std::string path = note_path(job);
  command_.world.files.make_folders(path.substr(0, path.rfind('/')));
  command_.world.files.write_atomically(path, place + "\n");
}

petctl::OnProgress PetctlSession::progress_printer() const {
  const Shell& shell = shell_;
  return [&shell](const std::string& text) { shell.err(text + "\n"); };
}

Task<petctl::JobView> PetctlSession::view_of(std::string job) {
  petctl::JobQuery query;
  query.name = job;
  query.place = known_place(job);
  query.known = &known_reports_[job];
  co_return co_await petctl::read_job(*client_, std::move(query));
}

int whole_number(const Given& given, int least) {
  const std::string& text = given.values.back();
  int out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || out < least) {
    throw bad_value(given, fmt::format("not a whole number from {} on", least), "");
  }
  return out;
}

}  // namespace rubato::cli
