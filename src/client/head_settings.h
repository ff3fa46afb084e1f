// HeadSettings: what a cluster's head is started with, in the cluster's folder.
#pragma once

#include <string>

namespace rubato::cli {

// What `up` asked of the head, kept in DIR/head/settings.json so that a restart is the same.
struct HeadSettings {
  std::string store;      // "etcd://HOST:PORT,..."; empty: SQLite in the folder
  std::string listen;     // the address of the API; empty: loopback
  bool isolated = false;  // nodes have network namespaces of their own
  std::string provider;   // the type of who makes machines; empty: nodes are processes of this machine
  std::string address;    // of this machine, as other nodes reach it; empty: there are none
};
HeadSettings read_head_settings(const std::string& dir);  // defaults when there are none
std::string head_settings_file(const std::string& dir);
std::string settings_text(const HeadSettings& settings);

}  // namespace rubato::cli
