#include "client/remote_past.h"

#include <fmt/format.h>

#include "client/past_api.h"
#include "client/remote.h"
#include "client/remote_place.h"
#include "client/temporary_folder.h"

namespace rubato::cli {
namespace {

// Files of the cluster's folder there, in a folder here that goes with it.
class BroughtFiles {
 public:
  BroughtFiles(std::unique_ptr<Remote> remote, provider::SshTarget way, std::string from)
      : remote_(std::move(remote)), way_(std::move(way)), from_(std::move(from)), here_(files_, "rubato-past-") {}

  const std::string& folder() const { return here_.path(); }

  void bring(const std::string& path) {
    const std::string there = from_ + "/" + path;
    if (!connected_) remote_->connect(way_);
    connected_ = true;
    provider::Command ask;
    ask.script = "test -e " + provider::quote_path(there);
    ask.what = "looking for " + there;
    const provider::CommandResult found = remote_->run(way_, std::move(ask));
    if (found.ok()) remote_->download(way_, there, here_.path() + "/" + path, {});
  }

 private:
  os::RealFiles files_;
  const std::unique_ptr<Remote> remote_;
  const provider::SshTarget way_;
  const std::string from_;
  const TemporaryFolder here_;
  bool connected_ = false;
};

}  // namespace

std::optional<RemotePast> open_remote_past(const ClusterPlace& place, const Shell& shell) {
  os::RealFiles files;
  if (!shell.remote || read_remote(files, place)) return std::nullopt;
  const std::optional<RemoteHead> head = read_machines(files, place).head;
  // What a provider has made goes with `down`.
  if (!head || head->folder.empty() || head->power_off || !head->instance.empty()) return std::nullopt;
  const auto brought = std::make_shared<BroughtFiles>(shell.remote(), target_of(files, place, *head), head->folder);
  RemotePast past;
  past.host = head->host.host;
  past.api =
      open_past_api({place.name, brought->folder()}, [brought](const std::string& path) { brought->bring(path); });
  return past;
}

}  // namespace rubato::cli
