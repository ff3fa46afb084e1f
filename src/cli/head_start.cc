#include "cli/head_start.h"

#include <fmt/format.h>

#include "cli/layout.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

constexpr Duration kHeadLook = 50ms;
constexpr size_t kLogLinesShown = 8;

// The end of the log of a head that is not well.
std::string log_tail(ClusterTools& tools, const ClusterPlace& place) {
  const std::string text = tools.files().read(place.head_folder() + "/daemon.log").value_or("");
  const std::string trimmed(trim(text));
  const auto lines = split(trimmed, '\n');
  std::string out;
  for (size_t i = lines.size() - std::min(lines.size(), kLogLinesShown); i < lines.size(); ++i) {
    if (!lines[i].empty()) out += "\n    " + clean(lines[i]);
  }
  return out.empty() ? "" : "; the end of its log:" + out;
}

void await_head(ClusterTools& tools, const ClusterPlace& place, Api& api, Duration timeout) {
  for (Duration waited = 0s; waited < timeout; waited += kHeadLook) {
    try {
      ApiRequest request;
      request.target = "//healthz";
      request.limit = 2s;
      api.call(request);
      return;
    } catch (const Error& error) {
      if (error.code != ErrorCode::kUnavailable && error.code != ErrorCode::kNotFound) throw;
    }
    if (!tools.daemons().running(place.head_folder())) {
      if (const auto end = read_head_end(tools.files(), place.folder)) {
        throw Error(ErrorCode::kFailed, fmt::format("the head of '{}' cannot start: {}", place.name, end->message),
                    place.head_folder() + "/daemon.log", end->hint);
      }
      throw Error(ErrorCode::kFailed,
                  fmt::format("the head of '{}' ended as it started{}", place.name, log_tail(tools, place)),
                  place.head_folder() + "/daemon.log");
    }
    if (!api.pause(kHeadLook)) throw Error(ErrorCode::kFailed, "interrupted while the head starts");
  }
  throw Error(ErrorCode::kUnavailable,
              fmt::format("the head of '{}' does not answer{}", place.name, log_tail(tools, place)),
              place.head_folder() + "/daemon.log");
}

}  // namespace

void start_head_process(ClusterTools& tools, const Shell& shell, const ClusterPlace& place, Api& api,
                        const HeadSettings& settings, Duration timeout, bool accept_loss) {
  tools.make_identity(place, settings.listen);
  tools.files().make_folders(place.head_folder());
  // A dead head's address would be asked until the new one has written its own.
  const std::optional<std::string> before = tools.files().read(place.head_file());
  tools.files().remove_tree(place.head_file());
  tools.files().remove_tree(head_end_file(place.folder));
  tools.files().write_atomically(head_settings_file(place.folder), settings_text(settings));
  shell.err(fmt::format("starting the head of '{}'\n", place.name));
  DaemonSpec spec;
  spec.folder = place.head_folder();
  spec.argv = {tools.program(), "head", "--dir", place.folder};
  if (accept_loss) spec.argv.push_back("--accept-journal-loss");
  for (const auto& [name, value] : shell.env) spec.env.push_back(name + "=" + value);
  tools.daemons().start(spec);
  try {
    await_head(tools, place, api, timeout);
  } catch (const Error&) {
    // The cluster is still one that should be up: whoever asks for it is told why it is not.
    if (before && !tools.files().exists(place.head_file())) tools.files().write_atomically(place.head_file(), *before);
    throw;
  }
}

}  // namespace rubato::cli
