#include "agent/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "world/processes.h"

namespace rubato::agent {

namespace {

constexpr size_t kOthersShown = 8;
constexpr size_t kWidthMax = 60;  // torchrun's

// "2026-11-15_12:00:30Z": torchrun's form, with the zone that it leaves out.
std::string time_of(const elastic::Failure& failure, const ReportContext& context) {
  const Duration ago = context.now - failure.at;
  std::string text = format_time(context.wall - std::chrono::duration_cast<WallTime::duration>(ago));
  const size_t fraction = text.find('.');
  if (fraction != std::string::npos) text = text.substr(0, fraction) + "Z";
  std::ranges::replace(text, 'T', '_');
  return text;
}

std::string why(const elastic::Failure& failure) {
  const std::string& text = failure.traceback.empty() ? failure.message : failure.traceback;
  if (!text.empty()) {
    std::string out;
    for (const char c : trim(text)) out += c == '\n' ? "\n  " : std::string(1, c);
    return out;
  }
  if (failure.signal != 0) {
    return fmt::format("Signal {} ({}) received by PID {}", failure.signal, signal_name(failure.signal), failure.pid);
  }
  return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
}

std::string entry(size_t index, const elastic::Failure& failure, const ReportContext& context) {
  return fmt::format(
      "[{}]:\n"
      "  time      : {}\n"
      "  host      : {}\n"
      "  rank      : {} (local_rank: {})\n"
      "  exitcode  : {} (pid: {})\n"
      "  error_file: {}\n"
      "  traceback : {}\n",
      index, time_of(failure, context), failure.host, failure.rank, failure.local_rank,
      failure.signal != 0 ? -failure.signal : failure.exit_code, failure.pid,
      failure.error_file.empty() ? "<N/A>" : failure.error_file, why(failure));
}

size_t width_of(const std::string& text) {
  size_t width = 0;
  for (const std::string_view line : split(text, '\n')) width = std::max(width, line.size());
  return width;
}

// torchrun's ChildFailedError, line by line: its users' tools look for these words.
std::string summary(const elastic::View& ended, const elastic::Failure& root, const ReportContext& context) {
  std::vector<elastic::Failure> others;
  for (const elastic::Failure& other : ended.failures) {
    if (&other != &root) others.push_back(other);
  }
  std::ranges::sort(others, {}, &elastic::Failure::at);
  std::string rest;
  for (size_t i = 0; i < std::min(others.size(), kOthersShown); ++i) rest += entry(i + 1, others[i], context);
  if (others.size() > kOthersShown) rest += fmt::format("  and {} more\n", others.size() - kOthersShown);
  if (others.empty()) rest = "  <NO_OTHER_FAILURES>\n";
  const std::string first = entry(0, root, context);
  const std::string title = context.program + " FAILED";
  const size_t width = std::min(std::max({title.size(), width_of(rest), width_of(first)}), kWidthMax);
  const std::string border(width, '='), section(width, '-');
  return fmt::format(
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
      "{0}\n{2}\n{1}\nFailures:\n{3}{1}\nRoot Cause (first observed failure):\n{4}{0}\n",
      border, section, title, rest, first);
}

}  // namespace

std::string failure_report(const elastic::View& ended, const ReportContext& context) {
  std::string out = fmt::format("rubato: the job failed: {}\n", ended.reason);
  const elastic::Failure* root = elastic::root_cause(ended.failures);
  if (!root) return out;  // nothing ran badly: there is nothing to look up
  out += summary(ended, *root, context);
  const elastic::Legacy& legacy = ended.legacy;
  out += fmt::format("  restarts     {} of {} used\n", legacy.restarts_used, legacy.terms.max_restarts);
  for (const std::string& cause : legacy.causes) out += fmt::format("    spent on   {}\n", cause);
  if (!context.logs.empty()) out += fmt::format("  logs         {}\n", context.logs);
  return out;
}

}  // namespace rubato::agent
