// ClusterTools: what `up` and `down` do to this machine, apart from calling the head.
#pragma once

#include <memory>
#include <string>

#include "client/cluster_home.h"
#include "world/daemons.h"
#include "world/world.h"

namespace rubato::cli {

// Held until it is destroyed, or until its process ends.
class FolderHold {
 public:
  virtual ~FolderHold() = default;
};

class ClusterTools {
 public:
  virtual ~ClusterTools() = default;
  virtual Files& files() = 0;
  virtual Daemons& daemons() = 0;
  virtual MachineFacts machine() = 0;
  virtual std::string program() = 0;  // the path of this binary

  // The folder (0700), the CA, the head's certificate and the token; what is there stays. `listen`: an address that the
  // certificate must name besides loopback, or empty.
  virtual void make_identity(const ClusterPlace& place, const std::string& listen) = 0;

  // Null while another process holds it. Makes the folder.
  virtual std::unique_ptr<FolderHold> try_hold(const ClusterPlace& place) = 0;

  // A script for the programs of this machine (systemctl), with this as its input; its output is not shown. True: it
  // ended with 0.
  virtual bool run_script(const std::string& script, const std::string& input) = 0;
};

std::unique_ptr<ClusterTools> real_cluster_tools(const Environment& env);

}  // namespace rubato::cli
