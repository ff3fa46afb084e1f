#include "agent/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace rubato::agent {

namespace {

// Each line behind a bar, so that it stands out from the rest of the log.
std::string indented(const std::string& text) {
  std::string out;
  size_t start = 0;
  while (start < text.size()) {
    size_t end = text.find('\n', start);
    if (end == std::string::npos) end = text.size();
    out += "    | " + text.substr(start, end - start) + "\n";
    start = end + 1;
  }
  return out;
}

constexpr size_t kOthersShown = 8;

}  // namespace

std::string failure_report(const elastic::View& ended, const std::string& logs) {
  std::string out = fmt::format("rubato: the job failed: {}\n", ended.reason);
  const elastic::Failure* root = elastic::root_cause(ended.failures);
  if (root) {
    out += fmt::format("  root cause   {}\n", describe(*root));
    if (!root->message.empty()) out += fmt::format("  error        {}\n", root->message);
    if (!root->traceback.empty()) out += indented(root->traceback);
    if (root->message.empty()) {
      out +=
          "  error        none recorded; decorate your main with "
          "torch.distributed.elastic.multiprocessing.errors.record\n"
          "               to see the exception here\n";
    }
    if (!root->error_file.empty()) out += fmt::format("  error file   {}:{}\n", root->host, root->error_file);
    size_t shown = 0;
    std::vector<elastic::Failure> others = ended.failures;
    std::ranges::sort(others, {}, &elastic::Failure::at);
    for (const elastic::Failure& other : others) {
      if (other.rank == root->rank && other.pid == root->pid) continue;
      if (++shown > kOthersShown) continue;
      out += fmt::format("  also         {} ({} later)\n", describe(other), format_duration(other.at - root->at));
    }
    if (shown > kOthersShown) out += fmt::format("  also         {} more\n", shown - kOthersShown);
  }
  if (!root) return out;  // nothing ran badly: there is nothing to look up
  const elastic::Legacy& legacy = ended.legacy;
  out += fmt::format("  restarts     {} of {} used\n", legacy.restarts_used, legacy.terms.max_restarts);
  for (const std::string& cause : legacy.causes) out += fmt::format("    spent on   {}\n", cause);
  if (!logs.empty()) out += fmt::format("  logs         {}\n", logs);
  return out;
}

}  // namespace rubato::agent
